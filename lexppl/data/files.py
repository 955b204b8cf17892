"""Tables as files: text with separators, compressed or not, Parquet and Excel."""

import codecs
import csv
import lzma
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from io import StringIO
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from pandas.io.common import get_handle  # type: ignore[import-not-found]

from lexppl.argument_checks import quoted, quoted_counts, refuse_repeated, shaped
from lexppl.data.cells import MISSING_WORDS, holds_dates

ANY_SPACE = r"\s+"
TEXT = (".csv", ".tsv", ".tab")
TYPED: Mapping[str, str] = MappingProxyType(
    {".parquet": "Parquet", ".pq": "Parquet", ".xlsx": "Excel", ".xlsm": "Excel"}
)
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
MOST_LINES = 20  # Of a file, by which its separator is found
MOST_CELLS = 1000  # Of a column, among which its name is looked for
MOST_WORDS = 20  # Of a column, by which lines are known to be rows
NUMBER = '" \t0123456789.,:/+-eE%'  # What is left out of a cell to compare it with others
USE = "name it by what it is, such as .csv.gz, or write it as .csv, .xlsx or .parquet"
LONG_LINE = " has more cells than the first, which must name the columns"
LEAST_MOST, MOST_TIMES = 2**28, 200  # Bytes that a file may need to be read, and as times its size
NO_TABLE = re.compile(
    r'[^\0]*+(?P<binary>\0)|\s*(?P<JSON>\{\s*"[^"\n]*"\s*:|\[\s*[\[{])'
    r"|\s*<(?:(?P<XML>\?xml)|(?P<HTML>!doctype|html))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class FileFormat:
    """How the files of a table are written; what is ``None`` is found out from the file.

    Args:
        missing: further cells that mean "missing", such as ``("?",)``. Empty cells mean it, and in
            a column of numbers or dates words such as ``NA``, ``None`` and ``null``. In a column of
            words these are levels, with a warning. With ``""`` among ``missing`` nothing else
            means it.
        separator: one character, or ``r"\\s+"`` for any white space; where ``None``, tabs by the
            name of the file, else what divides its first lines evenly: a comma, a semicolon, a tab
            or a bar.
        decimal: what stands before the decimals, ``","`` or ``"."``; the latter where ``None``.
        text_encoding: of a text file, such as ``"latin-1"``; where ``None``, UTF-16 by its
            byte-order mark, else UTF-8.

    Raises:
        ValueError: a separator, decimal sign or encoding of another form; one sign for both.
    """

    missing: tuple[str, ...] = ()
    separator: str | None = None
    decimal: str | None = None
    text_encoding: str | None = None

    def __post_init__(self) -> None:
        separator, decimal = self.separator, self.decimal
        if isinstance(self.missing, str):
            raise ValueError(f"missing must be a sequence such as ('?',); it is {self.missing!r}")
        object.__setattr__(self, "missing", tuple(self.missing))
        if separator is not None and len(separator) != 1 and separator != ANY_SPACE:
            raise ValueError(
                f"separator must be one character, or r'\\s+' for white space; it is {separator!r}"
            )
        if decimal not in (None, ".", ",") or (decimal is not None and decimal == separator):
            raise ValueError(f"decimal must be ',' or '.' and not the separator; it is {decimal!r}")
        try:
            codecs.lookup(self.text_encoding or "utf-8")
        except LookupError as error:
            raise ValueError(
                "text_encoding must be one that Python knows, such as 'utf-8', 'latin-1' or "
                f"'cp1252'; it is {self.text_encoding!r}"
            ) from error

    def to_json(self) -> dict[str, Any]:
        """What is not found out from the file, as ``json.dumps`` accepts it."""
        return {name: value for name, value in asdict(self).items() if value}


def read_frame(
    path: str | Path,
    file_format: FileFormat | None = None,
    *,
    column_names: Sequence[str] | None = None,
    words: Sequence[str] = (),
    **written: Any,
) -> pd.DataFrame:
    """Read a file, as :func:`read_table` does, as a ``pandas.DataFrame`` with different column
    names.

    Args:
        file_format: how the file is written.
        column_names: of a text file whose first line is data already.
        words: columns of a text file that hold words, even where all cells look like numbers.
        written: fields of :class:`FileFormat`, which go before it where they are not ``None``.

    Raises:
        FileNotFoundError: no such file.
        ImportError: an Excel file, and what reads it is not installed.
        ValueError: a folder, an unknown kind of file, one that cannot be read, columns of one
            name or without a name.
    """
    file = Path(path)
    form = replace(file_format or FileFormat(), **{n: v for n, v in written.items() if v})
    if not file.exists():
        raise FileNotFoundError(f"there is no file {str(file)!r}")
    if file.is_dir():
        raise ValueError(f"{str(file)!r} is a folder; give a table's file")
    kind = Path(table_stem(file)).suffix.lower()
    if form.separator is None and kind not in (*TEXT, *TYPED):
        raise ValueError(
            f"{file.name!r} is of no known kind; expected {quoted([*TEXT, *TYPED])}, "
            "or text with its separator given"
        )
    try:
        if form.separator is None and kind in TYPED:
            return _read_typed(file, TYPED[kind], form, column_names)
        return _read_text(file, kind, form, column_names, words)
    except UnicodeError as error:
        raise ValueError(
            f"{file.name!r} cannot be read as a table: its letters are not of "
            f"{form.text_encoding or 'utf-8'}; give text_encoding='cp1252' if it was written by "
            f"Excel on Windows, or what it was written in; if it is no text, {USE}"
        ) from error
    except (
        OSError, EOFError, KeyError, lzma.LZMAError, zlib.error, csv.Error, zipfile.BadZipFile,
        pd.errors.ParserError, pd.errors.ParserWarning,
    ) as error:  # fmt: skip
        what = re.sub(r".* fields in (line \d+), .*", rf"\1{LONG_LINE}", _one_line(error))
        what = f"a line{LONG_LINE}" if isinstance(error, pd.errors.ParserWarning) else what
        raise ValueError(f"{file.name!r} cannot be read as a table: {what}") from error


def _read_typed(
    file: Path, what: str, form: FileFormat, column_names: Sequence[str] | None
) -> pd.DataFrame:
    """A file whose cells have types, of which nothing is to be found out."""
    of_text = {"decimal": form.decimal, "text_encoding": form.text_encoding}
    for name, value in {"column_names": column_names, **of_text}.items():
        if value is not None:
            raise ValueError(f"{name} is for text files; {file.name!r}, of {what}, has its own")
    if what == "Excel" and find_spec("openpyxl") is None:
        raise ImportError(
            f"{file.name!r} is an Excel file, and openpyxl, which reads it, is not installed: "
            "pip install 'lexppl[excel]', or save it as .csv"
        )
    try:
        if what == "Excel":
            _refuse_large_book(file)
        excel: Any = partial(pd.read_excel, file)
        frame = _cells_of(excel, form.missing) if what == "Excel" else pd.read_parquet(file)
        if any(frame.index.names):
            # pandas writes a named index as a column.
            frame = frame.reset_index()
    except (ValueError, RuntimeError, zipfile.BadZipFile) as error:
        reason = f"{_one_line(error)}; {USE}"
        raise ValueError(f"{file.name!r} cannot be read as {what}: {reason}") from error
    # Cells may be numbers where the missing ones are given as words.
    numbers = pd.to_numeric(pd.Series(form.missing, dtype=object), errors="coerce").dropna()
    return frame.mask(frame.isin([*form.missing, *numbers])) if form.missing else frame


def _refuse_large_book(file: Path) -> None:
    """Refuse an Excel file whose parts, or whose sheets up to their last cell, need much: all that
    stands before it is read."""
    from openpyxl.utils import column_index_from_string  # noqa: PLC0415 - an extra

    with zipfile.ZipFile(file) as book:
        _refuse_large(file, sum(part.file_size for part in book.infolist()))
        for name in (name for name in book.namelist() if name.startswith("xl/worksheets/")):
            sheet = book.read(name)
            columns = {cell[1].decode() for cell in re.finditer(rb'\br="([A-Z]+)\d', sheet)}
            rows = (int(cell[1]) for cell in re.finditer(rb'\br="[A-Z]+(\d+)"', sheet))
            width = max(map(column_index_from_string, columns), default=0)
            _refuse_large(file, 8 * width * max(rows, default=0))


def _refuse_large(file: Path, needed: int) -> None:
    size = file.stat().st_size
    if file.is_file() and needed > max(LEAST_MOST, MOST_TIMES * size):
        raise ValueError(
            f"{file.name!r} has {size:,} bytes, and needs {needed:,} or more to be read: if it is "
            "to be trusted, write it as .csv, without compression"
        )


def _read_text(
    file: Path,
    kind: str,
    form: FileFormat,
    column_names: Sequence[str] | None,
    words: Sequence[str],
) -> pd.DataFrame:
    with get_handle(file, "rb", compression="infer", is_text=False) as opened:
        content = bytearray()
        for part in iter(partial(opened.handle.read, 2**24), b""):
            content += part
            _refuse_large(file, len(content))
    has_mark = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    letters = form.text_encoding or ("utf-16" if has_mark else "utf-8-sig")
    text = content.decode(letters, errors="ignore")
    if other := NO_TABLE.match(text):
        raise ValueError(
            f"{file.name!r} cannot be read as a table: it holds {other.lastgroup} content, and no "
            f"lines of cells; {USE}, or give text_encoding if it is in one such as 'utf-16-le'"
        )
    lines = [line for line in islice(StringIO(text, newline=""), MOST_LINES) if line.strip()]
    if not lines:
        raise ValueError(f"the table is empty: {file.name!r} holds nothing")
    separator = form.separator or ("\t" if kind != ".csv" else separator_of(lines, form.decimal))
    if '"' in text:
        check_quotes(text, separator, file.name)
    # pandas renames repeated columns, so the first line is read as cells before.
    cells = (
        lines[0].split()
        if separator == ANY_SPACE
        else next(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    )
    names = [str(name) for name in (cells if column_names is None else column_names)]
    shaped("column_names", names, (len(cells),), note=f"as the first line of {file.name!r}")
    if len(names) == 1 and any(other in names[0] for other in ",;\t|"):
        raise ValueError(
            f"{file.name!r} has the single column {names[0]!r}; its cells seem to be separated "
            f"by something else than {separator!r}: give separator"
        )
    unnamed_index = not names[0]
    check_columns(names[1:] if unnamed_index else names)
    with warnings.catch_warnings():
        # Of rows with more cells than there are names.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        how: dict[str, Any] = {"sep": separator, "decimal": form.decimal or ".", "names": names}
        how |= {"header": 0 if column_names is None else None, "index_col": False}
        how |= {"skipinitialspace": True, "encoding": letters}
        read: Any = partial(pd.read_csv, file, low_memory=False, **how)
        frame = _cells_of(read, form.missing, words)
        digits = read(nrows=MOST_CELLS, dtype=str)
    numbers = list(frame.select_dtypes("number"))
    padded = [name for name in numbers if digits[name].str.match(r"0\d").any()]
    if padded:
        warnings.warn(
            f"columns {quoted(padded, most=3)} have cells with leading zeros and are read as "
            "numbers: if they are codes, give categorical",
            stacklevel=2,
        )
    if unnamed_index:
        labels, frame = frame.iloc[:, 0], frame.iloc[:, 1:]
        if labels.dtype.kind == "f" or not labels.is_unique:
            raise ValueError(f"the first column of {file.name!r} has no name; give it one")
        if not any(np.array_equal(labels, labels.index + start) for start in (0, 1)):
            warnings.warn("the first column has no name: it is left out", stacklevel=2)
    # Names that are cells of their own column may be those of a first row.
    head = frame.head(MOST_CELLS).astype(str)
    among = [name for name in frame if column_names is None and (head[name] == name).any()]
    if len(among) > frame.shape[1] / 2:
        warnings.warn(
            f"columns {quoted(among, most=3)} have their names among their cells: if the first "
            "line is data already, give column_names",
            stacklevel=2,
        )
    return frame


def _cells_of(
    read: Callable[..., pd.DataFrame], missing: Sequence[str], known: Sequence[str] = ()
) -> pd.DataFrame:
    """A table by a function of pandas, where words that mean missing elsewhere, such as "None", are
    levels of columns of words, with a warning but for those that are known to hold words.

    `attrs[MISSING_WORDS]` has the counts of such words in the other columns.
    """
    states = "" in missing
    how: dict[str, Any] = {"keep_default_na": not states, "na_values": list(missing)}
    frame = read(dtype=dict.fromkeys(known, str), **how)
    gaps: list[Any] = [name for name in frame if frame[name].isna().any()]
    if states or not gaps:
        return frame
    how = {"keep_default_na": False, "na_values": ["", *missing]}
    written = read(dtype=str, usecols=lambda name: name in gaps, **how)
    levels: dict[str, pd.Series] = {}
    for name in gaps:
        cells, words = frame[name], written[name][frame[name].isna()].dropna()
        of_words = types.infer_dtype(cells) in ("string", "mixed", "mixed-integer")
        if name not in known and (not of_words or holds_dates(cells)):
            frame.attrs.setdefault(MISSING_WORDS, {})[str(name)] = words.value_counts().to_dict()
            continue
        frame[name] = cells.fillna(words)
        if name not in known and len(words):
            levels[str(name)] = words
    if levels:
        marks = pd.concat(levels.values()).unique()
        warnings.warn(
            f"{quoted(marks)} in {quoted_counts({n: len(w) for n, w in levels.items()})} may mean "
            f"missing, and is read as a level: if so, give missing=({marks[0]!r},), and "
            "missing=('',) if only an empty cell does",
            stacklevel=4,
        )
    return frame


def check_quotes(text: str, separator: str, file: str) -> None:
    """Refuse a quote that opens a cell which never ends, or ends lines later before other words;
    warn of one whose lines look like rows, and refuse it in the first line.

    The first of its lines and most others then have as many cells as lines without quotes have,
    each a number or a word that such lines have in its column, or any word if these are many.

    >>> check_quotes('size,y\\n5,"a\\n6,b"\\n7,"5"" pipe"', ",", "t.csv")
    >>> check_quotes('size,y\\n5,"a\\n6,b" c', ",", "t.csv")
    Traceback (most recent call last):
    ...
    ValueError: 't.csv': the cell that a quote opens in line 2 ends in line 3, before other words;
    leave the quote out, or write "5"" pipe" where 5" pipe is meant
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n") + "\n"
    sign = r"[ \t]" if separator == ANY_SPACE else re.escape(separator)
    closing = rf'("(?=[ \t]*(?:{sign}|$)))?'
    quoted = re.compile(rf'(?:^|{sign})[ \t]*"([^"]*(?:""[^"]*)*){closing}', re.MULTILINE)
    others = quoted.sub('"', text)
    if others.count("\n") == text.count("\n"):
        return

    def kinds(line: str) -> list[str | None]:
        cells = line.split(None if separator == ANY_SPACE else separator)
        return [cell.strip(NUMBER) if cell.strip() else None for cell in cells]

    first, *rows = map(kinds, re.findall(r'(?m)^[^"\n]+$', others)[:MOST_CELLS] or [""])
    known = [{*column} for column in zip(*(r for r in rows if len(r) == len(first)), strict=True)]

    def is_row(line: str) -> bool:
        return len(cells := kinds(line)) == len(known) and all(
            kind in column or len(column) > MOST_WORDS
            for kind, column in zip(cells, known, strict=True)
        )

    for cell in quoted.finditer(text):
        if "\n" not in cell[1]:
            continue
        start = text.rfind("\n", 0, cell.start(1)) + 1
        lines = text[start : text.find("\n", cell.end())].split("\n")
        begins, *later = map(is_row, lines)
        if cell[2] and (not (begins or start == 0) or 2 * sum(later) <= len(later)):
            continue
        line, last = (text.count("\n", 0, place) + 1 for place in cell.span(1))
        how = "and its lines look like rows" if cell[2] else "before other words"
        end = f"ends in line {last}, {how}" if cell.end() < len(text) else "never ends"
        message = (
            f"{file!r}: the cell that a quote opens in line {line} {end}; leave the quote out, or "
            'write "5"" pipe" where 5" pipe is meant'
        )
        if not cell[2] or start == 0:
            raise ValueError(message)
        warnings.warn(message, stacklevel=3)
        return


def separator_of(lines: Sequence[str], decimal: str | None) -> str:
    """The separator that gives each of a file's first lines as many cells, two or more, else the
    one that gives the first line the most; a comma where none divides it.

    >>> separator_of(["name;size", "a, b;1,5", "c;2,5"], ",")
    ';'
    """
    counts = {
        sign: [len(cells) for cells in csv.reader(lines, delimiter=sign)]
        for sign in (",", ";", "\t", "|")
        if sign != decimal
    }
    even = [sign for sign, widths in counts.items() if len(set(widths)) == 1 and widths[0] > 1]
    most = max(counts, key=lambda sign: counts[sign][0])
    return even[0] if even else most if counts[most][0] > 1 else ","


def table_stem(file: Path) -> str:
    """A file's name without the ending of its compression."""
    return file.stem if file.suffix.lower() in COMPRESSED else file.name


def table_name(file: Path) -> str:
    """A file's name without its endings."""
    return Path(table_stem(file)).stem


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def check_columns(names: list[str]) -> None:
    """Refuse columns of one name, or without a name."""
    try:
        refuse_repeated("columns' names", names)
    except ValueError as error:
        raise ValueError(f"{error} (if the first line is data, give column_names)") from error
    if "" in names:
        raise ValueError(f"column {names.index('') + 1} has no name")


def named_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """A table with the names of its columns as words."""
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"frame must be a pandas.DataFrame; it is a {type(frame).__name__}")
    return frame.set_axis([str(name) for name in frame.columns], axis=1)
