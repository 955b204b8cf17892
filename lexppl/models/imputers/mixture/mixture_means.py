"""Hidden features replaced with the means of a Gaussian mixture's component."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lexppl.models.imputers.mixture.component_features import ComponentFeatures
from lexppl.models.imputers.mixture.mixture_imputer import MixtureImputer

__all__ = ["FeatureMeans", "MixtureMeansImputer"]


class MixtureMeansImputer(MixtureImputer):
    """Hidden features are the means of a random component of a mixture of diagonal Gaussians:

        x̃ = z ⊙ x + (1 − z) ⊙ μ_c,    c ~ r,    r_c ∝ π_c Π_{d ∈ S} N(x_d; μ_cd, σ_cd²).

    It is a :class:`GaussianMixtureImputer` with the drawn component's means in place of a draw of
    its Gaussian. The component stays random: this is not the conditional mean, which would be
    `Σ_c r_c μ_c`. Fractional masks, their gradients and the arguments are the same.

    The distribution is a set of point masses; it has no `log_prob`.

    Source: Senetaire et al. 2023, appendix B ("means of GMM").

    Example:
        >>> import torch
        >>> imputer = MixtureMeansImputer(
        ...     [0.5, 0.5], [[-1.0, -9.0], [1.0, 9.0]], [[0.1, 1.0], [0.1, 1.0]]
        ... )
        >>> imputer(torch.tensor([[1.1, 0.0]]), torch.tensor([True, False])).sample()
        tensor([[1.1000, 9.0000]])
    """

    def component_features(self) -> ComponentFeatures:
        """The means of each component."""
        return FeatureMeans(self.means.flatten(1))


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

    def log_prob(self, value: Tensor, components: slice) -> Tensor:
        raise NotImplementedError(
            "a component's means are points and have no density; objectives that propose x_imputed "
            "from the model do not need it, others can use a GaussianMixtureImputer"
        )
