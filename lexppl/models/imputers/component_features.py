"""What the hidden features are, once the component of a mixture is chosen."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

__all__ = ["ComponentFeatures", "FeatureMeans", "GaussianFeatures"]


class ComponentFeatures(Protocol):
    """The features of a row under each of C components.

    `means` and `variances` are those of the features, shape `(C, D)`.
    """

    @property
    def means(self) -> Tensor: ...

    @property
    def variances(self) -> Tensor: ...

    def draw(self, component: Tensor) -> Tensor:
        """Features of rows, shape `(…, D)`.

        Args:
            component: whole numbers below C, of shape `(…, 1)`, one for a whole row, or `(…, D)`:
                then each entry is drawn on its own.
        """

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of each entry of `value` `(…, D)` under each component, shape
        `(…, D, C)`.

        Raises:
            NotImplementedError: where the features are points.
        """


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

    def log_prob(self, value: Tensor) -> Tensor:
        law = torch.distributions.Normal(self.means.mT, self.scales.mT, validate_args=False)
        return law.log_prob(value.unsqueeze(-1))


class FeatureMeans(NamedTuple):
    """The component's means themselves.

    Args:
        means: shape `(C, D)`.

    Example:
        >>> FeatureMeans(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).draw(torch.tensor([[1, 0]]))
        tensor([[3., 2.]])
    """

    means: Tensor

    @property
    def variances(self) -> Tensor:
        return torch.zeros_like(self.means)

    def draw(self, component: Tensor) -> Tensor:
        feature = torch.arange(self.means.shape[-1], device=self.means.device)
        return self.means[component, feature]

    def log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError(
            "a component's means are points and have no density; objectives that propose x_imputed "
            "from the model do not need it, others can use a GaussianMixtureImputer"
        )
