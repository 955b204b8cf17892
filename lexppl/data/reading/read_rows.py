"""Which rows of a table are read, and which of these the statistics are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from lexppl.data.listing import listed


def rows_left(
    frame: pd.DataFrame, target: str, drop_missing: bool, hide_missing: bool
) -> NDArray[np.bool_]:
    """Return which rows are read: all, those without a missing value, or those with a target.

    Args:
        frame: the columns that are read, the target among them.
        target: its name.
        drop_missing, hide_missing: as in :func:`read_table`.

    Raises:
        ValueError: both; no row left.

    >>> frame = pd.DataFrame({"a": [1.0, None, 3.0], "y": [0.0, 1.0, 1.0]})
    >>> rows_left(frame, "y", drop_missing=True, hide_missing=False).tolist()
    [True, False, True]
    """
    if drop_missing and hide_missing:
        raise ValueError(
            "drop_missing=True drops rows with missing values and hide_missing=True keeps them; "
            "give one of the two"
        )
    if not (drop_missing or hide_missing):
        return np.ones(len(frame), dtype=bool)
    judged = frame if drop_missing else frame[[target]]
    left = judged.notna().all(axis=1).to_numpy()
    if not left.any():
        empty = [column for column in judged.columns if judged[column].isna().all()]
        reason = f"; always missing: {listed(empty)}" if empty else ""
        raise ValueError(f"no row is left: each has a missing value{reason}")
    return left


def statistics_places(
    given: Sequence[int] | NDArray[Any] | None, rows: int
) -> NDArray[np.int64] | None:
    """Return the places of the rows that statistics are of; None for all.

    Raises:
        ValueError: what are no places of rows, or none.

    >>> statistics_places([0, 2], 3).tolist()
    [0, 2]
    """
    if given is None:
        return None
    places = np.asarray(given)
    whole = places.ndim == 1 and len(places) > 0 and types.is_integer_dtype(places.dtype)
    if not whole or places.min() < 0 or places.max() >= rows:
        raise ValueError(
            f"statistics_rows must be places of rows, whole numbers from 0 to {rows - 1}, at "
            f"least one; they are {given!r}"
        )
    return places.astype(np.int64)
