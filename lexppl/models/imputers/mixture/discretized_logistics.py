"""Hidden pixels drawn from a mixture of discretised logistics, given the kept ones."""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor
from torch.nn.functional import softplus

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.models.imputers.imputer import TensorOrShape
from lexppl.models.imputers.mixture.batched_em import DiagonalMixture, start_by_clusters
from lexppl.models.imputers.mixture.blocks import NUMBERS_AT_ONCE
from lexppl.models.imputers.mixture.component_distribution import ComponentDistribution
from lexppl.models.imputers.mixture.component_features import ComponentFeatures, Evidence
from lexppl.models.imputers.mixture.diagonal_fit import check_component_fit
from lexppl.models.imputers.mixture.discretized_logistic import (
    STEPS,
    LogisticEvidence,
    LogisticFeatures,
    inverse_softplus,
    scale_of_deviation,
)
from lexppl.models.imputers.mixture.mixture_imputer import MixtureImputer
from lexppl.models.imputers.mixture.mixture_means import FeatureMeans

__all__ = ["DiscretizedLogisticMeansImputer", "DiscretizedLogisticMixtureImputer"]

BATCH = 200
"""Rows of a step."""


def fit_logistic_mixture(
    rows: Tensor,
    components: int,
    seed: int,
    least_scale: float,
    epochs: int,
    learning_rate: float,
) -> DiagonalMixture:
    """Weights, means μ and scales s of high log-likelihood

        Σ_n log Σ_c π_c Π_d P(x_nd; μ_cd, s_cd),

    from a start of k-means, with s bounded from below. The gradient of a batch is that of
    expectation maximisation: the responsibilities weight the components'. It is summed over parts
    of a batch, so that memory has a bound.

    Args:
        rows: flat rows in [0, 1], shape `(N, D)`.
        components: C.
        seed: of the start and of the batches.
        least_scale: of s.
        epochs: passes over the rows.
        learning_rate: Adam's, at the beginning.

    Returns:
        with the scales s in place of standard deviations.

    Example:
        >>> rows = torch.tensor([[0.0], [0.0], [1.0], [1.0]])
        >>> fit_logistic_mixture(rows, 2, 0, 0.01, epochs=0, learning_rate=0.1).weights
        tensor([0.5000, 0.5000])
    """
    start = start_by_clusters(rows, components, seed, least_scale)
    scale = scale_of_deviation(start.scales).clamp(min=1.01 * least_scale)
    logits = start.weights.log().requires_grad_()
    means = start.means.clone().requires_grad_()
    free = inverse_softplus((scale - least_scale) / least_scale).requires_grad_()

    def mixture() -> DiagonalMixture:
        scales = least_scale * (1 + softplus(free))
        return DiagonalMixture(logits.softmax(-1), means, scales)

    steps = epochs * -(-len(rows) // BATCH)
    optimizer = torch.optim.Adam([logits, means, free], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
    generator = torch.Generator().manual_seed(seed)
    part = max(1, NUMBERS_AT_ONCE // start.means.numel())
    with torch.enable_grad():
        for _ in range(epochs):
            order = torch.randperm(len(rows), generator=generator).to(rows.device)
            for places in order.split(BATCH):
                optimizer.zero_grad()
                for some in places.split(part):
                    loss = -log_likelihood(rows[some], mixture()).sum() / len(places)
                    loss.backward()
                optimizer.step()
                schedule.step()
    found = mixture()
    return DiagonalMixture(*(t.detach() for t in found))


def log_likelihood(rows: Tensor, mixture: DiagonalMixture) -> Tensor:
    """Of each row, shape `(N,)`.

    Args:
        rows: flat rows, shape `(N, D)`.
        mixture: with the logistics' scales s.

    Example:
        >>> one = DiagonalMixture(torch.ones(1), torch.zeros(1, 2), torch.ones(1, 2))
        >>> log_likelihood(torch.zeros(3, 2), one).shape
        torch.Size([3])
    """
    evidence = LogisticEvidence(rows, mixture.means, mixture.scales)
    each = evidence.of(slice(0, len(mixture.weights))).sum(-2)
    return (mixture.weights.log() + each).logsumexp(-1)


class DiscretizedLogisticMixtureImputer(MixtureImputer):
    """Hidden pixels from their exact conditional distribution under a mixture of discretised
    logistics:

        x_H | x_S ~ Σ_c r_c Π_{d ∈ H} P(x_d; μ_cd, s_cd),
        r_c ∝ π_c Π_{d ∈ S} P(x_d; μ_cd, s_cd),

    with the probabilities P of the 256 values 0, 1/255, … 1 (:func:`.log_mass`), of which the first
    and the last have all that lies beyond. It is a :class:`GaussianMixtureImputer` whose pixels are
    pixels: draws are of the 256 values, and black is a value of positive probability and not a
    density that grows without bound where a component's images are all black. Fractional masks and
    their gradients are as there.

    Kept pixels are read by the nearest of the 256 values. The `log_prob` is a log-probability, not
    a density; `− log 255` for each hidden pixel, the steps' width, makes a density of it.

    Args:
        weights: π, shape `(C,)`, positive, of sum 1.
        means: the logistics' means μ, shape `(C, *event)`, where pixels are in [0, 1].
        scales: the logistics' scales s > 0, shape `(C, *event)`; the standard deviation of a
            logistic variable is `π s / √3`.

    Raises:
        TypeError: when they are not of one floating-point type.
        ValueError: when a shape does not fit, a value is NaN or infinite, a weight or a scale is
            not positive, or the weights do not sum to 1.

    Source: Senetaire et al. 2023, appendix B ("mixture of logistics"); Salimans et al. 2017.

    Example:
        >>> import torch
        >>> imputer = DiscretizedLogisticMixtureImputer(
        ...     [0.5, 0.5], [[0.1, 0.2], [0.9, 0.8]], [[0.01, 1e-4], [0.01, 1e-4]]
        ... )
        >>> imputer(torch.tensor([[0.9, 0.0]]), torch.tensor([True, False])).sample()
        tensor([[0.9000, 0.8000]])
    """

    step: ClassVar[float] = 1 / STEPS
    """Between two values of a pixel, each of which has a probability."""

    @classmethod
    def fit(
        cls,
        x: Tensor,
        components: int = 20,
        seed: int = 0,
        least_scale: float | None = None,
        *,
        epochs: int = 10,
        learning_rate: float = 0.01,
    ) -> Self:
        """The mixture of high likelihood that Adam finds from the clusters of k-means.

        Args:
            x: training rows, shape `(B, *event)`, in [0, 1].
            components: C, from 1 to B.
            seed: of the start and of the batches; the global random state is not touched.
            least_scale: a least scale, above 0; a step, 1/255, if None. A pixel that is black in
                all of a component's images would else rule the component out by being grey.
            epochs: passes over the rows, in batches of 200; 0 leaves the clusters as they are. The
                cost of one grows with B, C and the number of pixels.
            learning_rate: Adam's at the beginning; it falls to 0 along a cosine.

        Raises:
            TypeError: when `x` is not a floating-point tensor.
            ValueError: when `x` is not finite, leaves [0, 1] or has fewer than 2 rows, the
                components are no whole number from 1 to its rows, or another argument is out of
                its range.

        Example:
            >>> import torch
            >>> x = torch.tensor([[0.0, 0.1], [0.0, 0.1], [0.9, 1.0], [0.9, 1.0]])
            >>> imputer = DiscretizedLogisticMixtureImputer.fit(x, components=2, epochs=1)
            >>> imputer.weights
            tensor([0.5000, 0.5000])
        """
        return cls(*_fitted(x, components, seed, least_scale, epochs, learning_rate))

    def evidence(self, x: Tensor) -> Evidence:
        """The log-probability of each pixel under each component, as of :class:`.Evidence`."""
        return LogisticEvidence(x, self.means.flatten(1), self.scales.flatten(1))

    def component_features(self) -> ComponentFeatures:
        """The discretised logistics of each component."""
        return LogisticFeatures(self.means.flatten(1), self.scales.flatten(1))

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> ComponentDistribution:
        """The mixture given the kept pixels, batch shape `(…, B)`.

        Raises:
            ValueError: where Pyro validates, as in the first step of a fit: a pixel outside [0, 1].
        """
        if is_validation_enabled():
            check_pixels(x)
        return super().hidden_distribution(x, keep)


class DiscretizedLogisticMeansImputer(DiscretizedLogisticMixtureImputer):
    """Hidden pixels are the means of a random component of a mixture of discretised logistics:

        x̃ = z ⊙ x + (1 − z) ⊙ m_c,    c ~ r,    m_cd = Σ_v v P(v; μ_cd, s_cd).

    The component is drawn from the kept pixels, as in :class:`DiscretizedLogisticMixtureImputer`.
    The distribution is a set of point masses; it has no `log_prob`.

    Args:
        weights: π, shape `(C,)`, positive, of sum 1.
        means: the logistics' means μ, shape `(C, *event)`.
        scales: the logistics' scales s > 0, shape `(C, *event)`.
        pixel_means: `m`, of the same shape; computed if None.

    Raises:
        TypeError, ValueError: as :class:`DiscretizedLogisticMixtureImputer`; `pixel_means` of
            another shape.

    Source: Senetaire et al. 2023, appendix B ("means of mixture of logistics").

    Example:
        >>> import torch
        >>> imputer = DiscretizedLogisticMeansImputer([1.0], [[-9.0, 0.5]], [[0.1, 0.1]])
        >>> imputer(torch.zeros(1, 2), torch.zeros(2)).sample()
        tensor([[0.0000, 0.5000]])
    """

    pixel_means: Tensor

    def __init__(
        self,
        weights: TensorOrShape,
        means: TensorOrShape,
        scales: TensorOrShape,
        pixel_means: TensorOrShape | None = None,
    ) -> None:
        super().__init__(weights, means, scales)
        if pixel_means is None:
            flat = LogisticFeatures(self.means.flatten(1), self.scales.flatten(1))
            pixel_means = flat.means.reshape(self.means.shape)
        self._register("pixel_means", pixel_means)
        if self.pixel_means.shape != self.means.shape:
            raise ValueError(
                f"pixel_means must have the shape of means, {tuple(self.means.shape)}; it has "
                f"shape {tuple(self.pixel_means.shape)}"
            )

    def component_features(self) -> ComponentFeatures:
        """The means of each component."""
        return FeatureMeans(self.pixel_means.flatten(1))


def check_pixels(x: Tensor) -> None:
    """Refuses pixels outside [0, 1].

    Args:
        x: any shape.

    Raises:
        ValueError: a value below 0 or above 1.

    Example:
        >>> import torch
        >>> check_pixels(torch.tensor([0.0, 255.0]))
        Traceback (most recent call last):
        ValueError: pixels must be in [0, 1]; they go from 0 to 255. Divide by 255
    """
    low, high = float(x.min()), float(x.max())
    if low < 0 or high > 1:
        hint = ". Divide by 255" if low >= 0 and high > 1 else ""
        raise ValueError(f"pixels must be in [0, 1]; they go from {low:g} to {high:g}{hint}")


def _fitted(
    x: Tensor,
    components: int,
    seed: int,
    least_scale: float | None,
    epochs: int,
    learning_rate: float,
) -> tuple[Tensor, Tensor, Tensor]:
    check_component_fit(x, components, seed)
    check_pixels(x)
    found = fit_logistic_mixture(
        x.detach().flatten(1),
        components,
        seed,
        1 / STEPS if least_scale is None else finite_float("least_scale", least_scale, above=0.0),
        int_at_least("epochs", epochs, 0),
        finite_float("learning_rate", learning_rate, above=0.0),
    )
    shape = (-1, *x.shape[1:])
    return found.weights, found.means.reshape(shape), found.scales.reshape(shape)
