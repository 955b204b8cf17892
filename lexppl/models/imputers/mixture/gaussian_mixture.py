"""Hidden features drawn from a Gaussian mixture, given the kept ones."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lexppl.models.imputers.mixture.component_features import ComponentFeatures
from lexppl.models.imputers.mixture.mixture_imputer import MixtureImputer

__all__ = ["GaussianFeatures", "GaussianMixtureImputer"]


class GaussianMixtureImputer(MixtureImputer):
    """Hidden features from their exact conditional distribution under a mixture of diagonal
    Gaussians:

        x_H | x_S ~ Σ_c r_c Π_{d ∈ H} N(μ_cd, σ_cd²),
        r_c ∝ π_c Π_{d ∈ S} N(x_d; μ_cd, σ_cd²).

    A component is drawn by its responsibility, from the kept features only, and then its Gaussian
    for all hidden features: they depend on each other through the component.

    A fractional `keep` is the exponent of a feature's density in `r`, and interpolates. Entries
    with `keep > 1/2` are each replaced, in part, by what they would be were they alone hidden: by a
    draw from a component of their own, told by the other features. The gradient with respect to
    `keep` is `x − u` with that draw `u`; the choice of the component has none, so that an estimator
    which differentiates through relaxed masks is biased by it: give it hard masks
    (`straight_through=True`). Means, variances and densities are exact, gradients included. A
    boolean `keep` needs no draws for what is kept, and costs less.

    Rows are tables' `(D,)` or images' `(channels, H, W)`; for memory see
    :class:`.ComponentDistribution`.

    Args:
        weights: π, shape `(C,)`, positive, of sum 1.
        means: μ, shape `(C, *event)`, in the units of the features.
        scales: the standard deviations σ > 0, shape `(C, *event)`.

    Raises:
        TypeError: when they are not of one floating-point type.
        ValueError: when a shape does not fit, a value is NaN or infinite, a weight or a scale is
            not positive, or the weights do not sum to 1.

    Source: Senetaire et al. 2023, appendix B ("Gaussian mixture model").

    Example:
        >>> import torch
        >>> imputer = GaussianMixtureImputer(
        ...     [0.5, 0.5], [[-1.0, -9.0], [1.0, 9.0]], [[0.1, 1.0], [0.1, 1.0]]
        ... )
        >>> x = torch.tensor([[1.1, 0.0]])
        >>> imputer(x, torch.tensor([True, False])).mean
        tensor([[1.1000, 9.0000]])
        >>> imputer.responsibilities(x, torch.tensor([False, True]))
        tensor([[0.5000, 0.5000]])
    """

    def component_features(self) -> ComponentFeatures:
        """The Gaussians of each component."""
        return GaussianFeatures(self.means.flatten(1), self.scales.flatten(1))


class GaussianFeatures(NamedTuple):
    """Independent Gaussians, `x_d | c ~ N(μ_cd, σ_cd²)`.

    Args:
        means: μ, shape `(C, D)`.
        scales: the standard deviations σ, shape `(C, D)`.

    Example:
        >>> features = GaussianFeatures(torch.zeros(3, 2), torch.ones(3, 2))
        >>> features.draw(torch.tensor([[0], [2], [1], [0]])).shape
        torch.Size([4, 2])
    """

    means: Tensor
    scales: Tensor

    @property
    def variances(self) -> Tensor:
        return self.scales**2

    def draw(self, component: Tensor) -> Tensor:
        feature = torch.arange(self.means.shape[-1], device=self.means.device)
        mean, scale = self.means[component, feature], self.scales[component, feature]
        return torch.addcmul(
            mean, torch.randn(mean.shape, dtype=mean.dtype, device=mean.device), scale
        )

    def log_prob(self, value: Tensor, components: slice) -> Tensor:
        distribution = torch.distributions.Normal(
            self.means[components].mT, self.scales[components].mT, validate_args=False
        )
        return distribution.log_prob(value.unsqueeze(-1))
