"""Selectors: a network of x and the distribution of the mask, `p_γ(z | x)`."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn
from torch.nn.functional import softplus

from lexppl.argument_checks import finite_float, fraction, int_at_least, int_between
from lexppl.configured import Configured
from lexppl.distributions import (
    ChainMask,
    KSubset,
    MaskDirichlet,
    MaxConcrete,
    RandomSizeSubset,
    SequentialMask,
)
from lexppl.distributions.computed_once import MadeOnce
from lexppl.distributions.random_size import ExchangeableMasks
from lexppl.distributions.top_k import TopEntries
from lexppl.effects import fit_progress, fit_reaches, row_penalties
from lexppl.models.architectures.base import Architecture
from lexppl.models.grouping import Grouping
from lexppl.models.missing import among_possible, possible_logits, possible_size
from lexppl.models.penalties import SizePenalty

EXPLORE_UNTIL, EXPLORE_DECAY = 0.05, 0.995
"""Share of a fit in which all is explored; factor of exploration in each epoch, of 1,000."""


class Selector(Configured, nn.Module):
    """Base of selectors: from rows x `(B, *event)` to the distribution of the mask, `p_γ(z | x)`.
    Any module that returns one of batch shape `(B,)` and event shape `(G,)` will do in a
    program."""

    def forward(self, x: Tensor) -> TorchDistribution:
        """The distribution of masks, batch shape `(B,)` and event shape `(G,)`."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(x)")


class _NetworkSelector(Selector):
    """A selector that is a network of x and the distribution of its outputs."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network


class BernoulliSelector(_NetworkSelector):
    """Independent entries: `z_g ~ Bernoulli(σ(network(x)_g + log(ρ/(1−ρ))))`; a penalty on the size
    holds back how many are kept.

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        rate: ρ, the probability of keeping where the network says 0, as it about does before it has
            learned.

    Raises:
        ValueError: a rate outside (0, 1).

    Example:
        >>> BernoulliSelector(nn.Identity(), 0.2)(torch.zeros(1, 2)).mean
        tensor([[0.2000, 0.2000]])
    """

    def __init__(self, network: nn.Module, rate: float = 0.5) -> None:
        super().__init__(network)
        self.rate = fraction("rate", rate)

    def forward(self, x: Tensor) -> TorchDistribution:
        return self.law(possible_logits(self.network, x))

    def law(self, logits: Tensor) -> TorchDistribution:
        """The distribution of masks of a network's outputs, `(B, G)`."""
        if self.rate != 0.5:
            logits = logits + math.log(self.rate / (1.0 - self.rate))
        return dist.Bernoulli(logits=logits).to_event(1)


class KSubsetSelector(_NetworkSelector):
    """Exactly k entries: independent Bernoullis with logits `network(x)`, given that k are kept.

    With `until`, while it trains, a mask keeps `G^(1−s) k^s` entries, rounded, at progress t of a
    fit, `s = min(t / until, 1)`: of k of many entries from the first step on a predictor learns
    nothing, nor then the selector from it.

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        k: how many of the G entries a mask keeps.
        until: the share of a fit in which the number kept falls from G to k; 0 for k throughout.

    Raises:
        ValueError: k is not a whole number of at least 1 (or, when first used, exceeds G); a share
            outside [0, 1].

    Example:
        >>> KSubsetSelector(nn.Identity(), k=5)(torch.zeros(3, 11)).sample().sum(-1)
        tensor([5., 5., 5.])
    """

    def __init__(self, network: nn.Module, k: int, until: float = 0.0) -> None:
        super().__init__(network)
        self.k = int_at_least("k", k)
        self.until = fraction("until", until, of="the fit", zero=True, one=True)

    def forward(self, x: Tensor) -> TorchDistribution:
        logits = possible_logits(self.network, x)
        most = self._kept_now(logits.shape[-1])
        k = possible_size(self.network, x, most)
        # Of replicates with a k each, self.k is a tensor too, and no bound that can be read.
        by_row = isinstance(k, Tensor) and not isinstance(most, Tensor)
        return KSubset(logits, k, max_k=most if by_row else None)

    def _kept_now(self, entries: int) -> Any:
        """k, or the number kept at the fit's progress."""
        k: Any = self.k
        if not self.training or fit_reaches(self.until):
            return k
        falling = entries * (k / entries) ** (fit_progress() / self.until)
        return falling.round().long() if isinstance(falling, Tensor) else round(falling)


class RandomSizeSelector(_NetworkSelector):
    r"""First how many entries, by a given prior, then which, by the network:

    .. math:: k \sim P, \qquad z \mid x, k \sim \mathrm{KSubset}(f(x), k),

    with k, of each row, summed out (:class:`lexppl.distributions.RandomSizeSubset`).

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        sizes: P(0), …, P(S), S ≤ G, divided by their sum: as
            :func:`lexppl.distributions.geometric_sizes` gives them.

    Raises:
        ValueError: a probability that is negative or not finite, none above 0; when first used,
            more than G + 1.

    Example:
        >>> RandomSizeSelector(nn.Identity(), [0.0, 4.0, 2.0, 1.0])(torch.zeros(1, 3)).mean
        tensor([[0.5238, 0.5238, 0.5238]])
    """

    def __init__(self, network: nn.Module, sizes: Sequence[float] | Tensor) -> None:
        super().__init__(network)
        self.sizes = tuple(finite_float("a probability of sizes", p, least=0.0) for p in sizes)
        if not sum(self.sizes) > 0.0:
            raise ValueError(f"sizes must have a probability above 0; they are {self.sizes}")
        self._kept = MadeOnce()

    def forward(self, x: Tensor) -> TorchDistribution:
        logits = self.network(x)
        sizes = self._kept.like(logits, self.sizes, torch.tensor)
        return RandomSizeSubset(logits, sizes.log())


class ChainSelector(_NetworkSelector):
    """Entries in a row that are kept in runs: words of a text, times of a series.

    A binary Markov chain, `p(z | x) ∝ exp(Σ_g network(x)_g z_g − J Σ_g |z_g − z_{g−1}|)`
    (:class:`~lexppl.distributions.ChainMask`); a penalty on the size holds back how many are kept.

    Args:
        network: `(B, *event)` to logits `(B, G)`, in the order of the entries.
        coupling: J, what a switch between kept and hidden costs, in nats; 0 for independent
            entries.
        learned: whether J is learned, from `coupling` on, one for all places.

    Raises:
        ValueError: a coupling that is not a finite number.

    Example:
        >>> ChainSelector(nn.Identity(), coupling=2.0)(torch.zeros(5, 11)).switches.shape
        torch.Size([5, 10])
    """

    coupling: Tensor

    def __init__(self, network: nn.Module, coupling: float = 1.0, learned: bool = False) -> None:
        super().__init__(network)
        self.learned = learned
        self._start = finite_float("coupling", coupling)
        value = torch.tensor(self._start)
        if learned:
            self.coupling = nn.Parameter(value)
        else:
            self.register_buffer("coupling", value)

    def reset_parameters(self) -> None:
        """Put the coupling back to where it started."""
        with torch.no_grad():
            self.coupling.fill_(self._start)

    def forward(self, x: Tensor) -> TorchDistribution:
        return self.law(possible_logits(self.network, x))

    def law(self, logits: Tensor) -> TorchDistribution:
        """The distribution of masks of a network's outputs, `(B, G)`."""
        return ChainMask(logits, self.coupling.to(logits.dtype))


class PenaltyRangeSelector(Selector):
    """Base of selectors for every λ of a range, in one fit: how a selector reads λ.

    While it learns, each row of a step has a λ of its own, and in evaluation all rows have the λ of
    :attr:`penalty`, which `FitResult.at(penalty)` and `explain(…, penalty=)` set:

        log λ ~ Uniform(log low, log high),    u = (log λ − log middle) / log 2.

    A program draws λ once, by :meth:`row_penalties`, runs the selector within
    :class:`lexppl.effects.RowPenalties`, and charges each row its λ times its penalties: LEX and
    SequentialLEX do. The `forward(x)` of a subclass reads u by :meth:`levels`, as one that chooses
    step by step has it as the context of :class:`~lexppl.distributions.SequentialMask`.

    Args:
        low, high: the range of λ, in nats for each entry kept.
        middle: a λ of the range; √(low·high) if None.
        penalty: λ in evaluation; the middle if None.

    Raises:
        ValueError: a range that is not 0 < low < high; a λ outside of it; from :meth:`levels` while
            it learns, a program that does not name each row's λ.

    Example:
        >>> class Sequential(PenaltyRangeSelector):
        ...     def __init__(self, low: float, high: float) -> None:
        ...         super().__init__(low, high)
        ...         self.policy = StepPolicy(nn.Linear(3 + 3 + 1, 3 + 1))
        ...     def forward(self, x: Tensor) -> SequentialMask:
        ...         return SequentialMask(self.policy, x, 3, context=self.levels(x)[:, None])
        >>> selector = Sequential(0.005, 0.08).eval()
        >>> selector.row_penalties(torch.zeros(2, 3)), selector(torch.zeros(2, 3)).context[0]
        (tensor([0.0200, 0.0200]), tensor([0.]))
    """

    def __init__(
        self, low: float, high: float, middle: float | None = None, penalty: float | None = None
    ) -> None:
        super().__init__()
        self.low = finite_float("low", low, above=0.0)
        self.high = finite_float("high", high, above=self.low)
        self.middle = self.checked(math.sqrt(low * high) if middle is None else middle)
        self.penalty = self.middle if penalty is None else self.checked(penalty)

    def checked(self, penalty: float) -> float:
        """A λ of the range, as a float; one outside of it is refused."""
        penalty = finite_float("penalty", penalty, above=0.0)
        if not self.low * (1 - 1e-6) <= penalty <= self.high * (1 + 1e-6):
            raise ValueError(
                f"the selector was fitted for penalties from {self.low:.4g} to {self.high:.4g} "
                f"nats; {penalty:.4g} is outside: give one of these, or fit with another range"
            )
        return penalty

    def row_penalties(self, x: Tensor) -> Tensor:
        """λ of each row, `(B,)`: drawn while training, else :attr:`penalty`."""
        if not self.training:
            return x.new_full((len(x),), self.penalty)
        low, high = math.log(self.low), math.log(self.high)
        return (low + (high - low) * torch.rand(len(x), dtype=x.dtype, device=x.device)).exp()

    def levels(self, x: Tensor) -> Tensor:
        """u of each row, `(B,)`, by the λ that the program charges it."""
        penalties = row_penalties()
        if penalties is None and self.training:
            raise ValueError(
                "a selector for a range of penalties learns in a program that charges each row its "
                "own: LEX does; another draws λ = selector.row_penalties(x), runs selector(x) "
                "within lexppl.effects.RowPenalties(λ), and multiplies its penalties by λ"
            )
        penalties = self.row_penalties(x) if penalties is None else penalties
        return (penalties.log() - math.log(self.middle)) / math.log(2.0)


class PenaltyConditioned(PenaltyRangeSelector):
    """A selector of independent or chained entries for every λ of a range, in one fit:

        logits of z given x and λ:  a(x) + b(x) min(u, 0) + c(x) max(u, 0),

    where a, b and c are the thirds of the network's outputs, and u is λ's
    (:class:`PenaltyRangeSelector`).

    Args:
        selector: of independent or chained entries, whose network has 3G outputs:
            `architecture.selector(3 * entries)`.
        low, high, options: as :class:`PenaltyRangeSelector`, by name from `middle` on.

    Raises:
        ValueError: as :class:`PenaltyRangeSelector`.
        TypeError: a selector whose distribution is not given by logits of the entries.

    Example:
        >>> selector = PenaltyConditioned(BernoulliSelector(nn.Linear(3, 9)), 0.005, 0.08).eval()
        >>> selector.row_penalties(torch.zeros(2, 3))
        tensor([0.0200, 0.0200])
    """

    def __init__(self, selector: nn.Module, low: float, high: float, **options: Any) -> None:
        super().__init__(low, high, **options)
        if not hasattr(selector, "law"):
            raise TypeError(
                "a penalty conditions BernoulliSelector and ChainSelector, whose distribution is "
                f"given by logits of the entries; {type(selector).__name__} is given"
            )
        self.selector: Any = selector

    def forward(self, x: Tensor) -> TorchDistribution:
        u = self.levels(x).unsqueeze(-1)
        network: nn.Module = self.selector.network
        at, below, above = network(x).chunk(3, -1)
        logits = at + below * u.clamp(max=0.0) + above * u.clamp(min=0.0)
        return self.selector.law(among_possible(network, x, logits))


def penalised(
    architecture: Architecture, penalty: float | Sequence[float], rate: float = 0.5
) -> tuple[nn.Module, SizePenalty]:
    """A selector of independent entries and the penalty on their number: λ in nats for each entry
    kept, or `(low, high)` or `(low, middle, high)` for a :class:`PenaltyConditioned` selector."""
    entries = architecture.entries
    if not isinstance(penalty, Sequence):
        return BernoulliSelector(architecture.selector(entries), rate), SizePenalty(penalty)
    if len(penalty) not in (2, 3):
        raise ValueError(
            "a range of penalties is its two ends, as (0.005, 0.08), or with a middle, as (0.005, "
            f"0.02, 0.08); {list(penalty)} is given"
        )
    low, *middle, high = penalty
    selector = BernoulliSelector(architecture.selector(3 * entries), rate)
    options = {"middle": middle[0]} if middle else {}
    return PenaltyConditioned(selector, low, high, **options), SizePenalty(1.0)


class RandomSelector(Selector):
    """Masks that know nothing of x: `z_g ~ Bernoulli(rate)`, independently, or of random sizes.

    Args:
        entries: G.
        rate: the probability that an entry is kept; not read beside `sizes`.
        sizes: probabilities of 0, …, G entries, masks of one size being alike
            (:class:`~lexppl.distributions.ExchangeableMasks`); None for independent entries.

    Raises:
        ValueError: fewer entries than 1, a rate outside [0, 1], sizes that are not G + 1
            probabilities.

    Example:
        >>> RandomSelector(3)(torch.zeros(1, 5)).mean
        tensor([[0.5000, 0.5000, 0.5000]])
    """

    def __init__(
        self, entries: int, rate: float = 0.5, sizes: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        self.entries = int_at_least("entries", entries)
        self.rate = fraction("rate", rate, of="the entries", zero=True, one=True)
        self.sizes, self._kept = sizes, MadeOnce()
        if sizes is not None and ExchangeableMasks(sizes).event_shape != (entries,):
            raise ValueError(f"sizes must be P(0), …, P({entries}); they are {sizes}")

    def forward(self, x: Tensor) -> TorchDistribution:
        if self.sizes is not None:
            return self._kept.like(x, self.sizes, ExchangeableMasks).expand((len(x),))
        return dist.Bernoulli(probs=x.new_full((len(x), self.entries), self.rate)).to_event(1)


class MaxConcreteSelector(_NetworkSelector):
    """L2X's draw: while training the largest of k Concrete draws, after it the k entries of largest
    logit (Chen et al. 2018, § 3 and § 4).

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        k: draws, and entries kept after training.
        temperature: t > 0 of the Concrete draws.

    Raises:
        ValueError: a temperature that is not positive; k that is not a whole number of at least 1
            (or, when first used, exceeds G).

    Example:
        >>> MaxConcreteSelector(nn.Identity(), k=2).eval()(torch.zeros(3, 4)).sample().sum(-1)
        tensor([2., 2., 2.])
    """

    def __init__(self, network: nn.Module, k: int, temperature: float = 0.1) -> None:
        super().__init__(network)
        self.k = int_at_least("k", k)
        self.temperature = finite_float("temperature", temperature, above=0.0)

    def forward(self, x: Tensor) -> TorchDistribution:
        logits = possible_logits(self.network, x)
        if self.training:
            return MaxConcrete(self.temperature, logits, self.k)
        return TopEntries(logits, possible_size(self.network, x, self.k))


class DirichletSelector(_NetworkSelector):
    """Shares of importance: `f ~ Dir(softplus(network(x)))`, of a network `(B, *event)` to `(B, G)`
    (Q-FIT, Adamczewski et al., § 3).

    Example:
        >>> DirichletSelector(nn.Identity())(torch.zeros(1, 2)).mean
        tensor([[0.5000, 0.5000]])
    """

    def forward(self, x: Tensor) -> TorchDistribution:
        return MaskDirichlet(positive(possible_logits(self.network, x)))


class SoftMaskSelector(_NetworkSelector):
    """A deterministic soft mask, `z = σ(network(x))` (XTab, Uçar & Hajiramezanali 2022, eq. 3)."""

    mask_kind: ClassVar[str] = "strength"

    def forward(self, x: Tensor) -> TorchDistribution:
        return dist.Delta(torch.sigmoid(self.network(x)), event_dim=1)


class StepPolicy(Configured, nn.Module):
    """A network of `[x ⊙ z, z]`, `(…, D + G)`, and a context of C numbers where there is one, to G
    logits of the next entry and one of the stop."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, visible: Tensor, mask: Tensor, *context: Tensor) -> tuple[Tensor, Tensor]:
        flat = visible.flatten(mask.dim() - 1)
        outputs = self.network(torch.cat([flat, mask.to(flat.dtype), *context], -1))
        return outputs[..., :-1], outputs[..., -1]


class SequentialSelector(Configured, nn.Module):
    """From x to a :class:`SequentialMask` of at most `most` of G entries, which explores while it
    trains: at progress t of a fit a share of choices, and of stops, is random, 1 up to t = .05 and
    then `max(.995^{1000 (t − .05)}, least)` with the least shares `explore` and `explore_stop`."""

    def __init__(
        self,
        policy: nn.Module,
        entries: int,
        most: int | None = None,
        explore: float | None = None,
        explore_stop: float | None = None,
        grouping: Grouping | None = None,
    ) -> None:
        super().__init__()
        self.policy = policy
        self.entries = int_at_least("entries", entries)
        self.most = entries if most is None else int_between("most", most, 1, entries)
        shares = {"explore": explore, "explore_stop": explore_stop}
        for name, share in shares.items():
            if share is not None:
                fraction(name, share, zero=True, one=True)
        self.explore, self.explore_stop = explore, explore_stop
        self.grouping = grouping

    def forward(self, x: Tensor) -> SequentialMask:
        wanted = None if self.grouping is None else self.grouping.features
        if wanted is not None and x[0].numel() != wanted:
            raise ValueError(f"the grouping is of {wanted} features; x has rows of {x[0].numel()}")
        return SequentialMask(
            self.policy,
            x,
            self.entries,
            self.most,
            self.grouping,
            explore=self._now(self.explore),
            explore_stop=self._now(self.explore_stop),
            event_dim=x.dim() - 1,
        )

    def _now(self, least: float | None) -> float:
        if least is None or not self.training:
            return 0.0
        since = fit_progress() - EXPLORE_UNTIL
        return 1.0 if since <= 0.0 else max(float(EXPLORE_DECAY ** (1000.0 * since)), least)


def positive(outputs: Tensor) -> Tensor:
    """Concentrations of a network's outputs: softplus, and no smaller than 1e-4."""
    return softplus(outputs) + 1e-4
