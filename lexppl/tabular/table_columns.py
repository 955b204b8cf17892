"""Columns of a table: their kinds, missing cells, and mask entries."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lexppl.data import TableEncoding
from lexppl.data.checks import counted, level_of, missing_in
from lexppl.data.columns import IndicatorColumn, kind_of
from lexppl.models import Grouping


def has_levels(table: Any) -> bool:
    """Whether a table is a data frame with words, categories or booleans."""
    return isinstance(table, pd.DataFrame) and not all(
        kind_of(table.iloc[:, place]) == "number" for place in range(table.shape[1])
    )


def refuse_missing_cells(frame: pd.DataFrame) -> None:
    """Refuse a table with missing values, by columns and counts."""
    found = missing_in(frame)
    if found:
        raise ValueError(
            f"Input X contains NaN: missing values in {counted(found)}; fill them in, as with "
            "sklearn.impute.SimpleImputer, drop the rows, or give hide_missing=True"
        )


def markers_in(encoding: TableEncoding | None) -> tuple[int, ...]:
    """The markers of an encoding's features; () where no value may be missing."""
    markers = () if encoding is None else encoding.markers
    return markers if any(place >= 0 for place in markers) else ()


def grouping_of_values(
    groups: Sequence[int], names: Sequence[str], markers: Sequence[int]
) -> Grouping:
    """The grouping of the features that are values; some of the F features may be markers."""
    if not markers:
        return Grouping(groups, names)
    values = [group for place, group in enumerate(groups) if markers[place] != place]
    return Grouping(values, names)


def grouping_of(encoding: TableEncoding, groups: Sequence[Any] | None) -> Grouping:
    """The features of each mask entry: of one column, or of all columns of one group.

    Example:
        >>> from lexppl.data.encoding import TargetColumn
        >>> frame = pd.DataFrame({"a": [0.0, 1.0], "b": [2.0, 1.0]})
        >>> encoding = TableEncoding.fit(frame, TargetColumn("y", None))
        >>> grouping_of(encoding, ["size", "size"]).names
        ('size',)
    """
    markers = markers_in(encoding)
    if groups is None:
        return grouping_of_values(encoding.groups, encoding.entry_names, markers)
    known = encoding.table_columns
    columns = len(known)
    if isinstance(groups, str) or not hasattr(groups, "__len__") or len(groups) != columns:
        raise ValueError(
            f"groups must give each of the {columns} columns of X the name of its group; it is "
            f"{groups!r}"
        )
    given = dict(zip(known, map(level_of, groups), strict=True))
    # An indicator of what is missing is an entry of its own.
    names = [given.get(column.name, column.name) for column in encoding.columns]
    entries = list(dict.fromkeys(names))
    place = [entries.index(name) for name in names]
    return grouping_of_values([place[column] for column in encoding.groups], entries, markers)


def entries_of_columns(encoding: TableEncoding, grouping: Grouping) -> NDArray[np.int64]:
    """The mask entry of each column, `(columns,)`."""
    values = [place for place, marker in enumerate(encoding.markers) if marker != place]
    columns, first = np.unique(np.asarray(encoding.groups)[values], return_index=True)
    read = [not isinstance(encoding.columns[column], IndicatorColumn) for column in columns]
    entries: NDArray[np.int64] = grouping.index.cpu().numpy()[first[read]]
    return entries
