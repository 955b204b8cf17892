"""Columns of a table: which kind each is, and the features and the one mask entry it becomes."""

import datetime
import numbers
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from lexppl.argument_checks import finite_float
from lexppl.configured import made_of
from lexppl.data.checks import level_of, listed, numbers_of, refuse_missing, refuse_repeated

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


Kind = Literal["number", "level", "date"]
POOLED = "other levels"  # The level that stands for the rare ones


def kind_of(cells: pd.Series) -> Kind:
    """What a column holds; refuses durations, complex numbers, lists.

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
    cells: pd.Series, levels: tuple[str, ...], fewer_than: int | None
) -> tuple[tuple[str, ...], str | None]:
    """The levels that enough cells have, with the one that stands for the others last, and the
    name of this one, None where no level is rare."""
    if fewer_than is None:
        return levels, None
    counts = cells.dropna().map(level_of).value_counts()
    kept = tuple(level for level in levels if counts.get(level, 0) >= fewer_than)
    if len(kept) == len(levels):
        return levels, None
    pooled = POOLED
    while pooled in levels:
        pooled = f"({pooled})"
    return (*kept, pooled), pooled


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
    codes = pd.Categorical(cells.map(level_of, na_action="ignore"), categories=levels).codes
    places = codes.astype(np.int64)
    unseen = (places < 0) & cells.notna().to_numpy()
    if unseen.any() and pooled is None:
        new = dict.fromkeys(map(level_of, cells[unseen]))
        hint = ", or fit with rare=10, which pools levels" if what == "level" else ""
        raise ValueError(
            f"column {cells.name!r} has {what} {listed(new)}, not seen in fit; known are "
            f"{listed(levels)}: leave these rows out{hint}"
        )
    if pooled is not None:
        places[unseen] = levels.index(pooled)
    return places


def check_scale(mean: float, scale: float) -> None:
    """Refuse a mean that is not finite, or a scale that is not positive."""
    finite_float("mean", mean)
    finite_float("scale", scale, above=0.0)


class _Column:
    """What the kinds share: with ``gaps`` the last feature, the marker, is 1 where a cell is
    missing, and the others are then 0; all are of one mask entry."""

    name: str
    gaps: bool

    @property
    def source(self) -> str:
        """The column of the table that it is made from."""
        return self.name

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, the marker's last where there is one."""
        return (*self._own_names(), *([marker_name(self.name)] if self.gaps else []))

    def encode(self, cells: pd.Series) -> NDArray[np.float64]:
        """The features of cells, ``(N, features)``."""
        own = self._own_features(cells)
        if not self.gaps:
            return own
        return np.column_stack([np.where(np.isnan(own), 0.0, own), cells.isna().to_numpy()])

    def _own_names(self) -> tuple[str, ...]:
        return (self.name,)

    def _own_features(self, cells: pd.Series) -> NDArray[np.float64]:
        raise NotImplementedError


class _StandardisedColumn(_Column):
    """What columns of numbers share: a feature `(v − mean) / scale`, or, with `asinh = (centre,
    spread)`, `(asinh((v − centre) / spread) − mean) / scale`."""

    mean: float
    scale: float
    asinh: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_scale(self.mean, self.scale)
        if self.asinh is not None:
            check_scale(*self.asinh)

    def standardised(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The feature of values in their own units."""
        if self.asinh is not None:
            values = np.arcsinh((values - self.asinh[0]) / self.asinh[1])
        return (values - self.mean) / self.scale

    def original(self, feature: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values in their own units of a feature, to six digits of their scale there."""
        values = feature * self.scale + self.mean
        unit = np.full_like(values, self.scale)
        if self.asinh is not None:
            centre, spread = self.asinh
            # The derivative of the value by the feature.
            unit *= spread * np.cosh(np.nan_to_num(values))
            values = centre + spread * np.sinh(values)
        digits = 5 - np.floor(np.log10(unit)).astype(np.int64)
        for each in np.unique(digits):
            values[digits == each] = np.round(values[digits == each], each)
        return values + 0.0


@dataclass(frozen=True)
class NumericColumn(_StandardisedColumn):
    """A column `v` that enters as ``(v − mean) / scale``, or of a heavy tail (:func:`asinh_of`) as
    ``(asinh((v − centre) / spread) − mean) / scale``.

    Args:
        mean, scale: of the rows that statistics are of, missing values left out; with ``asinh`` of
            its values.
        gaps: cells may be missing. They then enter as 0, the mean, and a second feature, the
            marker, is 1 where they are; both are of the column's mask entry.
        asinh: centre and spread, or ``None``.
    """

    name: str
    mean: float
    scale: float
    gaps: bool = False
    asinh: tuple[float, float] | None = None

    def numbers(self, cells: pd.Series) -> NDArray[np.float64]:
        """The cells as numbers ``(N,)``, NaN where they are missing."""
        return numbers_of(cells, self.gaps)

    def _own_features(self, cells: pd.Series) -> NDArray[np.float64]:
        return self.standardised(self.numbers(cells))[:, None]


HEAVY = 12.0
"""Root mean square of distances from the median, over their median, above which a tail is heavy:
1.5 of a normal column, 2 of an exponential, 3.5 and 40 of a log-normal of sd 1 and 2."""


def asinh_of(
    values: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> tuple[float, float] | None:
    """The median of a column's values `(N,)`, and that of the distances from it that are not 0, if
    its tail is heavy; else None. NaN counts for nothing, a row as often as its weight.

    >>> asinh_of(np.array([1.0, 2.0, 3.0, 4.0, 5.0] * 60 + [1e12]))
    (3.0, 2.0)
    """
    counts = np.where(np.isnan(values), 0.0, 1.0 if weights is None else weights)
    centre = _median(values, counts)
    far = np.abs(values - centre)
    # Rounding is no distance.
    apart = counts * (far > 1e-12 * abs(centre))
    spread = _median(far, apart)
    heavy = np.sqrt(np.nansum(counts * far**2) / counts.sum()) > HEAVY * spread
    return (centre, spread) if heavy and apart.any() else None


def _median(values: NDArray[np.float64], counts: NDArray[np.float64]) -> float:
    """The smallest value that half of the counts are at or below; NaN has the count 0."""
    order = np.argsort(values)
    sums = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(sums, sums[-1] / 2.0)])


@dataclass(frozen=True)
class CategoricalColumn(_Column):
    """A column that enters as one 0/1 feature a level; all of them are one mask entry.

    Args:
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

    def __post_init__(self) -> None:
        refuse_repeated("levels", self.levels)
        if self.pooled is not None and self.pooled not in self.levels:
            raise ValueError(
                f"pooled of column {self.name!r} must be one of its levels; it is {self.pooled!r}"
            )

    def numbers(self, cells: pd.Series) -> NDArray[np.int64]:
        """The places of the cells' levels ``(N,)``, −1 where they are missing."""
        return level_index(cells, self.levels, gaps=self.gaps, pooled=self.pooled)

    def _own_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={level}" for level in self.levels)

    def _own_features(self, cells: pd.Series) -> NDArray[np.float64]:
        return (self.numbers(cells)[:, None] == np.arange(len(self.levels))).astype(np.float64)


@dataclass(frozen=True)
class DateColumn(_StandardisedColumn):
    """A column of dates that enters as a trend and as what recurs; all of it is one mask entry.

    With ``t`` in days since 1970-01-01 (UTC) the features are ``(t − mean) / scale`` and the sine
    and the cosine of the angles of month, weekday and hour.

    Args:
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

    def __post_init__(self) -> None:
        super().__post_init__()
        known = tuple(waves(np.zeros(1)))
        unknown = [part for part in self.parts if part not in known]
        if unknown:
            raise ValueError(f"parts of column {self.name!r} must be of {known}; it has {unknown}")

    def numbers(self, cells: pd.Series) -> NDArray[np.float64]:
        """The cells as days since 1970-01-01 ``(N,)``, NaN where they are missing."""
        days = pd.Series(days_of(cells, self.order), cells.index, name=cells.name)
        return numbers_of(days, self.gaps)

    def _own_names(self) -> tuple[str, ...]:
        return (self.name, *(f"{self.name}: {part}" for part in self.parts))

    def _own_features(self, cells: pd.Series) -> NDArray[np.float64]:
        days = self.numbers(cells)
        found = waves(days)
        return np.column_stack([self.standardised(days), *(found[part] for part in self.parts)])


@dataclass(frozen=True)
class IndicatorColumn(_Column):
    """A mask entry ``name`` that is 1 where the column ``of`` is missing, else 0."""

    name: str
    of: str
    gaps: bool = False

    @property
    def source(self) -> str:
        """The column that may be missing."""
        return self.of

    def _own_features(self, cells: pd.Series) -> NDArray[np.float64]:
        return cells.isna().to_numpy().astype(np.float64)[:, None]


Column = NumericColumn | CategoricalColumn | DateColumn | IndicatorColumn


def marker_name(column: str) -> str:
    """The name of the feature that marks a column's gaps."""
    return f"{column} (hidden)"


KINDS: Mapping[str, type[Column]] = MappingProxyType(
    {
        "numeric": NumericColumn,
        "categorical": CategoricalColumn,
        "date": DateColumn,
        "indicator": IndicatorColumn,
    }
)


def column_to_json(column: Column) -> dict[str, Any]:
    """A column's description, without what is False or None."""
    kind = next(name for name, known in KINDS.items() if isinstance(column, known))
    fields = asdict(column).items()
    return {"kind": kind} | {n: v for n, v in fields if v is not None and v is not False}


def column_from_json(description: Mapping[str, Any]) -> Column:
    """The column that :func:`column_to_json` described."""
    fields = dict(description)
    kind = fields.pop("kind")
    if kind not in KINDS:
        raise ValueError(
            f"column {fields.get('name')!r} must be of kind {', '.join(KINDS)}; it is {kind!r}"
        )
    return made_of(KINDS[kind], fields)
