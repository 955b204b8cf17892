"""How the columns of a table become features: statistics and levels, kept for later tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor

from lexppl.data.cells import is_numeric, level_index, levels_in, numbers_of, refuse_missing
from lexppl.data.listing import listed


@dataclass(frozen=True)
class NumericColumn:
    """A column ``v`` that enters as ``(v − mean) / scale``."""

    name: str
    mean: float
    scale: float

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the one feature's name, the column's own."""
        return (self.name,)

    def checked(self, cells: pd.Series) -> NDArray[np.float64]:
        """Return the cells as numbers, shape ``(N,)``.

        Raises:
            ValueError: cells that are missing, infinite or no numbers.
        """
        return numbers_of(cells)


@dataclass(frozen=True)
class CategoricalColumn:
    """A column that enters as one 0/1 feature a level; all of them are one mask entry."""

    name: str
    levels: tuple[str, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return ``column=level`` for each level."""
        return tuple(_feature_name(self.name, level) for level in self.levels)

    def checked(self, cells: pd.Series) -> NDArray[np.object_]:
        """Return the cells as names of levels, shape ``(N,)``.

        Raises:
            ValueError: cells that are missing, or of a level that was not there before.
        """
        return np.asarray(self.levels, dtype=object)[level_index(cells, self.levels)]


Column = NumericColumn | CategoricalColumn


@dataclass(frozen=True)
class TargetColumn:
    """The column to predict: classes, or numbers that enter as ``(v − mean) / scale``.

    For regression ``mean`` is 0 and ``scale`` is 1 unless the target was standardised.
    """

    name: str
    class_names: tuple[str, ...] | None
    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def standardised(
        cls, name: str, values: NDArray[np.float64], weights: NDArray[np.float64] | None = None
    ) -> TargetColumn:
        """Return a response with the mean and the scale of these values, shape ``(N,)``.

        Args:
            name: the target's.
            values: those to learn from.
            weights: how often each counts, shape ``(N,)``; once where ``None``.

        Raises:
            ValueError: values so large that they cannot be standardised.

        >>> TargetColumn.standardised("price", np.array([10.0, 30.0]))
        TargetColumn(name='price', class_names=None, mean=20.0, scale=10.0)
        """
        [(mean, scale)] = _statistics([name], values[:, None], weights)
        return cls(name, None, mean, scale)

    def encode(self, cells: pd.Series, dtype: torch.dtype | None = None) -> Tensor:
        """Return class indices (long) or the numbers, shape ``(N,)``.

        Raises:
            ValueError: cells that are missing, a label that was not there before, or no numbers.
        """
        if self.class_names is not None:
            return torch.from_numpy(level_index(cells, self.class_names, what="label"))
        values = (numbers_of(cells) - self.mean) / self.scale
        return torch.from_numpy(values).to(dtype or torch.get_default_dtype())

    def decode(self, values: Tensor) -> Tensor:
        """Return numbers of a regression target in the table's own units."""
        return values * self.scale + self.mean


@dataclass(frozen=True)
class TableEncoding:
    """Everything needed to turn further tables of the same columns into the same features.

    scikit-learn's ``StandardScaler`` and ``OneHotEncoder`` do the work, in a ``ColumnTransformer``
    that is built from the columns; what a table has wrong is refused before, by column.

    Args:
        columns: the feature columns in order, one mask entry each.
        target: the target column.

    Example:
        >>> import pandas as pd
        >>> encoding = TableEncoding(
        ...     columns=(
        ...         NumericColumn("age", mean=40.0, scale=10.0),
        ...         CategoricalColumn("job", levels=("clerk", "smith")),
        ...     ),
        ...     target=TargetColumn("income", class_names=("high", "low")),
        ... )
        >>> encoding.encode(pd.DataFrame({"age": [50, 35], "job": ["smith", "clerk"]}))
        tensor([[ 1.0000,  0.0000,  1.0000],
                [-0.5000,  1.0000,  0.0000]])
        >>> encoding.feature_names, encoding.groups
        (('age', 'job=clerk', 'job=smith'), (0, 1, 1))
        >>> TableEncoding.from_json(encoding.to_json()) == encoding
        True
    """

    columns: tuple[Column, ...]
    target: TargetColumn

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        target: TargetColumn,
        *,
        statistics_rows: Sequence[int] | NDArray[Any] | None = None,
        statistics_weights: NDArray[np.float64] | None = None,
        every_category: bool = False,
    ) -> TableEncoding:
        """Return the encoding of a table's columns.

        Numbers enter by the mean and the standard deviation (population) of some of the rows, a
        column that is constant in these with scale 1. Columns of words, categories and booleans
        have the levels of all rows.

        Args:
            frame: the rows without the target; columns have different names that are words.
            target: what they predict.
            statistics_rows: places of the rows that means and scales are of, as of a training
                part; all where ``None``.
            statistics_weights: how often each of these rows counts in them; once where ``None``.
            every_category: a pandas category has all its categories as levels, in these rows or
                not.

        Raises:
            ValueError: missing or infinite values, numbers so large that they cannot be
                standardised, dates and the like.

        Example:
            >>> frame = pd.DataFrame({"age": [30.0, 50.0, 90.0], "job": ["smith", "cook", "king"]})
            >>> target = TargetColumn("y", ("0", "1"))
            >>> encoding = TableEncoding.fit(frame, target, statistics_rows=[0, 1])
            >>> encoding.columns[0]
            NumericColumn(name='age', mean=40.0, scale=10.0)
            >>> encoding.feature_names
            ('age', 'job=cook', 'job=king', 'job=smith')
        """
        names = [name for name in frame.columns if is_numeric(frame[name])]
        fitted: dict[str, NumericColumn] = {}
        if names:
            values = np.stack([numbers_of(frame[name]) for name in names], axis=1)
            pairs = _statistics(
                names,
                values if statistics_rows is None else values[statistics_rows],
                statistics_weights,
            )
            fitted = {n: NumericColumn(n, *pair) for n, pair in zip(names, pairs, strict=True)}
        columns = (
            fitted.get(name) or CategoricalColumn(name, levels_in(frame[name], every_category))
            for name in frame.columns
        )
        return cls(tuple(columns), target)

    @cached_property
    def transformer(self) -> ColumnTransformer:
        """Return the fitted transformer, from checked cells to ``(N, D)``.

        It is fitted to a row that says nothing, for the columns' names, and then has their own
        means and scales put in place.
        """
        runs = {f"run {place}": run for place, run in enumerate(_runs(self.columns))}
        row = pd.DataFrame(
            {c.name: [0.0 if isinstance(c, NumericColumn) else c.levels[0]] for c in self.columns}
        )
        transformer = ColumnTransformer(
            [(name, _part_of(run), [c.name for c in run]) for name, run in runs.items()],
            verbose_feature_names_out=False,
        ).set_output(transform="default")
        transformer.fit(row)
        for name, run in runs.items():
            numbers = [column for column in run if isinstance(column, NumericColumn)]
            if numbers:
                scaler = transformer.named_transformers_[name]
                scaler.mean_ = np.asarray([column.mean for column in numbers])
                scaler.scale_ = np.asarray([column.scale for column in numbers])
                scaler.var_ = scaler.scale_**2
        return transformer

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the ``D`` feature names: the column's, or ``column=level``."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def entry_names(self) -> tuple[str, ...]:
        """Return the ``G`` names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def groups(self) -> tuple[int, ...]:
        """Return the index of its column for each of the ``D`` features."""
        return tuple(
            g for g, column in enumerate(self.columns) for _ in range(len(column.feature_names))
        )

    def encode(self, frame: pd.DataFrame, dtype: torch.dtype | None = None) -> Tensor:
        """Return the features of a new table, shape ``(N, D)``.

        Columns are found by name, in any order; the target may be among them and is not read.

        Args:
            frame: the new table.
            dtype: of the features; torch's default where ``None``.

        Raises:
            TypeError: ``frame`` is no ``pandas.DataFrame``.
            ValueError: columns that lack or are not known, no rows, missing or infinite values,
                words where numbers were, levels that were not there before.
        """
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"frame must be a pandas.DataFrame; it is a {type(frame).__name__}")
        given = [str(name) for name in frame.columns]
        lacking = [name for name in self.entry_names if name not in given]
        unknown = [
            name for name in given if name not in self.entry_names and name != self.target.name
        ]
        if lacking or unknown or len(set(given)) < len(given):
            problems = [
                f"lacks {listed(lacking)}" if lacking else "",
                f"has {listed(unknown)}, not there in fit" if unknown else "",
                "has columns of the same name" if len(set(given)) < len(given) else "",
            ]
            raise ValueError(
                f"the table must have the {len(self.columns)} columns of fit, "
                f"{listed(self.entry_names)}; it {' and '.join(filter(None, problems))}"
            )
        if len(frame) == 0:
            raise ValueError("the table is empty: it has no rows")
        cells = frame.set_axis(given, axis=1)
        refuse_missing(cells[list(self.entry_names)])
        checked = pd.DataFrame({c.name: c.checked(cells[c.name]) for c in self.columns})
        encoded = np.asarray(self.transformer.transform(checked), dtype=np.float64)
        return torch.from_numpy(encoded).to(dtype or torch.get_default_dtype())

    def to_json(self) -> dict[str, Any]:
        """Return a description that ``json.dumps`` accepts and ``from_json`` reads."""
        return {
            "columns": [
                {"kind": "numeric" if isinstance(column, NumericColumn) else "categorical"}
                | _lists(asdict(column))
                for column in self.columns
            ],
            "target": _lists(asdict(self.target)),
        }

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> TableEncoding:
        """Return the encoding that ``to_json`` described.

        Raises:
            ValueError: a description of another form.
        """
        try:
            return cls(
                columns=tuple(_column_from_json(column) for column in description["columns"]),
                target=_target_from_json(description["target"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"description is not one that TableEncoding.to_json wrote: {error!r}"
            ) from error


def _feature_name(column: str, level: str) -> str:
    return f"{column}={level}"


def _runs(columns: Sequence[Column]) -> list[list[Column]]:
    """Neighbouring columns of one kind, so that features keep the order of the columns."""
    return [list(run) for _, run in groupby(columns, key=type)]


def _part_of(columns: Sequence[Column]) -> StandardScaler | OneHotEncoder:
    """What encodes columns of one kind."""
    levels = [
        np.asarray(c.levels, dtype=object) for c in columns if isinstance(c, CategoricalColumn)
    ]
    if not levels:
        return StandardScaler()
    return OneHotEncoder(
        categories=levels, sparse_output=False, feature_name_combiner=_feature_name
    )


def _statistics(
    names: Sequence[str],
    values: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,
) -> list[tuple[float, float]]:
    """Mean and scale of each column of numbers, ``(N, columns)``; scale 1 of constant ones."""
    # Extreme values overflow a square; the result is checked, so no warning is wanted.
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        scaler = StandardScaler().fit(values, sample_weight=weights)
    for name, mean, variance in zip(names, scaler.mean_, scaler.var_, strict=True):
        if not np.isfinite([mean, variance]).all():
            raise ValueError(
                f"column {name!r} cannot be standardised: its mean is {mean:g} and its standard "
                f"deviation {np.sqrt(variance):g}; rescale it"
            )
    return list(zip(scaler.mean_.tolist(), scaler.scale_.tolist(), strict=True))


def _lists(description: dict[str, Any]) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in description.items()
    }


def _column_from_json(description: Mapping[str, Any]) -> Column:
    if description["kind"] == "numeric":
        return NumericColumn(
            name=description["name"],
            mean=float(description["mean"]),
            scale=float(description["scale"]),
        )
    if description["kind"] == "categorical":
        return CategoricalColumn(name=description["name"], levels=tuple(description["levels"]))
    raise ValueError(
        f"column {description['name']!r} must be of kind 'numeric' or 'categorical'; "
        f"it is {description['kind']!r}"
    )


def _target_from_json(description: Mapping[str, Any]) -> TargetColumn:
    classes = description["class_names"]
    return TargetColumn(
        name=description["name"],
        class_names=None if classes is None else tuple(classes),
        mean=float(description["mean"]),
        scale=float(description["scale"]),
    )
