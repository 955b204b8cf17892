"""A mixture of diagonal Gaussians, told its component by the kept features."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

from lexppl.models.imputers.imputer import Imputer, TensorOrShape
from lexppl.models.imputers.mixture.component_distribution import ComponentDistribution
from lexppl.models.imputers.mixture.component_features import ComponentFeatures, Evidence
from lexppl.models.imputers.mixture.diagonal_fit import fit_diagonal_mixture

__all__ = ["MixtureImputer"]


class GaussianEvidence(NamedTuple):
    """The log-density of each feature under each component, up to a constant of the feature.

    Args:
        x: rows, shape `(B, D)`.
        means: μ, shape `(C, D)`.
        scales: the standard deviations σ, shape `(C, D)`.

    Example:
        >>> import torch
        >>> evidence = GaussianEvidence(torch.zeros(5, 2), torch.zeros(3, 2), torch.ones(3, 2))
        >>> evidence.of(slice(0, 2)).shape
        torch.Size([5, 2, 2])
    """

    x: Tensor
    means: Tensor
    scales: Tensor

    def of(self, components: slice) -> Tensor:
        means, scales = self.means[components].mT, self.scales[components].mT
        standardised = (self.x.unsqueeze(-1) - means) / scales
        return -0.5 * standardised**2 - scales.log()


class MixtureImputer(Imputer):
    """What the imputers of a diagonal Gaussian mixture share: the responsibilities.

    With weights π, means μ and standard deviations σ,

        r_c(x, z) ∝ π_c Π_d N(x_d; μ_cd, σ_cd²)^{z_d},

    which for a mask of 0 and 1 is Bayes' rule on the kept features only. A subclass says in
    :meth:`component_features` what a component makes of the hidden ones.

    Args:
        weights: π, shape `(C,)`, positive, of sum 1.
        means: μ, shape `(C, *event)`, in the units of the features.
        scales: σ > 0, shape `(C, *event)`.

    Raises:
        TypeError: when they are not of one floating-point type.
        ValueError: when a shape does not fit, a value is NaN or infinite, a weight or a scale is
            not positive, or the weights do not sum to 1.
    """

    weights: Tensor
    means: Tensor
    scales: Tensor

    def __init__(self, weights: TensorOrShape, means: TensorOrShape, scales: TensorOrShape) -> None:
        super().__init__()
        weighted = self._register("weights", weights)
        self._register("means", means)
        scaled = self._register("scales", scales)
        if self.means.ndim < 2 or self.means.numel() == 0:
            raise ValueError(
                f"means must have shape (C, *event); it has shape {tuple(self.means.shape)}"
            )
        if self.scales.shape != self.means.shape:
            raise ValueError(
                f"scales must have the shape of means, {tuple(self.means.shape)}; it has shape "
                f"{tuple(self.scales.shape)}"
            )
        if self.weights.shape != self.means.shape[:1]:
            raise ValueError(
                f"weights must have shape ({len(self.means)},), one for each row of means; it has "
                f"shape {tuple(self.weights.shape)}"
            )
        types = {name: buffer.dtype for name, buffer in self.named_buffers()}
        if len(set(types.values())) > 1:
            raise TypeError(f"weights, means and scales must be of one type; they are {types}")
        if scaled and bool((self.scales <= 0).any()):
            raise ValueError(
                f"scales must be positive; the smallest value is {float(self.scales.min()):g}"
            )
        if weighted and bool((self.weights <= 0).any()):
            raise ValueError(
                f"weights must be positive; the smallest is {float(self.weights.min()):g}. Leave "
                "out components without weight"
            )
        if weighted and abs(float(self.weights.sum()) - 1) > 1e-3:
            raise ValueError(f"weights must sum to 1; their sum is {float(self.weights.sum()):g}")

    @classmethod
    def fit(
        cls, x: Tensor, components: int = 20, seed: int = 0, least_scale: float | None = None
    ) -> Self:
        """The mixture of highest likelihood that expectation maximisation finds.

        Of tables the features are standardised for the fit, so that their units do not matter; to
        each variance in a component, 1e-6 of the feature's overall variance is added. It runs on
        the CPU in float64; the result has the type and the device of `x`.

        Of images, and wherever `least_scale` is given, the features are left in their units, and to
        each variance `least_scale²` is added: a pixel that is black in all of a component's images
        would else rule the component out by being grey. The rows go by in batches on the device of
        `x`, so that no second copy of them is made.

        Args:
            x: training rows, shape `(B, *event)`, finite.
            components: C, from 1 to B.
            seed: of the start, which is k-means; the global random state is not touched.
            least_scale: a least standard deviation in a component, above 0 and in the units of the
                features. None: the above for tables, for images a tenth of the pixels'
                root-mean-square standard deviation.

        Raises:
            TypeError: when `x` is not a floating-point tensor.
            ValueError: when `x` is not finite or has fewer than 2 rows, the components are no whole
                number from 1 to its rows, or `least_scale` is not above 0.

        Source: `sklearn.mixture.GaussianMixture` with `covariance_type="diag"`.
        """
        return cls(*fit_diagonal_mixture(x, components, seed, least_scale))

    @property
    def event_shape(self) -> torch.Size | None:
        """The shape of a row of `means`."""
        return self.means.shape[1:]

    def component_features(self) -> ComponentFeatures:
        """What the features are under each component."""
        raise NotImplementedError(f"{type(self).__name__} must define component_features()")

    def evidence(self, x: Tensor) -> Evidence:
        """How well each feature of the rows fits each component.

        Args:
            x: flat rows, shape `(B, D)`.
        """
        return GaussianEvidence(x, self.means.flatten(1), self.scales.flatten(1))

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> ComponentDistribution:
        """The mixture given the kept entries, batch shape `(…, B)`."""
        return ComponentDistribution(
            keep,
            self.weights.log(),
            self.evidence(x.flatten(1)),
            self.component_features(),
            self.event_shape,
        )

    def responsibilities(self, x: Tensor, keep: Tensor) -> Tensor:
        """The components' probabilities given the kept features, shape `(…, B, C)`.

        Args:
            x: rows, shape `(B, *event)`.
            keep: boolean or in [0, 1], shape `(…, B, *event)` or broadcastable to it.

        Raises:
            TypeError: when `x` is not of the imputer's floating-point type.
            ValueError: when a shape does not fit.
        """
        self._check_input(x, keep)
        return self.hidden_distribution(x, keep).probabilities
