"""The cells of a column: numbers or levels, which levels, and what is refused by name."""

from __future__ import annotations

import numbers
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from lexppl.data.dates import holds_dates
from lexppl.data.listing import counted, listed


def level_of(value: object) -> str:
    """Return the name of a categorical value: ``1``, ``1.0`` and ``"1"`` are one level.

    >>> level_of(1.0), level_of("clerk"), level_of(True)
    ('1', 'clerk', 'True')
    """
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real) and float(value).is_integer():
        return str(int(float(value)))
    return str(value)


Kind = Literal["number", "level", "date"]


def kind_of(cells: pd.Series) -> Kind:
    """Return what a column holds, or refuse it where that is none of the three.

    Raises:
        ValueError: durations, complex numbers, lists.

    >>> kind_of(pd.Series([1.5, None])), kind_of(pd.Series(["clerk"]))
    ('number', 'level')
    >>> kind_of(pd.Series(["2026-11-22"]))
    'date'
    """
    if isinstance(cells.dtype, pd.CategoricalDtype) or types.is_bool_dtype(cells.dtype):
        return "level"
    if types.is_complex_dtype(cells.dtype):
        raise ValueError(f"column {cells.name!r} holds complex numbers; give real ones")
    if types.is_numeric_dtype(cells.dtype):
        return "number"
    if holds_dates(cells):
        return "date"
    inferred = types.infer_dtype(cells, skipna=True)
    if inferred in ("integer", "floating", "mixed-integer-float", "decimal"):
        return "number"
    if inferred in ("string", "boolean", "mixed-integer", "empty"):
        return "level"
    if inferred == "mixed" and cells.map(types.is_scalar).all():
        return "level"
    raise ValueError(
        f"column {cells.name!r} holds values of kind {inferred!r}; expected numbers, words, "
        "dates, categories or booleans: turn it into one of these or leave it out with "
        f"drop=[{str(cells.name)!r}]"
    )


def is_numeric(cells: pd.Series) -> bool:
    """Return whether a column holds numbers, as :func:`kind_of`.

    Raises:
        ValueError: as :func:`kind_of`.
    """
    return kind_of(cells) == "number"


def numbers_of(cells: pd.Series, gaps: bool = False) -> NDArray[np.float64]:
    """Return the column as float64, NaN where a cell is missing.

    Args:
        cells: the column.
        gaps: whether cells may be missing.

    Raises:
        ValueError: missing values where there may be none, infinite ones, or cells that are no
            numbers, with an example.
    """
    values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    absent = cells.isna().to_numpy()
    words = np.isnan(values) & ~absent
    if words.any():
        raise ValueError(
            f"column {cells.name!r} must hold numbers; {int(words.sum())} cells do not, "
            f"such as {cells[words].iloc[0]!r}"
        )
    if absent.any() and not gaps:
        refuse_missing(cells.to_frame())
    if np.isinf(values).any():
        raise ValueError(
            f"column {cells.name!r} must be finite; "
            f"it has {int(np.isinf(values).sum())} infinite values"
        )
    return values


def missing_in(frame: pd.DataFrame) -> dict[str, int]:
    """Return how many values are missing of each column that lacks any.

    >>> missing_in(pd.DataFrame({"age": [30.0, None], "job": ["smith", "clerk"]}))
    {'age': 1}
    """
    counts = frame.isna().sum()
    return {str(name): int(count) for name, count in counts.items() if count}


def missing_words(frame: pd.DataFrame) -> str | None:
    """Return which columns lack values and how many, and what to do; None where none does."""
    found = missing_in(frame)
    if not found:
        return None
    return (
        f"missing values in {len(found)} of {frame.shape[1]} columns: {counted(found)}; fill them "
        "in, or give drop_missing=True to drop the rows that have any, or hide_missing=True to "
        "keep them hidden from the explainer, which then predicts without them"
    )


def refuse_missing(frame: pd.DataFrame) -> None:
    """Raise ``ValueError`` naming the columns with missing values and how many each has."""
    words = missing_words(frame)
    if words is not None:
        raise ValueError(words)


def levels_in(cells: pd.Series, every_category: bool = False) -> tuple[str, ...]:
    """Return the levels that occur: in the order of the categories, of numbers, or of words.

    Args:
        cells: the column.
        every_category: of a pandas category also those that no cell has.

    >>> levels_in(pd.Series(["smith", "clerk", None, "smith"]))
    ('clerk', 'smith')
    """
    if isinstance(cells.dtype, pd.CategoricalDtype):
        known = cells.cat if every_category else cells.cat.remove_unused_categories().cat
        values = known.categories.tolist()
        ordered = values if known.ordered else _in_order(values)
    else:
        ordered = _in_order(cells.dropna().unique().tolist())
    return tuple(dict.fromkeys(level_of(value) for value in ordered))


def _in_order(values: list[Any]) -> list[Any]:
    if all(isinstance(value, numbers.Real) for value in values):
        return sorted(values)
    return sorted(values, key=level_of)


def pooled_levels(
    cells: pd.Series, levels: tuple[str, ...], fewer_than: int
) -> tuple[tuple[str, ...], str | None, int]:
    """Return the levels that enough cells have, the name of what stands for the others, and how
    many these are.

    Args:
        cells: the column, of the rows that count.
        levels: in their order; one that none of the cells has is rare too.
        fewer_than: cells that a level must have to stand for itself.

    Returns:
        the levels with the pooled one last; its name, None where no level is rare; and how many
        levels are pooled.

    >>> pooled_levels(pd.Series(["cook", "cook", "king", "smith"]), ("cook", "king", "smith"), 2)
    (('cook', 'other levels'), 'other levels', 2)
    """
    counts = cells.dropna().map(level_of).value_counts()
    kept = tuple(level for level in levels if counts.get(level, 0) >= fewer_than)
    if len(kept) == len(levels):
        return levels, None, 0
    pooled = POOLED
    while pooled in levels:
        pooled = f"({pooled})"
    return (*kept, pooled), pooled, len(levels) - len(kept)


POOLED = "other levels"
"""The level that stands for the rare ones."""


def level_index(
    cells: pd.Series,
    levels: tuple[str, ...],
    what: str = "level",
    *,
    gaps: bool = False,
    pooled: str | None = None,
) -> NDArray[np.int64]:
    """Return the place of each cell's level among those that are known, shape ``(N,)``.

    Args:
        cells: the column.
        levels: that are known.
        what: they are called in errors.
        gaps: cells may be missing; their place is −1.
        pooled: the level that stands for all that are not known; refused where None.

    Raises:
        ValueError: cells that are missing, or of a level that is not known.

    >>> level_index(pd.Series(["smith", "clerk"]), ("clerk", "smith")).tolist()
    [1, 0]
    """
    if not gaps:
        refuse_missing(cells.to_frame())
    codes, uniques = pd.factorize(cells)
    position = {level: index for index, level in enumerate(levels)}
    names = [level_of(value) for value in uniques]
    unseen = [name for name in names if name not in position]
    if unseen and pooled is None:
        raise ValueError(
            f"column {cells.name!r} has {what} {listed(unseen)}, not seen in fit; "
            f"known are {listed(levels)}"
        )
    others = -1 if pooled is None else position[pooled]
    places = [position.get(name, others) for name in names]
    return np.asarray([*places, -1], dtype=np.int64)[codes]
