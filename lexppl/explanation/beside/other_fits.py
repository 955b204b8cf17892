"""E[z | x] of fits that stand beside the chains of a posterior: a bootstrap's, or all folds'."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.explanation.layout.importance_kind import mask_means

BOOTSTRAP, FOLD = "bootstrap", "fold"
"""The dimension that numbers the fits, and what their variables' names begin with."""


def with_others(stats: xr.Dataset, others: Posterior, kind: str) -> xr.Dataset:
    """The statistics of a fit's masks, and E[z | x] of each of other fits to the same rows.

    Args:
        stats: `sample_stats` of a posterior.
        others: the posterior of the others, of the same rows.
        kind: :data:`BOOTSTRAP` or :data:`FOLD`.
    """
    theirs = group_of(others, "sample_stats")
    means = [name for name, values in theirs.items() if "site" in values.attrs]
    renamed = {f"{kind}_{name}": theirs[name].rename(chain=kind) for name in means}
    return stats.assign(renamed)


def other_means(
    posterior: Posterior, kinds: tuple[str, ...] = (BOOTSTRAP, FOLD)
) -> xr.DataArray | None:
    """E[z | x] of the first mask site by each of the other fits, (fit, row, feature); None where
    there are none.

    Args:
        posterior: of :func:`lexppl.explain`.
        kinds: of which kinds.
    """
    stats = group_of(posterior, "sample_stats")
    name = mask_means(posterior, by_row=False).name
    found = (stats[f"{kind}_{name}"] for kind in kinds if f"{kind}_{name}" in stats)
    return next(found, None)


def other_means_over_rows(posterior: Posterior) -> NDArray[np.float64] | None:
    """The same averaged over rows, of attributions their size, `(B, G)`."""
    found = other_means(posterior)
    if found is None:
        return None
    averaged: NDArray[np.float64] = abs(found).mean("row", dtype=np.float64).values
    return averaged
