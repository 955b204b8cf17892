"""Tables as files: text with separators, compressed or not, and Parquet."""

from __future__ import annotations

import csv
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lexppl.data.listing import listed

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
_PARQUET = (".parquet", ".pq")


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
    check_columns(names[1:] if unnamed_index else names)
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


def table_name(file: Path) -> str:
    """A file's name without its endings.

    Example:
        >>> table_name(Path("people.csv.gz"))
        'people'
    """
    stem = Path(file.stem) if file.suffix.lower() in _COMPRESSIONS else file
    return stem.stem


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def check_columns(names: list[str]) -> None:
    """Refuse columns of one name, or without a name.

    Raises:
        ValueError: such columns.
    """
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            f"columns must have different names; repeated: {listed(repeated)} "
            "(if the file's first line is data already, give column_names)"
        )
    if "" in names:
        raise ValueError(f"column {names.index('') + 1} has no name")
