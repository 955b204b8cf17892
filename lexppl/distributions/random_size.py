"""First how many entries are kept, then which: k-subset masks whose k has a distribution."""

from typing import Any, ClassVar

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor
from torch.distributions import constraints

from lexppl.argument_checks import finite_float, int_at_least, int_between
from lexppl.distributions.exchangeable import AllowedSizes, log_choose
from lexppl.distributions.k_subset import KSubset
from lexppl.distributions.masks import MaskDistribution, Vectors, all_of_sizes, checked_logits


class RandomSizeSubset(MaskDistribution):
    r"""Masks of G entries by a distribution of their size and, given it, the exact k-subset law:

    .. math:: p(z) = P(|z|) \; \mathrm{KSubset}(z \mid \mathrm{logits}, |z|), \qquad
        \mathrm{KSubset}(z \mid \ell, k) = e^{\sum_i z_i \ell_i} / e_k(e^{\ell}) .

    It is `k ~ Categorical(P)`, `z ~ KSubset(logits, k)` with k summed out. Independent Bernoullis
    are the case `P(k) ∝ e_k(e^ℓ)`; zero logits are :class:`ExchangeableMasks`. ``log_prob``,
    ``mean``, ``variance``, ``entropy`` and the draws are exact, the former differentiable in logits
    and sizes.

    Shapes: ``logits`` ``(*batch, G)``; ``size_logits`` ``(*batch, S + 1)`` of the sizes 0, …, S,
    with S ≤ G, or broadcastable; event shape ``(G,)``. What depends on a row alone is computed
    once and shared by what ``expand`` makes. Cost: that of S k-subset distributions a row.

    Args:
        logits: log-odds of each entry's weight, finite. A constant added to a row changes nothing.
        size_logits: log P(k) up to a constant; −∞ for a size that never is.
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
        >>> distribution.mean
        tensor([0.2857, 0.2857])
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
        self._by_size = self._given_size()
        super().__init__(batch, torch.Size((entries,)), validate_args=validate_args)
        self._refuse_infinite("logits")
        if self._validate_args and bool(self._sizes.isnan().any()):
            raise ValueError(
                "size_logits must be numbers or −∞, with a size that can be in every row"
            )

    def _given_size(self) -> KSubset | None:
        """The distributions given the sizes 1, …, S, of batch shape `(*batch, S)`."""
        if self._largest == 0:
            return None
        k = torch.arange(1, self._largest + 1, device=self._logits.device)
        return KSubset(self._logits.unsqueeze(-2), k, validate_args=False, max_k=self._largest)

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
        some = self._sizes.isfinite().reshape(-1, self._largest + 1).any(0)
        return torch.nn.functional.pad(some, (0, self._event_shape[0] - self._largest))

    def uniform(self) -> "RandomSizeSubset":
        """The distribution with the same sizes and shapes under which all masks are alike."""
        entries = self._event_shape[0]
        ways = [log_choose(entries, k) for k in range(self._largest + 1)]
        sizes = torch.where(self._sizes.isfinite(), self._sizes.new_tensor(ways), -torch.inf)
        alike = RandomSizeSubset(torch.zeros_like(self._logits), sizes, validate_args=False)
        return alike.expand(self._batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), of shape ``sample_shape + batch_shape``; −∞ for a size that never is."""
        if self._validate_args:
            self._validate_sample(value)
        size = value.sum(-1).round().long()
        shape = torch.Size(broadcast_shape(size.shape, self._batch_shape))
        size = size.expand(shape)
        result = _taken(self._sizes, size.clamp(0, self._largest))
        if self._by_size is not None:
            theta, _, constant = self._by_size._rows.log_prob_parts()
            index = (size - 1).clamp(0, self._largest - 1)
            tilted = self._logits + _taken(theta, index).unsqueeze(-1)
            # As KSubset has it: relative to each entry's likelier value the terms are small.
            given = (tilted * (value - (tilted > 0).to(tilted.dtype))).sum(-1)
            given = given + _taken(constant, index)
            result = result + torch.where(size > 0, given, torch.zeros_like(given))
        return torch.where(size <= self._largest, result, torch.full_like(result, -torch.inf))

    @torch.no_grad()
    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Exact draws, of shape ``sample_shape + batch_shape + (G,)`` and the logits' dtype."""
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

    @property
    def variance(self) -> Tensor:
        """E[z] (1 − E[z]), ``(*batch, G)``."""
        return self.mean * (1.0 - self.mean)

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
        ``expand=False``.

        Raises:
            ValueError: 2^G is more than 2^20.
        """
        masks = all_of_sizes("RandomSizeSubset", self._allowed(), self._logits)
        return self._listed(masks, expand)


def _taken(by_size: Tensor, index: Tensor) -> Tensor:
    """The entry of the last dimension that an index of the leading shape names."""
    every = by_size.expand(*index.shape, by_size.shape[-1])
    return every.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def geometric_sizes(
    ratio: float, entries: int, *, smallest: int = 0, largest: int | None = None
) -> Tensor:
    r"""The truncated geometric prior: each further entry is `ratio` times as likely as the last,

    .. math:: P(k) = \rho^k \Big/ \sum_{j=a}^{b} \rho^j, \qquad a \le k \le b .

    With ρ = 1 all sizes are alike, with ρ < 1 few entries are likelier: −log ρ nats for each. It is
    a prior on the size alone; masks of one size share it, where a penalty of λ nats for each entry
    has `P(k) ∝ C(G, k) e^{−λk}`.

    Args:
        ratio: ρ > 0.
        entries: G.
        smallest: a ≥ 0, the smallest size.
        largest: b ≤ G; G if None.

    Returns:
        P(0), …, P(G), float64.

    Raises:
        ValueError: a ratio that is not positive, sizes that are not 0 ≤ a ≤ b ≤ G.

    Example:
        >>> geometric_sizes(0.5, 3, smallest=1)
        tensor([0.0000, 0.5714, 0.2857, 0.1429], dtype=torch.float64)
        >>> geometric_sizes(1.0, 3, largest=1)
        tensor([0.5000, 0.5000, 0.0000, 0.0000], dtype=torch.float64)
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

    With a = b = 1 all sizes are alike. A given mask of k entries has `P(k) / C(G, k)`, so that a
    further entry costs the more the more there are to choose from: the correction for multiplicity
    that a fixed rate lacks.

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
        >>> beta_binomial_sizes(3)
        tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
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
