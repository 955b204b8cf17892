"""Tables with numeric and categorical columns, from files and from pandas."""

from __future__ import annotations

import csv
import difflib
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from pandas.api import types

from lexppl.data.dataset import Dataset, Task
from lexppl.data.encoding import (
    CategoricalColumn,
    NumericColumn,
    TableEncoding,
    TargetColumn,
    levels_in,
    numbers_of,
    refuse_missing,
)
from lexppl.data.listing import listed

MOST_LEVELS = 100
MOST_INTEGER_CLASSES = 20

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
_PARQUET = (".parquet", ".pq")


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
    separator: str | None = None,
    column_names: Sequence[str] | None = None,
    encoding: TableEncoding | None = None,
    name: str | None = None,
    dtype: torch.dtype | None = None,
) -> Dataset:
    """Read a table as a :class:`Dataset`, one mask entry a column.

    Numeric columns are standardised to mean 0 and standard deviation 1 (population) by the
    table's own statistics; columns of words, categories or booleans become one 0/1 feature a
    level. The result's ``encoding`` keeps statistics and levels: give it back as ``encoding`` to
    read further files (a test set) in the same way.

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
        separator: between the cells of a text file, where the file's name does not say it.
        column_names: the columns' names, for a text file whose first line is data already.
        encoding: read the file by the statistics and levels of an earlier table; then ``target``,
            ``task``, ``categorical``, ``drop_constant`` and ``standardise_target`` are those of
            that table and are not given.
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
        encoding=encoding,
        name=_stem(file) if name is None else name,
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
        >>> data.group_names, data.class_names
        (('dose', 'sex'), ('0', '1'))
    """
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"frame must be a pandas.DataFrame; it is a {type(frame).__name__}")
    cells = frame.set_axis([str(column) for column in frame.columns], axis=1)
    _check_columns(list(cells.columns))
    if encoding is not None:
        _check_nothing_else_given(target, task, categorical, drop_constant, standardise_target)
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
    target_column = _fit_target(labels, task, standardise_target)
    columns = tuple(_fit_column(features[column]) for column in features.columns)
    fitted = TableEncoding(columns=columns, target=target_column)
    kept = complete[[*features.columns, target]]
    return _encoded(kept, fitted, name, dtype, is_part=False)


def read_frame(
    path: str | Path,
    *,
    missing: Sequence[str] = (),
    separator: str | None = None,
    column_names: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Read a file as a ``pandas.DataFrame`` with different column names.

    The arguments are those of :func:`read_table`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a folder, an unknown kind of file, one that cannot be read, columns of one
            name or without a name.
    """
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"there is no file {str(file)!r}")
    if file.is_dir():
        raise ValueError(f"{str(file)!r} is a folder; give a table's file")
    if isinstance(missing, str):
        raise ValueError(f"missing must be a sequence of cells, as in ('?',); it is {missing!r}")
    if separator is not None and len(separator) != 1 and separator != r"\s+":
        raise ValueError(
            f"separator must be one character, or r'\\s+' for any white space; it is {separator!r}"
        )
    kind = _kind(file)
    if separator is None and kind not in _SEPARATORS and kind not in _PARQUET:
        raise ValueError(
            f"{file.name!r} is of no known kind; expected {listed([*_SEPARATORS, *_PARQUET])}, "
            f"or text with its separator given"
        )
    try:
        if separator is None and kind in _PARQUET:
            frame = _read_parquet(file, missing, column_names)
        else:
            frame = _read_text(file, separator or _SEPARATORS[kind], missing, column_names)
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"the table is empty: {file.name!r} holds nothing") from error
    except (OSError, EOFError, UnicodeError, csv.Error, pd.errors.ParserError) as error:
        raise ValueError(f"{file.name!r} cannot be read as a table: {_one_line(error)}") from error
    except pd.errors.ParserWarning as error:
        raise ValueError(
            f"{file.name!r} has rows with more cells than the first line has names"
        ) from error
    return frame


def _read_parquet(
    file: Path, missing: Sequence[str], column_names: Sequence[str] | None
) -> pd.DataFrame:
    if column_names is not None:
        raise ValueError("column_names is for text files; a Parquet file has its own")
    try:
        frame = pd.read_parquet(file)
    except ValueError as error:
        raise ValueError(f"{file.name!r} cannot be read as Parquet: {_one_line(error)}") from error
    for column in frame.columns if missing else ():
        frame[column] = frame[column].mask(frame[column].isin(list(missing)))
    return frame


def _read_text(
    file: Path, separator: str, missing: Sequence[str], column_names: Sequence[str] | None
) -> pd.DataFrame:
    # pandas renames repeated columns, so the first line is read as cells before.
    first = pd.read_csv(
        file,
        sep=separator,
        header=None,
        nrows=1,
        dtype=str,
        keep_default_na=False,
        skipinitialspace=True,
    )
    cells = first.iloc[0].tolist()
    if column_names is not None and len(column_names) != len(cells):
        raise ValueError(
            f"column_names must have {len(cells)} names, as the first line of {file.name!r} has "
            f"cells; it has {len(column_names)}"
        )
    names = [str(name) for name in (cells if column_names is None else column_names)]
    if len(names) == 1 and any(other in names[0] for other in ",;\t|"):
        raise ValueError(
            f"{file.name!r} has the single column {names[0]!r}; its cells seem to be separated "
            f"by something else than {separator!r}: give separator"
        )
    unnamed_index = not names[0]
    _check_columns(names[1:] if unnamed_index else names)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        options: dict[str, Any] = {
            "sep": separator,
            "header": 0 if column_names is None else None,
            "names": names,
            "na_values": list(missing),
            "skipinitialspace": True,
            "index_col": False,
            "low_memory": False,
        }
        frame = pd.read_csv(file, **options)
    if not unnamed_index:
        return frame
    values = frame.iloc[:, 0].to_numpy()
    if len(frame) and not any(np.array_equal(values, np.arange(len(frame)) + s) for s in (0, 1)):
        raise ValueError(f"the first column of {file.name!r} has no name")
    return frame.iloc[:, 1:]


def _kind(file: Path) -> str:
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _stem(file: Path) -> str:
    stem = Path(file.stem) if file.suffix.lower() in _COMPRESSIONS else file
    return stem.stem


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _check_columns(names: list[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            f"columns must have different names; repeated: {listed(repeated)} "
            "(if the file's first line is data already, give column_names)"
        )
    if "" in names:
        raise ValueError(f"column {names.index('') + 1} has no name")


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


def _check_nothing_else_given(
    target: str | None,
    task: Task | None,
    categorical: Sequence[str],
    drop_constant: bool,
    standardise_target: bool,
) -> None:
    given = {
        "target": target is not None,
        "task": task is not None,
        "categorical": bool(categorical),
        "drop_constant": drop_constant,
        "standardise_target": standardise_target,
    }
    if any(given.values()):
        raise ValueError(
            "with encoding, these are those of the earlier table and must not be given: "
            f"{listed(name for name, present in given.items() if present)}"
        )


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
        _is_numeric(frame[column])
    constant = [column for column in frame.columns if frame[column].nunique() <= 1]
    if constant and not drop_constant:
        raise ValueError(
            f"constant columns explain nothing: {listed(constant)}; leave them out, or give "
            "drop_constant=True to drop them"
        )
    if len(constant) == frame.shape[1]:
        raise ValueError("no column is left beside the target: all are constant")
    return frame.drop(columns=constant)


def _is_numeric(cells: pd.Series) -> bool:
    """Return whether a column holds numbers, or refuse it where it holds neither these nor levels.

    Raises:
        ValueError: dates, durations, complex numbers, lists.
    """
    if isinstance(cells.dtype, pd.CategoricalDtype) or types.is_bool_dtype(cells.dtype):
        return False
    if types.is_complex_dtype(cells.dtype):
        raise ValueError(f"column {cells.name!r} holds complex numbers; give real ones")
    if types.is_numeric_dtype(cells.dtype):
        return True
    inferred = types.infer_dtype(cells, skipna=True)
    if inferred in ("integer", "floating", "mixed-integer-float", "decimal"):
        return True
    if inferred in ("string", "boolean", "mixed-integer", "empty"):
        return False
    if inferred == "mixed" and cells.map(types.is_scalar).all():
        return False
    raise ValueError(
        f"column {cells.name!r} holds values of kind {inferred!r}; expected numbers, words, "
        "categories or booleans: turn it into one of these or leave it out"
    )


def _fit_column(cells: pd.Series) -> NumericColumn | CategoricalColumn:
    name = str(cells.name)
    if not _is_numeric(cells):
        return CategoricalColumn(name=name, levels=_fit_levels(cells))
    mean, scale = _mean_and_scale(cells)
    return NumericColumn(name=name, mean=mean, scale=scale)


def _mean_and_scale(cells: pd.Series) -> tuple[float, float]:
    values = numbers_of(cells)
    # Extreme values overflow a square; the result is checked, so no warning is wanted.
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        mean, scale = float(values.mean()), float(values.std())
    if not np.isfinite([mean, scale]).all() or scale == 0.0:
        raise ValueError(
            f"column {str(cells.name)!r} cannot be standardised: its mean is {mean:g} and its "
            f"standard deviation {scale:g}; rescale it"
        )
    return mean, scale


def _fit_levels(cells: pd.Series) -> tuple[str, ...]:
    levels = levels_in(cells)
    if len(levels) > MOST_LEVELS:
        words = [level for level in levels if pd.isna(pd.to_numeric(level, errors="coerce"))]
        if 0 < len(words) < len(levels) / 2:
            hint = (
                f"most are numbers, but not {listed(words, most=3)}: if these mean missing, give "
                f"missing=({words[0]!r},)"
            )
        else:
            hint = "it looks like an identifier or free text: leave it out"
        raise ValueError(
            f"categorical column {str(cells.name)!r} has {len(levels)} levels in {len(cells)} "
            f"rows, at most {MOST_LEVELS} are expected; {hint}"
        )
    return levels


def _fit_target(cells: pd.Series, task: Task | None, standardise: bool) -> TargetColumn:
    name = str(cells.name)
    if task not in (None, "classification", "regression"):
        raise ValueError(f"task must be 'classification' or 'regression'; it is {task!r}")
    numeric = _is_numeric(cells)
    if task is None:
        task = "regression" if numeric and not _is_class_code(cells) else "classification"
    if task == "classification":
        if standardise:
            raise ValueError(f"standardise_target is for regression; target {name!r} is of classes")
        levels = _fit_levels(cells)
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
    mean, scale = _mean_and_scale(cells)
    return TargetColumn(name=name, class_names=None, mean=mean, scale=scale)


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
        group_names=encoding.group_names,
        target_name=encoding.target.name,
        class_names=encoding.target.class_names,
        name=name,
        encoding=encoding,
        is_part=is_part,
    )
