"""Masks whose size has a distribution: exchangeable ones, and k-subset masks of a random k."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor
from torch.distributions import constraints

from lexppl.argument_checks import finite_float, int_at_least, int_between
from lexppl.distributions.k_subset import KSubset
from lexppl.distributions.masks import MaskDistribution, Vectors, all_of_sizes, checked_logits


class AllowedSizes(constraints.Constraint):
    """Vectors of zeros and ones whose size is allowed, by ``(G + 1,)`` booleans."""

    is_discrete = True
    event_dim = 1

    def __init__(self, allowed: Tensor) -> None:
        self.allowed = allowed
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        binary = ((value == 0) | (value == 1)).all(-1)
        size = torch.where(binary, value.sum(-1), 0.0).long()
        return binary & self.allowed[size]


class ExchangeableMasks(MaskDistribution):
    r"""Masks of G entries whose size has given probabilities, all masks of one size being alike:

    .. math:: p(z) = P(|z|) \,/\, \tbinom{G}{|z|}, \qquad |z| = \textstyle\sum_i z_i .

    All quantities are exact; nothing is learned.

    Args:
        size_probabilities: P(0), …, P(G), not negative; divided by their sum.
        batch_shape: of the distribution, independent draws; event shape ``(G,)``.
        dtype, device: of the masks.
        validate_args: as in every torch distribution.

    Raises:
        ValueError: fewer than two probabilities, one that is negative or not finite, a sum of 0.

    Example:
        >>> distribution = ExchangeableMasks([0.0, 0.6, 0.4])
        >>> distribution.log_prob(torch.tensor([[1.0, 0.0], [1.0, 1.0]])).exp()
        tensor([0.3000, 0.4000])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        size_probabilities: Sequence[float],
        batch_shape: Sequence[int] = (),
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        validate_args: bool | None = None,
    ) -> None:
        weights = [float(p) for p in size_probabilities]
        total = sum(weights)
        if len(weights) < 2 or not all(0.0 <= p < math.inf for p in weights) or total <= 0.0:
            raise ValueError(
                "size_probabilities must be P(0), …, P(G) for G of at least 1, none negative and "
                f"not all 0; they are {weights}"
            )
        size = len(weights) - 1
        exact = torch.tensor(weights, dtype=torch.float64) / total
        ways = torch.tensor([log_choose(size, s) for s in range(size + 1)], dtype=torch.float64)
        below = exact.cumsum(0)
        # Rounding must not leave a size of probability 0 a place at the largest uniform.
        below[max(s for s, weight in enumerate(weights) if weight / total > 0.0) :] = 1.0
        kind: Any = {"device": device, "dtype": dtype or torch.get_default_dtype()}
        entropy = -(exact * (exact.clamp(min=1e-300).log() - ways)).sum()
        self._mean = ((exact * torch.arange(size + 1)).sum() / size).to(**kind)
        self._entropy, self._log_mask = entropy.to(**kind), (exact.log() - ways).to(**kind)
        self._below = below[:-1].to(**kind)
        super().__init__(torch.Size(batch_shape), torch.Size((size,)), validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> AllowedSizes:
        return AllowedSizes(self._log_mask.isfinite())

    def _log_prob(self, value: Tensor) -> Tensor:
        """−∞ for a size that never is."""
        return self._log_mask[value.sum(-1).round().long().clamp(0, self._event_shape[0])]

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Exact draws, ``sample_shape + batch_shape + (G,)``."""
        like = self._below
        shape = self._extended_shape(sample_shape)
        uniform = torch.rand(shape[:-1], dtype=like.dtype, device=like.device)
        size = (uniform.unsqueeze(-1) >= like).sum(-1, keepdim=True)
        order = torch.rand(shape, dtype=like.dtype, device=like.device).argsort(-1).argsort(-1)
        return (order < size).to(like.dtype)

    @property
    def mean(self) -> Tensor:
        """E[z], ``(*batch, G)``: E|z| / G for every entry."""
        return self._mean.expand(self._batch_shape + self._event_shape)

    def entropy(self) -> Tensor:
        """−E[log p(z)] in nats, of the batch's shape."""
        return self._entropy.expand(self._batch_shape)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All masks that can be drawn, ``(M, *batch, G)``; ``batch`` all ones for ``expand=False``;
        G at most 20."""
        masks = all_of_sizes(type(self).__name__, self._log_mask.isfinite(), self._log_mask)
        return self._listed(masks, expand)


class ShapleyKernel(ExchangeableMasks):
    r"""Coalitions of G players, neither none nor all of them, by the Shapley kernel:

    .. math:: p(S) \propto \frac{G - 1}{\tbinom{G}{|S|} \, |S| \, (G - |S|)}, \qquad
              P(|S| = s) = \frac{G}{2 H_{G-1}} \cdot \frac{1}{s (G - s)}, \quad 0 < s < G,

    with the harmonic number :math:`H_n = \sum_{i \le n} 1/i`. Least squares of a game's values
    under it, with the values of no and of all players kept, gives the Shapley values.

    Args:
        entries: G ≥ 2.
        batch_shape, options: as in :class:`ExchangeableMasks`.

    Raises:
        ValueError: fewer than two entries.

    References:
        Charnes, Golany, Keane and Rousseau (1988), "Extremal principle solutions of games in
        characteristic function form". Lundberg and Lee (2017), "A unified approach to interpreting
        model predictions", NeurIPS, theorem 2.

    Example:
        >>> distribution = ShapleyKernel(4)
        >>> distribution.log_prob(torch.tensor([[1.0, 0, 0, 0], [1.0, 1, 0, 0]])).exp()
        tensor([0.0909, 0.0455])
    """

    def __init__(self, entries: int, batch_shape: Sequence[int] = (), **options: Any) -> None:
        size = int_at_least("entries", entries, 2)
        between = [1.0 / (s * (size - s)) for s in range(1, size)]
        super().__init__([0.0, *between, 0.0], batch_shape, **options)


def log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


class RandomSizeSubset(MaskDistribution):
    r"""Masks of G entries by a distribution of their size and, given it, the exact k-subset law:

    .. math:: p(z) = P(|z|) \; \mathrm{KSubset}(z \mid \mathrm{logits}, |z|).

    `k ~ Categorical(P)`, `z ~ KSubset(logits, k)` with k summed out; `P(k) ∝ e_k(e^ℓ)` gives
    independent Bernoullis, zero logits :class:`ExchangeableMasks`. All quantities and draws are
    exact, the former differentiable in logits and sizes. Cost: S k-subset distributions a row.

    Args:
        logits: log-odds of each entry's weight, finite, ``(*batch, G)``; constants cancel.
        size_logits: log P(k) up to a constant of the sizes 0, …, S ≤ G, broadcastable with
            ``(*batch, S + 1)``; −∞ for a size that never is.
        validate_args: as in every torch distribution.

    Raises:
        ValueError: more than G + 1 sizes; logits without a dimension, or not finite; a row in which
            no size can be (the last two when validated).

    References:
        Chen and Liu (1997), "Statistical applications of the Poisson-binomial and conditional
        Bernoulli distributions", Statistica Sinica 7.

    Example:
        >>> from lexppl.distributions import geometric_sizes
        >>> distribution = RandomSizeSubset(torch.zeros(2), geometric_sizes(0.5, 2).float().log())
        >>> distribution.log_prob(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])).exp()
        tensor([0.5714, 0.1429, 0.1429])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "logits": Vectors(constraints.real),
        "size_logits": constraints.dependent,
    }

    def __init__(
        self, logits: Tensor, size_logits: Tensor, validate_args: bool | None = None
    ) -> None:
        entries = checked_logits(logits)
        if size_logits.dim() < 1 or not 1 <= size_logits.shape[-1] <= entries + 1:
            raise ValueError(
                f"size_logits must be of the sizes 0 to at most G = {entries}, in their last "
                f"dimension; their shape is {tuple(size_logits.shape)}"
            )
        batch = torch.Size(broadcast_shape(logits.shape[:-1], size_logits.shape[:-1]))
        self._logits = logits.expand(*batch, entries)
        self._sizes = size_logits.log_softmax(-1)
        self._largest = size_logits.shape[-1] - 1
        # The laws given the sizes 1, …, S, of batch shape `(*batch, S)`.
        self._by_size: KSubset | None = None
        if self._largest > 0:
            k = torch.arange(1, self._largest + 1, device=self._logits.device)
            self._by_size = KSubset(
                self._logits.unsqueeze(-2), k, validate_args=False, max_k=self._largest
            )
        super().__init__(batch, torch.Size((entries,)), validate_args, "logits")
        if self._validate_args and bool(self._sizes.isnan().any()):
            raise ValueError("size_logits must be numbers or −∞, with a possible size in every row")

    @property
    def logits(self) -> Tensor:
        """The logits, ``(*batch, G)``."""
        return self._logits.expand(self._batch_shape + self._event_shape)

    @property
    def size_logits(self) -> Tensor:
        """log P(k), ``(*batch, S + 1)``."""
        return self._sizes.expand(*self._batch_shape, self._largest + 1)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> AllowedSizes:
        return AllowedSizes(self._allowed())

    def _allowed(self) -> Tensor:
        """Which of the sizes 0, …, G some row can have."""
        possible = self._sizes.isfinite().reshape(-1, self._largest + 1).any(0)
        return torch.nn.functional.pad(possible, (0, self._event_shape[0] - self._largest))

    def uniform(self) -> "RandomSizeSubset":
        """The distribution of the same sizes and shapes under which all masks are alike."""
        entries = self._event_shape[0]
        ways = [log_choose(entries, k) for k in range(self._largest + 1)]
        sizes = torch.where(self._sizes.isfinite(), self._sizes.new_tensor(ways), -torch.inf)
        alike = RandomSizeSubset(torch.zeros_like(self._logits), sizes, validate_args=False)
        return alike.expand(self._batch_shape)

    def _log_prob(self, value: Tensor) -> Tensor:
        """−∞ for a size that never is."""
        size = value.sum(-1).round().long()
        shape = torch.Size(broadcast_shape(size.shape, self._batch_shape))
        size = size.expand(shape)
        result = _taken(self._sizes, size.clamp(0, self._largest))
        if self._by_size is not None:
            theta, _, constant = self._by_size._log_prob_parts()
            index = (size - 1).clamp(0, self._largest - 1)
            tilted = self._logits + _taken(theta, index).unsqueeze(-1)
            # As KSubset has it: relative to each entry's likelier value the terms are small.
            of_size = (tilted * (value - (tilted > 0).to(tilted.dtype))).sum(-1)
            of_size = of_size + _taken(constant, index)
            result = result + torch.where(size > 0, of_size, torch.zeros_like(of_size))
        return torch.where(size <= self._largest, result, torch.full_like(result, -torch.inf))

    @torch.no_grad()
    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Exact draws, ``sample_shape + batch_shape + (G,)``."""
        shape = self._extended_shape(sample_shape)
        if self._by_size is None:
            return self._logits.new_zeros(shape)
        below = self._sizes.exp().cumsum(-1)
        # Rounding must not leave a size of probability 0 a place at the largest uniform.
        rest = self._sizes.exp().flip(-1).cumsum(-1).flip(-1)
        below = torch.where(rest[..., 1:] > 0, below[..., :-1], torch.inf)
        uniform = torch.rand(shape[:-1], dtype=below.dtype, device=below.device)
        size = (uniform.unsqueeze(-1) >= below).sum(-1)
        masks = KSubset(
            self._logits.expand(shape), size.clamp(min=1), validate_args=False, max_k=self._largest
        ).sample()
        return masks * (size > 0).unsqueeze(-1).to(masks.dtype)

    @property
    def mean(self) -> Tensor:
        """E[z], ``(*batch, G)``: `Σ_k P(k) E[z | k]`."""
        if self._by_size is None:
            return torch.zeros_like(self.logits)
        mean = (self._sizes[..., 1:].exp().unsqueeze(-1) * self._by_size.mean).sum(-2)
        return mean.expand(self._batch_shape + self._event_shape)

    def entropy(self) -> Tensor:
        """−E[log p(z)] in nats, of the batch's shape: `H(k) + Σ_k P(k) H(z | k)`."""
        p = self._sizes.exp()
        finite = self._sizes.masked_fill(~self._sizes.isfinite(), 0.0)
        result = -(p * finite).sum(-1)
        if self._by_size is not None:
            result = result + (p[..., 1:] * self._by_size.entropy()).sum(-1)
        return result.expand(self._batch_shape)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All masks that some row can have, ``(M, *batch, G)``; ``batch`` all ones for
        ``expand=False``; G at most 20."""
        masks = all_of_sizes("RandomSizeSubset", self._allowed(), self._logits)
        return self._listed(masks, expand)


def _taken(by_size: Tensor, index: Tensor) -> Tensor:
    """The entry of the last dimension at an index of the leading shape."""
    every = by_size.expand(*index.shape, by_size.shape[-1])
    return every.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def geometric_sizes(
    ratio: float, entries: int, *, smallest: int = 0, largest: int | None = None
) -> Tensor:
    r"""The truncated geometric prior: each further entry is `ratio` times as likely as the last,

    .. math:: P(k) = \rho^k \Big/ \sum_{j=a}^{b} \rho^j, \qquad a \le k \le b .

    A prior on the size alone; a penalty of λ nats for each entry has `P(k) ∝ C(G, k) e^{−λk}`.

    Args:
        ratio: ρ > 0.
        entries: G.
        smallest, largest: a ≥ 0 and b ≤ G; b is G if None.

    Returns:
        P(0), …, P(G), float64.

    Raises:
        ValueError: a ratio that is not positive, sizes that are not 0 ≤ a ≤ b ≤ G.

    Example:
        >>> geometric_sizes(0.5, 3, smallest=1)
        tensor([0.0000, 0.5714, 0.2857, 0.1429], dtype=torch.float64)
    """
    ratio = finite_float("ratio", ratio, above=0.0)
    entries = int_at_least("entries", entries)
    last = entries if largest is None else int_between("largest", largest, 0, entries)
    first = int_between("smallest", smallest, 0, last)
    size = torch.arange(entries + 1, dtype=torch.float64)
    weights = size * torch.tensor(ratio, dtype=torch.float64).log()
    outside = (size < first) | (size > last)
    return weights.masked_fill(outside, -torch.inf).softmax(0)


def beta_binomial_sizes(entries: int, a: float = 1.0, b: float = 1.0) -> Tensor:
    r"""Sizes of masks whose entries are kept with a rate that is itself unknown,

    .. math:: \pi \sim \mathrm{Beta}(a, b), \quad z_g \mid \pi \sim \mathrm{Bernoulli}(\pi), \qquad
        P(k) = \binom{G}{k} \frac{B(a + k,\; b + G - k)}{B(a, b)} .

    A further entry costs the more the more there are to choose from: the correction for
    multiplicity that a fixed rate lacks. With a = b = 1 all sizes are alike.

    Args:
        entries: G.
        a, b: of the Beta distribution of the rate, above 0.

    Returns:
        P(0), …, P(G), float64.

    Raises:
        ValueError: no entries, a or b not positive.

    References:
        Scott & Berger (2010), "Bayes and empirical-Bayes multiplicity adjustment in the
        variable-selection problem", Annals of Statistics 38, § 2.2 and eq. 6.

    Example:
        >>> beta_binomial_sizes(2, 1.0, 3.0)
        tensor([0.6000, 0.3000, 0.1000], dtype=torch.float64)
    """
    entries = int_at_least("entries", entries)
    a, b = finite_float("a", a, above=0.0), finite_float("b", b, above=0.0)
    size = torch.arange(entries + 1, dtype=torch.float64)

    def log_beta(x: Tensor, y: Tensor) -> Tensor:
        return x.lgamma() + y.lgamma() - (x + y).lgamma()

    # log C(G, k) = −log B(k + 1, G − k + 1) − log(G + 1), whose last term is that of every size
    log_ways = -log_beta(size + 1, entries - size + 1)
    return (log_ways + log_beta(a + size, b + entries - size)).softmax(0)
