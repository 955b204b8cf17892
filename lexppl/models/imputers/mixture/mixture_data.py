"""Hidden features taken from a reference row of a Gaussian mixture's component."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from lexppl.models.imputers.imputer import TensorOrShape
from lexppl.models.imputers.mixture.blocks import NUMBERS_AT_ONCE
from lexppl.models.imputers.mixture.component_distribution import ComponentDistribution
from lexppl.models.imputers.mixture.component_features import ComponentFeatures
from lexppl.models.imputers.mixture.diagonal_fit import fit_diagonal_mixture
from lexppl.models.imputers.mixture.mixture_imputer import MixtureImputer
from lexppl.models.imputers.mixture.mixture_means import FeatureMeans
from lexppl.models.imputers.mixture.weighted_rows import (
    WeightedRows,
    check_reference,
    check_row_weights,
)

__all__ = ["MixtureDataImputer"]


class MixtureDataImputer(MixtureImputer):
    """Hidden features are those of a random reference row of a mixture's random component:

        x̃ = z ⊙ x + (1 − z) ⊙ ρ_i,
        c ~ r(x, z),    i | c ~ Categorical(w_c1, …, w_cN),    w_ci ∝ r_c(ρ_i, 1).

    The component is drawn by its responsibility from the kept features, as in
    :class:`GaussianMixtureImputer`, and then a row by its weight under the component: the
    responsibility of the component for it, from all its features. The hidden features of a draw
    belong together and were seen. Fractional masks and their gradients are as there.

    The distribution is a set of point masses; it has no `log_prob`.

    Args:
        weights: π, shape `(C,)`, positive, of sum 1.
        means: μ, shape `(C, *event)`, in the units of the features.
        scales: the standard deviations σ > 0, shape `(C, *event)`.
        reference: the rows ρ, shape `(N, *event)`, N at least 1, finite.
        row_weights: `w`, shape `(C, N)`, non-negative; computed if None.

    Raises:
        TypeError: when they are not of one floating-point type.
        ValueError: when a shape does not fit, a value is NaN or infinite, a weight or a scale is
            not positive, or the weights do not sum to 1.

    Source: Senetaire et al. 2023, appendix B ("GMM data set").

    Example:
        >>> imputer = MixtureDataImputer(
        ...     [0.5, 0.5], [[-1.0, -9.0], [1.0, 9.0]], [[0.1, 1.0], [0.1, 1.0]],
        ...     reference=[[-1.2, -8.0], [0.9, 7.0]],
        ... )
        >>> imputer(torch.tensor([[1.1, 0.0]]), torch.tensor([True, False])).sample()
        tensor([[1.1000, 7.0000]])
    """

    reference: Tensor
    row_weights: Tensor

    def __init__(
        self,
        weights: TensorOrShape,
        means: TensorOrShape,
        scales: TensorOrShape,
        reference: TensorOrShape,
        row_weights: TensorOrShape | None = None,
    ) -> None:
        super().__init__(weights, means, scales)
        self._register("reference", reference)
        check_reference(self.reference, self.means, "means")
        given = self._register(
            "row_weights", self._row_weights() if row_weights is None else row_weights
        )
        check_row_weights(self.row_weights, self.means, "means", self.reference, values=given)

    @classmethod
    def fit(
        cls,
        x: Tensor,
        components: int = 20,
        seed: int = 0,
        least_scale: float | None = None,
        *,
        reference: Tensor | None = None,
    ) -> Self:
        """The mixture of the rows, as in :meth:`GaussianMixtureImputer.fit`, and their weights.

        Args:
            x: training rows, shape `(B, *event)`, finite.
            components: C, from 1 to B.
            seed: of the start, which is k-means; the global random state is not touched.
            least_scale: as in :meth:`GaussianMixtureImputer.fit`.
            reference: rows to take features from, shape `(N, *event)`: validation rows in the
                paper; `x` if None.

        Raises:
            TypeError: when `x` is not a floating-point tensor, `reference` not of its type, or a
                number not whole.
            ValueError: when `x` is not finite or has fewer than 2 rows, the components are fewer
                than 1 or more than its rows, or `reference` does not fit it.

        Example:
            >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
            >>> MixtureDataImputer.fit(x, components=4).row_weights.shape
            torch.Size([4, 50])
        """
        weights, means, scales = fit_diagonal_mixture(x, components, seed, least_scale)
        return cls(weights, means, scales, x if reference is None else reference)

    def component_features(self) -> ComponentFeatures:
        """The reference rows and their weights under each component."""
        return WeightedRows(self.reference.flatten(1), self.row_weights)

    def _row_weights(self) -> Tensor:
        # A component that no row is near has weights all the same: logarithms, and all its rows.
        rows_at_once = max(1, NUMBERS_AT_ONCE // self.means.numel())
        features = FeatureMeans(self.means.flatten(1))
        scores = []
        for rows in self.reference.flatten(1).split(rows_at_once):
            keep = torch.ones_like(rows, dtype=torch.bool)
            given = ComponentDistribution(keep, self.weights.log(), self.evidence(rows), features)
            scores.append(given.log_probabilities)
        return torch.cat(scores).softmax(0).mT
