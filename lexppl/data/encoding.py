"""How the columns of a table become features: statistics and levels, kept for later tables."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

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

    def encode(self, cells: pd.Series) -> NDArray[np.float64]:
        """Return the standardised column, shape ``(N, 1)``.

        Raises:
            ValueError: cells that are missing, infinite or no numbers.
        """
        values = numbers_of(cells)
        return ((values - self.mean) / self.scale)[:, None]


@dataclass(frozen=True)
class CategoricalColumn:
    """A column that enters as one 0/1 feature a level; all of them are one mask entry."""

    name: str
    levels: tuple[str, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return ``column=level`` for each level."""
        return tuple(f"{self.name}={level}" for level in self.levels)

    def encode(self, cells: pd.Series) -> NDArray[np.float64]:
        """Return the one-hot columns, shape ``(N, levels)``.

        Raises:
            ValueError: cells that are missing, or of a level that was not there before.
        """
        return np.eye(len(self.levels))[_level_index(cells, self.levels)]


@dataclass(frozen=True)
class TargetColumn:
    """The column to predict: classes, or numbers that enter as ``(v − mean) / scale``.

    For regression ``mean`` is 0 and ``scale`` is 1 unless the target was standardised.
    """

    name: str
    class_names: tuple[str, ...] | None
    mean: float = 0.0
    scale: float = 1.0

    def encode(self, cells: pd.Series, dtype: torch.dtype | None = None) -> Tensor:
        """Return class indices (long) or the numbers, shape ``(N,)``.

        Raises:
            ValueError: cells that are missing, a label that was not there before, or no numbers.
        """
        if self.class_names is not None:
            return torch.from_numpy(_level_index(cells, self.class_names, what="label"))
        values = (numbers_of(cells) - self.mean) / self.scale
        return torch.from_numpy(values).to(dtype or torch.get_default_dtype())

    def decode(self, values: Tensor) -> Tensor:
        """Return numbers of a regression target in the table's own units."""
        return values * self.scale + self.mean


@dataclass(frozen=True)
class TableEncoding:
    """Everything needed to turn further tables of the same columns into the same features.

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

    columns: tuple[NumericColumn | CategoricalColumn, ...]
    target: TargetColumn

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the ``D`` feature names: the column's, or ``column=level``."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def group_names(self) -> tuple[str, ...]:
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
        lacking = [name for name in self.group_names if name not in given]
        unknown = [
            name for name in given if name not in self.group_names and name != self.target.name
        ]
        if lacking or unknown or len(set(given)) < len(given):
            problems = [
                f"lacks {listed(lacking)}" if lacking else "",
                f"has {listed(unknown)}, not there in fit" if unknown else "",
                "has columns of the same name" if len(set(given)) < len(given) else "",
            ]
            raise ValueError(
                f"the table must have the {len(self.columns)} columns of fit, "
                f"{listed(self.group_names)}; it {' and '.join(filter(None, problems))}"
            )
        if len(frame) == 0:
            raise ValueError("the table is empty: it has no rows")
        cells = frame.set_axis(given, axis=1)
        refuse_missing(cells[list(self.group_names)])
        encoded = np.concatenate(
            [column.encode(cells[column.name]) for column in self.columns], axis=1
        )
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


def numbers_of(cells: pd.Series) -> NDArray[np.float64]:
    """Return the column as float64.

    Raises:
        ValueError: missing or infinite values, or cells that are no numbers, with an example.
    """
    values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    absent = cells.isna().to_numpy()
    words = np.isnan(values) & ~absent
    if words.any():
        raise ValueError(
            f"column {cells.name!r} must hold numbers; {int(words.sum())} cells do not, "
            f"such as {cells[words].iloc[0]!r}"
        )
    if absent.any():
        refuse_missing(cells.to_frame())
    if np.isinf(values).any():
        raise ValueError(
            f"column {cells.name!r} must be finite; "
            f"it has {int(np.isinf(values).sum())} infinite values"
        )
    return values


def refuse_missing(frame: pd.DataFrame) -> None:
    """Raise ``ValueError`` naming the columns with missing values and how many each has."""
    counts = frame.isna().sum()
    found = {str(name): int(count) for name, count in counts.items() if count}
    if found:
        raise ValueError(
            f"missing values in {len(found)} of {frame.shape[1]} columns: {counted(found)}; "
            "fill them in, or give drop_missing=True to drop the rows that have any"
        )


def levels_in(cells: pd.Series) -> tuple[str, ...]:
    """Return the levels that occur: in the order of the categories, of numbers, or of words."""
    if isinstance(cells.dtype, pd.CategoricalDtype):
        present = cells.cat.remove_unused_categories().cat.categories.tolist()
        ordered = present if cells.cat.ordered else _in_order(present)
    else:
        ordered = _in_order(cells.dropna().unique().tolist())
    return tuple(dict.fromkeys(level_of(value) for value in ordered))


def _in_order(values: list[Any]) -> list[Any]:
    if all(isinstance(value, numbers.Real) for value in values):
        return sorted(values)
    return sorted(values, key=level_of)


def _level_index(
    cells: pd.Series, levels: tuple[str, ...], what: str = "level"
) -> NDArray[np.int64]:
    refuse_missing(cells.to_frame())
    codes, uniques = pd.factorize(cells)
    position = {level: index for index, level in enumerate(levels)}
    names = [level_of(value) for value in uniques]
    unseen = [name for name in names if name not in position]
    if unseen:
        raise ValueError(
            f"column {cells.name!r} has {what} {listed(unseen)}, not seen in fit; "
            f"known are {listed(levels)}"
        )
    return np.asarray([position[name] for name in names], dtype=np.int64)[codes]


def _lists(description: dict[str, Any]) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in description.items()
    }


def _column_from_json(description: Mapping[str, Any]) -> NumericColumn | CategoricalColumn:
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
