"""Tables with numeric and categorical columns, from files and from pandas."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api import types

from lexppl.argument_checks import int_at_least
from lexppl.data.dataset import Dataset, Task
from lexppl.data.dates import Order, checked_order
from lexppl.data.encoding import TableEncoding
from lexppl.data.fitted_target import fitted_target, target_problems
from lexppl.data.listing import listed
from lexppl.data.reading.file_format import FileFormat
from lexppl.data.reading.read_rows import (
    Problem,
    chosen_columns,
    refuse,
    rows_left,
    statistics_places,
)
from lexppl.data.reading.table_checks import (
    Reading,
    counts_rows,
    feature_problems,
    is_constant,
    missing_problems,
)
from lexppl.data.table_files import check_columns, read_frame, table_name


def read_table(
    path: str | Path,
    target: str | None = None,
    *,
    task: Task | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: Sequence[str] = (),
    drop_missing: bool = False,
    hide_missing: bool = False,
    missing_indicator: bool = False,
    drop_constant: bool = False,
    rare: int | None = None,
    dates: Order | None = None,
    standardise_target: bool = False,
    statistics_rows: Sequence[int] | NDArray[Any] | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    text_encoding: str | None = None,
    column_names: Sequence[str] | None = None,
    encoding: TableEncoding | None = None,
    name: str | None = None,
    dtype: torch.dtype | None = None,
) -> Dataset:
    """Read a table as a :class:`Dataset`, one mask entry a column.

    Numeric columns are standardised to mean 0 and standard deviation 1 (population) by the
    statistics of the whole table, or of ``statistics_rows`` alone; columns of words, categories or
    booleans become one 0/1 feature a level; dates become a trend in days and the sine and cosine
    of what recurs in them (:class:`lexppl.data.DateColumn`). The result's ``encoding`` keeps all
    of it: give it back as ``encoding`` to read further files (a test set) in the same way.

    What the table has wrong is refused at once: one error lists every column, with the arguments
    that mend it.

    With ``hide_missing`` a missing value enters as 0 (the mean; no level) beside a marker that is
    1, both of its column's mask entry (:attr:`lexppl.data.TableEncoding.markers`). What that means
    is for the model to say: the fits of :mod:`lexppl.tabular` and of the command line read the
    marker as a value that is hidden from the start (:class:`lexppl.models.HiddenByNature`), so
    that it is drawn by the imputer and never kept; a program that knows no markers takes both as
    features that are kept or hidden together.

    A first column without a name that counts the rows, as pandas writes it, is left out.

    Args:
        path: ``.csv``, ``.tsv`` or ``.tab`` (also compressed: ``.gz``, ``.bz2``, ``.xz``,
            ``.zst``), ``.parquet`` or ``.pq``, ``.xlsx`` (its first sheet, by the extra
            ``excel``); with ``separator``, text of any name.
        target: the column to predict; the last one that is not dropped where ``None``.
        task: ``"classification"`` or ``"regression"``. Where ``None``: classification for words,
            categories, booleans and integers of at most 20 different values, else regression.
        drop: columns to leave out, such as an identifier.
        keep: the only columns to read beside the target; all where empty.
        categorical: columns of numbers, or of words that look like dates, to be read as levels.
        missing: further cells that mean "missing", such as ``("?",)``; empty cells, ``NA``,
            ``NaN``, ``null`` and the like mean it always.
        drop_missing: drop the rows with a missing value; they are refused otherwise.
        hide_missing: keep them, as values that are hidden from the explainer. Rows without a
            target are left out, with a warning.
        missing_indicator: with ``hide_missing``, a mask entry of its own for each column with
            missing values, that says where it is missing: for tables in which that tells something.
        drop_constant: drop the columns with a single value; they are refused otherwise.
        rare: levels with fewer of the rows that statistics are of are pooled into one, "other
            levels", which then also stands for every level that is met later; no level is pooled
            where ``None``, and one met later is refused.
        dates: ``"dayfirst"`` or ``"monthfirst"``, where the dates do not tell, as 03/04/2026 does
            not.
        standardise_target: standardise a regression target too; its own units come back by
            ``dataset.encoding.target.decode``.
        statistics_rows: places (from 0, after rows were dropped) of the rows that means and
            standard deviations are of, as of the training part of a table that is divided later;
            all rows where ``None``. Levels are always those of all rows.
        separator: between the cells of a text file; where ``None``, tabs by the name of the file,
            else what parts its first lines evenly: a comma, a semicolon, a tab or a bar.
        decimal: what stands before the decimals, ``","`` or ``"."``; the latter where ``None``.
        text_encoding: of a text file, such as ``"latin-1"``; where ``None``, by its byte-order
            mark, else UTF-8.
        column_names: the columns' names, for a text file whose first line is data already.
        encoding: read the file by the statistics and levels of an earlier table; then ``target``,
            ``task``, ``keep``, ``categorical``, ``hide_missing``, ``missing_indicator``,
            ``drop_constant``, ``rare``, ``dates``, ``standardise_target`` and ``statistics_rows``
            are those of that table and are not given; columns that it left out are left out, and
            ``missing``, ``separator``, ``decimal`` and ``text_encoding`` are its own where they
            are not given.
        name: of the data set; the file's where ``None``.
        dtype: of the features; torch's default where ``None``.

    Raises:
        FileNotFoundError: no such file.
        ValueError: everything else that a table can have wrong, named with its column: an
            unreadable file, an unknown kind of file, no rows, columns of one name, no such
            target or column, missing or infinite values, constant columns, more than 100 levels,
            numbers with decimal commas, dates that do not tell the day from the month, one class
            only, and with ``encoding`` other columns, levels or labels than before. Of cells it is
            a :class:`lexppl.data.TableError`, which lists them all.

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
    known = None if encoding is None else encoding.file_format
    file_format = FileFormat.given(
        known,
        missing=missing,
        separator=separator,
        decimal=decimal,
        text_encoding=text_encoding,
    )
    frame = read_frame(file, file_format, column_names=column_names)
    return dataset_from_frame(
        frame,
        target,
        task=task,
        drop=drop,
        keep=keep,
        categorical=categorical,
        drop_missing=drop_missing,
        hide_missing=hide_missing,
        missing_indicator=missing_indicator,
        drop_constant=drop_constant,
        rare=rare,
        dates=dates,
        standardise_target=standardise_target,
        statistics_rows=statistics_rows,
        encoding=encoding,
        file_format=file_format,
        name=table_name(file) if name is None else name,
        dtype=dtype,
    )


def dataset_from_frame(
    frame: pd.DataFrame,
    target: str | None = None,
    *,
    task: Task | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    categorical: Sequence[str] = (),
    drop_missing: bool = False,
    hide_missing: bool = False,
    missing_indicator: bool = False,
    drop_constant: bool = False,
    rare: int | None = None,
    dates: Order | None = None,
    standardise_target: bool = False,
    statistics_rows: Sequence[int] | NDArray[Any] | None = None,
    encoding: TableEncoding | None = None,
    file_format: FileFormat = FileFormat(),  # noqa: B008 - immutable
    name: str = "data",
    dtype: torch.dtype | None = None,
) -> Dataset:
    """Turn a ``pandas.DataFrame`` into a :class:`Dataset`; see :func:`read_table`.

    ``file_format`` is how the file was written that the frame is from; the encoding keeps it.

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
            keep=bool(keep),
            categorical=bool(categorical),
            hide_missing=hide_missing,
            missing_indicator=missing_indicator,
            drop_constant=drop_constant,
            rare=rare is not None,
            dates=dates is not None,
            standardise_target=standardise_target,
            statistics_rows=statistics_rows is not None,
        )
        return _by_encoding(cells, encoding, drop, drop_missing, name, dtype)
    if missing_indicator and not hide_missing:
        raise ValueError("missing_indicator=True is for hide_missing=True; give both, or neither")
    how = Reading(
        hide_missing,
        drop_constant,
        None if rare is None else int_at_least("rare", rare),
        checked_order(dates),
    )
    features, target = chosen_columns(
        list(cells.columns), target, drop=drop, keep=keep, categorical=categorical
    )
    if len(cells) == 0:
        raise ValueError("the table is empty: it has no rows")
    used = cells[[*features, target]].astype(dict.fromkeys(categorical, "category"))
    left = rows_left(used, target, drop_missing, hide_missing)
    if hide_missing and not left.all():
        count = int((~left).sum())
        warnings.warn(f"{count} rows without a target, {target!r}, are left out", stacklevel=2)
    used = used[left]
    labels = used[target]
    if cells[target].isna().any():
        labels = _with_integers_back(labels)
    rows = statistics_places(statistics_rows, len(used))
    _check(used, labels, task, standardise_target, how, rows)
    kept = used[features]
    if drop_constant:
        kept = kept[[column for column in features if not is_constant(kept[column])]]
    _warn_of_numbered_rows(kept)
    fitted = TableEncoding.fit(
        kept,
        fitted_target(labels, task, standardise_target, rows),
        statistics_rows=rows,
        hide_missing=hide_missing,
        missing_indicator=missing_indicator,
        rare=how.rare,
        dates=dates,
    )
    left_out = tuple(c for c in cells.columns if c != target and c not in kept.columns)
    fitted = replace(fitted, left_out=left_out, file_format=file_format)
    return _encoded(used[[*kept.columns, target]], fitted, name, dtype, is_part=False)


def _check(
    used: pd.DataFrame,
    labels: pd.Series,
    task: Task | None,
    standardise_target: bool,
    how: Reading,
    rows: NDArray[np.int64] | None,
) -> None:
    """Refuse everything that the table has wrong, at once."""
    problems: list[Problem] = []
    if not how.hide_missing:
        problems += missing_problems(used)
    problems += feature_problems(used.drop(columns=str(labels.name)), how, rows)
    problems += target_problems(labels.dropna(), task, standardise_target)
    refuse(problems)


def _by_encoding(
    cells: pd.DataFrame,
    encoding: TableEncoding,
    drop: Sequence[str],
    drop_missing: bool,
    name: str,
    dtype: torch.dtype | None,
) -> Dataset:
    """A table by an earlier one's encoding."""
    target = encoding.target.name
    _, target = chosen_columns(list(cells.columns), target, drop=drop)
    if len(cells) == 0:
        raise ValueError("the table is empty: it has no rows")
    left = cells.drop(columns=list(drop))
    judged = [column for column in left.columns if column in (*encoding.table_columns, target)]
    hidden = any(column.gaps for column in encoding.columns)
    complete = left[rows_left(left[judged], target, drop_missing, hidden and not drop_missing)]
    return _encoded(complete, encoding, name, dtype, is_part=True)


def _refuse_given(**given: bool) -> None:
    if any(given.values()):
        raise ValueError(
            "with encoding, these are those of the earlier table and must not be given: "
            f"{listed(name for name, present in given.items() if present)}"
        )


def _with_integers_back(cells: pd.Series) -> pd.Series:
    """Undo what pandas does to integers with gaps: it reads them as floating."""
    if types.is_float_dtype(cells.dtype) and bool((cells == cells.round()).all()):
        return cells.astype(np.int64)
    return cells


def _warn_of_numbered_rows(frame: pd.DataFrame) -> None:
    for column in frame.columns:
        if counts_rows(frame[column]):
            warnings.warn(
                f"column {column!r} numbers the rows; unless their order says something, leave it "
                f"out with drop=[{column!r}]",
                stacklevel=3,
            )


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
