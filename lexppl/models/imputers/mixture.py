"""Imputers of a mixture of diagonal Gaussians, whose component is chosen by the kept features."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from lexppl.models.imputers.component_distribution import (
    ComponentDistribution,
    ComponentFeatures,
    FeatureMeans,
    IndependentFeatures,
)
from lexppl.models.imputers.imputer import Imputer, TensorOrShape
from lexppl.models.imputers.mixture_fit import fit_diagonal_mixture
from lexppl.models.imputers.simple import _Normal


class MixtureImputer(Imputer):
    """Base of the imputers of a mixture of independent features: the responsibilities.

    With weights π, means μ and standard deviations σ,

        r_c(x, z) ∝ π_c Π_d N(x_d; μ_cd, σ_cd²)^{z_d},

    which for a mask of 0 and 1 is Bayes' rule on the kept features only. A subclass may say in
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
    family: ClassVar[Any] = _Normal
    """Of a feature's distribution, by location and scale."""

    def __init__(self, weights: TensorOrShape, means: TensorOrShape, scales: TensorOrShape) -> None:
        super().__init__()
        weighted = self._register("weights", weights)
        self._register("means", means)
        scaled = self._register("scales", scales)
        shape = self.means.shape
        fits = self.scales.shape == shape and self.weights.shape == shape[:1]
        if self.means.ndim < 2 or self.means.numel() == 0 or not fits:
            raise ValueError(
                "means must have shape (C, *event), scales the same and weights (C,); they have "
                f"{tuple(shape)}, {tuple(self.scales.shape)} and {tuple(self.weights.shape)}"
            )
        self._refuse_mixed_types()
        for name, given in (("scales", scaled), ("weights", weighted)):
            least = float(getattr(self, name).min())
            if given and least <= 0.0:
                raise ValueError(
                    f"{name} must be positive; the smallest value is {least:g}. Leave out "
                    "components without weight"
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
        would else rule the component out by being grey. It starts from k-means on 5,000 rows.

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

    def densities(self) -> IndependentFeatures:
        """The distributions of the features under each component, by which it is judged."""
        return IndependentFeatures(self.family, self.means.flatten(1), self.scales.flatten(1))

    def component_features(self) -> ComponentFeatures:
        """What the hidden features are under each component."""
        return self.densities()

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> ComponentDistribution:
        """The mixture given the kept entries, batch shape `(…, B)`."""
        return ComponentDistribution(
            keep,
            self.weights.log(),
            self.densities().log_prob(x.flatten(1)),
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


class GaussianMixtureImputer(MixtureImputer):
    """Hidden features from their exact conditional distribution under a mixture of diagonal
    Gaussians:

        x_H | x_S ~ Σ_c r_c Π_{d ∈ H} N(μ_cd, σ_cd²),
        r_c ∝ π_c Π_{d ∈ S} N(x_d; μ_cd, σ_cd²).

    A component is drawn by its responsibility, from the kept features only, and then its Gaussian
    for all hidden features: they depend on each other through the component.

    A fractional `keep` is the exponent of a feature's density in `r`, and interpolates. Entries
    with `keep > 1/2` are each replaced, in part, by what they would be were they alone hidden: by a
    draw from a component of their own, given the other features. The gradient with respect to
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
