"""Hidden features replaced with the means of a Gaussian mixture's component."""

from __future__ import annotations

from lexppl.models.imputers.component_features import ComponentFeatures, FeatureMeans
from lexppl.models.imputers.mixture import MixtureImputer

__all__ = ["MixtureMeansImputer"]


class MixtureMeansImputer(MixtureImputer):
    """Hidden features are the means of a random component of a mixture of diagonal Gaussians:

        x̃ = z ⊙ x + (1 − z) ⊙ μ_c,    c ~ r,    r_c ∝ π_c Π_{d ∈ S} N(x_d; μ_cd, σ_cd²).

    It is a :class:`GaussianMixtureImputer` with the drawn component's means in place of a draw of
    its Gaussian. The component stays random: this is not the conditional mean, which would be
    `Σ_c r_c μ_c`. Fractional masks, their gradients and the arguments are the same.

    The law is a set of point masses; it has no `log_prob`.

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
        return FeatureMeans(self.means)
