"""Dates and times: which cells are some, the order of day and month, and what recurs in them."""

import datetime
import re
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

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
        raise ValueError(
            f"dates={stated!r} was given, and column {cells.name!r} holds {example[order]!r}"
        )
    return checked_order(order)


def days_of(cells: pd.Series, order: Order | None = None) -> NDArray[np.float64]:
    """The days since 1970-01-01 (UTC), with the time of the day as their fraction, `(N,)`; NaN
    where a cell is missing.

    >>> days_of(pd.Series(["1970-01-02 12:00", None])).tolist()
    [1.5, nan]
    """
    codes, uniques = pd.factorize(cells)
    values: Any = [_readable(value, order) for value in uniques]
    found: Any = pd.Series(pd.to_datetime(values, format="mixed", utc=True, errors="coerce"))
    if found.isna().any():
        wrong = uniques[found.isna()]
        raise ValueError(
            f"column {cells.name!r} must hold dates; {int(cells.isin(wrong).sum())} cells do not, "
            f"such as {str(wrong[0])!r}"
        )
    days = (found - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
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
    day, month = (
        last.group("first", "second") if order == "dayfirst" else last.group("second", "first")
    )
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
    if stated is None:
        return None
    if stated not in ("dayfirst", "monthfirst"):
        raise ValueError(f"dates must be 'dayfirst' or 'monthfirst'; it is {stated!r}")
    return "dayfirst" if stated == "dayfirst" else "monthfirst"
