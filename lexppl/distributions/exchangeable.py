"""Masks of which only the size matters."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor
from torch.distributions import constraints

from lexppl.argument_checks import int_at_least
from lexppl.distributions.masks import MaskDistribution, all_of_sizes


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


class ExchangeableMasks(MaskDistribution):
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
        dtype = torch.get_default_dtype() if dtype is None else dtype
        self._mean = ((exact * torch.arange(size + 1)).sum() / size).to(device=device, dtype=dtype)
        self._entropy = (-(exact * (exact.clamp(min=1e-300).log() - ways)).sum()).to(
            device=device, dtype=dtype
        )
        self._log_mask = (exact.log() - ways).to(device=device, dtype=dtype)
        self._below = below[:-1].to(device=device, dtype=dtype)
        super().__init__(torch.Size(batch_shape), torch.Size((size,)), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> AllowedSizes:
        return AllowedSizes(self._log_mask.isfinite())

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), of shape ``sample_shape + batch_shape``; −∞ for a size that never is."""
        if self._validate_args:
            self._validate_sample(value)
        size = value.sum(-1).round().long().clamp(0, self._event_shape[0])
        result = self._log_mask[size]
        return result.expand(torch.Size(broadcast_shape(result.shape, self._batch_shape)))

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
        masks = all_of_sizes(type(self).__name__, self._log_mask.isfinite(), self._log_mask)
        return self._listed(masks, expand)


class ShapleyKernel(ExchangeableMasks):
    r"""Coalitions of G players, neither none nor all of them, by the Shapley kernel:

    .. math:: p(S) \propto \frac{G - 1}{\tbinom{G}{|S|} \, |S| \, (G - |S|)}, \qquad
              P(|S| = s) = \frac{G}{2 H_{G-1}} \cdot \frac{1}{s (G - s)}, \quad 0 < s < G,

    with the harmonic number :math:`H_n = \sum_{i \le n} 1/i`. Least squares of a game's values
    under this distribution, with the values of no and of all players kept, has the Shapley values
    as its solution. A coalition and its complement are equally likely.

    Args:
        entries: G ≥ 2.
        batch_shape: of the distribution.
        options: `dtype`, `device` and `validate_args` of :class:`ExchangeableMasks`.

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
        >>> distribution.mean
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """

    def __init__(self, entries: int, batch_shape: Sequence[int] = (), **options: Any) -> None:
        size = int_at_least("entries", entries, 2)
        between = [1.0 / (s * (size - s)) for s in range(1, size)]
        super().__init__([0.0, *between, 0.0], batch_shape, **options)


class UniformSize(ExchangeableMasks):
    r"""Masks of G entries whose size is uniform on 0, …, G:

    .. math:: p(z) = \frac{1}{(G + 1) \tbinom{G}{|z|}} = \int_0^1 u^{|z|} (1 - u)^{G - |z|} \, du ,

    that is entries kept independently with a rate u that is itself uniform. What is to predict
    from any set of features learns from these.

    Args:
        entries: G ≥ 1.
        batch_shape: of the distribution.
        options: `dtype`, `device` and `validate_args` of :class:`ExchangeableMasks`.

    Raises:
        ValueError: fewer than one entry.

    Source: Jethani, Sudarshan, Covert, Lee and Ranganath (2022), "FastSHAP: real-time Shapley value
    estimation", ICLR: the masks of its surrogate.

    Example:
        >>> UniformSize(2).log_prob(torch.tensor([[0.0, 0], [1.0, 0], [1.0, 1]])).exp()
        tensor([0.3333, 0.1667, 0.3333])
    """

    def __init__(self, entries: int, batch_shape: Sequence[int] = (), **options: Any) -> None:
        super().__init__([1.0] * (int_at_least("entries", entries) + 1), batch_shape, **options)


def log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
