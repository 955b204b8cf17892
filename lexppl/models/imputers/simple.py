"""Imputers that fit nothing to the kept features: constants, gaps, noise, random rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from pyro.distributions.util import broadcast_shape
from torch import Tensor, nn
from torch.distributions import constraints
from torch.nn.functional import embedding

from lexppl.argument_checks import shaped
from lexppl.configured import Configured
from lexppl.models.imputers.imputer import (
    HiddenFeatures,
    Imputed,
    Imputer,
    TensorOrShape,
    check_training_rows,
    fill_zero_variances,
)


class ConstantImputer(Imputer):
    """Every hidden feature becomes a constant: `x̃ = z ⊙ x + (1 − z) ⊙ c`; one imputation suffices.

    Args:
        value: the constant `c`, in the units of the features: a number, or a tensor of shape
            `event`.

    Raises:
        ValueError: when it is NaN or infinite.

    Source: Senetaire et al. 2023, appendix B; with 0 it is the masking of L2X, INVASE and REAL-X.

    Example:
        >>> imputer = ConstantImputer(-1.0)
        >>> imputer(torch.ones(1, 3), torch.tensor([1.0, 0.0, 1.0])).sample()
        tensor([[ 1., -1.,  1.]])
    """

    puts_a_constant: ClassVar[bool] = True
    """Whether hidden features become a number, not a draw."""

    value: Tensor

    def __init__(self, value: TensorOrShape = 0.0) -> None:
        super().__init__()
        self._register("value", value)
        self.event_shape = self.value.shape or None

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """A Delta at the constant, event shape `event`."""
        return dist.Delta(self.value.expand(x.shape[1:]), event_dim=x.ndim - 1)


class LearnedConstantImputer(Imputer):
    """Every hidden feature becomes a constant that is learned: `x̃ = z ⊙ x + (1 − z) ⊙ r ⊙ c`, c
    from 0.

    A predictor of `x̃` learns which value of a feature predicts as its absence does, where 0, often
    the mean, is a value like others.

    Args:
        rates: r, how far a constant moves by a step of c, `(D,)`; 0 leaves it at 0.

    Source: Le Morvan, Josse, Scornet, Varoquaux. What's a good imputation to predict with missing
        values? NeurIPS 2021: constants suffice for a predictor that is learned with them.

    Example:
        >>> imputer = LearnedConstantImputer([2.0, 0.0])
        >>> imputer.constant.data += 1.0
        >>> imputer(torch.ones(1, 2), torch.zeros(2)).sample()
        tensor([[2., 0.]])
    """

    puts_a_constant: ClassVar[bool] = True  # Whether hidden features become a number, not a draw

    rates: Tensor

    def __init__(self, rates: TensorOrShape) -> None:
        super().__init__()
        self._register("rates", rates)
        self.event_shape = self.rates.shape
        self.constant = nn.Parameter(torch.zeros_like(self.rates))

    def reset_parameters(self) -> None:
        """Put the constants to 0."""
        nn.init.zeros_(self.constant)

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """A Delta at the constants, event shape `event`."""
        return dist.Delta(self.rates * self.constant, event_dim=x.ndim - 1)


class GapImputer(Imputer):
    """Every hidden feature becomes NaN: `x̃ = x` where kept, a gap where hidden; one imputation
    suffices.

    For predictors that read a gap as missing (`TreePredictor`); a network
    gives NaN. A gap has no gradient in the mask.

    Raises:
        ValueError: from a call, masks that carry a gradient; where Pyro validates, as in the first
            step of a fit, masks other than 0 and 1.

    Example:
        >>> GapImputer()(torch.ones(1, 3), torch.tensor([1.0, 0.0, 1.0])).sample()
        tensor([[1., nan, 1.]])
    """

    leaves_gaps: ClassVar[bool] = True
    """Whether hidden features become NaN."""

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """A Delta at NaN, event shape `event`."""
        return dist.Delta(x.new_full(x.shape[1:], torch.nan), event_dim=x.ndim - 1)

    def forward(self, x: Tensor, keep: Tensor) -> Imputed:
        """The rows `(B, *event)` with gaps, batch shape `(…, B)` and event shape `event`."""
        hard = self._hard_mask(
            x, keep, "a gap", "an imputer with values between, such as ConstantImputer()"
        )
        return _WithGaps(x, hard, self.hidden_distribution(x, keep))


class _WithGaps(Imputed):
    """The distribution of a row with gaps, in which a gap equals a gap."""

    @property
    def support(self) -> constraints.Constraint:
        """Numbers and gaps."""
        return constraints.independent(_NumberOrGap(), len(self.event_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """0 for the row with its gaps, minus infinity for any other: `(…, B)`."""
        row = self.mean
        same = (value == row) | (value.isnan() & row.isnan())
        batch = value.shape[: value.ndim - len(self.event_shape)]
        shape = torch.Size(broadcast_shape(batch, self.batch_shape))
        return self._all_entries(same).to(row.dtype).log().expand(shape)


class _NumberOrGap(constraints.Constraint):
    def check(self, value: Tensor) -> Tensor:
        return torch.ones_like(value, dtype=torch.bool)


class GaussianImputer(Imputer):
    """Every hidden feature is drawn from its own Gaussian, by default N(0, 1), whatever was kept:

        x̃_d = z_d x_d + (1 − z_d) u_d,    u_d ~ N(μ_d, σ_d²).

    Args:
        mean: μ, in the units of the features: a number, or a tensor of shape `event`.
        scale: the standard deviation σ > 0: a number, or a tensor of shape `event`.

    Raises:
        ValueError: values that are not finite, scales that are not positive, shapes that differ.

    Source: Senetaire et al. 2023, appendix B ("standard Gaussian").

    Example:
        >>> GaussianImputer()(torch.ones(1, 3), torch.tensor([1.0, 0.0, 1.0])).mean
        tensor([[1., 0., 1.]])
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: TensorOrShape = 0.0, scale: TensorOrShape = 1.0) -> None:
        super().__init__()
        self._register("mean", mean)
        if self._register("scale", scale) and bool((self.scale <= 0).any()):
            raise ValueError(
                f"scale must be positive; its smallest value is {float(self.scale.min()):g}. Use "
                "a ConstantImputer for features that must not vary"
            )
        if self.mean.ndim and self.scale.ndim:
            shaped("scale", self.scale, self.mean.shape, note="as mean, or be a number")
        self.event_shape = torch.Size(broadcast_shape(self.mean.shape, self.scale.shape)) or None

    @classmethod
    def fit(cls, x: Tensor) -> GaussianImputer:
        """The mean and the standard deviation (divisor B) of each feature; one that does not vary
        gets a tiny scale.

        Args:
            x: training rows, shape `(B, *event)`, B at least 2, finite.

        Raises:
            TypeError, ValueError: rows other than these.
        """
        check_training_rows(x)
        x = x.detach()
        # Rounding in the mean would leave a constant column a spurious, tiny variance.
        constant = (x == x[0]).all(0)
        variance = torch.where(constant, 0, x.var(0, correction=0))
        share = torch.where(variance > 0, 1, torch.finfo(x.dtype).eps)
        return cls(x.mean(0), (share * fill_zero_variances(variance)).sqrt())

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """Independent Gaussians, event shape `event`."""
        event = x.shape[1:]
        entries = _Normal(self.mean.expand(event), self.scale.expand(event), validate_args=False)
        return entries.to_event(len(event))


class _Normal(dist.Normal):
    """A normal distribution with draws that torch.func.vmap allows: no tensor filled in place."""

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return torch.addcmul(self.loc, noise, self.scale)


class MarginalImputer(Imputer):
    """The hidden features of a row are those of one random row of a reference set:

        x̃ = z ⊙ x + (1 − z) ⊙ r_i,    i ~ Uniform{1, …, N},

    with an index for every imputation, mask and row.

    Args:
        reference: the rows `r`, shape `(N, *event)`, N at least 1, finite.

    Raises:
        ValueError: another shape, or a NaN or infinite value.

    Source: Senetaire et al. 2023, appendix B ("marginal").

    Example:
        >>> imputer = MarginalImputer(torch.tensor([[5.0, 6.0, 7.0]]))
        >>> imputer(torch.ones(1, 3), torch.tensor([1.0, 0.0, 0.0])).sample()
        tensor([[1., 6., 7.]])
    """

    reference: Tensor

    def __init__(self, reference: TensorOrShape) -> None:
        super().__init__()
        self._register("reference", reference)
        shaped("reference", self.reference, "N *event", filled=True)
        self.event_shape = self.reference.shape[1:]

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """A uniformly drawn row of the reference set."""
        return ReferenceRow(self.reference)


class ReferenceRow(HiddenFeatures):
    """A uniformly drawn row of `reference` `(N, *event)`, with gradients to the rows."""

    no_density = (
        "the distribution of a random reference row is a set of point masses and has no density; "
        "objectives that propose x_imputed from the model do not need it, others can use a "
        "GaussianImputer or a ConditionalGaussianImputer"
    )

    def __init__(self, reference: Tensor) -> None:
        self.reference = reference
        super().__init__(torch.Size(), reference.shape[1:])

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Rows of the reference set, `(*sample_shape, *batch, *event)`."""
        shape = torch.Size(sample_shape) + self.batch_shape
        index = torch.randint(len(self.reference), shape, device=self.reference.device)
        return embedding(index, self.reference.flatten(1)).reshape(*shape, *self.event_shape)

    @property
    def mean(self) -> Tensor:
        """The mean of the reference set."""
        return self.reference.mean(0).expand(self.batch_shape + self.event_shape)

    @property
    def variance(self) -> Tensor:
        """The variance (divisor N) of the reference set."""
        return self.reference.var(0, correction=0).expand(self.batch_shape + self.event_shape)


class ComplementImputer(Configured, nn.Module):
    """Hide what the mask keeps and keep what it hides, `p_ι(x̃ | x, 1 − z)`: what an adversary sees
    (MEED, Liang et al. 2020, eq. 7)."""

    def __init__(self, imputer: nn.Module) -> None:
        super().__init__()
        self.imputer = imputer

    def forward(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """The distribution of the imputed rows given the complement of `keep`."""
        return self.imputer(x, 1.0 - keep)


class SquaredMaskImputer(Configured, nn.Module):
    """Soft masks act by their square, `x̃ = z² ⊙ x` (XTab, Uçar & Hajiramezanali 2022, eq. 4).

    Example:
        >>> SquaredMaskImputer()(torch.ones(1, 2), torch.tensor([1.0, 0.5])).sample()
        tensor([[1.0000, 0.2500]])
    """

    def forward(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """A Delta at the scaled rows, batch shape `(…, B)`."""
        return dist.Delta(keep.square() * x, event_dim=x.dim() - 1)


def constant_imputer(imputer: nn.Module | None) -> nn.Module:
    """An imputer that puts a number in place of what is hidden, and no draw; 0 if None."""
    if imputer is None:
        return ConstantImputer(0.0)
    if not getattr(imputer, "puts_a_constant", False):
        raise TypeError(
            "imputer must be a ConstantImputer, so that what is hidden has one value and is no "
            f"draw; it is {type(imputer).__name__}"
        )
    return imputer
