"""Hidden features drawn from a Gaussian with full covariance, given the kept ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from pyro.distributions.util import broadcast_shape
from torch import Tensor

from lexppl.argument_checks import shaped
from lexppl.models.imputers.imputer import (
    HiddenFeatures,
    Imputer,
    TensorOrShape,
    check_training_rows,
    fill_zero_variances,
)


class ConditionalGaussianImputer(Imputer):
    """Hidden features from their exact conditional distribution under one Gaussian of the whole
    row:

        x_H | x_S ~ N(μ_H + Σ_HS Σ_SS⁻¹ (x_S − μ_S), Σ_HH − Σ_HS Σ_SS⁻¹ Σ_SH).

    All masks and rows are solved at once, in O(D³) each: with `M = diag(z)` and `A = M Σ M + (I −
    M)` a draw `u ~ N(μ, Σ)` becomes `x̃_H = (u + Σ M A⁻¹ M (x − u))_H` (Matheron's rule). A
    fractional `keep` is conditioned on where it exceeds 1/2, and interpolates; its gradient is `x −
    u`, with u a draw from `p(x_d | x_{S∖d})` for a kept d. A boolean `keep` costs about a third
    less.

    The covariance may be degenerate (one-hot columns sum to 1): to each variance is added 10 D
    times the machine epsilon of the type times the variance. Tables only: rows of shape `(D,)`.

    Args:
        mean: μ, shape `(D,)`, in the units of the features.
        covariance: Σ, shape `(D, D)`, symmetric positive semi-definite.

    Raises:
        ValueError: shapes that do not fit, a value that is not finite, another covariance.

    Source: Senetaire et al. 2023, appendix B; Wilson et al. 2020, "Efficiently sampling functions
    from Gaussian process posteriors", for Matheron's rule.

    Example:
        >>> covariance = torch.tensor([[1.0, 0.8], [0.8, 1.0]])
        >>> imputer = ConditionalGaussianImputer(torch.zeros(2), covariance)
        >>> imputer(torch.tensor([[2.0, -7.0]]), torch.tensor([1.0, 0.0])).mean
        tensor([[2.0000, 1.6000]])
    """

    mean: Tensor
    covariance: Tensor

    def __init__(self, mean: TensorOrShape, covariance: TensorOrShape) -> None:
        super().__init__()
        self._register("mean", mean)
        has_value = self._register("covariance", covariance)
        (size,) = shaped("mean", self.mean, "D", filled=True)
        shaped("covariance", self.covariance, (size, size))
        self._refuse_mixed_types()
        self.event_shape = self.mean.shape
        if has_value:
            _check_covariance(self.covariance)

    @classmethod
    def fit(cls, x: Tensor) -> ConditionalGaussianImputer:
        """The mean and a covariance of the rows with correlations shrunk towards 0, the variances
        left alone (Ledoit & Wolf 2004; `sklearn.covariance.ledoit_wolf` of standardised features).

        Args:
            x: training rows, shape `(B, D)`, B at least 2, finite.

        Raises:
            TypeError, ValueError: rows other than these.
        """
        from sklearn.covariance import ledoit_wolf  # noqa: PLC0415

        check_training_rows(x)
        shaped("x", x, "B D", note="and GaussianImputer.fit takes other rows")
        rows = x.detach().cpu().double().numpy()
        mean = rows.mean(0)
        varies = (rows != rows[0]).any(0)
        scale = np.where(varies, rows.std(0), 0.0)
        varies = scale > 0
        correlation = np.zeros((rows.shape[1], rows.shape[1]))
        if varies.any():
            standardised = (rows[:, varies] - mean[varies]) / scale[varies]
            shrunk, _ = ledoit_wolf(standardised, assume_centered=True)
            correlation[np.ix_(varies, varies)] = shrunk
        covariance = scale[:, None] * (correlation + correlation.T) / 2 * scale
        return cls(torch.from_numpy(mean).to(x), torch.from_numpy(covariance).to(x))

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """The Gaussian conditioned on the kept entries, batch shape `(…, B)`."""
        return ConditionedGaussian(x, keep, self.mean, self.covariance)


def _check_covariance(covariance: Tensor) -> None:
    variance = covariance.diagonal()
    scale = torch.where(variance > 0, variance, 1).sqrt()
    correlation = covariance / scale / scale.unsqueeze(-1)
    asymmetry = float((correlation - correlation.mT).abs().max())
    tolerance = relative_jitter(covariance)
    if asymmetry > tolerance:
        raise ValueError(
            "covariance must be symmetric; entries that should be equal differ by "
            f"{asymmetry:.2g} as correlations. Use (covariance + covariance.T) / 2 if that is noise"
        )
    # In float64: in float32 the eigenvalues' own rounding would pass for a negative one.
    smallest = float(torch.linalg.eigvalsh(correlation.double())[0])
    if smallest < -tolerance / 2:
        raise ValueError(
            "covariance must be positive semi-definite; its correlation matrix has the eigenvalue "
            f"{smallest:.3g}. Shrink it, or use ConditionalGaussianImputer.fit"
        )


def relative_jitter(covariance: Tensor) -> float:
    """The share of each variance that is added to it: 10 D times the machine epsilon."""
    return 10 * covariance.shape[-1] * torch.finfo(covariance.dtype).eps


class ConditionedGaussian(HiddenFeatures):
    """What each entry of a Gaussian row would be, were it hidden: `u_H ~ p(x_H | x_S)` jointly,
    with S where `keep > 1/2`, and `u_d ~ p(x_d | x_{S∖d})` for each d in S: `u_d = x_d − w_d /
    P_dd` with `P = Σ_SS⁻¹`, `w = P (x_S − v_S)`, `v ~ N(μ, Σ)`; of a boolean `keep` `u_d = x_d`."""

    def __init__(self, x: Tensor, keep: Tensor, mean: Tensor, covariance: Tensor) -> None:
        jitter = relative_jitter(covariance) * fill_zero_variances(covariance.diagonal())
        self._x = x
        self._mean = mean
        self._covariance = covariance + jitter.diag_embed()
        self._draw_cholesky = torch.linalg.cholesky_ex(self._covariance).L
        self._kept = (keep if keep.dtype == torch.bool else keep > 0.5).expand(
            *keep.shape[:-1], len(mean)
        )

        mask = self._kept.to(x.dtype)
        masked = mask.unsqueeze(-1) * self._covariance
        masked.mul_(mask.unsqueeze(-2))
        masked.diagonal(dim1=-2, dim2=-1).add_(1 - mask)
        self._cholesky = torch.linalg.cholesky_ex(masked).L
        del masked
        # Variances of each kept entry given the other kept ones; None where nothing asks for it.
        self._kept_variance: Tensor | None = None
        self._soft = keep.dtype != torch.bool
        if self._soft:
            precision = torch.cholesky_inverse(self._cholesky)
            self._kept_variance = 1 / precision.diagonal(dim1=-2, dim2=-1)
        batch_shape = torch.Size(broadcast_shape(x.shape, self._kept.shape))[:-1]
        super().__init__(batch_shape, mean.shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws `(*sample_shape, …, B, D)` by Matheron's rule."""
        shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
        noise = torch.randn(shape, dtype=self._x.dtype, device=self._x.device)
        return self._condition(noise @ self._draw_cholesky.mT)

    @property
    def mean(self) -> Tensor:
        """The conditional means, `(…, B, D)`."""
        shape = self.batch_shape + self.event_shape
        return self._condition(torch.zeros_like(self._mean)).expand(shape)

    @property
    def covariance_matrix(self) -> Tensor:
        """The conditional covariance, `(…, B, D, D)`: one block for H, one for S."""
        mask = self._kept.to(self._x.dtype)
        precision = torch.cholesky_inverse(self._cholesky)
        # Joseph's form stays positive semi-definite where the plain difference would cancel.
        weights = self._covariance @ (mask.unsqueeze(-1) * precision * mask.unsqueeze(-2))
        residual = torch.eye(len(self._mean), dtype=mask.dtype, device=mask.device) - weights
        residual = (1 - mask).unsqueeze(-1) * residual
        covariance = residual @ self._covariance @ residual.mT
        if self._kept_variance is not None:
            scale = mask * self._kept_variance
            covariance = covariance + scale.unsqueeze(-1) * precision * scale.unsqueeze(-2)
        return covariance.expand(self.batch_shape + self.event_shape + self.event_shape)

    @property
    def variance(self) -> Tensor:
        """The conditional variances, `(…, B, D)`."""
        return self.covariance_matrix.diagonal(dim1=-2, dim2=-1)

    def log_prob_hidden(self, value: Tensor, hidden: Tensor) -> Tensor:
        """The joint log-density of the entries `hidden` of draws, `(…, B)`, by the chain rule:
        `log N(x_S, u_H) − log N(x_S)`; entries of S add the density of their independent block."""
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

    def _condition(self, deviation: Tensor) -> Tensor:
        """Matheron's rule on `deviation`, what a draw of N(0, Σ) is (0 for the mean)."""
        residual = torch.where(self._kept, self._x - self._mean - deviation, 0)
        weights = solve_shared(self._cholesky, residual)
        hidden = self._mean + deviation + weights @ self._covariance
        seen = self._x if self._kept_variance is None else self._x - weights * self._kept_variance
        return torch.where(self._kept, seen, hidden)


def _log_density(cholesky: Tensor, deviation: Tensor, entries: Tensor | None = None) -> Tensor:
    """The log-density of N(0, L L') at the entries where it is not the identity."""
    if entries is not None:
        deviation = torch.where(entries, deviation, 0)
    quadratic = (deviation * solve_shared(cholesky, deviation)).sum(-1)
    log_determinant = cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    size = deviation.shape[-1] if entries is None else entries.sum(-1).to(deviation.dtype)
    return -0.5 * (quadratic + size * math.log(2 * math.pi)) - log_determinant


def solve_shared(cholesky: Tensor, rhs: Tensor) -> Tensor:
    """`w` of `L Lᵀ w = r`, for L `(*factors, D, D)` and r `(*batch, D)`; what `batch` has in front
    of `factors` becomes columns of one solve, so that the factor is not copied."""
    while cholesky.ndim > 2 and cholesky.shape[0] == 1:
        cholesky = cholesky[0]
    lead = rhs.ndim + 1 - cholesky.ndim
    if lead <= 0:
        return torch.cholesky_solve(rhs.unsqueeze(-1), cholesky).squeeze(-1)
    columns = rhs.flatten(0, lead - 1).movedim(0, -1)
    solution = torch.cholesky_solve(columns, cholesky).movedim(-1, 0)
    return solution.unflatten(0, rhs.shape[:lead])
