"""E[z | x] of the fits of all folds, beside the masks of rows that are explained by one each."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from lexppl.arviz_compatibility import Posterior, attrs_of, group_names, group_of, posterior_of
from lexppl.explanation.layout.importance_kind import mask_means

FOLD = "fold"
"""The dimension that numbers the fits, and what their variables' names begin with."""


def with_fold_means(posterior: Posterior, every: Posterior) -> Posterior:
    """A posterior of rows, and in its `sample_stats` E[z | x] of each fold's fit, a chain of
    `every`."""
    theirs = group_of(every, "sample_stats")
    means = [name for name, values in theirs.items() if "site" in values.attrs]
    renamed = {f"{FOLD}_{name}": theirs[name].rename(chain=FOLD) for name in means}
    groups = {name: group_of(posterior, name) for name in group_names(posterior)}
    groups["sample_stats"] = groups["sample_stats"].assign(renamed)
    return posterior_of(groups, attrs_of(posterior))


def fold_means(posterior: Posterior) -> xr.DataArray | None:
    """E[z | x] of the first mask site by each fold's fit, (fold, row, feature), or None."""
    name = f"{FOLD}_{mask_means(posterior, by_row=False).name}"
    return group_of(posterior, "sample_stats").get(name)


def fold_means_over_rows(posterior: Posterior) -> NDArray[np.float64] | None:
    """The same averaged over rows, of attributions their size, `(R, G)`."""
    found = fold_means(posterior)
    if found is None:
        return None
    averaged: NDArray[np.float64] = abs(found).mean("row", dtype=np.float64).values
    return averaged
