"""Cells of a table's columns: missing ones, numbers, levels and dates."""

import datetime
import numbers
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from lexppl.argument_checks import one_of, quoted, quoted_counts

Kind = Literal["number", "level", "date"]
POOLED = "other levels"  # The level that stands for the rare ones
MISSING_WORDS = "missing words"  # In the attrs of a table: counts of words such as "NA", by column


def level_of(value: object) -> str:
    """The name of a categorical value: ``1``, ``1.0`` and ``"1"`` are one level."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_):
        whole = isinstance(value, numbers.Integral) or float(value).is_integer()
        return str(int(value)) if whole else str(value)  # type: ignore[call-overload]
    return str(value)


def are_without_words(levels: Collection[str]) -> bool:
    """Whether levels are booleans, or numbers as :func:`level_of` names them.

    >>> are_without_words(["1", "2.5"]), are_without_words(["007", "12"])
    (True, False)
    """
    return {*levels} <= {"False", "True"} or all(
        level_of(pd.to_numeric(level, errors="coerce")) == level for level in levels
    )


def numbers_of(cells: pd.Series, gaps: bool = False) -> NDArray[np.float64]:
    """The column as finite float64 ``(N,)``, NaN where a cell is missing, if that may be."""
    values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    words = np.isnan(values) & cells.notna().to_numpy()
    if words.any():
        raise ValueError(
            f"column {cells.name!r} must hold numbers; {int(words.sum())} cells do not, "
            f"such as {cells[words].iloc[0]!r}"
        )
    if not gaps:
        refuse_missing(cells.to_frame())
    if np.isinf(values).any():
        raise ValueError(
            f"column {cells.name!r} must be finite; {int(np.isinf(values).sum())} are infinite"
        )
    return values


def missing_in(frame: pd.DataFrame) -> dict[str, int]:
    """How many values are missing of each column that lacks any."""
    return {str(name): int(count) for name, count in frame.isna().sum().items() if count}


def missing_words(frame: pd.DataFrame, target: str) -> str:
    """What a target holds that is read as missing beside numbers, such as "None", and the arguments
    that say what it is; "" where it holds no such word."""
    words = frame.attrs.get(MISSING_WORDS, {}).get(target)
    if not words:
        return ""
    return (
        f"target {target!r} holds {quoted_counts(words)}, read as missing beside numbers: give "
        f"missing=({next(iter(words))!r},), or missing=('',) if it is a class"
    )


def refuse_missing(frame: pd.DataFrame) -> None:
    """Refuse missing values, by column and number."""
    if gaps := missing_in(frame):
        raise ValueError(
            f"missing values in {len(gaps)} of {frame.shape[1]} columns: {quoted_counts(gaps)}; "
            "fill them in, or give drop_missing=True to drop the rows that have any, or "
            "hide_missing=True to keep them hidden from the explainer, which then predicts "
            "without them"
        )


def kind_of(cells: pd.Series) -> Kind:
    """Kind of a column's cells: numbers, levels or dates; durations, complex numbers and lists are
    refused.

    >>> [kind_of(pd.Series(cells)) for cells in ([1.5, None], ["clerk"], ["2026-11-22"])]
    ['number', 'level', 'date']
    """
    if isinstance(cells.dtype, pd.CategoricalDtype) or types.is_bool_dtype(cells.dtype):
        return "level"
    inferred = types.infer_dtype(cells, skipna=True)
    real = types.is_numeric_dtype(cells.dtype) and inferred != "complex"
    if real or inferred in ("integer", "floating", "mixed-integer-float", "decimal"):
        return "number"
    if holds_dates(cells):
        return "date"
    scalars = inferred == "mixed" and cells.map(types.is_scalar).all()
    if scalars or inferred in ("string", "boolean", "mixed-integer", "empty"):
        return "level"
    raise ValueError(
        f"column {cells.name!r} holds values of kind {inferred!r}; expected numbers, words, "
        "dates, categories or booleans: turn it into one of these or leave it out with "
        f"drop=[{str(cells.name)!r}]"
    )


def levels_in(cells: pd.Series, every_category: bool = False) -> tuple[str, ...]:
    """The levels that occur, or every category: in the order of categories, of numbers, or of
    words."""
    values, ordered = cells.dropna().unique().tolist(), False
    if isinstance(cells.dtype, pd.CategoricalDtype):
        known = cells.cat if every_category else cells.cat.remove_unused_categories().cat
        values, ordered = known.categories.tolist(), bool(known.ordered)
    if not ordered:
        are_numbers = all(isinstance(value, numbers.Real) for value in values)
        values = sorted(values, key=None if are_numbers else level_of)
    return tuple(dict.fromkeys(level_of(value) for value in values))


def pooled_levels(
    cells: pd.Series, levels: tuple[str, ...], fewer_than: int | Mapping[str, int | None] | None
) -> tuple[tuple[str, ...], str | None]:
    """The levels that enough cells have, of a number by column perhaps, with the one that stands
    for the others last, and the name of this one, None where no level is rare."""
    if isinstance(fewer_than, Mapping):
        fewer_than = fewer_than.get(str(cells.name))
    if fewer_than is None:
        return levels, None
    counts = cells.dropna().map(level_of).value_counts()
    common = tuple(level for level in levels if counts.get(level, 0) >= fewer_than)
    if len(common) == len(levels):
        return levels, None
    pooled = POOLED
    while pooled in levels:
        pooled = f"({pooled})"
    return (*common, pooled), pooled


def level_index(
    cells: pd.Series,
    levels: tuple[str, ...],
    what: str = "level",
    *,
    gaps: bool = False,
    pooled: str | None = None,
) -> NDArray[np.int64]:
    """The place of each cell's level ``(N,)``, −1 where it is missing; of an unknown level that of
    ``pooled``, and refused where that is None."""
    if not gaps:
        refuse_missing(cells.to_frame())
    names = pd.Index(cells.map(level_of, na_action="ignore"), dtype=object)
    places = pd.Index(levels, dtype=object).get_indexer(names).astype(np.int64)
    unseen = (places < 0) & cells.notna().to_numpy()
    if unseen.any() and pooled is None:
        new = dict.fromkeys(map(level_of, cells[unseen]))
        hint = ", or fit with rare=10, which pools levels" if what == "level" else ""
        raise ValueError(
            f"column {cells.name!r} has {what} {quoted(new)}, not seen in fit; known are "
            f"{quoted(levels)}: leave these rows out{hint}"
        )
    if pooled is not None:
        places[unseen] = levels.index(pooled)
    return places


# How 03/04/2026 is read: as the third of April, or as the fourth of March.
Order = Literal["dayfirst", "monthfirst"]

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_TIME = r"(?:[T ]+\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)? ?(?:Z|[+-]\d{2}:?\d{2})?)?"
_YEAR_LAST = (
    r"(?P<first>\d{1,2})(?P<sign>[-/.])(?P<second>\d{1,2})(?P=sign)(?P<year>\d{4})"
    rf"(?P<time>{_TIME})"
)
_DATE = re.compile(
    rf"\d{{4}}(?P<s>[-/.])\d{{1,2}}(?:(?P=s)\d{{1,2}})?{_TIME}|{_YEAR_LAST}"
    rf"|\d{{1,2}}[ .-]+{_MONTH}[ .,-]+\d{{4}}{_TIME}|{_MONTH}\.? \d{{1,2}},? \d{{4}}{_TIME}",
    re.IGNORECASE,
)
_YEAR_IS_LAST = re.compile(f"^{_YEAR_LAST}$", re.IGNORECASE)
SAMPLE = 1000  # Different words of a column that decide whether it holds dates
# Share of these words that are dates in a column of dates; the others are then refused.
LEAST_DATES = 0.9


class DateOrderError(ValueError):
    """Dates of which nothing shows whether the day or the month comes first."""


def holds_dates(cells: pd.Series) -> bool:
    """Whether a column holds dates or times, by its type or as words that are nearly all dates.

    Words are dates as ``2026-11-22`` (ISO 8601, with a time of the day or without, also ``2026-11``
    and with ``/`` or ``.``), ``22.11.2026``, ``22/11/2026``, ``22 Nov 2026`` and ``Nov 22, 2026``.
    """
    if types.is_datetime64_any_dtype(cells.dtype):
        return True
    if types.infer_dtype(cells) in ("date", "datetime", "datetime64"):
        return True
    words = _words(cells)[:SAMPLE]
    dates = sum(_DATE.fullmatch(word) is not None for word in words)
    return bool(words) and dates >= LEAST_DATES * len(words)


def date_order(cells: pd.Series, stated: str | None = None) -> Order | None:
    """In which order a column's words have day and month, or the one stated for words that do
    not show it; None where the year is not last."""
    words = pd.Series(_words(cells), dtype=object)
    parts = words.str.extract(_YEAR_IS_LAST).dropna(subset="first")
    if parts.empty:
        return None
    first, second = parts["first"].astype(int), parts["second"].astype(int)
    day_first = (first > 12) | ((parts["sign"] == ".") & (second <= 12))
    month_first = (second > 12) & ~day_first
    places_of = {"dayfirst": parts.index[day_first], "monthfirst": parts.index[month_first]}
    example = {order: words[places[0]] for order, places in places_of.items() if len(places)}
    if len(example) > 1:
        raise ValueError(
            f"column {cells.name!r} holds dates of both orders, such as {example['dayfirst']!r} "
            f"and {example['monthfirst']!r}; write them as 2026-11-22"
        )
    order = next(iter(example), stated)
    if order is None:
        raise DateOrderError(
            f"column {cells.name!r} holds dates such as {words[parts.index[0]]!r}, which do "
            "not tell the day from the month: give dates='dayfirst' or dates='monthfirst', or "
            "read them first, as by pandas.to_datetime(…, dayfirst=True)"
        )
    if stated not in (None, order):
        raise ValueError(f"dates={stated!r}, and column {cells.name!r} holds {example[order]!r}")
    return checked_order(order)


def days_of(cells: pd.Series, order: Order | None = None) -> NDArray[np.float64]:
    """The days since 1970-01-01 (UTC), with the time of the day as their fraction, `(N,)`; NaN
    where a cell is missing.

    >>> days_of(pd.Series(["1970-01-02 12:00", None])).tolist()
    [1.5, nan]
    """
    codes, uniques = pd.factorize(cells)
    values: Any = [_readable(value, order) for value in uniques]
    dates: Any = pd.Series(pd.to_datetime(values, format="mixed", utc=True, errors="coerce"))
    if dates.isna().any():
        wrong = uniques[dates.isna()]
        raise ValueError(
            f"column {cells.name!r} must hold dates; {int(cells.isin(wrong).sum())} cells do not, "
            f"such as {str(wrong[0])!r}"
        )
    days = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    return np.append(days.to_numpy(dtype=np.float64), np.nan)[codes]


def _readable(value: object, order: Order | None) -> object:
    """A cell that pandas reads as it is meant, the year first, or None."""
    if not isinstance(value, str):
        return value if isinstance(value, datetime.date | np.datetime64) else None
    word = value.strip()
    last = _YEAR_IS_LAST.match(word)
    if last is None:
        return word if _DATE.fullmatch(word) else None
    if order is None:
        return None
    names = ("first", "second") if order == "dayfirst" else ("second", "first")
    day, month = last.group(*names)
    return f"{last['year']}-{month:0>2}-{day:0>2}{last['time']}"


def waves(days: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """The sine and the cosine, `(N,)`, of the angles of month, weekday and hour, by name.

    >>> list(waves(np.array([0.0])))
    ['month sin', 'month cos', 'weekday sin', 'weekday cos', 'hour sin', 'hour cos']
    """
    instants = pd.to_datetime(pd.Series(days), unit="D").dt.round("ms")
    turns = {
        "month": (instants.dt.month - 1) / 12.0,
        "weekday": instants.dt.day_of_week / 7.0,
        "hour": (instants - instants.dt.normalize()) / pd.Timedelta(days=1),
    }
    angles = {name: 2.0 * np.pi * turn.to_numpy(np.float64) for name, turn in turns.items()}
    return {
        f"{name} {wave.__name__}": wave(angle)
        for name, angle in angles.items()
        for wave in (np.sin, np.cos)
    }


def varying_waves(days: NDArray[np.float64]) -> tuple[str, ...]:
    """Names of the waves that are not the same in all dates, but for rounding.

    >>> varying_waves(np.array([0.0, 7.0, np.nan, 38.0]))
    ('month sin', 'month cos', 'weekday sin', 'weekday cos')
    """
    known = waves(days[~np.isnan(days)])
    return tuple(name for name, wave in known.items() if np.ptp(wave) > 1e-6)


def _words(cells: pd.Series) -> list[str]:
    """The different words of a column, or none where it holds something else."""
    if isinstance(cells.dtype, pd.CategoricalDtype) or types.infer_dtype(cells) != "string":
        return []
    return [word.strip() for word in cells.dropna().unique().tolist()]


def checked_order(stated: object) -> Order | None:
    """The order of day and month; refuses another word."""
    return None if stated is None else one_of(get_args(Order), "dates", stated)
