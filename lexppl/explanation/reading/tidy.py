"""Explanations as data frames and dictionaries, for Parquet, JSON and other languages."""

from typing import Any

import numpy as np
import pandas as pd

from lexppl.argument_checks import int_between
from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.explanation.reading.masks import mask_means, responses_of


def tidy_frame(posterior: Posterior) -> pd.DataFrame:
    """An explanation with a line for each row and feature.

    Columns: `row`, `feature`, `value` as it is read (None where it is not known),
    `selection_probability` (of soft masks `mask_mean`, of signed ones `attribution`), the mean over
    R replicates; `spread`, their standard deviation, NaN of one; and `gain`, in nats, where there
    are gains of rows. `to_parquet` and `to_csv` write it.

    Args:
        posterior: what :func:`lexppl.explain` returned.

    Raises:
        TypeError, ValueError: not such a posterior, or masks that rows share.

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> stated = (("chain", "row", "feature"), [[[1.0, 0.5]]], {"site": "mask"})
        >>> posterior = posterior_of({"sample_stats": xr.Dataset(
        ...     {"selection_probability": stated}, {"row": [7], "feature": ["age", "dose"]})}, {})
        >>> tidy_frame(posterior)[["row", "feature", "selection_probability"]]
           row feature  selection_probability
        0    7     age                    1.0
        1    7    dose                    0.5
    """
    from lexppl.explanation.reading.feature_values import (  # noqa: PLC0415 - slow, tables alone
        GAIN,
        feature_values,
    )

    means = mask_means(posterior)
    chains, rows, features = means.shape
    names = [str(name) for name in means[means.dims[-1]].values]
    known = feature_values(posterior)
    values = [
        known[name].text(row) if name in known else None for row in range(rows) for name in names
    ]
    spread = np.full((rows, features), np.nan) if chains < 2 else means.values.std(0, ddof=1)
    frame = pd.DataFrame(
        {
            "row": np.repeat(means["row"].values, features),
            "feature": names * rows,
            "value": values,
            str(means.name): means.values.mean(0, dtype=np.float64).ravel(),
            "spread": spread.ravel(),
        }
    )
    gains = group_of(posterior, "sample_stats").get(GAIN)
    return frame if gains is None else frame.assign(gain=gains.values.ravel())


def row_dict(posterior: Posterior, row: int) -> dict[str, Any]:
    """One row of an explanation as `json.dumps` takes it: its name, what is predicted of it, and
    its features as :func:`tidy_frame` has them, the most kept first.

    Args:
        posterior: what :func:`lexppl.explain` returned.
        row: its place, from 0.

    Raises:
        TypeError, ValueError: no such row; as :func:`tidy_frame`.

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> stated = (("chain", "row", "feature"), [[[0.5, 1.0]]], {"site": "mask"})
        >>> posterior = posterior_of({"sample_stats": xr.Dataset(
        ...     {"selection_probability": stated}, {"row": [7], "feature": ["age", "dose"]})}, {})
        >>> row_dict(posterior, 0)["features"][0]
        {'feature': 'dose', 'value': None, 'selection_probability': 1.0, 'spread': None}
    """
    means = mask_means(posterior)
    place = int_between("row", row, 0, means.sizes["row"] - 1, note="rows of the explanation")
    own = tidy_frame(posterior).iloc[place * means.shape[2] : (place + 1) * means.shape[2]]
    own = own.sort_values(str(means.name), ascending=False, key=abs, kind="stable")
    lines = own.drop(columns="row").astype(object).where(own.drop(columns="row").notna(), None)
    found: dict[str, Any] = {"row": means["row"].values[place : place + 1].tolist()[0]}
    response = responses_of(posterior)
    if "y_probability" in response:
        p = response["y_probability"].isel(row=place).mean("chain", dtype=np.float64)
        classes = [str(name) for name in p["class"].values]
        found["probabilities"] = dict(zip(classes, p.values.tolist(), strict=True))
    elif "y" in response:
        found["response"] = float(response["y"].isel(row=place).mean())
    return {**found, "features": lines.to_dict("records")}
