"""Tables as files: text with separators, compressed or not, Parquet and Excel."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from lexppl.data.listing import listed
from lexppl.data.reading.file_format import LINES, FileFormat, encoding_by_mark, separator_of

_TEXT = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
_PARQUET = (".parquet", ".pq")
_EXCEL = (".xlsx", ".xlsm")
_BYTES_OF_LINES = 2**16


def _open_zst(file: Path, mode: str) -> Any:
    # Of the standard library from Python 3.14 on only; pandas asks for it too.
    return import_module("zstandard").open(file, mode)


_OPENERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _open_zst}
)


def read_frame(
    path: str | Path,
    file_format: FileFormat | None = None,
    *,
    missing: Sequence[str] = (),
    separator: str | None = None,
    decimal: str | None = None,
    text_encoding: str | None = None,
    column_names: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Read a file as a ``pandas.DataFrame`` with different column names.

    Args:
        path: as in :func:`read_table`.
        file_format: how the file is written; what is given beside it goes before it.
        missing, separator, decimal, text_encoding, column_names: as in :func:`read_table`.

    Raises:
        FileNotFoundError: no such file.
        ImportError: an Excel file, and what reads it is not installed.
        ValueError: a folder, an unknown kind of file, one that cannot be read, columns of one
            name or without a name.
    """
    file = Path(path)
    written = FileFormat.given(
        file_format,
        missing=missing,
        separator=separator,
        decimal=decimal,
        text_encoding=text_encoding,
    )
    if not file.exists():
        raise FileNotFoundError(f"there is no file {str(file)!r}")
    if file.is_dir():
        raise ValueError(f"{str(file)!r} is a folder; give a table's file")
    kind = _kind(file)
    typed = kind in _PARQUET or kind in _EXCEL
    if written.separator is None and kind not in _TEXT and not typed:
        raise ValueError(
            f"{file.name!r} is of no known kind; expected {listed([*_TEXT, *_PARQUET, *_EXCEL])}, "
            f"or text with its separator given"
        )
    try:
        if written.separator is None and typed:
            return _read_typed(file, kind, written, column_names)
        return _read_text(file, kind, written, column_names)
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"the table is empty: {file.name!r} holds nothing") from error
    except UnicodeError as error:
        raise ValueError(_not_decoded(file, written, error)) from error
    except (OSError, EOFError, lzma.LZMAError, csv.Error, pd.errors.ParserError) as error:
        raise ValueError(f"{file.name!r} cannot be read as a table: {_one_line(error)}") from error
    except pd.errors.ParserWarning as error:
        raise ValueError(
            f"{file.name!r} has rows with more cells than the first line has names"
        ) from error


def _not_decoded(file: Path, written: FileFormat, error: UnicodeError) -> str:
    if written.text_encoding is not None:
        return (
            f"{file.name!r} cannot be read as a table: its letters are not of "
            f"{written.text_encoding!r} ({_one_line(error)})"
        )
    return (
        f"{file.name!r} cannot be read as a table: its letters are not of UTF-8; give "
        "text_encoding='cp1252' if it was written by Excel on Windows, or what it was written in"
    )


def _read_typed(
    file: Path, kind: str, written: FileFormat, column_names: Sequence[str] | None
) -> pd.DataFrame:
    """A file whose cells have types, of which nothing is to be found out."""
    what = "Parquet" if kind in _PARQUET else "Excel"
    if column_names is not None:
        raise ValueError(f"column_names is for text files; {_article(what)} file has its own")
    for name in ("decimal", "text_encoding"):
        if getattr(written, name) is not None:
            raise ValueError(f"{name} is for text files; {_article(what)} file has numbers")
    if what == "Excel" and find_spec("openpyxl") is None:
        raise ImportError(
            f"{file.name!r} is an Excel file, and openpyxl, which reads it, is not installed: "
            "pip install 'lexppl[excel]', or save it as .csv"
        )
    try:
        frame = pd.read_parquet(file) if what == "Parquet" else pd.read_excel(file)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file.name!r} cannot be read as {what}: {_one_line(error)}") from error
    for column in frame.columns if written.missing else ():
        frame[column] = frame[column].mask(frame[column].isin(list(written.missing)))
    return frame


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'AEIOU' else 'a'} {word}"


def _first_lines(file: Path, text_encoding: str | None) -> tuple[list[str], str]:
    """The first lines of a text file, and its encoding."""
    opener = _OPENERS.get(file.suffix.lower(), open)
    with opener(file, "rb") as opened:
        start = opened.read(_BYTES_OF_LINES)
    name = encoding_by_mark(start) if text_encoding is None else text_encoding
    # The last letter may be cut in two; a letter that is wrong is told when all is read.
    lines = start.decode(name, errors="ignore").splitlines()
    whole = lines if len(start) < _BYTES_OF_LINES else lines[:-1]
    return [line for line in whole if line.strip()][:LINES], name


def _read_text(
    file: Path, kind: str, written: FileFormat, column_names: Sequence[str] | None
) -> pd.DataFrame:
    lines, letters = _first_lines(file, written.text_encoding)
    separator = written.separator or _TEXT[kind]
    if written.separator is None and kind == ".csv":
        separator = separator_of(lines, written.decimal, separator)
    # pandas renames repeated columns, so the first line is read as cells before.
    first = pd.read_csv(
        file,
        sep=separator,
        header=None,
        nrows=1,
        dtype=str,
        keep_default_na=False,
        skipinitialspace=True,
        encoding=letters,
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
            "na_values": list(written.missing),
            "decimal": written.decimal or ".",
            "skipinitialspace": True,
            "index_col": False,
            "low_memory": False,
            "encoding": letters,
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
