"""What a feature is worth in each row, beside the posterior of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from lexppl.arviz_compatibility import Posterior, writable_group
from lexppl.explanation.layout.importance_kind import mask_means

GAIN = "gain"
"""The variable of `sample_stats`, (row, feature), in nats."""


def with_gains(posterior: Posterior, gains: Any, row_names: Sequence[Any]) -> Posterior:
    """Write gains of rows, `(N, G)` in nats, into a posterior's `sample_stats`, as `gain` (row,
    feature): NaN of its rows that have none."""
    means = mask_means(posterior)
    values = np.asarray(gains, dtype=np.float64)
    expected = (len(row_names), means.shape[2])
    if values.shape != expected:
        raise ValueError(f"gains must have shape {expected}; they have shape {values.shape}")
    places = {name: place for place, name in enumerate(means["row"].values.tolist())}
    written = np.full(means.shape[1:], np.nan)
    for n, name in enumerate(row_names):
        if name in places:
            written[places[name]] = values[n]
    dims = means.dims[1:]
    coordinates = {dim: means[dim].values for dim in dims if dim in means.coords}
    writable_group(posterior, "sample_stats")[GAIN] = xr.DataArray(
        written, coordinates, dims, attrs={"units": "nats", "site": means.attrs["site"]}
    )
    return posterior
