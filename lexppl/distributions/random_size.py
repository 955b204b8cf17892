"""First how many entries are kept, then which: k-subset masks whose k has a distribution."""

import math
from typing import Any, ClassVar

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from lexppl.distributions.by_size.exchangeable_masks import AllowedSizes
from lexppl.distributions.k_hot import all_of_sizes, checked_logits
from lexppl.distributions.k_subset.distribution import KSubset
from lexppl.distributions.vectors import Vectors


class RandomSizeSubset(TorchDistribution):
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
    has_rsample = False
    has_enumerate_support = True

    def __init__(
        self, logits: Tensor, size_logits: Tensor, validate_args: bool | None = None
    ) -> None:
        entries = checked_logits(logits)
        if size_logits.dim() < 1 or not 1 <= size_logits.shape[-1] <= entries + 1:
            raise ValueError(
                f"size_logits must be of the sizes 0 to at most G = {entries}, in their last "
                f"dimension; their shape is {tuple(size_logits.shape)}"
            )
        batch = torch.broadcast_shapes(logits.shape[:-1], size_logits.shape[:-1])
        self._logits = logits.expand(*batch, entries)
        self._sizes = size_logits.log_softmax(-1)
        self._largest = size_logits.shape[-1] - 1
        self._by_size = self._given_size()
        super().__init__(batch, torch.Size((entries,)), validate_args=validate_args)
        if self._validate_args:
            self._validate_parameters()

    def _given_size(self) -> KSubset | None:
        """The distributions given the sizes 1, …, S, of batch shape `(*batch, S)`."""
        if self._largest == 0:
            return None
        k = torch.arange(1, self._largest + 1, device=self._logits.device)
        return KSubset(self._logits.unsqueeze(-2), k, validate_args=False, max_k=self._largest)

    def _validate_parameters(self) -> None:
        if not bool(self._logits.isfinite().all()):
            raise ValueError("logits must be finite; some are NaN or infinite")
        if bool(self._sizes.isnan().any()):
            raise ValueError(
                "size_logits must be numbers or −∞, with a size that can be in every row"
            )

    @property
    def logits(self) -> Tensor:
        """The logits, ``(*batch, G)``."""
        return self._logits.expand(self._batch_shape + self._event_shape)

    @property
    def size_logits(self) -> Tensor:
        """log P(k), ``(*batch, S + 1)``."""
        return self._sizes.expand(*self._batch_shape, self._largest + 1)

    def __repr__(self) -> str:
        return f"RandomSizeSubset(logits: {tuple(self.logits.shape)}, sizes: 0 to {self._largest})"

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> AllowedSizes:
        return AllowedSizes(self._allowed())

    def _allowed(self) -> Tensor:
        """Which of the sizes 0, …, G some row can have."""
        some = self._sizes.isfinite().reshape(-1, self._largest + 1).any(0)
        return torch.nn.functional.pad(some, (0, self._event_shape[0] - self._largest))

    def expand(self, batch_shape: Any, _instance: Any = None) -> "RandomSizeSubset":
        new = self._get_checked_instance(RandomSizeSubset, _instance)
        batch_shape = torch.Size(batch_shape)
        if torch.broadcast_shapes(self._batch_shape, batch_shape) != batch_shape:
            raise ValueError(
                f"batch shape {tuple(self._batch_shape)} cannot be expanded to {tuple(batch_shape)}"
            )
        for name in ("_logits", "_sizes", "_largest", "_by_size"):
            setattr(new, name, getattr(self, name))
        super(RandomSizeSubset, new).__init__(batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def uniform(self) -> "RandomSizeSubset":
        """The distribution with the same sizes and shapes under which all masks are alike."""
        entries = self._event_shape[0]
        ways = [
            math.lgamma(entries + 1) - math.lgamma(k + 1) - math.lgamma(entries - k + 1)
            for k in range(self._largest + 1)
        ]
        sizes = torch.where(self._sizes.isfinite(), self._sizes.new_tensor(ways), -torch.inf)
        alike = RandomSizeSubset(torch.zeros_like(self._logits), sizes, validate_args=False)
        return alike.expand(self._batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), of shape ``sample_shape + batch_shape``; −∞ for a size that never is."""
        if self._validate_args:
            self._validate_sample(value)
        size = value.sum(-1).round().long()
        shape = torch.broadcast_shapes(size.shape, self._batch_shape)
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
        entries = self._event_shape[0]
        masks = all_of_sizes("RandomSizeSubset", self._allowed(), self._logits)
        masks = masks.reshape(-1, *(1,) * len(self._batch_shape), entries)
        return masks.expand(-1, *self._batch_shape, entries) if expand else masks


def _taken(by_size: Tensor, index: Tensor) -> Tensor:
    """The entry of the last dimension that an index of the leading shape names."""
    every = by_size.expand(*index.shape, by_size.shape[-1])
    return every.gather(-1, index.unsqueeze(-1)).squeeze(-1)
