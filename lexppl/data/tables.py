"""Tables with numeric and categorical columns, from files and from pandas."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api import types

from lexppl.data.cells import is_numeric, levels_in, numbers_of, refuse_missing
from lexppl.data.dataset import Dataset, Task
from lexppl.data.encoding import CategoricalColumn, TableEncoding, TargetColumn
from lexppl.data.listing import listed
from lexppl.data.table_files import check_columns, read_frame, table_name

MOST_LEVELS = 100
MOST_INTEGER_CLASSES = 20


def read_table(
    path: str | Path,
    target: str | None = None,
    *,
    task: Task | None = None,
    categorical: Sequence[str] = (),
    missing: Sequence[str] = (),
    drop_missing: bool = False,
    drop_constant: bool = False,
    standardise_target: bool = False,
    statistics_rows: Sequence[int] | NDArray[Any] | None = None,
    separator: str | None = None,
    column_names: Sequence[str] | None = None,
    encoding: TableEncoding | None = None,
    name: str | None = None,
    dtype: torch.dtype | None = None,
) -> Dataset:
    """Read a table as a :class:`Dataset`, one mask entry a column.

    Numeric columns are standardised to mean 0 and standard deviation 1 (population) by the
    statistics of the whole table, or of ``statistics_rows`` alone; columns of words, categories or
    booleans become one 0/1 feature a level. The result's ``encoding`` keeps statistics and levels:
    give it back as ``encoding`` to read further files (a test set) in the same way.

    A first column without a name that counts the rows, as pandas writes it, is left out.

    Args:
        path: ``.csv``, ``.tsv`` or ``.tab`` (also compressed: ``.gz``, ``.bz2``, ``.xz``,
            ``.zst``), ``.parquet`` or ``.pq``; with ``separator``, text of any name.
        target: the column to predict; the last one where ``None``.
        task: ``"classification"`` or ``"regression"``. Where ``None``: classification for words,
            categories, booleans and integers of at most 20 different values, else regression.
        categorical: numeric columns that are codes, to be read as levels.
        missing: further cells that mean "missing", such as ``("?",)``; empty cells, ``NA``,
            ``NaN``, ``null`` and the like mean it always.
        drop_missing: drop the rows with a missing value; they are refused otherwise.
        drop_constant: drop the columns with a single value; they are refused otherwise.
        standardise_target: standardise a regression target too; its own units come back by
            ``dataset.encoding.target.decode``.
        statistics_rows: places (from 0, after rows were dropped) of the rows that means and
            standard deviations are of, as of the training part of a table that is divided later;
            all rows where ``None``. Levels are always those of all rows.
        separator: between the cells of a text file, where the file's name does not say it.
        column_names: the columns' names, for a text file whose first line is data already.
        encoding: read the file by the statistics and levels of an earlier table; then ``target``,
            ``task``, ``categorical``, ``drop_constant``, ``standardise_target`` and
            ``statistics_rows`` are those of that table and are not given.
        name: of the data set; the file's where ``None``.
        dtype: of the features; torch's default where ``None``.

    Raises:
        FileNotFoundError: no such file.
        ValueError: everything else that a table can have wrong, named with its column: an
            unreadable file, an unknown kind of file, no rows, columns of one name, no such
            target, missing or infinite values, constant columns, more than 100 levels, one class
            only, and with ``encoding`` other columns, levels or labels than before.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder) / "people.csv"
        ...     text = "age,job,income\\n30,clerk,low\\n50,smith,high\\n40,smith,low\\n"
        ...     _ = file.write_text(text)
        ...     data = read_table(file, target="income")
        >>> data.feature_names, data.groups, data.class_names
        (('age', 'job=clerk', 'job=smith'), (0, 1, 1), ('high', 'low'))
        >>> data.x[:, 0]
        tensor([-1.2247,  1.2247,  0.0000])
    """
    file = Path(path)
    frame = read_frame(file, missing=missing, separator=separator, column_names=column_names)
    return dataset_from_frame(
        frame,
        target,
        task=task,
        categorical=categorical,
        drop_missing=drop_missing,
        drop_constant=drop_constant,
        standardise_target=standardise_target,
        statistics_rows=statistics_rows,
        encoding=encoding,
        name=table_name(file) if name is None else name,
        dtype=dtype,
    )


def dataset_from_frame(
    frame: pd.DataFrame,
    target: str | None = None,
    *,
    task: Task | None = None,
    categorical: Sequence[str] = (),
    drop_missing: bool = False,
    drop_constant: bool = False,
    standardise_target: bool = False,
    statistics_rows: Sequence[int] | NDArray[Any] | None = None,
    encoding: TableEncoding | None = None,
    name: str = "data",
    dtype: torch.dtype | None = None,
) -> Dataset:
    """Turn a ``pandas.DataFrame`` into a :class:`Dataset`; see :func:`read_table`.

    Raises:
        TypeError: ``frame`` is no ``pandas.DataFrame``.
        ValueError: as :func:`read_table`.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"dose": [1.0, 2.0, 4.0], "sex": list("fmf"), "y": [0, 1, 1]})
        >>> data = dataset_from_frame(frame, target="y")
        >>> data.entry_names, data.class_names
        (('dose', 'sex'), ('0', '1'))
    """
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"frame must be a pandas.DataFrame; it is a {type(frame).__name__}")
    cells = frame.set_axis([str(column) for column in frame.columns], axis=1)
    check_columns(list(cells.columns))
    if encoding is not None:
        _refuse_given(
            target=target is not None,
            task=task is not None,
            categorical=bool(categorical),
            drop_constant=drop_constant,
            standardise_target=standardise_target,
            statistics_rows=statistics_rows is not None,
        )
        target = encoding.target.name
    target = _find_target(list(cells.columns), target)
    if len(cells) == 0:
        raise ValueError("the table is empty: it has no rows")
    cells = _as_levels(cells, categorical, target)
    complete = _complete_rows(cells, drop_missing)
    if encoding is not None:
        return _encoded(complete, encoding, name, dtype, is_part=True)
    features = _varying_columns(complete.drop(columns=target), drop_constant)
    labels = complete[target]
    if cells[target].isna().any():
        labels = _with_integers_back(labels)
    rows = _statistics_rows(statistics_rows, len(complete))
    target_column = _fit_target(labels, task, standardise_target, rows)
    fitted = TableEncoding.fit(features, target_column, statistics_rows=rows)
    for column in fitted.columns:
        if isinstance(column, CategoricalColumn):
            _check_levels(column.name, column.levels, len(complete))
    kept = complete[[*features.columns, target]]
    return _encoded(kept, fitted, name, dtype, is_part=False)


def _find_target(columns: list[str], target: str | None) -> str:
    if len(columns) < 2:
        raise ValueError(
            f"a table needs a target and at least one other column; it has {listed(columns)}"
        )
    if target is None:
        return columns[-1]
    if target not in columns:
        close = difflib.get_close_matches(target, columns, n=3)
        folded = [name for name in columns if name.casefold() == str(target).casefold()]
        meant = list(dict.fromkeys([*folded, *close]))
        hint = f"did you mean {listed(meant)}?" if meant else f"the columns are {listed(columns)}"
        raise ValueError(f"there is no target column {target!r}; {hint}")
    return target


def _refuse_given(**given: bool) -> None:
    if any(given.values()):
        raise ValueError(
            "with encoding, these are those of the earlier table and must not be given: "
            f"{listed(name for name, present in given.items() if present)}"
        )


def _statistics_rows(
    given: Sequence[int] | NDArray[Any] | None, rows: int
) -> NDArray[np.int64] | None:
    if given is None:
        return None
    places = np.asarray(given)
    whole = places.ndim == 1 and len(places) > 0 and types.is_integer_dtype(places.dtype)
    if not whole or places.min() < 0 or places.max() >= rows:
        raise ValueError(
            f"statistics_rows must be places of rows, whole numbers from 0 to {rows - 1}, at "
            f"least one; they are {given!r}"
        )
    return places.astype(np.int64)


def _as_levels(frame: pd.DataFrame, categorical: Sequence[str], target: str) -> pd.DataFrame:
    if isinstance(categorical, str):
        raise ValueError(f"categorical must be a sequence of columns; it is {categorical!r}")
    unknown = [column for column in categorical if column not in frame.columns or column == target]
    if unknown:
        raise ValueError(
            f"categorical names {listed(unknown)}; no such column is there beside the target"
        )
    return frame.astype(dict.fromkeys(categorical, "category")) if categorical else frame


def _complete_rows(frame: pd.DataFrame, drop_missing: bool) -> pd.DataFrame:
    if not drop_missing:
        refuse_missing(frame)
        return frame
    complete = frame.dropna()
    if len(complete) == 0:
        empty = [column for column in frame.columns if frame[column].isna().all()]
        reason = f"; always missing: {listed(empty)}" if empty else ""
        raise ValueError(f"no row is left: each has a missing value{reason}")
    return complete


def _with_integers_back(cells: pd.Series) -> pd.Series:
    """Undo what pandas does to integers with gaps: it reads them as floating."""
    if types.is_float_dtype(cells.dtype) and bool((cells == cells.round()).all()):
        return cells.astype(np.int64)
    return cells


def _varying_columns(frame: pd.DataFrame, drop_constant: bool) -> pd.DataFrame:
    for column in frame.columns:
        is_numeric(frame[column])
    constant = [column for column in frame.columns if frame[column].nunique() <= 1]
    if constant and not drop_constant:
        raise ValueError(
            f"constant columns explain nothing: {listed(constant)}; leave them out, or give "
            "drop_constant=True to drop them"
        )
    if len(constant) == frame.shape[1]:
        raise ValueError("no column is left beside the target: all are constant")
    return frame.drop(columns=constant)


def _check_levels(column: str, levels: tuple[str, ...], rows: int) -> None:
    if len(levels) <= MOST_LEVELS:
        return
    words = [level for level in levels if pd.isna(pd.to_numeric(level, errors="coerce"))]
    if 0 < len(words) < len(levels) / 2:
        hint = (
            f"most are numbers, but not {listed(words, most=3)}: if these mean missing, give "
            f"missing=({words[0]!r},)"
        )
    else:
        hint = "it looks like an identifier or free text: leave it out"
    raise ValueError(
        f"categorical column {column!r} has {len(levels)} levels in {rows} "
        f"rows, at most {MOST_LEVELS} are expected; {hint}"
    )


def _fit_target(
    cells: pd.Series, task: Task | None, standardise: bool, rows: NDArray[np.int64] | None
) -> TargetColumn:
    name = str(cells.name)
    if task not in (None, "classification", "regression"):
        raise ValueError(f"task must be 'classification' or 'regression'; it is {task!r}")
    numeric = is_numeric(cells)
    if task is None:
        task = "regression" if numeric and not _is_class_code(cells) else "classification"
    if task == "classification":
        if standardise:
            raise ValueError(f"standardise_target is for regression; target {name!r} is of classes")
        levels = levels_in(cells)
        _check_levels(name, levels, len(cells))
        if len(levels) < 2:
            raise ValueError(
                f"target {name!r} has one class only: every row is {levels[0]!r}; "
                "at least two are needed"
            )
        return TargetColumn(name=name, class_names=levels)
    values = numbers_of(cells)
    if (values == values[0]).all():
        raise ValueError(f"target {name!r} is constant: {values[0]:g}")
    if not standardise:
        return TargetColumn(name=name, class_names=None)
    return TargetColumn.standardised(name, values if rows is None else values[rows])


def _is_class_code(cells: pd.Series) -> bool:
    values = numbers_of(cells)
    integers = types.is_integer_dtype(cells.dtype) or (
        cells.dtype == object and bool((values == np.round(values)).all())
    )
    return integers and len(np.unique(values)) <= MOST_INTEGER_CLASSES


def _encoded(
    frame: pd.DataFrame,
    encoding: TableEncoding,
    name: str,
    dtype: torch.dtype | None,
    is_part: bool,
) -> Dataset:
    return Dataset(
        x=encoding.encode(frame, dtype),
        y=encoding.target.encode(frame[encoding.target.name], dtype),
        feature_names=encoding.feature_names,
        groups=encoding.groups,
        entry_names=encoding.entry_names,
        target_name=encoding.target.name,
        class_names=encoding.target.class_names,
        name=name,
        encoding=encoding,
        is_part=is_part,
    )
