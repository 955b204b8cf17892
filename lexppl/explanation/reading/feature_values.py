"""Values and gains of features, beside the posterior of their rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import int_at_least, shaped
from lexppl.arviz_compatibility import Posterior, group_names, group_of
from lexppl.data.columns import CategoricalColumn, DateColumn, IndicatorColumn, marker_name
from lexppl.data.encoding import TableEncoding
from lexppl.explanation.reading.masks import constants_name, mask_means
from lexppl.summary import number_text

VALUES = "value"  # The variable of `constant_data`, (row, feature)
# Its attributes: the levels of features that have some, and the features of dates, as JSON.
LEVELS, DATES = "levels", "dates"


@dataclass(frozen=True, eq=False)
class FeatureValues:
    """The values of one feature, `(N,)`, NaN where there is none: numbers, days since 1970-01-01 of
    dates, or places among its levels; `scale`: of numbers, as `number_text` takes it."""

    name: str
    numbers: NDArray[np.float64]
    levels: tuple[str, ...] | None = None
    dates: bool = False
    scale: float = 0.0

    def __len__(self) -> int:
        return len(self.numbers)

    def column(self) -> pd.Series:
        """The values as numbers or names."""
        numbers = pd.Series(self.numbers)
        return numbers if self.levels is None else numbers.map(dict(enumerate(self.levels)))

    def text(self, row: int) -> str:
        """A row's value as it is read."""
        number = self.numbers[row]
        if np.isnan(number):
            return "missing"
        if self.levels is not None:
            return self.levels[int(number)]
        if self.dates:
            return str(np.datetime64(int(np.floor(number)), "D"))
        return number_text(number, self.scale)


def decoded_values(x: Tensor, encoding: TableEncoding) -> dict[str, FeatureValues]:
    """Encoded rows `(N, D)` in their table's units, to six digits of their scale, by column."""
    table = x.detach().double().cpu().numpy()
    by_column, start = {}, 0
    for column in encoding.columns:
        part = table[:, start : start + len(column.feature_names)].copy()
        start += len(column.feature_names)
        if column.gaps:
            # The last feature of a column with gaps marks them.
            part[part[:, -1] == 1.0] = np.nan
        name = column.name
        if isinstance(column, IndicatorColumn):
            by_column[name] = FeatureValues(name, part[:, 0], ("no", "yes"))
        elif isinstance(column, CategoricalColumn):
            places = _places(part[:, : len(column.levels)])
            by_column[name] = FeatureValues(name, places, tuple(column.levels))
        else:
            numbers, dates = column.original(part[:, 0]), isinstance(column, DateColumn)
            scale = column.scale if column.asinh is None else 0.0
            by_column[name] = FeatureValues(name, numbers, dates=dates, scale=scale)
    return by_column


def column_values(column: pd.Series) -> FeatureValues:
    """Values of a data frame's column: numbers, days since 1970-01-01 of dates, else levels."""
    name, dates = str(column.name), column.dtype.kind == "M"
    if dates:
        column = (column.dt.tz_localize(None) - pd.Timestamp(0)) / pd.Timedelta("1D")
    if column.dtype.kind in "iuf":
        return FeatureValues(name, column.to_numpy(np.float64, na_value=np.nan), dates=dates)
    places, levels = pd.factorize(column, sort=True)
    return FeatureValues(name, np.where(places < 0, np.nan, places), tuple(map(str, levels)))


def strata_of(by: Any, rows: int, bins: int = 2) -> pd.Series:
    """The stratum of each of N rows, missing without a value: a level, or an interval between the
    quantiles of numbers of more than `bins` values.

    >>> strata_of([1.0, 2.0, 3.0, 4.0], 4).tolist()
    ['(0.999, 2.5]', '(0.999, 2.5]', '(2.5, 4.0]', '(2.5, 4.0]']
    """
    values = pd.Series(np.asarray(by))
    shaped("by", values, (rows,))
    if values.dtype.kind in "iufM" and values.nunique() > int_at_least("bins", bins, 2):
        return pd.qcut(values, bins, duplicates="drop").cat.rename_categories(str)
    return values.astype(str).where(values.notna()).astype("category")


def with_values(posterior: Posterior, values: Mapping[str, FeatureValues]) -> Posterior:
    """Write features' values into a posterior's `constant_data`, as `value` (row, feature): of
    levels their places among those that the attribute `levels` names, as JSON."""
    means = mask_means(posterior)
    names = [str(name) for name in means[means.dims[-1]].values]
    rows = means.sizes["row"]
    table = np.full((rows, len(names)), np.nan)
    for g, name in enumerate(names):
        if name in values:
            shaped(f"values of {name!r}", values[name].numbers, (rows,))
            table[:, g] = values[name].numbers
    levels = {n: list(v.levels) for n, v in values.items() if n in names and v.levels is not None}
    dates = [n for n, v in values.items() if n in names and v.dates]
    about = {LEVELS: levels, DATES: dates}
    attrs = {name: json.dumps(held, ensure_ascii=False) for name, held in about.items()}
    dims = ("row", str(means.dims[-1]))
    written = xr.DataArray(table, {dim: means[dim].values for dim in dims}, dims, attrs=attrs)
    posterior[constants_name(posterior)][VALUES] = written
    return posterior


def feature_values(posterior: Posterior) -> dict[str, FeatureValues]:
    """The features' values of a posterior's rows: those of :func:`with_values`, else the encoded
    ones of its x, but for columns with gaps; none of images."""
    means = mask_means(posterior)
    names = [str(name) for name in means[means.dims[-1]].values]
    if constants_name(posterior) not in group_names(posterior):
        return {}
    constant = group_of(posterior, constants_name(posterior))
    if VALUES in constant:
        return _own(constant[VALUES], names)
    if "x" not in constant or constant["x"].ndim != 2:
        return {}
    return _encoded(constant["x"], names)


def _own(values: xr.DataArray, names: Sequence[str]) -> dict[str, FeatureValues]:
    levels = json.loads(values.attrs.get(LEVELS, "{}"))
    dates = json.loads(values.attrs.get(DATES, "[]"))
    by_name = {}
    for g, name in enumerate(names):
        numbers = values.values[:, g].astype(np.float64)
        if not np.isnan(numbers).all():
            known = tuple(levels[name]) if name in levels else None
            by_name[name] = FeatureValues(name, numbers, known, name in dates)
    return by_name


def _encoded(x: xr.DataArray, names: Sequence[str]) -> dict[str, FeatureValues]:
    columns = [str(column) for column in x["input"].values]
    table = x.values.astype(np.float64)
    by_name = {}
    for name in names:
        if marker_name(name) in columns:
            continue
        of_levels = [i for i, column in enumerate(columns) if column.startswith(f"{name}=")]
        if name in columns:
            by_name[name] = FeatureValues(name, table[:, columns.index(name)])
        elif of_levels:
            levels = tuple(columns[i][len(name) + 1 :] for i in of_levels)
            by_name[name] = FeatureValues(name, _places(table[:, of_levels]), levels)
    return by_name


def _places(one_hot: NDArray[np.float64]) -> NDArray[np.float64]:
    """The level of each row; NaN where it is not known, or none of them."""
    known = ~np.isnan(one_hot).any(1) & (one_hot > 0).any(1)
    return np.where(known, np.nan_to_num(one_hot).argmax(1), np.nan)


GAIN = "gain"  # The variable of `sample_stats`, (row, feature), in nats


def with_gains(posterior: Posterior, gains: Any, row_names: Sequence[Any]) -> Posterior:
    """Write gains of rows, `(N, G)` in nats, into a posterior's `sample_stats`, as `gain` (row,
    feature): NaN of its rows that have none."""
    means = mask_means(posterior)
    values = np.asarray(gains, dtype=np.float64)
    shaped("gains", values, (len(row_names), means.shape[2]))
    places = {name: place for place, name in enumerate(means["row"].values.tolist())}
    written = np.full(means.shape[1:], np.nan)
    for n, name in enumerate(row_names):
        if name in places:
            written[places[name]] = values[n]
    dims = means.dims[1:]
    coordinates = {dim: means[dim].values for dim in dims if dim in means.coords}
    posterior["sample_stats"][GAIN] = xr.DataArray(
        written, coordinates, dims, attrs={"units": "nats", "site": means.attrs["site"]}
    )
    return posterior
