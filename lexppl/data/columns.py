"""The kinds of columns, and the features and the mask entry that each becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lexppl.argument_checks import finite_float
from lexppl.data.cells import level_index, numbers_of
from lexppl.data.dates import Order, checked_order, days_of, waves


@dataclass(frozen=True)
class NumericColumn:
    """A column ``v`` that enters as ``(v − mean) / scale``.

    Args:
        name: the column's.
        mean, scale: of the rows that statistics are of, missing values left out.
        gaps: cells may be missing. They then enter as 0, the mean, and a second feature, the
            marker, is 1 where they are; both are of the column's mask entry.
    """

    name: str
    mean: float
    scale: float
    gaps: bool = False

    @property
    def plain(self) -> tuple[Plain, ...]:
        """Return the columns of one feature kind each that it is made of, the marker last."""
        return (replace(self, gaps=False), *_marker(self))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the column's own name, and its marker's where it has one."""
        return _names(self)

    def checked(self, cells: pd.Series) -> NDArray[np.float64]:
        """Return the cells as numbers, shape ``(N,)``; NaN where they are missing.

        Raises:
            ValueError: cells that are missing and may not be, infinite or no numbers.
        """
        return numbers_of(cells, self.gaps)

    def values(self, cells: pd.Series) -> list[NDArray[Any]]:
        """Return what the plain columns hold, as :meth:`checked`."""
        return [self.checked(cells), *_marked(self, cells)]


@dataclass(frozen=True)
class CategoricalColumn:
    """A column that enters as one 0/1 feature a level; all of them are one mask entry.

    Args:
        name: the column's.
        levels: in their order.
        gaps: cells may be missing, and enter as zeros beside a marker, as in
            :class:`NumericColumn`.
        pooled: the one of ``levels`` that stands for every level that is not among them, rare ones
            and ones never seen; ``None`` where such are refused.
    """

    name: str
    levels: tuple[str, ...]
    gaps: bool = False
    pooled: str | None = None

    @property
    def plain(self) -> tuple[Plain, ...]:
        """Return the columns of one feature kind each that it is made of, the marker last."""
        return (replace(self, gaps=False), *_marker(self))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return ``column=level`` for each level, and the marker's name where it has one."""
        return _names(self)

    def checked(self, cells: pd.Series) -> NDArray[np.object_]:
        """Return the cells as names of levels, shape ``(N,)``; None where they are missing.

        Raises:
            ValueError: cells that are missing and may not be, or of a level that was not there
                before and is not pooled.
        """
        places = level_index(cells, self.levels, gaps=self.gaps, pooled=self.pooled)
        return np.asarray([*self.levels, None], dtype=object)[places]

    def values(self, cells: pd.Series) -> list[NDArray[Any]]:
        """Return what the plain columns hold, as :meth:`checked`."""
        return [self.checked(cells), *_marked(self, cells)]


@dataclass(frozen=True)
class DateColumn:
    """A column of dates that enters as a trend and as what recurs; all of it is one mask entry.

    With ``t`` in days since 1970-01-01 (UTC) the features are ``(t − mean) / scale`` and the sine
    and the cosine of angles: the month's in the year, the weekday's in the week, the hour's in the
    day.

    Args:
        name: the column's.
        mean, scale: of ``t``, in days.
        parts: of ``"month sin"``, ``"month cos"`` and the same of ``weekday`` and ``hour`` those
            that vary.
        order: of day and month in words such as 03/04/2026; ``None`` where it needs none.
        gaps: cells may be missing, and enter as zeros beside a marker, as in
            :class:`NumericColumn`.

    Example:
        >>> column = DateColumn("seen", mean=0.0, scale=10.0, parts=("weekday sin", "weekday cos"))
        >>> column.feature_names
        ('seen', 'seen: weekday sin', 'seen: weekday cos')
    """

    name: str
    mean: float
    scale: float
    parts: tuple[str, ...] = ()
    order: Order | None = None
    gaps: bool = False

    @property
    def plain(self) -> tuple[Plain, ...]:
        """Return the columns of one feature kind each that it is made of, the marker last."""
        return (
            NumericColumn(self.name, self.mean, self.scale),
            *(NumericColumn(f"{self.name}: {part}", 0.0, 1.0) for part in self.parts),
            *_marker(self),
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the names of the trend, of the waves, and of the marker where it has one."""
        return _names(self)

    def checked(self, cells: pd.Series) -> NDArray[np.float64]:
        """Return the cells as days since 1970-01-01, shape ``(N,)``; NaN where they are missing.

        Raises:
            ValueError: cells that are missing and may not be, or no dates.
        """
        return numbers_of(
            pd.Series(days_of(cells, self.order), cells.index, name=cells.name), self.gaps
        )

    def values(self, cells: pd.Series) -> list[NDArray[Any]]:
        """Return what the plain columns hold, as :meth:`checked`."""
        days = self.checked(cells)
        found = waves(days)
        return [days, *(found[part] for part in self.parts), *_marked(self, cells)]


@dataclass(frozen=True)
class IndicatorColumn:
    """A mask entry of its own that says whether another column is missing: a 0/1 feature.

    Args:
        name: of the entry.
        of: the column that may be missing.
    """

    name: str
    of: str
    gaps: bool = False

    @property
    def plain(self) -> tuple[Plain, ...]:
        """Return the column of one feature."""
        return (NumericColumn(self.name, 0.0, 1.0),)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the entry's name."""
        return (self.name,)

    def values(self, cells: pd.Series) -> list[NDArray[Any]]:
        """Return 1 where the other column's cells are missing."""
        return [cells.isna().to_numpy(dtype=np.float64)]


Plain = NumericColumn | CategoricalColumn
Column = NumericColumn | CategoricalColumn | DateColumn | IndicatorColumn


def source_of(column: Column) -> str:
    """The column of the table that a column is made from.

    >>> source_of(IndicatorColumn("age is missing", of="age"))
    'age'
    """
    return column.of if isinstance(column, IndicatorColumn) else column.name


def markers_of(columns: Sequence[Column]) -> tuple[int, ...]:
    """For each feature the place of the marker that says that it is missing, or −1; a marker's is
    its own.

    >>> markers_of([NumericColumn("a", 0.0, 1.0), NumericColumn("b", 0.0, 1.0, gaps=True)])
    (-1, 2, 2)
    """
    found: list[int] = []
    for column in columns:
        width = len(column.feature_names)
        found += [len(found) + width - 1 if column.gaps else -1] * width
    return tuple(found)


def column_to_json(column: Column) -> dict[str, Any]:
    """A column's description, of what is not as by default."""
    kinds = {
        NumericColumn: "numeric",
        CategoricalColumn: "categorical",
        DateColumn: "date",
        IndicatorColumn: "indicator",
    }
    given = {key: value for key, value in asdict(column).items() if value not in (False, None)}
    if isinstance(column, NumericColumn | DateColumn):
        given |= {"mean": column.mean, "scale": column.scale}
    return {"kind": kinds[type(column)]} | {
        key: list(value) if isinstance(value, tuple) else value for key, value in given.items()
    }


def column_from_json(description: Mapping[str, Any]) -> Column:
    """The column that :func:`column_to_json` described.

    Raises:
        ValueError: another kind of column.

    >>> column_from_json(column_to_json(NumericColumn("age", 0.0, 1.0, gaps=True)))
    NumericColumn(name='age', mean=0.0, scale=1.0, gaps=True)
    """
    kind, name = description["kind"], text_of("name", description["name"])
    gaps = bool(description.get("gaps", False))
    if kind == "numeric":
        return NumericColumn(name, *_statistics(description), gaps)
    if kind == "categorical":
        levels, pooled = texts_of("levels", description["levels"]), description.get("pooled")
        if pooled is not None and pooled not in levels:
            raise ValueError(
                f"pooled of column {name!r} must be one of its levels; it is {pooled!r}"
            )
        return CategoricalColumn(name, levels, gaps, pooled)
    if kind == "date":
        parts, order = texts_of("parts", description.get("parts", [])), description.get("order")
        known = tuple(waves(np.zeros(1)))
        unknown = [part for part in parts if part not in known]
        if unknown:
            raise ValueError(f"parts of column {name!r} must be of {known}; it has {unknown}")
        return DateColumn(name, *_statistics(description), parts, checked_order(order), gaps)
    if kind == "indicator":
        return IndicatorColumn(name, text_of("of", description["of"]))
    raise ValueError(
        f"column {name!r} must be of kind 'numeric', 'categorical', 'date' or 'indicator'; it is "
        f"{kind!r}"
    )


def _statistics(description: Mapping[str, Any]) -> tuple[float, float]:
    return (
        finite_float("mean", description["mean"]),
        finite_float("scale", description["scale"], above=0.0),
    )


def text_of(name: str, value: Any) -> str:
    """A name in a description.

    Raises:
        ValueError: no text.

    >>> text_of("name", "age")
    'age'
    """
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text; it is {value!r}")
    return value


def texts_of(name: str, value: Any) -> tuple[str, ...]:
    """Different names in a description.

    Raises:
        ValueError: no list of texts, or one that has some twice.

    >>> texts_of("levels", ["clerk", "smith"])
    ('clerk', 'smith')
    """
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{name} must be a list of texts; it is {value!r}")
    if len(set(value)) < len(value):
        raise ValueError(f"{name} must differ from each other; they are {value!r}")
    return tuple(value)


def marker_name(column: str) -> str:
    """The name of the feature that marks a column's gaps."""
    return f"{column} (hidden)"


def level_feature(column: str, level: str) -> str:
    """The name of a level's feature."""
    return f"{column}={level}"


def _names(column: NumericColumn | CategoricalColumn | DateColumn) -> tuple[str, ...]:
    found: list[str] = []
    for part in column.plain:
        levels = part.levels if isinstance(part, CategoricalColumn) else None
        found += [part.name] if levels is None else [level_feature(part.name, n) for n in levels]
    return tuple(found)


def _marker(column: NumericColumn | CategoricalColumn | DateColumn) -> list[Plain]:
    return [NumericColumn(marker_name(column.name), 0.0, 1.0)] if column.gaps else []


def _marked(
    column: NumericColumn | CategoricalColumn | DateColumn, cells: pd.Series
) -> list[NDArray[Any]]:
    return [cells.isna().to_numpy(dtype=np.float64)] if column.gaps else []
