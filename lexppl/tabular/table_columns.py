"""Columns of a table as features: numbers standardised, levels as indicators of one mask entry."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from lexppl.data import CategoricalColumn, NumericColumn, TableEncoding, TargetColumn
from lexppl.data.encoding import level_of, levels_in
from lexppl.data.listing import counted
from lexppl.models import Grouping

NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")
"""Kinds of cells that pandas infers and that are numbers."""
NEITHER = ("datetime", "timedelta", "date", "time", "period", "interval", "complex", "bytes")
"""Beginnings of the kinds that are neither numbers nor levels."""


def has_levels(table: Any) -> bool:
    """Whether a table is a data frame with words or categories in it.

    Example:
        >>> has_levels(pd.DataFrame({"age": [40, 50], "job": ["clerk", "smith"]}))
        True
        >>> has_levels(pd.DataFrame({"age": [40, 50], "smokes": [True, False]}))
        False
    """
    return isinstance(table, pd.DataFrame) and any(
        _is_of_levels(table.iloc[:, place]) for place in range(table.shape[1])
    )


def fit_encoding(frame: pd.DataFrame, target: TargetColumn) -> TableEncoding:
    """The encoding of a table's columns, by their own statistics.

    A number enters as `(v − mean) / scale`, with scale 1 where all rows agree; of a column of
    levels each level has an indicator. A pandas category has all its categories as levels, in
    these rows or not; of words only those that are there are known.

    Args:
        frame: the rows, complete; columns have different names that are words.
        target: what they predict.

    Raises:
        ValueError: numbers so large that they cannot be standardised, dates and the like.

    Example:
        >>> frame = pd.DataFrame({"age": [30.0, 50.0], "job": ["smith", "clerk"]})
        >>> fit_encoding(frame, TargetColumn("y", ("0", "1"))).feature_names
        ('age', 'job=clerk', 'job=smith')
    """
    columns = tuple(_fit_column(frame[name]) for name in frame.columns)
    return TableEncoding(columns=columns, target=target)


def refuse_missing_cells(frame: pd.DataFrame) -> None:
    """Refuse a table with missing values, in scikit-learn's words.

    Raises:
        ValueError: naming the columns and how many cells of each are missing.
    """
    counts = frame.isna().sum()
    found = {str(name): int(count) for name, count in counts.items() if count}
    if found:
        raise ValueError(
            f"Input X contains NaN: missing values in {counted(found)}; fill them in, as with "
            "sklearn.impute.SimpleImputer, or drop the rows"
        )


def grouping_of(encoding: TableEncoding, groups: Sequence[Any] | None) -> Grouping:
    """Which features a mask entry keeps: those of one column, or of all columns of one group.

    Args:
        encoding: of the table.
        groups: for each column the name (or number) of its group, or None for an entry a column.

    Raises:
        ValueError: not one group for each column.

    Example:
        >>> encoding = TableEncoding((NumericColumn("a", 0.0, 1.0), NumericColumn("b", 0.0, 1.0)),
        ...     TargetColumn("y", None))
        >>> grouping_of(encoding, ["size", "size"]).names
        ('size',)
    """
    if groups is None:
        return Grouping(encoding.groups, encoding.group_names)
    columns = len(encoding.columns)
    if isinstance(groups, str) or not hasattr(groups, "__len__") or len(groups) != columns:
        raise ValueError(
            f"groups must give each of the {columns} columns of X the name of its group; it is "
            f"{groups!r}"
        )
    names = [level_of(group) for group in groups]
    entries = list(dict.fromkeys(names))
    place = [entries.index(name) for name in names]
    return Grouping([place[column] for column in encoding.groups], entries)


def _is_of_levels(cells: pd.Series) -> bool:
    if isinstance(cells.dtype, pd.CategoricalDtype):
        return True
    if types.is_numeric_dtype(cells.dtype):
        return False
    kind = types.infer_dtype(cells, skipna=True)
    if kind.startswith(NEITHER):
        raise ValueError(
            f"column {cells.name!r} holds values of kind {kind!r}; expected numbers, words or "
            "categories: turn it into one of these or leave it out"
        )
    return kind not in NUMBERS


def _fit_column(cells: pd.Series) -> NumericColumn | CategoricalColumn:
    name = str(cells.name)
    if _is_of_levels(cells):
        return CategoricalColumn(name, _levels(cells))
    values = cells.to_numpy(dtype=np.float64)
    # Extreme values overflow a square; the result is checked, so no warning is wanted.
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = float(values.mean()), float(values.std())
    if not np.isfinite([mean, scale]).all():
        raise ValueError(
            f"column {name!r} cannot be standardised: its mean is {mean:g} and its standard "
            f"deviation {scale:g}; rescale it"
        )
    constant = bool((values == values[0]).all()) or scale == 0.0
    return NumericColumn(name, mean, 1.0 if constant else scale)


def _levels(cells: pd.Series) -> tuple[str, ...]:
    if isinstance(cells.dtype, pd.CategoricalDtype):
        known = pd.Series(pd.Categorical(cells.cat.categories, dtype=cells.dtype))
        return levels_in(known)
    return levels_in(cells)
