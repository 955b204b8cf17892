"""Hidden features drawn from independent Gaussians."""

from __future__ import annotations

from collections.abc import Sequence

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor

from lexppl.models.imputers.imputer import Imputer, TensorOrShape
from lexppl.models.imputers.shapes import common_shape
from lexppl.models.imputers.training_rows import check_training_rows
from lexppl.models.imputers.variance_floor import fill_zero_variances

__all__ = ["GaussianImputer"]


class GaussianImputer(Imputer):
    """Every hidden feature is drawn from its own Gaussian, whatever was kept:

        x̃_d = z_d x_d + (1 − z_d) u_d,    u_d ~ N(μ_d, σ_d²).

    The default is the standard Gaussian.

    Args:
        mean: μ, in the units of the features: a number, or a tensor of shape `event`.
        scale: the standard deviation σ > 0: a number, or a tensor of shape `event`.

    Raises:
        ValueError: when a value is NaN or infinite, a scale is not positive, or the shapes do not
            fit each other.

    Source: Senetaire et al. 2023, appendix B ("standard Gaussian").

    Example:
        >>> imputer = GaussianImputer()
        >>> distribution = imputer(torch.ones(2, 3), torch.tensor([1.0, 0.0, 1.0]))
        >>> distribution.mean
        tensor([[1., 0., 1.],
                [1., 0., 1.]])
        >>> distribution.batch_shape, distribution.event_shape
        (torch.Size([2]), torch.Size([3]))
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
        if self.mean.ndim and self.scale.ndim and self.mean.shape != self.scale.shape:
            raise ValueError(
                "mean and scale must have the same shape, or be numbers; mean has "
                f"{tuple(self.mean.shape)} and scale {tuple(self.scale.shape)}"
            )

    @classmethod
    def fit(cls, x: Tensor) -> GaussianImputer:
        """The mean and the standard deviation (divisor B) of each feature.

        A feature that does not vary in `x` gets a tiny scale: the square root of the type's machine
        epsilon times the smallest positive scale of the others.

        Args:
            x: training rows, shape `(B, *event)`, B at least 2, finite.

        Raises:
            TypeError: when `x` is not a floating-point tensor.
            ValueError: when it has fewer than 2 rows, or a NaN or infinite value.

        Example:
            >>> GaussianImputer.fit(torch.tensor([[0.0, 1.0], [2.0, 1.0]])).mean
            tensor([1., 1.])
        """
        check_training_rows(x)
        x = x.detach()
        # Rounding in the mean would leave a constant column a spurious, tiny variance.
        constant = (x == x[0]).all(0)
        variance = torch.where(constant, 0, x.var(0, correction=0))
        share = torch.where(variance > 0, 1, torch.finfo(x.dtype).eps)
        return cls(x.mean(0), (share * fill_zero_variances(variance)).sqrt())

    @property
    def event_shape(self) -> torch.Size | None:
        """The shape of `mean` and `scale`; None where both are numbers."""
        shape = common_shape(self.mean.shape, self.scale.shape)
        return shape if shape else None

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """Independent Gaussians, event shape `event`."""
        event = x.shape[1:]
        distribution = _Normal(
            self.mean.expand(event), self.scale.expand(event), validate_args=False
        )
        return distribution.to_event(len(event))


class _Normal(dist.Normal):
    """Draws like its parent's, which torch.func.vmap refuses as it fills a tensor in place."""

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return torch.addcmul(self.loc, noise, self.scale)
