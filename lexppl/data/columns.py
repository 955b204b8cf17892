"""Columns of a table: the features and the one mask entry that each kind becomes."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lexppl.argument_checks import finite_float, one_of, refuse_repeated
from lexppl.configured import made_of
from lexppl.data.cells import Order, days_of, level_index, numbers_of, waves


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
        values = self._own_features(cells)
        if not self.gaps:
            return values
        return np.column_stack([np.where(np.isnan(values), 0.0, values), cells.isna().to_numpy()])

    def _own_names(self) -> tuple[str, ...]:
        return (self.name,)

    def _own_features(self, cells: pd.Series) -> NDArray[np.float64]:
        raise NotImplementedError


class Standardised:
    """A number v that enters as `(v − mean) / scale`, or of a heavy tail (:func:`asinh_of`), with
    `asinh = (centre, spread)`, as `(asinh((v − centre) / spread) − mean) / scale`."""

    mean: float
    scale: float
    asinh: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_scale(self.mean, self.scale)
        if self.asinh is not None:
            check_scale(*self.asinh)

    @property
    def curve(self) -> str | None:
        """Name of the curve by which the number enters, None for a straight line: `"asinh"`, or
        `"log"` of positive numbers, as asinh(v / s) is log(2 v / s) but for (s / 2v)², of centre 0
        and with 0 two standard deviations below the mean."""
        if self.asinh is None:
            return None
        return "log" if self.asinh[0] == 0.0 and self.mean > 2.0 * self.scale else "asinh"

    @property
    def level(self) -> float:
        """The value, or log v or asinh((v − c) / s) of a curve, where what enters is 0."""
        offset = math.log(self.asinh[1] / 2.0) if self.asinh and self.curve == "log" else 0.0
        return self.mean + offset

    def standardised(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """What enters for values in their own units."""
        if self.asinh is not None:
            values = np.arcsinh((values - self.asinh[0]) / self.asinh[1])
        return (values - self.mean) / self.scale

    def inverse(self, feature: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values in their own units of what enters."""
        values = np.asarray(feature, dtype=np.float64) * self.scale + self.mean
        if self.asinh is not None:
            values = self.asinh[0] + self.asinh[1] * np.sinh(values)
        return values

    def slope(self, feature: NDArray[np.float64]) -> NDArray[np.float64]:
        """The derivative of :meth:`inverse`, in the values' own units."""
        steepness = np.full_like(feature, self.scale, dtype=np.float64)
        if self.asinh is not None:
            steepness *= self.asinh[1] * np.cosh(feature * self.scale + self.mean)
        return steepness

    def original(self, feature: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values of :meth:`inverse`, to six digits of their scale there."""
        values = self.inverse(feature)
        unit = self.slope(np.nan_to_num(feature))
        digits = np.minimum(5 - np.floor(np.log10(unit)).astype(np.int64), 308)
        for number in np.unique(digits):
            values[digits == number] = np.round(values[digits == number], number)
        return values + 0.0


@dataclass(frozen=True)
class NumericColumn(Standardised, _Column):
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


LEAST_GAIN, LOG_BONUS = 1.0, 0.05
"""Nats a value by which asinh must be the better scale: .7 of a log-normal of sd 1, 1.5 of sd 1.5,
.4 of an exponential column; and by how much a curve must be better than the logarithm."""
ATOM, LEAST_BULK = 0.05, 10
"""Share of the rows from which a value is an atom, and least number of values that are none."""
LEAST_RATIO = 3.0
"""Root mean square of distances from the median, over their median, from which a tail may be heavy:
1.5 of a normal column, 2 of an exponential."""


def asinh_of(
    values: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> tuple[float, float] | None:
    """Centre c and spread s of the asinh by which a column's values `(N,)` of a heavy tail enter,
    None of another one. NaN counts for nothing, a row as often as its weight.

    They maximise the log-density that a normal distribution of T = asinh((v − c) / s) gives v,

        E[log T'(v)] − log sd(T),    T'(v) = 1 / √((v − c)² + s²),

    over c in {0 if all have a sign, least and largest value, median} and a grid of s; the mean is
    over values that are no atoms, which alone need a scale, the sd over all. It must exceed that
    of T = v by :data:`LEAST_GAIN`. Where all have a sign, c = 0 and s of a sixteenth of the least
    size make it the logarithm of their size, which is preferred.

    Source: Johnson. Systems of frequency curves generated by methods of translation. Biometrika
    1949.

    >>> asinh_of(np.array([1.0, 2.0, 3.0, 4.0, 5.0] * 60 + [1e12]))
    (3.0, 1.0)
    >>> asinh_of(np.array([10.0**power for power in range(9)]))
    (0.0, 0.0625)
    """
    counts = np.where(np.isnan(values), 0.0, 1.0 if weights is None else weights)
    values, counts = values[counts > 0], counts[counts > 0]
    if not len(values):
        return None
    # In units of a power of two, which change no digit.
    unit = np.ldexp(1.0, np.frexp(np.abs(values).max())[1] - 1)
    v = values / unit if unit > 0.0 else values
    _, places = np.unique(v, return_inverse=True)
    bulk = counts * (np.bincount(places, counts)[places] <= ATOM * counts.sum())
    if (bulk > 0).sum() < LEAST_BULK or bulk.sum() < ATOM * counts.sum():
        bulk = counts
    middle = _quantile(v, bulk, 0.5)
    far = np.abs(v - middle)
    spread = _quantile(far, bulk * _apart(far, middle), 0.5)
    if not spread > 0.0 or np.average((far / spread) ** 2, weights=counts) < LEAST_RATIO**2:
        return None

    def log_scale(numbers: NDArray[np.float64]) -> float:
        return float(np.log(np.sqrt(np.cov(numbers, aweights=counts, ddof=0))))

    straight, most, best = log_scale(v), LEAST_GAIN, None
    for centre in dict.fromkeys([0.0, middle, v.min(), v.max()]):
        far = np.abs(v - centre)
        apart = _apart(far, centre)
        if centre == 0.0 and v.min() < 0.0 < v.max():
            continue
        grid = [_quantile(far, bulk * apart, 0.05)]
        if centre == 0.0 and apart.all():
            grid = [far.min() / 16.0]
        while grid[-1] > 0.0 and grid[-1] < 2.0 * _quantile(far, bulk, 0.9):
            grid.append(4.0 * grid[-1])
        for s in grid:
            density = -np.average(np.log(np.hypot(far, s)), weights=bulk)
            gain = straight + density - log_scale(np.arcsinh((v - centre) / s))
            if (gain := gain + LOG_BONUS * (s < far.min())) > most:
                most, best = gain, (float(centre * unit), float(s * unit))
    return best


def _apart(far: NDArray[np.float64], centre: float) -> NDArray[np.bool_]:
    """Whether distances from a centre are more than its rounding."""
    return far > 1e-12 * abs(centre)


def _quantile(values: NDArray[np.float64], counts: NDArray[np.float64], share: float) -> float:
    """The smallest value that a share of the counts is at or below; 0 where nothing counts."""
    order = np.argsort(values)
    sums = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(sums, share * sums[-1])]) if sums[-1] > 0 else 0.0


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
            raise ValueError(f"pooled must be a level of {self.name!r}; it is {self.pooled!r}")

    def numbers(self, cells: pd.Series) -> NDArray[np.int64]:
        """The places of the cells' levels ``(N,)``, −1 where they are missing."""
        return level_index(cells, self.levels, gaps=self.gaps, pooled=self.pooled)

    def _own_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={level}" for level in self.levels)

    def _own_features(self, cells: pd.Series) -> NDArray[np.float64]:
        return (self.numbers(cells)[:, None] == np.arange(len(self.levels))).astype(np.float64)


@dataclass(frozen=True)
class DateColumn(Standardised, _Column):
    """A column of dates that enters as a trend and as what recurs; all of it is one mask entry.

    With ``t`` in days since 1970-01-01 (UTC) the features are ``(t − mean) / scale`` and the sine
    and the cosine of the angles of month, weekday and hour.

    Args:
        mean, scale, asinh: of ``t``, in days, as of :class:`NumericColumn`; an end that is still
            open is often written as 2099-12-31.
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
    asinh: tuple[float, float] | None = None

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
        by_name = waves(days)
        return np.column_stack([self.standardised(days), *(by_name[part] for part in self.parts)])


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

    def numbers(self, cells: pd.Series) -> NDArray[np.float64]:
        """1 where the cell is missing, else 0, ``(N,)``."""
        return cells.isna().to_numpy().astype(np.float64)

    def _own_features(self, cells: pd.Series) -> NDArray[np.float64]:
        return self.numbers(cells)[:, None]


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
    kind = one_of(KINDS, f"kind of column {fields.get('name')!r}", fields.pop("kind"))
    return made_of(KINDS[kind], fields)
