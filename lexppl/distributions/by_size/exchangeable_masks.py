"""Masks of which only the size matters."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from lexppl.distributions.k_hot import all_of_sizes


class AllowedSizes(constraints.Constraint):
    """Vectors of zeros and ones whose number of ones has a probability above 0.

    Args:
        allowed: `(G + 1,)` booleans, one for each size.
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, allowed: Tensor) -> None:
        self.allowed = allowed
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        binary = ((value == 0) | (value == 1)).all(-1)
        size = torch.where(binary, value.sum(-1), 0.0).long()
        return binary & self.allowed[size]


class ExchangeableMasks(TorchDistribution):
    r"""Masks of G entries whose size has given probabilities, all masks of one size being alike:

    .. math:: p(z) = P(|z|) \,/\, \tbinom{G}{|z|}, \qquad |z| = \textstyle\sum_i z_i .

    Probabilities, draws, moments, entropy and the list of all masks are exact. Nothing is learned:
    the sizes' probabilities are numbers.

    Shapes: batch shape as given (independent draws of one distribution), event shape ``(G,)``.

    Args:
        size_probabilities: P(0), …, P(G), not negative; divided by their sum.
        batch_shape: of the distribution.
        dtype: of the masks; torch's default if None.
        device: of the masks.
        validate_args: as in every torch distribution.

    Raises:
        ValueError: fewer than two probabilities, one that is negative or not finite, a sum of 0.

    Example:
        >>> distribution = ExchangeableMasks([0.0, 0.6, 0.4])
        >>> distribution.log_prob(torch.tensor([[1.0, 0.0], [1.0, 1.0]])).exp()
        tensor([0.3000, 0.4000])
        >>> distribution.mean
        tensor([0.7000, 0.7000])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = False
    has_enumerate_support = True

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
        ways = torch.tensor([_log_choose(size, s) for s in range(size + 1)], dtype=torch.float64)
        below = exact.cumsum(0)
        # Rounding must not leave a size of probability 0 a place at the largest uniform.
        below[max(s for s, weight in enumerate(weights) if weight / total > 0.0) :] = 1.0
        dtype = torch.get_default_dtype() if dtype is None else dtype
        self._mean = ((exact * torch.arange(size + 1)).sum() / size).to(device=device, dtype=dtype)
        self._entropy = (-(exact * (exact.clamp(min=1e-300).log() - ways)).sum()).to(
            device=device, dtype=dtype
        )
        self._log_mask = (exact.log() - ways).to(device=device, dtype=dtype)
        self._below = below[:-1].to(device=device, dtype=dtype)
        super().__init__(torch.Size(batch_shape), torch.Size((size,)), validate_args=validate_args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(entries: {self._event_shape[0]})"

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> AllowedSizes:
        return AllowedSizes(self._log_mask.isfinite())

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(type(self), _instance)
        batch_shape = torch.Size(batch_shape)
        own = self._batch_shape
        ends = batch_shape[len(batch_shape) - len(own) :]
        if len(ends) != len(own) or any(a not in (1, b) for a, b in zip(own, ends, strict=True)):
            raise ValueError(f"batch shape {tuple(own)} cannot be expanded to {tuple(batch_shape)}")
        for name in ("_mean", "_entropy", "_log_mask", "_below"):
            setattr(new, name, getattr(self, name))
        super(ExchangeableMasks, new).__init__(batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), of shape ``sample_shape + batch_shape``; −∞ for a size that never is."""
        if self._validate_args:
            self._validate_sample(value)
        size = value.sum(-1).round().long().clamp(0, self._event_shape[0])
        result = self._log_mask[size]
        return result.expand(torch.broadcast_shapes(result.shape, self._batch_shape))

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

    @property
    def variance(self) -> Tensor:
        """E[z] (1 − E[z]), ``(*batch, G)``."""
        return self.mean * (1.0 - self.mean)

    def entropy(self) -> Tensor:
        """−E[log p(z)] in nats, of the batch's shape."""
        return self._entropy.expand(self._batch_shape)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All masks that can be drawn, ``(M, *batch, G)``; ``batch`` all ones for
        ``expand=False``.

        Raises:
            ValueError: 2^G is more than 2^20.
        """
        size = self._event_shape[0]
        masks = all_of_sizes(type(self).__name__, self._log_mask.isfinite(), self._log_mask)
        masks = masks.reshape(-1, *(1,) * len(self._batch_shape), size)
        return masks.expand(-1, *self._batch_shape, size) if expand else masks


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
