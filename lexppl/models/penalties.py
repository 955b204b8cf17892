"""Penalties `R(z)` on masks, in nats; several add up."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from pyro.distributions import Dirichlet, TorchDistribution
from torch import Tensor, nn
from torch.distributions import kl_divergence

from lexppl.argument_checks import finite_float, fraction
from lexppl.configured import Configured
from lexppl.distributions import MaxConcrete, TopEntries
from lexppl.distributions.computed_once import MadeOnce
from lexppl.models.possible_entries import can_be_kept


class Penalty(Configured, nn.Module, ABC):
    """A weight times a cost of the mask.

    Args:
        weight: λ ≥ 0, in nats a unit of the cost.

    Raises:
        ValueError: a weight that is negative or not finite.
    """

    reads_rows: ClassVar[bool] = False
    """Whether the cost is called with the rows too, as `cost(distribution, mask, x)`."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = finite_float("a penalty's weight", weight, least=0.0)

    @abstractmethod
    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        """The penalty by row, `(B,)` if it is a function of the distribution, `(L, B)` if of the
        draws."""


class SizePenalty(Penalty):
    """`λ · E‖z‖₀`: λ nats for each entry kept, by the distribution's own mean, not by a draw.

    A distribution that states no mean (a relaxed one) is penalised by its draws, `λ Σ_g z_g`.

    Example:
        >>> import pyro.distributions as dist
        >>> distribution = dist.Bernoulli(torch.full((1, 4), 0.5)).to_event(1)
        >>> SizePenalty(0.1)(distribution, distribution.sample())
        tensor([0.2000])
    """

    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        try:
            kept = distribution.mean
        except NotImplementedError:
            kept = mask
        return self.weight * kept.sum(-1)


class CostPenalty(Penalty):
    r"""`λ · Σ_g c_g E[z_g]`: each entry at a cost of its own, as what a measurement costs.

    Less the entropy of the masks it is their divergence from independent entries of prior log-odds
    `−λ c_g`, `KL = λ Σ_g c_g E[z_g] − H(z) + Σ_g log(1 + e^{−λ c_g})`. A distribution that states
    no mean is charged by its draws.

    Args:
        costs: c, G numbers of at least 0, one for each entry.
        weight: λ, nats a unit of cost.

    Raises:
        ValueError: no costs, one that is negative or not finite; when first used, other than G.

    Example:
        >>> import pyro.distributions as dist
        >>> distribution = dist.Bernoulli(torch.full((1, 2), 0.5)).to_event(1)
        >>> CostPenalty([1.0, 10.0], 0.1)(distribution, distribution.sample())
        tensor([0.5500])
    """

    def __init__(self, costs: Sequence[float], weight: float = 1.0) -> None:
        super().__init__(weight)
        self.costs = tuple(finite_float("a cost", cost, least=0.0) for cost in costs)
        if not self.costs:
            raise ValueError("costs are one number for each mask entry; none is given")
        self._kept = MadeOnce()

    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        try:
            kept = distribution.mean
        except NotImplementedError:
            kept = mask
        if kept.shape[-1] != len(self.costs):
            raise ValueError(
                f"there are {len(self.costs)} costs, and masks have {kept.shape[-1]} entries"
            )
        return self.weight * (kept * self._kept.like(kept, self.costs, torch.tensor)).sum(-1)


class RatePenalty(Penalty):
    """`λ · |‖z‖₁/G − rate|`: λ nats for each unit of distance from a rate of entries kept.

    Args:
        weight: λ.
        rate: the share of entries to keep, in [0, 1].

    Raises:
        ValueError: a rate outside [0, 1].

    Example:
        >>> RatePenalty(1.0, rate=0.5)(None, torch.tensor([[[1.0, 1.0, 1.0, 0.0]]]))
        tensor([[0.2500]])
    """

    def __init__(self, weight: float, rate: float) -> None:
        super().__init__(weight)
        self.rate = fraction("rate", rate, of="the entries", zero=True, one=True)

    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        return self.weight * (mask.mean(-1) - self.rate).abs()


class TotalVariationPenalty(Penalty):
    """`λ · Σ_g |z_g − z_{g−1}|` along the order of the entries (Lei et al. 2016, eq. 5).

    Example:
        >>> TotalVariationPenalty(1.0)(None, torch.tensor([[[1.0, 1.0, 0.0, 1.0]]]))
        tensor([[2.]])
    """

    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        return self.weight * torch.diff(mask, dim=-1).abs().sum(-1)


class GiniPenalty(Penalty):
    """`λ · mean_g (1 − z_g² − (1 − z_g)²)`: the Gini impurity of soft entries, 0 at 0 and 1, ½ in
    the middle (Uçar & Hajiramezanali 2022, eq. 5).

    Example:
        >>> GiniPenalty(1.0)(None, torch.tensor([[[0.5, 0.5]], [[0.0, 1.0]]]))
        tensor([[0.5000],
                [0.0000]])
    """

    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        return self.weight * (1.0 - mask.square() - (1.0 - mask).square()).mean(-1)


class KLPenalty(Penalty):
    r"""`λ · KL(q(z | x) ‖ r(z))`, in nats a row, in closed form.

    - `MaxConcrete`: each of its k draws picks a feature by `p = softmax(logits)`, and r is uniform
      over the G features (of a text over its words): `log G − H(p)` (VIBI, Bang et al. 2019,
      eq. 7). `TopEntries`, its distribution after training, is charged the same.
    - `Dirichlet(α)`: r is `Dirichlet(α₀, …, α₀)` (Q-FIT, Adamczewski et al., eq. 4).

    Args:
        weight: λ; β in VIBI, 1 in Q-FIT.
        concentration: α₀ > 0 of the Dirichlet prior; not read by the other distributions.

    Raises:
        ValueError: a weight below 0, a concentration that is not positive.
        TypeError: a distribution without a closed form here.

    Example:
        >>> import torch
        >>> distribution = MaxConcrete(0.5, torch.zeros(1, 4), k=2)
        >>> KLPenalty(1.0)(distribution, distribution.rsample())
        tensor([0.])
    """

    def __init__(self, weight: float = 1.0, concentration: float = 1.0) -> None:
        super().__init__(weight)
        self.concentration = finite_float("concentration", concentration, above=0.0)

    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        if isinstance(distribution, Dirichlet):
            prior = Dirichlet(
                distribution.concentration.new_full(distribution.event_shape, self.concentration)
            )
            return self.weight * kl_divergence(distribution, prior.expand(distribution.batch_shape))
        if isinstance(distribution, MaxConcrete | TopEntries):
            log_p = distribution.logits.log_softmax(-1)
            count = can_be_kept(distribution.logits).sum(-1).clamp(min=1).to(log_p.dtype)
            return self.weight * ((log_p.exp() * log_p).sum(-1) + count.log())
        raise TypeError(
            "KLPenalty knows MaxConcrete, TopEntries and Dirichlet distributions; it was given "
            f"{type(distribution).__name__}"
        )
