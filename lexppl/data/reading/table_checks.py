"""What a table has wrong, column by column, each with the argument that mends it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lexppl.data.cells import (
    kind_of,
    levels_in,
    missing_words,
    numbers_of,
    pooled_levels,
)
from lexppl.data.dates import DateOrderError, checked_order, date_order, days_of
from lexppl.data.listing import listed
from lexppl.data.reading.read_rows import Problem

MOST_LEVELS = 100
FEW_ROWS = 10
"""Rows up to which a column that counts them may well do so by chance."""

_WHOLE = re.compile(r"[+-]?\d+")
_WITH_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}([. ']\d{3})+),\d+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")


@dataclass(frozen=True)
class Reading:
    """How the columns of a table are to be read, as :func:`lexppl.data.read_table` says it."""

    hide_missing: bool = False
    drop_constant: bool = False
    rare: int | None = None
    dates: str | None = None


def feature_problems(
    frame: pd.DataFrame, how: Reading, rows: NDArray[np.int64] | None
) -> Iterator[Problem]:
    """Yield what the columns to explain by have wrong.

    Args:
        frame: the columns, without rows that are dropped.
        how: they are to be read.
        rows: places of those that count for rare levels; all where None.
    """
    constant = [name for name in frame.columns if is_constant(frame[name])]
    if constant and not how.drop_constant:
        yield Problem(
            f"constant columns explain nothing: {listed(constant)}; leave them out, or give "
            "drop_constant=True to drop them",
            {"drop_constant": True},
        )
    elif len(constant) == frame.shape[1]:
        yield Problem("no column is left beside the target: all are constant")
    for name in frame.columns:
        if name not in constant:
            yield from column_problems(frame[name], how, rows)


def is_constant(cells: pd.Series) -> bool:
    """Whether a column has one value at most, beside missing ones.

    >>> is_constant(pd.Series([1.0, None, 1.0])), is_constant(pd.Series([[1], [1]]))
    (True, False)
    """
    try:
        return int(cells.nunique()) <= 1
    except TypeError:
        # Lists and the like have no hash, and are refused for what they are.
        return False


def missing_problems(frame: pd.DataFrame) -> Iterator[Problem]:
    """Yield that values are missing, where any are."""
    words = missing_words(frame)
    if words is not None:
        yield Problem(words, {"hide_missing": True})


def column_problems(
    cells: pd.Series, how: Reading, rows: NDArray[np.int64] | None
) -> Iterator[Problem]:
    """Yield what one column has wrong: missing values are not looked at."""
    name = str(cells.name)
    try:
        kind = kind_of(cells)
    except ValueError as error:
        yield Problem(str(error), {"drop": [name]})
        return
    known = cells.dropna()
    if kind == "level":
        commas = comma_problem(known)
        if commas is not None:
            yield commas
            return
        yield from level_problems(known, cells, how, rows)
    elif kind == "number":
        yield from _told(lambda: numbers_of(known))
    else:
        yield from _date_problems(known, how)


def comma_problem(cells: pd.Series) -> Problem | None:
    """Return that a column of words holds numbers with commas, if it does.

    Args:
        cells: none of them missing.

    >>> comma_problem(pd.Series(["1,5", "2"], name="dose")).mend
    {'decimal': ','}
    """
    if isinstance(cells.dtype, pd.CategoricalDtype):
        return None
    words = cells.unique().tolist()
    if not all(isinstance(word, str) for word in words):
        return None
    words = [word.strip() for word in words]
    commas = [word for word in words if "," in word]
    name = str(cells.name)
    if not commas:
        return None
    if all(_THOUSANDS.fullmatch(word) or _WHOLE.fullmatch(word) for word in words):
        return Problem(
            f"column {name!r} holds numbers with commas, such as {commas[0]!r}: if they part the "
            "decimals give decimal=',' when the file is read; if they part the thousands, write "
            "the numbers without them"
        )
    if all(_WITH_COMMA.fullmatch(word) or _WHOLE.fullmatch(word) for word in words):
        return Problem(
            f"column {name!r} holds numbers with decimal commas, such as {commas[0]!r}; give "
            f"decimal=',' when the file is read, or categorical=[{name!r}] if they are names",
            {"decimal": ","},
        )
    return None


def level_problems(
    known: pd.Series, cells: pd.Series, how: Reading, rows: NDArray[np.int64] | None
) -> Iterator[Problem]:
    """Yield that a column has too many levels, or none but rare ones."""
    name, levels = str(cells.name), levels_in(known)
    every = levels
    if how.rare is not None:
        chosen = cells if rows is None else cells.iloc[rows]
        levels, _, _ = pooled_levels(chosen, levels, how.rare)
        if len(levels) < 2:
            yield Problem(
                f"column {name!r} has no level in {how.rare} rows or more, and pooled it is "
                f"constant: leave it out with drop=[{name!r}], or give a smaller rare",
                {"drop": [name]},
            )
            return
    yield from many_levels(name, levels, len(cells), every)


def many_levels(
    name: str, levels: tuple[str, ...], rows: int, every: tuple[str, ...] | None = None
) -> Iterator[Problem]:
    """Yield that a column has more levels than are expected.

    Args:
        name: the column's, or the target's where ``every`` is None.
        levels: that it has, after rare ones were pooled.
        rows: of the table.
        every: the levels before.
    """
    if len(levels) <= MOST_LEVELS:
        return
    words = [level for level in levels if pd.isna(pd.to_numeric(level, errors="coerce"))]
    mend: dict[str, object] = {}
    if 0 < len(words) < len(levels) / 2:
        few = words[:3]
        hint = (
            f"most are numbers, but not {listed(words, most=3)}: if these mean missing, give "
            f"missing=({few[0]!r},)"
        )
        mend = {"missing": few}
    elif every is None:
        hint = "it looks like an identifier or free text: predict another column"
    else:
        hint = (
            "it looks like an identifier or free text: leave it out with "
            f"drop=[{name!r}], or pool its rare levels with rare=10"
        )
        mend = {"drop": [name]}
    yield Problem(
        f"categorical column {name!r} has {len(levels)} levels in {rows} rows, at most "
        f"{MOST_LEVELS} are expected; {hint}",
        mend,
    )


def counts_rows(cells: pd.Series) -> bool:
    """Whether a column numbers the rows: whole numbers without a gap, each once.

    >>> counts_rows(pd.Series(range(100, 120))), counts_rows(pd.Series([3, 1, 5] * 10))
    (True, False)
    """
    if not pd.api.types.is_integer_dtype(cells.dtype) or len(cells) <= FEW_ROWS:
        return False
    if cells.isna().any() or int(cells.max()) - int(cells.min()) != len(cells) - 1:
        return False
    return bool(cells.is_unique)


def _date_problems(known: pd.Series, how: Reading) -> Iterator[Problem]:
    name = str(known.name)
    try:
        order = date_order(known, checked_order(how.dates))
        days_of(known, order)
    except DateOrderError as error:
        yield Problem(
            f"{error}: give dates='dayfirst' or dates='monthfirst'",
            {"dates": "dayfirst|monthfirst"},
        )
    except ValueError as error:
        yield Problem(
            f"{error}; if these mean missing give them as missing=(…), or read the column as "
            f"levels with categorical=[{name!r}], or leave it out with drop=[{name!r}]",
            {"drop": [name]},
        )


def _told(check: Any) -> Iterator[Problem]:
    try:
        check()
    except ValueError as error:
        yield Problem(str(error))
