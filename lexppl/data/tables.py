"""Tables with columns of numbers, words and dates, from files and from pandas."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api import types

from lexppl.argument_checks import int_at_least, near, quoted
from lexppl.data.cells import Order, checked_order, missing_words
from lexppl.data.dataset import Dataset
from lexppl.data.encoding import MOST_INTEGER_CLASSES, TableEncoding, TargetColumn, Task
from lexppl.data.files import FileFormat, check_columns, named_cells, read_frame, table_name
from lexppl.data.problems import Problem, constant_columns, notices, refuse, table_problems
from lexppl.summary import counted


@dataclass(frozen=True)
class TableReading:
    """Which columns and rows of a table are read, and as what.

    Args:
        task: ``"classification"`` or ``"regression"``. Where ``None``: classification for words,
            categories, booleans and integers of at most 20 different values, else regression.
        drop: columns to leave out, such as an identifier.
        keep: the only columns to read beside the target; all where empty.
        categorical: columns of numbers, or of words that look like dates, to be read as levels.
        drop_missing: drop the rows with a missing value; they are refused otherwise.
        hide_missing: keep them, as values that are hidden from the explainer. Rows without a
            target are left out, with a warning.
        missing_indicator: with ``hide_missing``, a mask entry of its own for each column with
            missing values, 1 where it is missing; of a column with one value this entry alone.
        drop_constant: drop the columns with a single value; they are refused otherwise.
        rare: levels with fewer of the rows that statistics are of are pooled into one, "other
            levels", which then also stands for every level that is met later; no level is pooled
            where ``None``, and one met later is refused.
        dates: ``"dayfirst"`` or ``"monthfirst"``, where nothing shows it, as in 03/04/2026.
        include: columns to read though they number the rows or have more levels than expected, of
            which none is pooled. Where it is given, other columns that number the rows are refused,
            and else read with a warning.

    Raises:
        ValueError: a single name for several, ``drop_missing`` beside ``hide_missing``,
            ``missing_indicator`` without it, other values.
    """

    task: Task | None = None
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    categorical: Sequence[str] = ()
    drop_missing: bool = False
    hide_missing: bool = False
    missing_indicator: bool = False
    drop_constant: bool = False
    rare: int | None = None
    dates: Order | None = None
    include: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for option in ("drop", "keep", "categorical", "include"):
            if isinstance(names := getattr(self, option), str):
                raise ValueError(f"{option} must be a sequence of columns; it is {names!r}")
        if self.drop_missing and self.hide_missing:
            raise ValueError(
                "drop_missing=True drops rows with missing values and hide_missing=True keeps "
                "them; give one of the two"
            )
        if self.missing_indicator and not self.hide_missing:
            raise ValueError("missing_indicator=True is for hide_missing=True; give both or none")
        if self.rare is not None:
            int_at_least("rare", self.rare)
        checked_order(self.dates)

    def read(self, frame: pd.DataFrame, target: str | None) -> pd.DataFrame:
        """The columns to explain by, in the table's order, and the target, last; without the rows
        that are dropped.

        Args:
            frame: the table, columns with different names.
            target: the column to predict; the last that is not dropped where ``None``.

        Raises:
            ValueError: names that are not there, with those near to them, all of them at once; a
                column that is dropped and kept, or is the target and dropped; no column or row
                left.

        Example:
            >>> frame = pd.DataFrame({"id": [7, 8], "age": [30.0, None], "y": [0, 1]})
            >>> list(TableReading(drop=["id"]).read(frame, None))
            ['age', 'y']
        """
        features, target = self._columns([str(name) for name in frame.columns], target)
        if len(frame) == 0:
            raise ValueError("the table is empty: it has no rows")
        used = frame[[*features, target]].astype(dict.fromkeys(self.categorical, "category"))
        if message := missing_words(frame, target):
            if used[target].nunique() <= MOST_INTEGER_CLASSES and self.task != "regression":
                raise ValueError(message)
            warnings.warn(message, stacklevel=2)
        used = used.reset_index(drop=True)
        left = self.rows(used, list(used.columns) if self.drop_missing else [target])
        if used[target].isna().any() and types.is_float_dtype(used[target].dtype):
            # pandas reads integers with gaps as floating.
            whole = bool((left[target] == left[target].round()).all())
            left = left.astype({target: np.int64}) if whole else left
        return left

    def rows(self, used: pd.DataFrame, needed: Sequence[str]) -> pd.DataFrame:
        """The rows that have a value in the columns that are needed, where rows may be dropped."""
        if not (self.drop_missing or self.hide_missing):
            return used
        present = used[list(needed)].notna()
        present = present.loc[:, present.any()]  # Others are refused as constant.
        if not present.all(axis=1).any():
            raise ValueError("no row is left: each has a missing value")
        return used[present.all(axis=1)]

    def _columns(self, columns: Sequence[str], target: str | None) -> tuple[list[str], str]:
        if len(columns) < 2:
            raise ValueError(f"a table needs a target and another column; it has {quoted(columns)}")
        problems = [
            Problem(f"{option} names {name!r}, and there is no such column; {near(name, columns)}")
            for option in ("drop", "keep", "categorical", "include")
            for name in dict.fromkeys(getattr(self, option) or ())
            if name not in columns
        ]
        left = [name for name in columns if name not in self.drop]
        if target is None and left:
            target = left[-1]
        if target is None or target not in columns:
            hint = near(str(target), columns)
            problems.append(Problem(f"there is no target column {target!r}; {hint}"))
        refuse(problems)
        for option in ("drop", "categorical"):
            if target in getattr(self, option):
                raise ValueError(
                    f"{option} names {str(target)!r}, which is the target: predict another column"
                )
        for option in ("keep", "include"):
            if both := [name for name in getattr(self, option) or () if name in self.drop]:
                raise ValueError(f"drop names {quoted(both)}, which {option} names too: give one")
        wanted = self.keep or left
        features = [name for name in left if name != target and name in wanted]
        if not features:
            texts = "; a column of texts is read by --text, in Python by texts_of"
            out = f"; left out: {quoted(self.drop)}{texts}" if self.drop else ""
            raise ValueError(f"no column is left beside the target {str(target)!r}{out}")
        if unread := [name for name in self.categorical if name not in features]:
            raise ValueError(f"categorical names {quoted(unread)}, which are left out")
        return features, str(target)


def read_table(
    path: str | Path,
    target: str | None = None,
    *,
    column_names: Sequence[str] | None = None,
    encoding: TableEncoding | None = None,
    name: str | None = None,
    **reading: Any,
) -> Dataset:
    """Read a table as a :class:`Dataset`, one mask entry a column.

    Numeric columns are standardised to mean 0 and standard deviation 1 (population) by the
    statistics of the whole table, or of ``statistics_rows`` alone, by a curve where the tail is
    heavy (`NumericColumn`); words, categories and booleans become one 0/1 feature a level; dates
    become a trend in days and the sine and cosine of what recurs in them (`DateColumn`). Give the
    result's ``encoding`` back as ``encoding`` to read further files in the same way. What the table
    has wrong is refused at once: one error lists every column, with the arguments that fix it.

    With ``hide_missing`` a missing value enters as 0 (the mean; no level) beside a marker that is
    1, both of its column's mask entry. The fits of :mod:`lexppl.tabular` and of the command line
    read the marker as a value that is hidden from the start
    (`HiddenByNature`), drawn by the imputer and never kept; a program that
    knows no markers keeps or hides both.

    A first column without a name that names the rows, as pandas and R write it, is left out; a
    named index in Parquet is a column.

    Args:
        path: ``.csv``, ``.tsv`` or ``.tab`` (also compressed: ``.gz``, ``.bz2``, ``.xz``,
            ``.zst``), ``.parquet`` or ``.pq``, ``.xlsx`` (its first sheet, by the extra
            ``excel``); with ``separator``, text of any name.
        target: the column to predict; the last one that is not dropped where ``None``.
        column_names: the columns' names, for a text file whose first line is data already.
        encoding: of an earlier table, whose file format is taken where none is given.
        name: of the data set; the file's where ``None``.
        reading: ``missing``, ``separator``, ``decimal`` and ``text_encoding``, as
            :class:`FileFormat` has them; and the arguments of :func:`dataset_from_frame`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: an unreadable file, an unknown kind of file; as :func:`dataset_from_frame`.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "people.csv")
        ...     _ = file.write_text("age,job,income\\n30,clerk,low\\n50,smith,high\\n")
        ...     data = read_table(file, target="income")
        >>> data.entry_names, data.groups, data.class_names
        (('age', 'job'), (0, 1, 1), ('high', 'low'))
    """
    known = FileFormat() if encoding is None else encoding.file_format
    chosen = {f.name: reading.pop(f.name, None) for f in fields(FileFormat)}
    form = replace(known, **{option: value for option, value in chosen.items() if value})
    return dataset_from_frame(
        read_frame(path, form, column_names=column_names, words=encoding.words if encoding else ()),
        target,
        encoding=encoding,
        file_format=form,
        name=table_name(Path(path)) if name is None else name,
        **reading,
    )


def dataset_from_frame(
    frame: pd.DataFrame,
    target: str | None = None,
    *,
    standardise_target: bool = False,
    statistics_rows: Sequence[int] | NDArray[Any] | None = None,
    encoding: TableEncoding | None = None,
    file_format: FileFormat = FileFormat(),  # noqa: B008 - immutable
    name: str = "data",
    dtype: torch.dtype | None = None,
    **reading: Any,
) -> Dataset:
    """Turn a ``pandas.DataFrame`` into a :class:`Dataset`, as :func:`read_table` does.

    Args:
        frame: the table.
        target: the column to predict; the last one that is not dropped where ``None``.
        standardise_target: standardise a regression target too; its own units come back by
            ``dataset.encoding.target.decode``.
        statistics_rows: places (from 0, after rows were dropped) of the rows that means and
            standard deviations are of; all rows where ``None``. Levels are always those of all
            rows.
        encoding: read the table by the statistics and levels of an earlier one. All but ``drop``,
            ``drop_missing``, ``name`` and ``dtype`` are then those of that table and are not given.
        file_format: how the file was written that the frame is from; the encoding keeps it.
        name: of the data set.
        dtype: of the features; torch's default where ``None``.
        reading: fields of `TableReading`.

    Raises:
        TypeError: ``frame`` is no ``pandas.DataFrame``.
        ValueError: everything else that a table can have wrong, named with its column: no rows,
            columns of one name, no such target or column, missing or infinite values, constant
            columns, more than 100 levels, numbers with decimal commas, dates without an order, one
            class only, and with ``encoding`` other columns, levels or labels than before. Of cells
            it is a :class:`lexppl.data.TableError`, which lists them all.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"dose": [1.0, 2.0, 4.0], "sex": list("fmf"), "y": [0, 1, 1]})
        >>> data = dataset_from_frame(frame, target="y")
        >>> data.entry_names, data.class_names
        (('dose', 'sex'), ('0', '1'))
    """
    cells = named_cells(frame)
    check_columns(list(cells.columns))
    how = TableReading(**reading)
    if encoding is not None:
        chosen = {f.name: bool(getattr(how, f.name)) for f in fields(how)}
        chosen |= {"target": target is not None, "statistics_rows": statistics_rows is not None}
        chosen |= {"standardise_target": standardise_target, "drop": False, "drop_missing": False}
        if any(chosen.values()):
            raise ValueError(
                "with encoding, these are those of the earlier table and must not be given: "
                f"{quoted(option for option, is_chosen in chosen.items() if is_chosen)}"
            )
        return _by_encoding(cells, encoding, how, dtype=dtype, name=name)
    used = how.read(cells, target)
    if how.hide_missing and len(used) < len(cells):
        gaps = counted(len(cells) - len(used), "row")
        warnings.warn(f"target {used.columns[-1]!r} is missing in {gaps}: left out", stacklevel=2)
    rows = _statistics_places(statistics_rows, len(used))
    refuse(table_problems(used, how, rows))
    inputs, labels = used.iloc[:, :-1], used.iloc[:, -1]
    if how.drop_constant:
        inputs = inputs.drop(columns=constant_columns(inputs, how.missing_indicator))
    for notice in notices(inputs.join(labels), how.task, numbers=how.include is None):
        warnings.warn(notice, stacklevel=2)
    of_target = TargetColumn.fit(labels, how.task, standardise_target, rows)
    _refuse_rounded(of_target, labels, torch.get_default_dtype() if dtype is None else dtype)
    missing: Any = {"hide_missing": how.hide_missing, "missing_indicator": how.missing_indicator}
    rare = {str(name): how.rare for name in inputs if name not in (how.include or ())}
    fitted = TableEncoding.fit(
        inputs, of_target, statistics_rows=rows, rare=rare, dates=how.dates, **missing
    )
    left_out = tuple(c for c in cells.columns if c != labels.name and c not in inputs.columns)
    fitted = replace(fitted, left_out=left_out, file_format=file_format)
    return _encoded(pd.concat([inputs, labels], axis=1), fitted, dtype, name=name)


def _refuse_rounded(target: TargetColumn, cells: pd.Series, dtype: torch.dtype) -> None:
    """Refuse responses whose differences a type rounds away."""
    if target.class_names is not None:
        return
    values = target.encode(cells, torch.float64)
    most = float(values.abs().max())
    if float(values.std()) < 100 * torch.finfo(dtype).eps * most:
        raise ValueError(
            f"target {target.name!r} has values up to {most:.1g}, too close to each other for "
            f"{dtype}: give standardise_target=True"
        )


def _statistics_places(
    chosen: Sequence[int] | NDArray[Any] | None, rows: int
) -> NDArray[np.int64] | None:
    if chosen is None:
        return None
    places = np.asarray(chosen)
    whole = places.ndim == 1 and len(places) > 0 and types.is_integer_dtype(places.dtype)
    if not whole or places.min() < 0 or places.max() >= rows:
        raise ValueError(
            f"statistics_rows must be places of rows, whole numbers from 0 to {rows - 1}, at "
            f"least one; they are {chosen!r}"
        )
    return places.astype(np.int64)


def _by_encoding(
    cells: pd.DataFrame, encoding: TableEncoding, how: TableReading, **options: Any
) -> Dataset:
    """A table by an earlier one's encoding."""
    target = encoding.target.name
    TableReading(drop=how.drop).read(cells, target)
    left = cells.drop(columns=list(how.drop))
    if any(column.gaps for column in encoding.columns) and not how.drop_missing:
        how = replace(how, hide_missing=True)
    judged = [column for column in left.columns if column in encoding.table_columns]
    complete = how.rows(left, [*judged, target] if how.drop_missing else [target])
    return _encoded(complete, encoding, is_part=True, **options)


def _encoded(
    frame: pd.DataFrame, encoding: TableEncoding, dtype: torch.dtype | None, **options: Any
) -> Dataset:
    target = encoding.target
    return Dataset(
        encoding.encode(frame, dtype),
        target.encode(frame[target.name], dtype),
        **{name: getattr(encoding, name) for name in ("feature_names", "groups", "entry_names")},
        target_name=target.label,
        class_names=target.class_names,
        encoding=encoding,
        **options,
    )
