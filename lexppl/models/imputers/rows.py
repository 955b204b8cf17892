"""Hidden features taken from a reference row of a mixture's component, or of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from lexppl.argument_checks import shaped
from lexppl.models.imputers.imputer import Imputer, TensorOrShape
from lexppl.models.imputers.mixture import (
    ComponentDistribution,
    ComponentFeatures,
    MixtureImputer,
    check_component_fit,
    fit_diagonal_mixture,
)


class MixtureDataImputer(MixtureImputer):
    """Hidden features are those of a random reference row of a mixture's random component:

        x̃ = z ⊙ x + (1 − z) ⊙ ρ_i,
        c ~ r(x, z),    i | c ~ Categorical(w_c1, …, w_cN),    w_ci ∝ r_c(ρ_i, 1),

    with the responsibilities r, the mixture's arguments and the fractional masks of
    :class:`GaussianMixtureImputer`. The hidden features of a draw were seen together; there is no
    `log_prob`.

    Args:
        reference: the rows ρ, shape `(N, *event)`, N at least 1, finite.

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
    ) -> None:
        super().__init__(weights, means, scales)
        self._register("reference", reference)
        check_reference(self.reference, self.means, "means")
        # A component that no row is near has weights all the same: logarithms, and all its rows.
        rows = self.reference.flatten(1)
        scores = self.weights.log() + self.densities().log_prob(rows).sum(-2)
        self.register_buffer("row_weights", scores.log_softmax(-1).softmax(0).mT.contiguous())

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
        """The mixture of the rows, as :meth:`GaussianMixtureImputer.fit`, and their weights.

        Args:
            x, components, seed, least_scale: as there.
            reference: rows to take features from, shape `(N, *event)`: validation rows in the
                paper; `x` if None.

        Raises:
            TypeError, ValueError: as there; a `reference` that does not fit `x`.
        """
        weights, means, scales = fit_diagonal_mixture(x, components, seed, least_scale)
        return cls(weights, means, scales, x if reference is None else reference)

    def component_features(self) -> ComponentFeatures:
        """The reference rows and their weights under each component."""
        return WeightedRows(self.reference.flatten(1), self.row_weights)


class KMeansDataImputer(Imputer):
    """Hidden features are those of a random reference row of the cluster nearest to what is kept:

        x̃ = z ⊙ x + (1 − z) ⊙ ρ_i,
        c = argmin_c Σ_d z_d (x_d − m_cd)²,    i ~ Uniform{i : ρ_i ∈ c}.

    Of clusters equally near the first is taken, which :meth:`fit` makes the largest. Distances are
    in the units of the features: standardise them first. A fractional `keep` weights a feature's
    squared distance, and interpolates; its gradient is `x − u`, with u of a row of the cluster
    nearest in the other features. There is no `log_prob`.

    Args:
        centres: `m`, shape `(C, *event)`.
        reference: the rows ρ, shape `(N, *event)`, N at least 1, finite; each is of the cluster
            whose centre is nearest.

    Raises:
        TypeError, ValueError: types, shapes or values other than these; a cluster without a row.

    Source: Senetaire et al. 2023, appendix B ("KMeans data set").

    Example:
        >>> imputer = KMeansDataImputer(
        ...     centres=[[-1.0, -9.0], [1.0, 9.0]], reference=[[-1.2, -8.0], [0.9, 7.0]]
        ... )
        >>> imputer(torch.tensor([[1.1, 0.0]]), torch.tensor([True, False])).sample()
        tensor([[1.1000, 7.0000]])
    """

    centres: Tensor
    reference: Tensor
    row_weights: Tensor

    def __init__(self, centres: TensorOrShape, reference: TensorOrShape) -> None:
        super().__init__()
        self._register("centres", centres)
        shaped("centres", self.centres, "C *event", filled=True)
        self.event_shape = self.centres.shape[1:]
        has_value = self._register("reference", reference)
        check_reference(self.reference, self.centres, "centres")
        self.register_buffer("row_weights", _memberships(self.reference, self.centres))
        empty = (self.row_weights.sum(-1) == 0).nonzero()
        if has_value and len(empty):
            raise ValueError(
                f"each centre needs a reference row that it is nearest to; row {int(empty[0])} of "
                "centres has none"
            )

    @classmethod
    def fit(
        cls, x: Tensor, components: int = 20, seed: int = 0, reference: Tensor | None = None
    ) -> Self:
        """The clusters of k-means, the largest first; those without a reference row are left out.

        Args:
            x: training rows, shape `(B, *event)`, finite, standardised (pixels need not be).
            components: C, the clusters, from 1 to B.
            seed: of the start; the global random state is not touched.
            reference: rows to take features from, shape `(N, *event)`: validation rows in the
                paper; `x` if None.

        Raises:
            TypeError, ValueError: as :meth:`MixtureDataImputer.fit`.

        Source: `sklearn.cluster.KMeans`, the best of 10 starts; of images one start.
        """
        from sklearn.cluster import KMeans  # noqa: PLC0415

        check_component_fit(x, components, seed)
        if reference is None:
            reference = x
        check_reference(reference, x, "x")
        table = x.ndim == 2
        rows = (x.double() if table else x).detach().flatten(1).cpu().numpy()
        clusters = KMeans(components, n_init=10 if table else 1, random_state=seed).fit(rows)
        centres = torch.from_numpy(clusters.cluster_centers_).to(x).reshape(-1, *x.shape[1:])
        members = _memberships(reference, centres)
        sizes = members.sum(-1)
        order = sizes.argsort(descending=True, stable=True)
        order = order[sizes[order] > 0]
        return cls(centres[order], reference)

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> ComponentDistribution:
        """A row of the nearest cluster, batch shape `(…, B)`."""
        centres = self.centres.flatten(1)
        return ComponentDistribution(
            keep,
            centres.new_zeros(len(centres)),
            -((x.flatten(1).unsqueeze(-1) - centres.mT) ** 2),
            WeightedRows(self.reference.flatten(1), self.row_weights),
            self.event_shape,
            nearest=True,
        )


@dataclass(frozen=True)
class WeightedRows(ComponentFeatures):
    """A row of `reference` `(N, D)` by the weights that a component gives the rows, `(C, N)`, found
    by bisection in the cumulative weights."""

    reference: Tensor
    row_weights: Tensor

    @property
    def means(self) -> Tensor:
        return self._probabilities @ self.reference

    @property
    def variances(self) -> Tensor:
        # About the overall mean, so that a large offset of the features costs no digits.
        centre = self.reference.mean(0)
        deviation = self.reference - centre
        second = self._probabilities @ deviation**2
        return (second - (self.means - centre) ** 2).clamp(min=0)

    def draw(self, component: Tensor) -> Tensor:
        # In float64: the weight of one of thousands of rows is near the resolution of float32.
        cumulative = self.row_weights.double().cumsum(-1)
        cumulative = cumulative / cumulative[..., -1:]
        components, rows = self.row_weights.shape
        offset = torch.arange(components, dtype=torch.float64, device=cumulative.device)
        ends = (cumulative + offset.unsqueeze(-1)).flatten()
        uniform = torch.rand(component.shape, dtype=torch.float64, device=cumulative.device)
        # Else the largest ones would round, with the offset, into the next component.
        uniform = uniform * (1 - 2**-40)
        place = torch.searchsorted(ends, component + uniform, right=True)
        row = (place - component * rows).clamp(0, rows - 1)
        feature = torch.arange(self.reference.shape[-1], device=self.reference.device)
        return self.reference[row, feature]

    @property
    def _probabilities(self) -> Tensor:
        return self.row_weights / self.row_weights.sum(-1, keepdim=True)


def check_reference(reference: Tensor, components: Tensor, name: str) -> None:
    """Refuse reference rows `(N, *event)` that do not fit the components `(C, *event)`.

    Example:
        >>> check_reference(torch.ones(5, 3), torch.ones(4, 2), "means")
        Traceback (most recent call last):
        ValueError: reference must have shape (N, 2), as means; the shape is (5, 3)
    """
    shaped("reference", reference, ("N", *components.shape[1:]), filled=True, note=f"as {name}")
    if reference.dtype != components.dtype:
        raise TypeError(
            f"reference is {reference.dtype} and {name} {components.dtype}; they must be of one "
            "type"
        )


def _memberships(rows: Tensor, centres: Tensor) -> Tensor:
    """1 for the nearest centre of each row, the first of equal ones, else 0: `(C, N)`."""
    rows, centres = rows.flatten(1), centres.flatten(1)
    nearest = torch.cdist(rows, centres, compute_mode="donot_use_mm_for_euclid_dist").argmin(-1)
    components = torch.arange(len(centres), device=centres.device)
    return (components.unsqueeze(-1) == nearest).to(centres.dtype)
