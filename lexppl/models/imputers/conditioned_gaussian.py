"""A Gaussian conditioned on some of its own entries, for many masks and rows at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from lexppl.models.imputers.variance_floor import fill_zero_variances

__all__ = ["ConditionedGaussian", "relative_jitter", "solve_shared"]


def relative_jitter(covariance: Tensor) -> float:
    """The share of each variance that is added to it: 10 D times the machine epsilon.

    Args:
        covariance: shape `(D, D)`.

    Example:
        >>> relative_jitter(torch.eye(10)) < 1.2e-5
        True
    """
    return 10 * covariance.shape[-1] * torch.finfo(covariance.dtype).eps


class ConditionedGaussian(TorchDistribution):
    """What each entry of a Gaussian row would be, were it hidden, given the kept entries.

    Let S be the entries with `keep > 1/2` and H the others. A draw `u` has

    - `u_H ~ p(x_H | x_S)`, jointly;
    - `u_d ~ p(x_d | x_{S∖d})` for each d in S, independently of `u_H`. With the precision
      `P = Σ_SS⁻¹` and `w = P (x_S − v_S)`, `v ~ N(μ, Σ)`, it is `u_d = x_d − w_d / P_dd`. A boolean
      `keep` has no use for it: there `u_d = x_d`.

    Args:
        x: rows, shape `(B, D)`.
        keep: boolean or in [0, 1], shape `(…, B, D)` or broadcastable to it.
        mean: μ, shape `(D,)`.
        covariance: Σ without its jitter, shape `(D, D)`.

    Example:
        >>> distribution = ConditionedGaussian(
        ...     torch.tensor([[2.0, -7.0]]),
        ...     torch.tensor([[1.0, 0.0]]),
        ...     torch.zeros(2),
        ...     torch.tensor([[1.0, 0.8], [0.8, 1.0]]),
        ... )
        >>> distribution.mean
        tensor([[0.0000, 1.6000]])
        >>> distribution.expand((5, 3, 1)).rsample().shape
        torch.Size([5, 3, 1, 2])
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    has_rsample = True
    support = constraints.real_vector

    def __init__(
        self,
        x: Tensor,
        keep: Tensor,
        mean: Tensor,
        covariance: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        jitter = relative_jitter(covariance) * fill_zero_variances(covariance.diagonal())
        self._x = x
        self._mean = mean
        self._covariance = covariance + jitter.diag_embed()
        self._draw_cholesky = torch.linalg.cholesky_ex(self._covariance).L
        self._kept = (keep if keep.dtype == torch.bool else keep > 0.5).expand(
            *keep.shape[:-1], len(mean)
        )

        kept = self._kept.to(x.dtype)
        masked = kept.unsqueeze(-1) * self._covariance
        masked.mul_(kept.unsqueeze(-2))
        masked.diagonal(dim1=-2, dim2=-1).add_(1 - kept)
        self._cholesky = torch.linalg.cholesky_ex(masked).L
        del masked
        # Variances of each kept entry given the other kept ones; None where nothing asks for it.
        self._kept_variance: Tensor | None = None
        if keep.dtype != torch.bool:
            precision = torch.cholesky_inverse(self._cholesky)
            self._kept_variance = 1 / precision.diagonal(dim1=-2, dim2=-1)
        batch_shape = torch.broadcast_shapes(x.shape, self._kept.shape)[:-1]
        super().__init__(batch_shape, mean.shape, validate_args=validate_args)

    def expand(
        self, batch_shape: torch.Size, _instance: ConditionedGaussian | None = None
    ) -> ConditionedGaussian:
        """The same distribution over more dimensions; the factorisation is shared."""
        new = self._get_checked_instance(ConditionedGaussian, _instance)
        for name in (
            "_x",
            "_mean",
            "_covariance",
            "_draw_cholesky",
            "_kept",
            "_cholesky",
            "_kept_variance",
        ):
            setattr(new, name, getattr(self, name))
        super(ConditionedGaussian, new).__init__(
            torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        return new

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws of shape `(*sample_shape, …, B, D)` by Matheron's rule."""
        shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
        noise = torch.randn(shape, dtype=self._x.dtype, device=self._x.device)
        return self._condition(noise @ self._draw_cholesky.mT)

    @property
    def mean(self) -> Tensor:
        """The conditional means, shape `(…, B, D)`."""
        shape = self.batch_shape + self.event_shape
        return self._condition(torch.zeros_like(self._mean)).expand(shape)

    @property
    def covariance_matrix(self) -> Tensor:
        """The conditional covariance, shape `(…, B, D, D)`: one block for H, one for S."""
        kept = self._kept.to(self._x.dtype)
        precision = torch.cholesky_inverse(self._cholesky)
        # Joseph's form stays positive semi-definite where the plain difference would cancel.
        weights = self._covariance @ (kept.unsqueeze(-1) * precision * kept.unsqueeze(-2))
        residual = torch.eye(len(self._mean), dtype=kept.dtype, device=kept.device) - weights
        residual = (1 - kept).unsqueeze(-1) * residual
        covariance = residual @ self._covariance @ residual.mT
        if self._kept_variance is not None:
            scale = kept * self._kept_variance
            covariance = covariance + scale.unsqueeze(-1) * precision * scale.unsqueeze(-2)
        return covariance.expand(self.batch_shape + self.event_shape + self.event_shape)

    @property
    def variance(self) -> Tensor:
        """The conditional variances, shape `(…, B, D)`."""
        return self.covariance_matrix.diagonal(dim1=-2, dim2=-1)

    def log_prob_hidden(self, value: Tensor, hidden: Tensor) -> Tensor:
        """The joint log-density of the draws at the entries `hidden`, shape `(…, B)`.

        By the chain rule, `log N(x_S, u_H) − log N(x_S)`, which needs no factor of the conditional
        covariance; entries of S that are hidden in part add the density of their independent block.

        Args:
            value: the draws, shape `(…, B, D)`; what stands outside `hidden` is not read.
            hidden: boolean; must hold on H, and may on entries of S.
        """
        deviation = self._x - self._mean
        whole = torch.where(self._kept, deviation, value - self._mean)
        log_prob = _log_density(self._draw_cholesky, whole)
        log_prob = log_prob - _log_density(self._cholesky, deviation, self._kept)
        if self._kept_variance is not None:
            partly = self._kept & hidden
            scale = partly.to(value.dtype) * self._kept_variance
            precision = torch.cholesky_inverse(self._cholesky)
            block = scale.unsqueeze(-1) * precision * scale.unsqueeze(-2)
            block = block + (~partly).to(value.dtype).diag_embed()
            cholesky = torch.linalg.cholesky_ex(block).L
            log_prob = log_prob + _log_density(cholesky, value - self.mean, partly)
        return log_prob

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of a whole draw, which a boolean `keep` does not have.

        Raises:
            NotImplementedError: when `keep` was boolean: the kept entries are then points.
        """
        if self._kept_variance is None:
            raise NotImplementedError(
                "with a boolean keep the kept entries are points and have no density; use "
                "log_prob_hidden, or the log_prob of the Imputed distribution"
            )
        return self.log_prob_hidden(value, torch.ones_like(value, dtype=torch.bool))

    def _condition(self, deviation: Tensor) -> Tensor:
        """Matheron's rule on `deviation`, what a draw of N(0, Sigma) is (0 for the mean)."""
        residual = torch.where(self._kept, self._x - self._mean - deviation, 0)
        weights = solve_shared(self._cholesky, residual)
        hidden = self._mean + deviation + weights @ self._covariance
        kept = self._x if self._kept_variance is None else self._x - weights * self._kept_variance
        return torch.where(self._kept, kept, hidden)


def _log_density(cholesky: Tensor, deviation: Tensor, entries: Tensor | None = None) -> Tensor:
    """The log-density of N(0, L L') at the entries where it is not the identity."""
    if entries is not None:
        deviation = torch.where(entries, deviation, 0)
    quadratic = (deviation * solve_shared(cholesky, deviation)).sum(-1)
    log_determinant = cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    size = deviation.shape[-1] if entries is None else entries.sum(-1).to(deviation.dtype)
    return -0.5 * (quadratic + size * math.log(2 * math.pi)) - log_determinant


def solve_shared(cholesky: Tensor, rhs: Tensor) -> Tensor:
    """The solution `w` of `L Lᵀ w = r`, batch dimensions broadcast.

    Dimensions of `rhs` over which the factor does not change (imputations of one mask, rows under
    one mask) become columns of one solve, so that the factor is never copied.

    Args:
        cholesky: lower triangular `L`, shape `(*factors, D, D)`.
        rhs: `r`, shape `(*batch, D)`; `factors` broadcasts with `batch`.

    Returns:
        shape `(*broadcast, D)`.

    Example:
        >>> solve_shared(2 * torch.eye(2), torch.tensor([[4.0, 8.0], [0.0, 2.0]]))
        tensor([[1.0000, 2.0000],
                [0.0000, 0.5000]])
    """
    size = rhs.shape[-1]
    batch = torch.broadcast_shapes(cholesky.shape[:-2], rhs.shape[:-1])
    n = len(batch)
    factors = (1,) * (n - cholesky.ndim + 2) + tuple(cholesky.shape[:-2])
    own = [i for i in range(n) if factors[i] != 1]
    shared = [i for i in range(n) if factors[i] == 1]
    own_sizes = [batch[i] for i in own]
    shared_sizes = [batch[i] for i in shared]

    order = [*own, n, *shared]
    columns = rhs.expand(*batch, size).permute(order)
    columns = columns.reshape(*own_sizes, size, math.prod(shared_sizes))
    factor = cholesky.reshape(*own_sizes, size, size)
    solution = torch.linalg.solve_triangular(factor, columns, upper=False)
    solution = torch.linalg.solve_triangular(factor.mT, solution, upper=True)
    back = [order.index(i) for i in range(n + 1)]
    return solution.reshape(*own_sizes, size, *shared_sizes).permute(back)
