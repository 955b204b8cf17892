"""A posterior of masks by groups of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from lexppl.arviz_compatibility import Posterior, attrs_of, group_names, group_of, posterior_of
from lexppl.explanation.layout.importance_kind import PROBABILITY, kind_of, mask_means
from lexppl.explanation.layout.mask_groups import masks_of

DRAWN_MEAN = "mask_mean"
"""In the name of a probability that no distribution states."""


def drawn_masks(posterior: Posterior) -> Tensor:
    """The masks given x that a posterior ranks, of all chains, `(L, N, G)`."""
    masks = masks_of(posterior)[mask_means(posterior).attrs["site"]].values
    return torch.from_numpy(masks.reshape(-1, *masks.shape[2:]))


def by_groups(posterior: Posterior, groups: Mapping[str, Sequence[str]]) -> Posterior:
    """The posterior of masks of groups of features, by name: a group is kept where a member is.

    Masks are the largest of their members', and probabilities 1 − Π_g (1 − p_g), exact where
    entries are independent given x. Variables that are not of masks (values, gains) are left out.
    """
    if kind_of(posterior) is not PROBABILITY:
        raise ValueError("groups are kept or hidden, and these masks do not select")
    dim = str(mask_means(posterior).dims[-1])
    names = [str(name) for name in masks_of(posterior)[dim].values]
    given = [str(member) for members in groups.values() for member in members]
    if sorted(given) != sorted(names):
        raise ValueError(f"groups must have each of {names} once; they have {given}")
    members = [[names.index(str(member)) for member in group] for group in groups.values()]

    def grouped(values: xr.DataArray) -> xr.DataArray:
        each = [values.isel({dim: places}) for places in members]
        if "draw" in values.dims:
            each = [one.max(dim) for one in each]
        else:
            each = [1.0 - (1.0 - one).prod(dim) for one in each]
        joined = xr.concat(each, dim).transpose(*values.dims)
        joined = joined.astype(values.dtype).assign_coords({dim: list(map(str, groups))})
        return joined.rename(values.name).assign_attrs(values.attrs)

    kept = {name: _of_masks(group_of(posterior, name), dim) for name in group_names(posterior)}
    found = {}
    for name, variables in kept.items():
        columns = {
            key: grouped(values) if dim in values.dims else values
            for key, values in variables.items()
            if key != "importance"
        }
        if "importance" in variables and "mask" in columns:
            mean = columns["mask"].mean("row", dtype=np.float64)
            columns["importance"] = mean.assign_attrs(variables["importance"].attrs)
        found[name] = xr.Dataset(columns, attrs=variables.attrs)
    return posterior_of(found, attrs_of(posterior))


def _of_masks(variables: xr.Dataset, dim: str) -> xr.Dataset:
    """The variables of a group without those of features that are not of masks."""
    named = [
        key
        for key, values in variables.items()
        if dim not in values.dims
        or ("draw" in values.dims and bool(((values == 0) | (values == 1)).all()))
        or any(kind in str(key) for kind in (PROBABILITY.variable, DRAWN_MEAN))
        or key == "importance"
    ]
    return variables[named]
