"""How the columns of a table become features: statistics and levels, kept for later tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import finite_float
from lexppl.data.cells import (
    kind_of,
    levels_in,
    missing_in,
    numbers_of,
    pooled_levels,
    refuse_missing,
)
from lexppl.data.columns import (
    CategoricalColumn,
    Column,
    DateColumn,
    IndicatorColumn,
    NumericColumn,
    Plain,
    column_from_json,
    column_to_json,
    markers_of,
    source_of,
    text_of,
    texts_of,
)
from lexppl.data.dates import DateOrderError, Order, checked_order, date_order, varying_waves
from lexppl.data.listing import counted, listed
from lexppl.data.reading.file_format import FileFormat
from lexppl.data.target_column import TargetColumn, statistics_of
from lexppl.sealed_files import read_sealed, refuse_formats, refused_by_name, write_sealed

FORMAT = 2
"""With a checksum; files of before have neither."""


@dataclass(frozen=True)
class TableEncoding:
    """Everything needed to turn further tables of the same columns into the same features.

    Numbers are standardised and levels one-hot; what a table has wrong is refused before, by
    column.

    Args:
        columns: the feature columns in order, one mask entry each.
        target: the target column.
        left_out: columns of the table that are not read, there or not.
        file_format: how the table's file is written.

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
        rare: int | None = None,
        dates: str | None = None,
    ) -> TableEncoding:
        """Return the encoding of a table's columns.

        Numbers enter by the mean and the standard deviation (population) of some of the rows, a
        column that is constant in these with scale 1. Columns of words, categories and booleans
        have the levels of all rows. Dates enter as :class:`DateColumn` says.

        Args:
            frame: the rows without the target; columns have different names that are words.
            target: what they predict.
            statistics_rows: places of the rows that means and scales are of, and by which levels
                are rare, as of a training part; all where ``None``.
            statistics_weights: how often each of these rows counts in means and scales; once where
                ``None``.
            every_category: a pandas category has all its categories as levels, in these rows or
                not.
            hide_missing: columns with missing values have gaps; they are refused otherwise.
            missing_indicator: each of these has a mask entry beside it that says where it is
                missing.
            rare: levels with fewer of the rows that statistics are of are pooled into one.
            dates: ``"dayfirst"`` or ``"monthfirst"``, for words such as 03/04/2026.

        Raises:
            ValueError: missing or infinite values, numbers so large that they cannot be
                standardised, dates whose order nothing tells, durations and the like.

        Example:
            >>> frame = pd.DataFrame({"age": [30.0, 50.0, 90.0], "job": ["smith", "cook", "king"]})
            >>> target = TargetColumn("y", ("0", "1"))
            >>> encoding = TableEncoding.fit(frame, target, statistics_rows=[0, 1])
            >>> encoding.columns[0]
            NumericColumn(name='age', mean=40.0, scale=10.0, gaps=False)
            >>> encoding.feature_names
            ('age', 'job=cook', 'job=king', 'job=smith')
        """
        rows = slice(None) if statistics_rows is None else np.asarray(statistics_rows)
        given = checked_order(dates)
        found: dict[str, Column] = {}
        numbers: dict[str, NDArray[np.float64]] = {}
        for name in frame.columns:
            cells = frame[name]
            gaps = hide_missing and bool(cells.isna().any())
            kind = kind_of(cells)
            if kind == "level":
                found[name] = _levelled(cells, gaps, every_category, rare, rows)
            elif kind == "number":
                found[name] = NumericColumn(name, 0.0, 1.0, gaps)
                numbers[name] = numbers_of(cells, gaps)
            else:
                dated = DateColumn(name, 0.0, 1.0, (), _order(cells, given), gaps)
                numbers[name] = dated.checked(cells)
                found[name] = replace(dated, parts=varying_waves(numbers[name]))
        if numbers:
            values = np.stack(list(numbers.values()), axis=1)[rows]
            pairs = statistics_of(list(numbers), values, statistics_weights)
            for name, (mean, scale) in zip(numbers, pairs, strict=True):
                column = found[name]
                if isinstance(column, NumericColumn | DateColumn):
                    found[name] = replace(column, mean=mean, scale=scale)
        columns: list[Column] = []
        for name, column in found.items():
            columns.append(column)
            if column.gaps and missing_indicator:
                columns.append(IndicatorColumn(f"{name} is missing", name))
        names = [part.name for column in columns for part in column.plain]
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise ValueError(f"columns give features of one name, {listed(repeated)}; rename them")
        return cls(tuple(columns), target)

    @cached_property
    def _plain(self) -> tuple[Plain, ...]:
        return tuple(part for column in self.columns for part in column.plain)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the ``D`` feature names: the column's, or ``column=level``."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def table_columns(self) -> tuple[str, ...]:
        """Return the names of the table's columns that are read, without the target."""
        return tuple(dict.fromkeys(source_of(column) for column in self.columns))

    @property
    def markers(self) -> tuple[int, ...]:
        """Return for each of the ``D`` features the place of the one that says where it is
        missing, a marker's own for a marker, −1 for what is never missing."""
        return markers_of(self.columns)

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

        Columns are found by name, in any order; the target may be among them and is not read. All
        features are finite: what is missing is 0, and its marker 1.

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
        known = self.table_columns
        lacking = [name for name in known if name not in given]
        read = {*known, *self.left_out, self.target.name}
        unknown = [name for name in given if name not in read]
        if lacking or unknown or len(set(given)) < len(given):
            problems = [
                f"lacks {listed(lacking)}" if lacking else "",
                f"has {listed(unknown)}, not there in fit" if unknown else "",
                "has columns of the same name" if len(set(given)) < len(given) else "",
            ]
            raise ValueError(
                f"the table must have the {len(known)} columns of fit, "
                f"{listed(known)}; it {' and '.join(filter(None, problems))}"
            )
        if len(frame) == 0:
            raise ValueError("the table is empty: it has no rows")
        cells = frame.set_axis(given, axis=1)
        self._refuse_missing(cells)
        parts: dict[str, NDArray[Any]] = {}
        for column in self.columns:
            values = column.values(cells[source_of(column)])
            parts |= {p.name: v for p, v in zip(column.plain, values, strict=True)}
        encoded = np.concatenate([_features(p, parts[p.name]) for p in self._plain], axis=1)
        finite = np.where(np.isnan(encoded), 0.0, encoded)
        return torch.from_numpy(finite).to(dtype or torch.get_default_dtype())

    def _refuse_missing(self, cells: pd.DataFrame) -> None:
        """Refuse missing values of columns that have none in fit."""
        whole = [c.name for c in self.columns if not c.gaps and not isinstance(c, IndicatorColumn)]
        if len(whole) == len(self.columns):
            refuse_missing(cells[whole])
            return
        found = missing_in(cells[whole])
        if found:
            raise ValueError(
                f"missing values in columns that had none in fit: {counted(found)}; fill them in, "
                "or fit on rows of which some lack them too"
            )

    def to_json(self) -> dict[str, Any]:
        """Return a description that ``json.dumps`` accepts and ``from_json`` reads."""
        target = asdict(self.target)
        classes = target["class_names"]
        target["class_names"] = None if classes is None else list(classes)
        description = {"columns": list(map(column_to_json, self.columns)), "target": target}
        if self.left_out:
            description["left_out"] = list(self.left_out)
        if self.file_format.to_json():
            description["file_format"] = self.file_format.to_json()
        return description

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> TableEncoding:
        """Return the encoding that ``to_json`` described.

        Raises:
            ValueError: a description of another form.
        """
        try:
            return cls(
                columns=tuple(column_from_json(column) for column in description["columns"]),
                target=_target_from_json(description["target"]),
                left_out=texts_of("left_out", description.get("left_out", [])),
                file_format=FileFormat.from_json(description.get("file_format", {})),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(
                f"description is not one that TableEncoding.to_json wrote: {error!r}"
            ) from error

    def save(self, file: str | Path) -> None:
        """Write the description to a JSON file with a checksum, aside and then renamed.

        Raises:
            OSError: the file cannot be written.
        """
        write_sealed(file, {"format": FORMAT, **self.to_json()})

    @classmethod
    def load(cls, file: str | Path) -> TableEncoding:
        """Read what :meth:`save` wrote, or a JSON file of :meth:`to_json` alone.

        Raises:
            FileNotFoundError: no such file.
            lexppl.saving.UnreadableFileError: a `ValueError` that names the file: damaged, of a
                newer version, or no encoding.
        """
        described, is_whole = read_sealed(file)
        refuse_formats(file, described.get("format", 1), FORMAT, is_whole)
        with refused_by_name(file):
            return cls.from_json(described)


def _order(cells: pd.Series, given: Order | None) -> Order | None:
    """As :func:`date_order`, with what to do where a frame is given and no file is read."""
    try:
        return date_order(cells, given)
    except DateOrderError as error:
        raise ValueError(
            f"{error}: read them first, as by pandas.to_datetime(…, dayfirst=True)"
        ) from error


def _levelled(
    cells: pd.Series, gaps: bool, every_category: bool, rare: int | None, rows: Any
) -> CategoricalColumn:
    """A column of levels, the rare ones pooled."""
    levels = levels_in(cells, every_category)
    if rare is None:
        return CategoricalColumn(str(cells.name), levels, gaps)
    kept, pooled, _ = pooled_levels(cells.iloc[rows], levels, rare)
    return CategoricalColumn(str(cells.name), kept, gaps, pooled)


def _features(column: Plain, values: NDArray[Any]) -> NDArray[np.float64]:
    """Features `(N, …)` of checked cells: a missing number is NaN, a missing level all zeros."""
    if isinstance(column, NumericColumn):
        features: NDArray[np.float64] = (values[:, None] - column.mean) / column.scale
        return features
    return (values[:, None] == np.asarray(column.levels, dtype=object)).astype(np.float64)


def _target_from_json(description: Mapping[str, Any]) -> TargetColumn:
    classes = description["class_names"]
    return TargetColumn(
        name=text_of("name", description["name"]),
        class_names=None if classes is None else texts_of("class_names", classes),
        mean=finite_float("mean", description["mean"]),
        scale=finite_float("scale", description["scale"], above=0.0),
    )
