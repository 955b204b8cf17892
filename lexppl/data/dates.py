"""Dates and times: which cells are some, in which order their parts stand, and the parts."""

from __future__ import annotations

import datetime
import re
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

Order = Literal["dayfirst", "monthfirst"]
"""How 03/04/2026 is read: as the third of April, or as the fourth of March."""

ORDERS: tuple[str, ...] = get_args(Order)

_TIME = (
    r"(?:[T ]+(?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2})(?P<f>[.,]\d+)?)?"
    r" ?(?P<zone>Z|[+-]\d{2}:?\d{2})?)?"
)
_YEAR_FIRST = re.compile(
    r"(?P<y>\d{4})(?P<sep>[-/.])(?P<m>\d{1,2})(?:(?P=sep)(?P<d>\d{1,2}))?" + _TIME
)
_YEAR_LAST = re.compile(r"(?P<a>\d{1,2})(?P<sep>[-/.])(?P<b>\d{1,2})(?P=sep)(?P<y>\d{4})" + _TIME)
_NAMED = re.compile(r"(?P<d>\d{1,2})[ .-]+(?P<name>[A-Za-z]{3,9})[ .,-]+(?P<y>\d{4})" + _TIME)
_NAME_FIRST = re.compile(r"(?P<name>[A-Za-z]{3,9})\.? (?P<d>\d{1,2}),? (?P<y>\d{4})" + _TIME)
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_DAY = 86_400.0
TOLD_BY = 1000
"""Different words by which a column of dates is told from one of others."""
MOST_OTHERS = 0.1
"""Share of these words that may be no dates for the column to be called one of dates that has
something wrong, rather than one of words."""


class DateOrderError(ValueError):
    """Dates of which nothing says whether the day or the month comes first."""


def holds_dates(cells: pd.Series) -> bool:
    """Whether a column holds dates or times, by its type or as words that are nearly all dates.

    Words are dates as ``2026-11-22`` (ISO 8601, with a time of the day or without, also ``2026-11``
    and with ``/`` or ``.``), ``22.11.2026``, ``22/11/2026``, ``22 Nov 2026`` and ``Nov 22, 2026``.

    >>> holds_dates(pd.Series(["2026-11-22", None, "2026-11-23 08:30"]))
    True
    >>> holds_dates(pd.Series(["clerk", "smith"])), holds_dates(pd.Series([20261122, 20261123]))
    (False, False)
    """
    if types.is_datetime64_any_dtype(cells.dtype):
        return True
    if types.infer_dtype(cells) in ("date", "datetime", "datetime64"):
        return True
    # A column of words is told by some of them; others that are no dates are refused later.
    words = _words(cells)[:TOLD_BY]
    if not words:
        return False
    others, most = 0, MOST_OTHERS * len(words)
    for word in words:
        others += _match(word) is None
        if others > most:
            return False
    return True


def date_order(cells: pd.Series, given: str | None = None) -> Order | None:
    """In which order a column's words have day and month; None where it is written otherwise.

    Args:
        cells: a column of dates.
        given: what was said of it, for words that do not tell.

    Raises:
        DateOrderError: words that do not tell, and nothing was said.
        ValueError: words of both orders, or of another than was said.

    >>> date_order(pd.Series(["03/04/2026", "22/11/2026"]))
    'dayfirst'
    """
    words = _words(cells)
    if not any(_YEAR_LAST.fullmatch(word) for word in words[:TOLD_BY]):
        return None
    found: dict[str, str] = {}
    example = None
    for word in words:
        match = _YEAR_LAST.fullmatch(word)
        if match is None:
            continue
        first, second = int(match["a"]), int(match["b"])
        if first > 12 or (match["sep"] == "." and second <= 12):
            found.setdefault("dayfirst", word)
        elif second > 12:
            found.setdefault("monthfirst", word)
        example = example or word
    if len(found) > 1:
        raise ValueError(
            f"column {cells.name!r} holds dates of both orders, such as {found['dayfirst']!r} and "
            f"{found['monthfirst']!r}; write them as 2026-11-22"
        )
    if not found and given is None:
        raise DateOrderError(
            f"column {cells.name!r} holds dates such as {example!r}, which do not tell the day "
            "from the month"
        )
    order = next(iter(found), given)
    if given is not None and order != given:
        raise ValueError(
            f"dates={given!r} was given, and column {cells.name!r} holds {found[str(order)]!r}"
        )
    return "dayfirst" if order == "dayfirst" else "monthfirst"


def days_of(cells: pd.Series, order: Order | None = None) -> NDArray[np.float64]:
    """The days since 1970-01-01 (UTC), with the time of the day as their fraction, `(N,)`; NaN
    where a cell is missing.

    Args:
        cells: dates, times or words that are some.
        order: of words whose year comes last.

    Raises:
        ValueError: cells that are no dates, with an example.

    >>> days_of(pd.Series(["1970-01-02 12:00", None])).tolist()
    [1.5, nan]
    """
    if types.is_datetime64_any_dtype(cells.dtype):
        return _days(cells)
    codes, uniques = pd.factorize(cells)
    days = np.append(_usual_days(pd.Series(list(uniques), dtype=object), order), np.nan)
    wrong = []
    for place in np.flatnonzero(np.isnan(days[:-1])).tolist():
        try:
            days[place] = _day(uniques[place], order)
        except (ValueError, OverflowError):
            wrong.append(uniques[place])
    if wrong:
        count = int(cells.isin(wrong).sum())
        raise ValueError(
            f"column {cells.name!r} must hold dates; {count} cells do not, such as "
            f"{str(wrong[0])!r}"
        )
    return days[codes]


def _days(instants: pd.Series) -> NDArray[np.float64]:
    """Days of a column of instants, NaN for none."""
    zoned = instants.dt.tz is not None
    found = (instants - pd.Timestamp(0, tz="UTC" if zoned else None)) / pd.Timedelta(days=1)
    # pandas' own is not to be written to.
    return np.array(found.to_numpy(dtype=np.float64, na_value=np.nan))


def _usual_days(words: pd.Series, order: Order | None) -> NDArray[np.float64]:
    """Days of the words that pandas reads in one go, NaN for others: there may be many."""
    if types.infer_dtype(words) != "string":
        return np.full(len(words), np.nan)
    days = _days(pd.to_datetime(words, format="ISO8601", utc=True, errors="coerce"))
    for sign in "./-" if order else "":
        left = np.isnan(days)
        if left.any():
            first, second = ("%d", "%m") if order == "dayfirst" else ("%m", "%d")
            written = f"{first}{sign}{second}{sign}%Y"
            days[left] = _days(pd.to_datetime(words[left], format=written, errors="coerce"))
    return days


def cyclic_parts(days: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """The angles, in radians, of what recurs: month of the year, day of the week, hour of the day.

    Args:
        days: since 1970-01-01, `(N,)`; NaN gives NaN.

    >>> [name for name, angle in cyclic_parts(np.array([0.0, 31.25])).items()]
    ['month', 'weekday', 'hour']
    """
    known = ~np.isnan(days)
    instants = np.round(np.where(known, days, 0.0) * _DAY * 1e3).astype("datetime64[ms]")
    months = instants.astype("datetime64[M]").astype(np.int64) % 12
    whole = instants.astype("datetime64[D]").astype(np.int64)
    # 1970-01-01 was a Thursday.
    weekdays = (whole + 3) % 7
    hours = (instants - instants.astype("datetime64[D]")).astype(np.int64) / 3.6e6
    turns = {"month": months / 12.0, "weekday": weekdays / 7.0, "hour": hours / 24.0}
    return {
        name: np.where(known, 2.0 * np.pi * turn, np.nan).astype(np.float64)
        for name, turn in turns.items()
    }


def waves(days: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """The sine and the cosine of each angle of :func:`cyclic_parts`, `(N,)`, by name.

    >>> list(waves(np.array([0.0])))[:2]
    ['month sin', 'month cos']
    """
    return {
        f"{name} {wave.__name__}": wave(angle)
        for name, angle in cyclic_parts(days).items()
        for wave in (np.sin, np.cos)
    }


def varying_waves(days: NDArray[np.float64]) -> tuple[str, ...]:
    """Names of the waves that are not the same in all dates.

    >>> varying_waves(np.array([0.0, 7.0, np.nan, 38.0]))
    ('month sin', 'month cos', 'weekday sin', 'weekday cos')
    """
    known = waves(days[~np.isnan(days)])
    return tuple(name for name, wave in known.items() if np.ptp(wave) > ALIKE)


ALIKE = 1e-6
"""What waves may differ by, by rounding."""


def _words(cells: pd.Series) -> list[str]:
    """The different words of a column, or none where it holds something else."""
    if isinstance(cells.dtype, pd.CategoricalDtype) or types.infer_dtype(cells) != "string":
        return []
    return [word.strip() for word in cells.dropna().unique().tolist()]


def _match(word: str) -> re.Match[str] | None:
    for shape in (_YEAR_FIRST, _YEAR_LAST, _NAMED, _NAME_FIRST):
        found = shape.fullmatch(word)
        if found and ("name" not in found.groupdict() or _month(found["name"])):
            return found
    return None


def _month(name: str) -> int | None:
    """A month's number by its name or its first three letters; None for another word."""
    word = name.lower()
    return next((n for n, m in enumerate(_MONTHS, 1) if word in (m, m[:3])), None)


def _day(value: object, order: Order | None) -> float:
    """A cell as days since 1970."""
    if isinstance(value, str):
        return _day_of_word(value.strip(), order)
    if isinstance(value, datetime.date | datetime.datetime | np.datetime64):
        stamp = pd.Timestamp(value)
        if stamp.tzinfo is not None:
            stamp = stamp.tz_convert("UTC").tz_localize(None)
        return float((stamp - pd.Timestamp(0)) / pd.Timedelta(days=1))
    raise ValueError(f"{value!r} is no date")


def _day_of_word(word: str, order: Order | None) -> float:
    match = _match(word)
    if match is None:
        raise ValueError(f"{word!r} is no date")
    parts = match.groupdict()
    if "a" in parts:
        if order is None:
            raise ValueError(f"{word!r} does not tell the day from the month")
        day, month = (parts["a"], parts["b"]) if order == "dayfirst" else (parts["b"], parts["a"])
    else:
        day = parts["d"] or "1"
        month = parts["m"] if "m" in parts else str(_month(parts["name"]))
    date = datetime.date(int(parts["y"]), int(month), int(day))
    days = (date - datetime.date(1970, 1, 1)).days
    if parts["h"] is None:
        return float(days)
    time = datetime.time(int(parts["h"]), int(parts["min"]), int(parts["s"] or 0))
    seconds = time.hour * 3600 + time.minute * 60 + time.second
    fraction = float("0." + parts["f"][1:]) if parts["f"] else 0.0
    return days + (seconds + fraction - _offset(parts["zone"])) / _DAY


def _offset(zone: str | None) -> float:
    """Seconds that a zone is ahead of UTC."""
    if zone in (None, "Z"):
        return 0.0
    sign = -1.0 if zone[0] == "-" else 1.0
    return sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)


def checked_order(given: object) -> Order | None:
    """What was said of the order of day and month.

    Raises:
        ValueError: neither of the two, nor None.

    >>> checked_order("dayfirst")
    'dayfirst'
    """
    if given is None:
        return None
    if given not in ORDERS:
        raise ValueError(f"dates must be 'dayfirst' or 'monthfirst'; it is {given!r}")
    return "dayfirst" if given == "dayfirst" else "monthfirst"
