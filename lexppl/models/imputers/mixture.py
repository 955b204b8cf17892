"""Imputers of a mixture of diagonal Gaussians, whose component is chosen by the kept features."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least, int_between
from lexppl.models.imputers.component_distribution import (
    ComponentDistribution,
    ComponentFeatures,
    FeatureMeans,
    IndependentFeatures,
)
from lexppl.models.imputers.imputer import (
    Imputer,
    TensorOrShape,
    check_training_rows,
    fill_zero_variances,
)
from lexppl.models.imputers.simple import _Normal

Mixture = tuple[Tensor, Tensor, Tensor]
"""Weights `(C,)`, means `(C, *event)` and scales `(C, *event)`."""

START_ROWS = 5000
"""Most rows that k-means finds a start on."""


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


def check_component_fit(x: Tensor, components: int, seed: int) -> None:
    """Refuse what no mixture of that many components can be fitted to.

    Args:
        x: training rows, shape `(B, *event)`.
        components: C.
        seed: of the fit's start.

    Raises:
        TypeError: when `x` is not a floating-point tensor.
        ValueError: when `x` is not finite or has fewer than 2 rows, the components are no
            whole number from 1 to its rows, or the seed is none of at least 0.

    Example:
        >>> check_component_fit(torch.ones(3, 2), components=4, seed=0)
        Traceback (most recent call last):
        ValueError: components must be a whole number from 1 to 3, the rows of x; it is 4
    """
    check_training_rows(x)
    int_between("components", components, 1, len(x), note="the rows of x")
    int_at_least("seed", seed, 0)


def fit_diagonal_mixture(
    x: Tensor, components: int, seed: int, least_scale: float | None = None
) -> Mixture:
    """Weights `(C,)`, means `(C, *event)` and standard deviations `(C, *event)` of a mixture.

    Features of tables are standardised for scikit-learn. One that does not vary gets a tiny scale:
    the square root of the type's machine epsilon times the smallest positive scale of the others.
    Images, and rows with a `least_scale`, are taken as they are, from a start of k-means.

    Args:
        x: training rows, shape `(B, *event)`.
        components: C.
        seed: of the start.
        least_scale: see :meth:`.MixtureImputer.fit`.

    Raises:
        TypeError, ValueError: as :func:`check_component_fit`; a `least_scale` that is not above 0.

    Example:
        >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
        >>> weights, means, scales = fit_diagonal_mixture(x, components=2, seed=0)
        >>> means.sort(0).values
        tensor([[0.0500],
                [5.0500]])
    """
    from sklearn.mixture import GaussianMixture  # noqa: PLC0415

    check_component_fit(x, components, seed)
    if least_scale is not None:
        least_scale = finite_float("least_scale", least_scale, above=0.0)
    kind = {"covariance_type": "diag", "random_state": seed}
    rows = x.detach().flatten(1).cpu().double().numpy()
    if x.ndim > 2 or least_scale is not None:
        flat = x.detach().flatten(1)
        added = usual_least_scale(flat) if least_scale is None else least_scale
        start = start_by_clusters(flat, components, seed, added)
        share, mean, scale = (each.cpu().double().numpy() for each in start)
        mixture = GaussianMixture(
            components,
            reg_covar=added**2,
            max_iter=200,
            weights_init=share / share.sum(),
            means_init=mean,
            precisions_init=scale**-2,
            **kind,
        ).fit(rows)
        means, scales = mixture.means_, np.sqrt(mixture.covariances_)
    else:
        varies = (rows != rows[0]).any(0) & (rows.std(0) > 0)
        mean = np.where(varies, rows.mean(0), rows[0])
        variance = np.where(varies, rows.var(0), 0.0)
        scale = np.where(varies, np.sqrt(variance), 1.0)
        mixture = GaussianMixture(components, reg_covar=1e-6, max_iter=500, **kind).fit(
            (rows - mean) / scale
        )
        least = fill_zero_variances(torch.from_numpy(variance)).numpy() * torch.finfo(x.dtype).eps
        means = mean + scale * mixture.means_
        scales = np.where(varies, scale * np.sqrt(mixture.covariances_), np.sqrt(least))
    weights = torch.from_numpy(mixture.weights_ / mixture.weights_.sum()).to(x)
    shape = (-1, *x.shape[1:])
    parts = (torch.from_numpy(each).to(x).reshape(shape) for each in (means, scales))
    return weights, next(parts), next(parts)


def start_by_clusters(rows: Tensor, components: int, seed: int, least_scale: float) -> Mixture:
    """Shares, means and standard deviations of k-means' clusters, on at most 5,000 random rows.

    Args:
        rows: flat rows, shape `(N, D)`.
        components: C.
        seed: of the rows and of k-means.
        least_scale: what is added to each variance, as a standard deviation.

    Example:
        >>> start_by_clusters(torch.tensor([[0.0], [5.0], [5.2]]), 2, 0, 0.1)[0].sort().values
        tensor([0.3333, 0.6667])
    """
    from sklearn.cluster import KMeans  # noqa: PLC0415

    most = max(START_ROWS, components)
    if len(rows) > most:
        places = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:most]
        rows = rows[places.to(rows.device)]
    labels = KMeans(components, n_init=1, random_state=seed).fit_predict(rows.cpu().numpy())
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(labels).long(), components)
    members = one_hot.to(rows).mT
    # k-means leaves a cluster empty only where there are fewer distinct rows than clusters.
    count = members.sum(-1, keepdim=True).clamp(min=1)
    means = members @ rows / count
    variances = (members @ rows**2 / count - means**2).clamp(min=0) + least_scale**2
    return count.squeeze(-1) / count.sum(), means, variances.sqrt().clamp(min=least_scale)


def usual_least_scale(rows: Tensor) -> float:
    """A tenth of the features' root-mean-square standard deviation, or the square root of the
    type's machine epsilon where none varies.

    Args:
        rows: flat rows, shape `(N, D)`.

    Example:
        >>> round(usual_least_scale(torch.tensor([[0.0, 2.0], [2.0, 2.0]])), 4)
        0.0707
    """
    variance = float(rows.var(0, correction=0).double().mean())
    return 0.1 * variance**0.5 if variance > 0 else float(torch.finfo(rows.dtype).eps) ** 0.5
