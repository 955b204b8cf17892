"""What a mask's values say: how often a feature is kept, its share, its strength, or its effect."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from lexppl.arviz_compatibility import Posterior, group_of


@dataclass(frozen=True)
class ImportanceKind:
    """How the mean of a mask is to be read.

    Args:
        name: "probability", "share", "strength" or "attribution".
        label: what stands on an axis.
        meaning: the same in a sentence, of one feature and a row.
        most: the largest value there can be, or None.
    """

    name: str
    label: str
    meaning: str
    most: float | None


PROBABILITY = ImportanceKind(
    "probability",
    "selection probability",
    "the probability that a row keeps the feature",
    1.0,
)
SHARE = ImportanceKind(
    "share",
    "share of importance",
    "the feature's share of the importance, which adds up to 1 in each row",
    1.0,
)
STRENGTH = ImportanceKind(
    "strength",
    "mask value",
    "the mask's value at the feature, from 0, hidden, to 1, kept",
    1.0,
)
ATTRIBUTION = ImportanceKind(
    "attribution",
    "size of the attribution",
    "the size of the feature's contribution to the prediction, whatever its sign",
    None,
)

ROUNDING = 1e-4


def importance_kind(mask: xr.DataArray) -> ImportanceKind:
    """The kind of a mask, told from its draws `(chain, draw, row, feature)`.

    Zeros and ones are selections; values in [0, 1] are shares where they add up to 1 in every row,
    else strengths; anything else is a signed contribution.

    Example:
        >>> dims = ("chain", "draw", "row", "feature")
        >>> importance_kind(xr.DataArray(np.array([[[[0, 1]]]]), dims=dims).astype(float)).name
        'probability'
        >>> importance_kind(xr.DataArray(np.array([[[[0.3, 0.7]]]]), dims=dims)).name
        'share'
        >>> importance_kind(xr.DataArray(np.array([[[[0.3, -0.7]]]]), dims=dims)).name
        'attribution'
    """
    values = np.asarray(mask.values)
    if values.size == 0 or bool(((values == 0) | (values == 1)).all()):
        return PROBABILITY
    if values.min() < -ROUNDING or values.max() > 1 + ROUNDING:
        return ATTRIBUTION
    sums = values.sum(-1, dtype=np.float64)
    return SHARE if bool((np.abs(sums - 1.0) < ROUNDING).all()) else STRENGTH


def kind_of(posterior: Posterior) -> ImportanceKind:
    """The kind of the masks that an explanation ranks, of several sites the first."""
    site = group_of(posterior, "sample_stats")["selection_probability"].attrs["site"]
    return importance_kind(group_of(posterior, "posterior")[site])
