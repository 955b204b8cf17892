"""Hidden features taken from a reference row of the nearest cluster."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

from lexppl.models.imputers.imputer import Imputer, TensorOrShape
from lexppl.models.imputers.mixture.component_distribution import ComponentDistribution
from lexppl.models.imputers.mixture.diagonal_fit import check_component_fit
from lexppl.models.imputers.mixture.weighted_rows import (
    WeightedRows,
    check_reference,
    check_row_weights,
)

__all__ = ["KMeansDataImputer"]


class KMeansDataImputer(Imputer):
    """Hidden features are those of a random reference row of the cluster nearest to what is kept:

        x̃ = z ⊙ x + (1 − z) ⊙ ρ_i,
        c = argmin_c Σ_d z_d (x_d − m_cd)²,    i ~ Uniform{i : ρ_i ∈ c}.

    Of clusters equally near the first is taken, so with nothing kept all rows come from the first
    cluster, which :meth:`fit` makes the largest. Distances are in the units of the features:
    standardise them first.

    A fractional `keep` weights a feature's squared distance, and interpolates. Entries with
    `keep > 1/2` are each replaced, in part, by what they would be were they alone hidden: by that
    of a row of the cluster nearest in the other features. The gradient with respect to `keep` is
    `x − u` with that row's `u`; the choice of the cluster has none.

    The distribution is a set of point masses; it has no `log_prob`. Rows are tables' `(D,)` or
    images' `(channels, H, W)`.

    Args:
        centres: `m`, shape `(C, *event)`.
        reference: the rows ρ, shape `(N, *event)`, N at least 1, finite.
        row_weights: shape `(C, N)`, non-negative, the weights of the rows in each cluster; if None,
            equal for the rows that are nearest to a centre and 0 for the others.

    Raises:
        TypeError: when they are not of one floating-point type.
        ValueError: when a shape does not fit, a value is NaN or infinite, or a cluster has no row.

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

    def __init__(
        self,
        centres: TensorOrShape,
        reference: TensorOrShape,
        row_weights: TensorOrShape | None = None,
    ) -> None:
        super().__init__()
        self._register("centres", centres)
        if self.centres.ndim < 2 or self.centres.numel() == 0:
            raise ValueError(
                f"centres must have shape (C, *event); it has shape {tuple(self.centres.shape)}"
            )
        self._register("reference", reference)
        check_reference(self.reference, self.centres, "centres")
        if row_weights is None:
            row_weights = _memberships(self.reference, self.centres)
        given = self._register("row_weights", row_weights)
        check_row_weights(self.row_weights, self.centres, "centres", self.reference, values=given)

    @classmethod
    def fit(
        cls, x: Tensor, components: int = 20, seed: int = 0, reference: Tensor | None = None
    ) -> Self:
        """The clusters of k-means, the largest first; those without a reference row are left out.

        It runs on the CPU, in float64 for tables and in the type of `x` for images, of which one
        start is made in place of 10; the result has the type and the device of `x`.

        Args:
            x: training rows, shape `(B, *event)`, finite, standardised (pixels need not be).
            components: C, the clusters, from 1 to B.
            seed: of the start; the global random state is not touched.
            reference: rows to take features from, shape `(N, *event)`: validation rows in the
                paper; `x` if None.

        Raises:
            TypeError: when `x` is not a floating-point tensor, `reference` not of its type.
            ValueError: when `x` is not finite or has fewer than 2 rows, the components are no
                whole number from 1 to its rows, or `reference` does not fit it.

        Source: `sklearn.cluster.KMeans`, the best of 10 starts.

        Example:
            >>> x = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1]])
            >>> KMeansDataImputer.fit(x, components=2).centres
            tensor([[0.1000],
                    [5.0500]])
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
        return cls(centres[order], reference, members[order])

    @property
    def event_shape(self) -> torch.Size | None:
        """The shape of a row of `centres`."""
        return self.centres.shape[1:]

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> ComponentDistribution:
        """A row of the nearest cluster, batch shape `(…, B)`."""
        return ComponentDistribution(
            keep,
            self.centres.new_zeros(len(self.centres)),
            Nearness(x.flatten(1), self.centres.flatten(1)),
            WeightedRows(self.reference.flatten(1), self.row_weights),
            self.event_shape,
            nearest=True,
        )


class Nearness(NamedTuple):
    """The negative squared distance of each feature from each centre.

    Args:
        x: rows, shape `(B, D)`.
        centres: shape `(C, D)`.

    Example:
        >>> Nearness(torch.zeros(1, 1), torch.tensor([[1.0], [3.0]])).of(slice(1, 2))
        tensor([[[-9.]]])
    """

    x: Tensor
    centres: Tensor

    def of(self, components: slice) -> Tensor:
        return -((self.x.unsqueeze(-1) - self.centres[components].mT) ** 2)


def _memberships(rows: Tensor, centres: Tensor) -> Tensor:
    """1 for the nearest centre of each row, the first of equal ones, else 0: `(C, N)`."""
    rows, centres = rows.flatten(1), centres.flatten(1)
    nearest = torch.cdist(rows, centres, compute_mode="donot_use_mm_for_euclid_dist").argmin(-1)
    components = torch.arange(len(centres), device=centres.device)
    return (components.unsqueeze(-1) == nearest).to(centres.dtype)
