"""What a bootstrap's fits say of the masks, beside those of the fit itself."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.explanation.layout.importance_kind import mask_means

PREFIX = "bootstrap_"


def with_bootstrap(stats: xr.Dataset, others: Posterior) -> xr.Dataset:
    """The statistics of a fit's masks, and E[z | x] of each fit of its bootstrap.

    Args:
        stats: `sample_stats` of a posterior.
        others: the posterior of the bootstrap, of the same rows.
    """
    theirs = group_of(others, "sample_stats")
    means = [name for name, values in theirs.items() if "site" in values.attrs]
    renamed = {f"{PREFIX}{name}": theirs[name].rename(chain="bootstrap") for name in means}
    return stats.assign(renamed)


def bootstrap_means(posterior: Posterior) -> NDArray[np.float64] | None:
    """E[z | x] of the first mask site by each fit of the bootstrap, averaged over rows, of
    attributions their size: `(B, G)`; None without a bootstrap."""
    stats = group_of(posterior, "sample_stats")
    name = f"{PREFIX}{mask_means(posterior, by_row=False).name}"
    if name not in stats:
        return None
    averaged: NDArray[np.float64] = abs(stats[name]).mean("row", dtype=np.float64).values
    return averaged
