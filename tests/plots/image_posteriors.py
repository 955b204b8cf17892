"""Posteriors of images, made of arrays."""

import numpy as np
import xarray as xr

from lexppl.arviz_compatibility import posterior_of
from lexppl.explanation.reading.images import EVENT, feature_map_of, map_dimensions


def image_posterior(
    shape=(1, 4, 6), groups=None, rows=5, chains=3, draws=4, seed=0, classes=("cat", "dog"), **means
):
    """Rows 10, 11, … of random images, with random masks; the first row is predicted wrong.

    `attribution=`, `(chain, row, feature)`, in the place of selection probabilities.
    """
    generator = np.random.default_rng(seed)
    entries = shape[1] * shape[2] if groups is None else max(groups) + 1
    coordinates = {
        "row": [10 + n for n in range(rows)],
        "feature": [f"e{g}" for g in range(entries)],
    }
    p = generator.random((chains, rows, entries))
    uniform = generator.random((chains, draws, rows, entries))
    masks = (uniform < p[:, None]).astype(np.int8)
    variable = "selection_probability"
    kind = {"kind": "selection"}
    if means:
        ((variable, p),) = means.items()
        masks, kind = np.repeat(p[:, None], draws, 1), {"kind": variable}
    places = feature_map_of(shape, entries, groups)
    labels = np.arange(rows) % len(classes)
    share = np.full((chains, rows, len(classes)), 0.2 / (len(classes) - 1))
    predicted = np.where(np.arange(rows) == 0, (labels + 1) % len(classes), labels)
    share[:, np.arange(rows), predicted] = 0.8
    row = {"row": coordinates["row"]}
    with_class = {**row, "class": list(classes)}
    dims = ("chain", "draw", "row", "feature")
    return posterior_of(
        {
            "predictions": xr.Dataset(
                {"mask": (dims, masks, kind), "y_probability": (("chain", "row", "class"), share)},
                {**coordinates, **with_class},
            ),
            "sample_stats": xr.Dataset(
                {variable: (("chain", "row", "feature"), p, {"site": "mask"})}, coordinates
            ),
            "observed_data": xr.Dataset({"y": ("row", labels)}, row),
            "constant_data": xr.Dataset(
                {
                    "x": (("row", *EVENT), generator.random((rows, *shape))),
                    "feature_map": (map_dimensions(places), places),
                },
                row,
            ),
        },
        {},
    )
