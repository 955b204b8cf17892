"""How the columns of a table become features: statistics and levels, kept for later tables."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api import types
from torch import Tensor

from lexppl.argument_checks import one_of, quoted, quoted_counts, refuse_repeated
from lexppl.configured import made_of, refuse_types
from lexppl.data.cells import (
    are_without_words,
    checked_order,
    date_order,
    kind_of,
    level_index,
    levels_in,
    missing_in,
    numbers_of,
    pooled_levels,
    varying_waves,
)
from lexppl.data.columns import (
    CategoricalColumn,
    Column,
    DateColumn,
    IndicatorColumn,
    NumericColumn,
    Standardised,
    asinh_of,
    column_from_json,
    column_to_json,
)
from lexppl.data.files import FileFormat, named_cells
from lexppl.sealed_files import read_sealed, refused_by_name, write_sealed
from lexppl.summary import number_text

Task = Literal["classification", "regression"]
MOST_INTEGER_CLASSES = 20
FORMAT = 2  # Of the file


@dataclass(frozen=True)
class TargetColumn(Standardised):
    """The column to predict: classes, or numbers that enter as those of :class:`NumericColumn`,
    with mean 0 and scale 1 unless the target was standardised."""

    name: str
    class_names: tuple[str, ...] | None
    mean: float = 0.0
    scale: float = 1.0
    asinh: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_repeated("class_names", self.class_names or ())

    @classmethod
    def fit(
        cls,
        cells: pd.Series,
        task: Task | None = None,
        standardise: bool = False,
        rows: NDArray[np.int64] | None = None,
    ) -> TargetColumn:
        """The target by its cells; integers of at most 20 values are classes where no task is
        given. A response to be standardised has the statistics of its values, or of those in
        some rows.

        Raises:
            ValueError: an unknown task, words or dates for numbers, one value only.
        """
        name, kind = str(cells.name), kind_of(cells)
        one_of((None, "classification", "regression"), "task", task)
        if kind == "date" and task is None:
            raise ValueError(
                f"target {name!r} holds dates; predict another column, or give "
                "task='classification' if each date is a class"
            )
        if task is None:
            task = "regression" if kind == "number" and not _are_codes(cells) else "classification"
        if task == "classification":
            levels = levels_in(cells)
            if standardise:
                raise ValueError(f"standardise_target is for regression; {name!r} has classes")
            if len(levels) < 2:
                raise ValueError(f"target {name!r} has one class only: every row is {levels[0]!r}")
            return cls(name, levels)
        values = numbers_of(cells)
        if (values == values[0]).all():
            raise ValueError(f"target {name!r} is constant: {values[0]:g}")
        if not 1e-20 < (most := np.abs(values).max()) < 1e20:
            raise ValueError(
                f"target {name!r} has values up to {most:.1g}, too small or too large for "
                "float32: rescale it"
            )
        if not standardise:
            return cls(name, None)
        return cls.of_responses(name, values if rows is None else values[rows])

    @classmethod
    def of_responses(
        cls,
        name: str,
        values: NDArray[np.float64],
        weights: NDArray[np.float64] | None = None,
        straight: bool = False,
    ) -> TargetColumn:
        """A response with the mean and the scale of values ``(N,)``, each counted as often as
        its weight; of a heavy tail those of their asinh, unless it is to be ``straight``."""
        [pair] = statistics_of([name], values[:, None], weights)
        target = cls(name, None, *pair)
        return target if straight else _curved(target, values, weights, f"response {name!r}")

    @property
    def label(self) -> str:
        """What is predicted, in words: the name, or the curve of it."""
        return self.name if self.curve is None else f"{self.curve}({self.name})"

    @property
    def unit(self) -> float:
        """The scale of its values, as :func:`lexppl.summary.number_text` takes it; 0 of a curve."""
        return self.scale if self.curve is None else 0.0

    def text(self, y: float) -> str:
        """A standardised response in its own units, to six digits of its scale, as those of a
        float32 are."""
        return number_text(float(self.original(np.array([y]))[0]), self.unit)

    def encode(self, cells: pd.Series, dtype: torch.dtype | None = None) -> Tensor:
        """Class indices (long) or the numbers, ``(N,)``; refuses missing cells and unknown
        labels."""
        if self.class_names is not None:
            return torch.from_numpy(level_index(cells, self.class_names, what="label"))
        values = self.standardised(numbers_of(cells))
        return torch.from_numpy(values).to(dtype or torch.get_default_dtype())

    def decode(self, values: Tensor) -> Tensor:
        """Numbers of a regression target in the table's own units."""
        return torch.from_numpy(self.inverse(values.detach().cpu().numpy())).to(values)


Number = TypeVar("Number", bound="NumericColumn | DateColumn | TargetColumn")


def _curved(
    column: Number, values: NDArray[np.float64], weights: NDArray[np.float64] | None, what: str
) -> Number:
    """The column with the asinh of a heavy tail of its values, and a warning of it; as it is
    without one."""
    if (asinh := asinh_of(values, weights)) is None:
        return column
    curved = replace(column, mean=0.0, scale=1.0, asinh=asinh)
    of_asinh = curved.standardised(values)[:, None]
    [(mean, scale)] = statistics_of([column.name], of_asinh, weights)
    curved = replace(curved, mean=mean, scale=scale)
    numbers = np.nanquantile(values, (0.0, 0.5, 1.0)).tolist()
    low, middle, high = map(number_text, numbers)
    if isinstance(column, DateColumn):
        low, middle, high = (str(np.datetime64(int(day), "D")) for day in numbers)
    curve = "its logarithm"
    if curved.curve == "asinh":
        curve = f"asinh((v − {number_text(asinh[0])}) / {number_text(asinh[1])})"
    warnings.warn(
        f"{what} has a heavy tail, from {low} to {high} about a median of {middle}: it enters by "
        f"{curve}",
        stacklevel=4,
    )
    return curved


def _are_codes(cells: pd.Series) -> bool:
    values = numbers_of(cells)
    whole = cells.dtype == object and bool((values == np.round(values)).all())
    few = cells.nunique() <= MOST_INTEGER_CLASSES
    return few and (whole or types.is_integer_dtype(cells.dtype))


def statistics_of(
    names: Sequence[str], values: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> list[tuple[float, float]]:
    """The mean and the scale of each column of values ``(N, columns)``; scale 1 of constant
    ones. NaN, where a value is missing, counts for nothing, a row as often as its weight."""
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415 - slow, and only for fits

    # In units of a power of two, which change no digit, the squares are of order one.
    most = np.fmax.reduce(np.abs(values), axis=0, initial=0.0)
    unit = np.ldexp(1.0, np.frexp(most)[1] - 1)
    with np.errstate(invalid="ignore"):  # A constant's weighted variance may be below 0.
        scaler = StandardScaler().fit(values / unit, sample_weight=weights)
        varies = scaler.scale_ == np.sqrt(scaler.var_)
    mean, scale = scaler.mean_ * unit, np.where(varies, scaler.scale_ * unit, 1.0)
    if np.isnan(mean).any():
        name = names[int(np.isnan(mean).argmax())]
        raise ValueError(
            f"column {name!r} has no value in the rows to fit on; leave it out with drop=[{name!r}]"
        )
    return list(zip(mean.tolist(), scale.tolist(), strict=True))


@dataclass(frozen=True)
class TableEncoding:
    """Everything needed to turn further tables of the same columns into the same features.

    Args:
        columns: the feature columns in order, one mask entry each.
        target: the target column.
        left_out: columns of the table that are not read, there or not.
        file_format: how the table's file is written.

    Example:
        >>> import pandas as pd
        >>> encoding = TableEncoding((NumericColumn("age", mean=40.0, scale=10.0),
        ...     CategoricalColumn("job", levels=("clerk", "smith"))),
        ...     target=TargetColumn("income", class_names=("high", "low")))
        >>> encoding.encode(pd.DataFrame({"age": [50, 35], "job": ["smith", "clerk"]}))
        tensor([[ 1.0000,  0.0000,  1.0000],
                [-0.5000,  1.0000,  0.0000]])
        >>> encoding.feature_names, encoding.groups
        (('age', 'job=clerk', 'job=smith'), (0, 1, 1))
    """

    columns: tuple[Column, ...]
    target: TargetColumn
    left_out: tuple[str, ...] = ()
    file_format: FileFormat = field(default_factory=FileFormat)

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        target: TargetColumn,
        *,
        statistics_rows: Sequence[int] | NDArray[Any] | None = None,
        statistics_weights: NDArray[np.float64] | None = None,
        every_category: bool = False,
        hide_missing: bool = False,
        missing_indicator: bool = False,
        rare: int | Mapping[str, int | None] | None = None,
        dates: str | None = None,
    ) -> TableEncoding:
        """The encoding of a table's columns.

        Args:
            frame: the rows without the target; columns have different names that are words.
            target: what they predict.
            statistics_rows: places of the rows that means and scales are of, and by which levels
                are rare; all where ``None``. Levels are those of all rows.
            statistics_weights: how often each of these rows counts in means and scales.
            every_category: a pandas category has all its categories as levels.
            hide_missing: columns with missing values have gaps; they are refused otherwise.
            missing_indicator: each of these has a mask entry beside it that is 1 where it is
                missing, or in its place where it has one value.
            rare: levels with fewer of the rows that statistics are of are pooled into one; by
                column, of those that are named.
            dates: ``"dayfirst"`` or ``"monthfirst"``, for words such as 03/04/2026.

        Raises:
            ValueError: missing or infinite values, numbers so large that they cannot be
                standardised, dates without an order, durations and the like.
        """
        rows = slice(None) if statistics_rows is None else np.asarray(statistics_rows)
        order = checked_order(dates)
        fitted: dict[str, Column] = {}
        for name in frame.columns:
            cells = frame[name]
            gaps = hide_missing and bool(cells.isna().any())
            kind = kind_of(cells)
            if kind == "level":
                every = levels_in(cells, every_category)
                levels, pooled = pooled_levels(cells.iloc[rows], every, rare)
                fitted[name] = CategoricalColumn(name, levels, gaps, pooled)
            elif kind == "number":
                fitted[name] = NumericColumn(name, 0.0, 1.0, gaps)
            else:
                fitted[name] = DateColumn(name, 0.0, 1.0, (), date_order(cells, order), gaps)
        numbers = {
            name: (column, column.numbers(frame[name]))
            for name, column in fitted.items()
            if isinstance(column, NumericColumn | DateColumn)
        }
        if numbers:
            values = np.stack([full for _, full in numbers.values()], axis=1)[rows]
            pairs = statistics_of(list(numbers), values, statistics_weights)
            for (column, full), pair, used in zip(numbers.values(), pairs, values.T, strict=True):
                if isinstance(column, DateColumn):
                    column = replace(column, parts=varying_waves(full))
                column = replace(column, mean=pair[0], scale=pair[1])
                what = f"column {column.name!r}"
                fitted[column.name] = _curved(column, used, statistics_weights, what)
        columns: list[Column] = []
        for name, known in fitted.items():
            marked = known.gaps and missing_indicator
            if not marked or frame[name].nunique() > 1:
                columns.append(known)
            if marked:
                columns.append(IndicatorColumn(f"{name} is missing", name))
        for names in ([c.name for c in columns], [n for c in columns for n in c.feature_names]):
            refuse_repeated("features' names", names)
        return cls(tuple(columns), target)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The ``D`` feature names: the column's, or ``column=level``."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def table_columns(self) -> tuple[str, ...]:
        """Names of the table's columns that are read, without the target."""
        return tuple(dict.fromkeys(column.source for column in self.columns))

    @property
    def words(self) -> tuple[str, ...]:
        """Columns of words, with the target, though a file may hold numbers of theirs alone."""
        levels_of = {self.target.name: {*(self.target.class_names or ())}}
        for column in self.columns:
            if isinstance(column, CategoricalColumn):
                levels_of[column.name] = {*column.levels} - {column.pooled}
        return tuple(name for name, levels in levels_of.items() if not are_without_words(levels))

    @property
    def markers(self) -> tuple[int, ...]:
        """For each of the ``D`` features the place of the one that is 1 where it is missing (a
        marker's own for a marker), −1 for what is never missing."""
        places: list[int] = []
        for column in self.columns:
            width = len(column.feature_names)
            places += [len(places) + width - 1 if column.gaps else -1] * width
        return tuple(places)

    @property
    def entry_names(self) -> tuple[str, ...]:
        """The ``G`` names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def groups(self) -> tuple[int, ...]:
        """The index of its column for each of the ``D`` features."""
        return tuple(g for g, column in enumerate(self.columns) for _ in column.feature_names)

    def encode(self, frame: pd.DataFrame, dtype: torch.dtype | None = None) -> Tensor:
        """The features of a new table, ``(N, D)``, its columns in any order; missing is 0, its
        marker 1.

        Raises:
            TypeError: ``frame`` is no ``pandas.DataFrame``.
            ValueError: columns that lack or are not known, no rows, missing or infinite values,
                words where numbers were, levels that were not there before.
        """
        cells = named_cells(frame)
        there, known = list(cells.columns), self.table_columns
        lacking = [name for name in known if name not in there]
        read = {*known, *self.left_out, self.target.name}
        unknown = [name for name in there if name not in read]
        if lacking or unknown or len(set(there)) < len(there):
            problems = [
                f"lacks {quoted(lacking)}" if lacking else "",
                f"has {quoted(unknown)}, not there in fit" if unknown else "",
                "has columns of the same name" if len(set(there)) < len(there) else "",
            ]
            raise ValueError(
                f"the table must have the {len(known)} columns of fit, "
                f"{quoted(known)}; it {' and '.join(filter(None, problems))}"
            )
        if len(cells) == 0:
            raise ValueError("the table is empty: it has no rows")
        whole = [c.name for c in self.columns if not c.gaps and not isinstance(c, IndicatorColumn)]
        if missing := missing_in(cells[whole]):
            raise ValueError(
                f"missing values in columns that had none in fit: {quoted_counts(missing)}; fill "
                "them in, leave these rows out, or fit on rows of which some lack them too"
            )
        parts = [column.encode(cells[column.source]) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, 1)).to(dtype or torch.get_default_dtype())

    def to_json(self) -> dict[str, Any]:
        """A description that ``json.dumps`` accepts and ``from_json`` reads."""
        # Without what is empty, as versions that did not know it wrote it.
        target = {n: v for n, v in asdict(self.target).items() if n != "asinh" or v}
        others = {"left_out": list(self.left_out), "file_format": self.file_format.to_json()}
        description = {"columns": list(map(column_to_json, self.columns)), "target": target}
        return description | {name: value for name, value in others.items() if value}

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> TableEncoding:
        """The encoding that ``to_json`` described; ``ValueError`` for another description."""
        try:
            left_out = description.get("left_out", [])
            refuse_types(cls, {"left_out": left_out})
            return cls(
                tuple(column_from_json(column) for column in description["columns"]),
                made_of(TargetColumn, description["target"]),
                tuple(left_out),
                made_of(FileFormat, description.get("file_format", {})),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"description is not of TableEncoding.to_json: {error!r}") from error

    def save(self, file: str | Path) -> None:
        """Write the description to a JSON file with a checksum, aside and then renamed."""
        write_sealed(file, {"format": FORMAT, **self.to_json()})

    @classmethod
    def load(cls, file: str | Path) -> TableEncoding:
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: no such file.
            lexppl.saving.UnreadableFileError: damaged, of another version, or no encoding.
        """
        described = read_sealed(file, FORMAT)
        with refused_by_name(file):
            return cls.from_json(described)
