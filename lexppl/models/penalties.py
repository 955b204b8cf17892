"""Penalties `R(z)` on masks, in nats; several add up."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from pyro.distributions import Dirichlet, TorchDistribution
from torch import Tensor, nn
from torch.distributions import Bernoulli, Independent, kl_divergence

from lexppl.argument_checks import finite_float, int_at_least, shaped
from lexppl.configured import Configured
from lexppl.distributions import ChainMask, MaxConcrete
from lexppl.distributions.computed_once import MadeOnce
from lexppl.distributions.top_k import TopEntries
from lexppl.models.missing import can_be_kept


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


def _kept(distribution: TorchDistribution, mask: Tensor) -> Tensor:
    """The mean mask, or the draws of a distribution that states no mean."""
    try:
        mean: Tensor = distribution.mean
    except NotImplementedError:
        return mask
    return mean


class SizePenalty(Penalty):
    """`λ · E‖z‖₀`: λ nats for each entry kept, by the distribution's own mean, not by a draw; a
    distribution that states no mean (a relaxed one) is penalised by its draws, `λ Σ_g z_g`.

    Example:
        >>> SizePenalty(0.1)(Bernoulli(torch.full((1, 4), 0.5)), torch.ones(1, 4))
        tensor([0.2000])
    """

    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        return self.weight * _kept(distribution, mask).sum(-1)


class CostPenalty(Penalty):
    """`λ · Σ_g c_g E[z_g]`: each entry at a cost of its own, as what a measurement costs.

    Less the entropy of the masks it is their divergence from independent entries of prior log-odds
    `−λ c_g`, `KL = λ Σ_g c_g E[z_g] − H(z) + Σ_g log(1 + e^{−λ c_g})`. A distribution that states
    no mean is charged by its draws.

    Args:
        costs: c, G numbers of at least 0, one for each entry.
        weight: λ, nats a unit of cost.

    Raises:
        ValueError: no costs, one that is negative or not finite; when first used, other than G.

    Example:
        >>> mask = torch.ones(1, 2)
        >>> CostPenalty([1.0, 10.0], 0.1)(Bernoulli(mask / 2), mask)
        tensor([0.5500])
    """

    def __init__(self, costs: Sequence[float], weight: float = 1.0) -> None:
        super().__init__(weight)
        self.costs = tuple(finite_float("a cost", cost, least=0.0) for cost in costs)
        if not self.costs:
            raise ValueError("costs are one number for each mask entry; none is given")
        self._kept = MadeOnce()

    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        entries = _kept(distribution, mask)
        if entries.shape[-1] != len(self.costs):  # At each step of a fit
            shaped("masks", entries, ("…", len(self.costs)), note="an entry for each of costs")
        return self.weight * (entries * self._kept.like(entries, self.costs, torch.tensor)).sum(-1)


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
    """`λ · KL(q(z | x) ‖ r(z))`, in nats a row, in closed form.

    - `MaxConcrete`: each of its k draws picks a feature by `p = softmax(logits)`, and r is uniform
      over the G features (of a text over its words): `log G − H(p)` (VIBI, Bang et al. 2019,
      eq. 7); `TopEntries`, its distribution after training, alike.
    - `Dirichlet(α)`: r is `Dirichlet(α₀, …, α₀)` (Q-FIT, Adamczewski et al., eq. 4).

    Args:
        weight: λ; β in VIBI, 1 in Q-FIT.
        concentration: α₀ > 0 of the Dirichlet prior.

    Raises:
        ValueError: a weight below 0, a concentration that is not positive.
        TypeError: a distribution without a closed form here.

    Example:
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


class _GridPenalty(Penalty):
    """A weight times the sum of a cost over the pairs of neighbours on a grid."""

    def __init__(self, weight: float, shape: Sequence[int], neighbours: int = 4) -> None:
        super().__init__(weight)
        if len(shape) != 2:
            raise ValueError(f"shape must be two numbers, rows and columns; it is {shape}")
        self.shape = tuple(int_at_least("shape", size) for size in shape)
        if neighbours not in (4, 8):
            raise ValueError(f"neighbours must be 4 or 8; they are {neighbours!r}")
        self.neighbours = neighbours

    @abstractmethod
    def _cost(self, value: Tensor, other: Tensor) -> Tensor:
        """Of two neighbours' values in [0, 1]."""

    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        height, width = self.shape
        if mask.shape[-1] != height * width:  # At each step of a fit
            shaped("masks", mask, ("…", height * width), note=f"of a grid of {height} × {width}")
        if isinstance(distribution, ChainMask) and 1 in self.shape:
            return self.weight * distribution.switches.sum(-1)
        base = distribution.base_dist if isinstance(distribution, Independent) else None
        if isinstance(base, Bernoulli):
            return self.weight * self._sum(distribution.mean, differ)
        return self.weight * self._sum(mask, self._cost)

    def _sum(self, mask: Tensor, cost: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        grid = mask.unflatten(-1, self.shape)
        total = cost(grid[..., 1:, :], grid[..., :-1, :]).sum((-2, -1))
        total = total + cost(grid[..., 1:], grid[..., :-1]).sum((-2, -1))
        if self.neighbours == 8:
            total = total + cost(grid[..., 1:, 1:], grid[..., :-1, :-1]).sum((-2, -1))
            total = total + cost(grid[..., 1:, :-1], grid[..., :-1, 1:]).sum((-2, -1))
        return total


class GridVariationPenalty(_GridPenalty):
    """Total variation of a mask on a grid: `λ Σ_{i~j} |z_i − z_j|` over neighbours i, j, the length
    of the border between what is kept and what is hidden.

    Of independent Bernoulli entries its exact expectation, `Σ p_i (1 − p_j) + p_j (1 − p_i)`,
    `(B,)`; so of a :class:`~lexppl.distributions.ChainMask` on a grid of one row. Of other
    distributions that of the draws, `(L, B)`.

    Args:
        weight: λ ≥ 0, in nats a unit of border.
        shape: rows and columns of the grid, (H', W'), such as those of an image's patches; entries
            are row by row.
        neighbours: 4, above, below and at the sides, or 8, the diagonal ones too.

    Raises:
        ValueError: a shape that is not two whole numbers of at least 1, other neighbours; when
            first used, masks of other than H' · W' entries.

    References:
        Rudin, Osher and Fatemi (1992), "Nonlinear total variation based noise removal algorithms",
        Physica D 60. Fong and Vedaldi (2017), "Interpretable explanations of black boxes by
        meaningful perturbation", ICCV, eq. 4, for masks.

    Example:
        >>> one_corner = torch.tensor([[[1.0, 0.0, 0.0, 0.0]]])
        >>> GridVariationPenalty(1.0, shape=(2, 2))(None, one_corner)
        tensor([[2.]])
    """

    def _cost(self, value: Tensor, other: Tensor) -> Tensor:
        return (value - other).abs()


class IsingPenalty(_GridPenalty):
    """The energy of an Ising model on a grid: `λ Σ_{i~j} (1 − s_i s_j)/2` with spins `s = 2z − 1`.

    On masks of zeros and ones it is :class:`GridVariationPenalty`, which takes the same arguments.
    On soft masks it is `z_i (1 − z_j) + z_j (1 − z_i)`: smooth, and least where neighbours are both
    near 0 or both near 1. Less the entropy of the masks, it is their divergence from the Ising
    model of coupling λ/2, up to its constant.

    References:
        Besag (1986), "On the statistical analysis of dirty pictures", JRSS B 48.

    Example:
        >>> IsingPenalty(1.0, shape=(1, 3))(None, torch.tensor([[[0.5, 0.5, 1.0]]]))
        tensor([[1.]])
    """

    def _cost(self, value: Tensor, other: Tensor) -> Tensor:
        return differ(value, other)


def differ(p: Tensor, q: Tensor) -> Tensor:
    """p (1 − q) + q (1 − p), the probability that two independent entries differ."""
    return p * (1.0 - q) + q * (1.0 - p)
