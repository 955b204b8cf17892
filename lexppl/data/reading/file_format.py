"""How a table's file is written: what parts its cells, decimals, letters, what is missing."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

ANY_SPACE = r"\s+"
SEPARATORS = (",", ";", "\t", "|")
"""Those that are looked for, the likeliest first."""
LINES = 20
"""Of a file that its separator is told by."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class FileFormat:
    """How the files of a table are written; what is ``None`` is found out from the file.

    Args:
        missing: further cells that mean "missing".
        separator: between cells: one character, or ``r"\\s+"`` for any white space.
        decimal: ``"."`` or ``","``; the first where ``None``.
        text_encoding: of letters, by a name that Python knows.

    Raises:
        ValueError: a separator, decimal sign or encoding of another form; one sign for both.

    Example:
        >>> FileFormat(separator=";", decimal=",").to_json()
        {'separator': ';', 'decimal': ','}
    """

    missing: tuple[str, ...] = ()
    separator: str | None = None
    decimal: str | None = None
    text_encoding: str | None = None

    def __post_init__(self) -> None:
        separator, decimal = self.separator, self.decimal
        if separator is not None and len(separator) != 1 and separator != ANY_SPACE:
            raise ValueError(
                f"separator must be one character, or r'\\s+' for any white space; it is "
                f"{separator!r}"
            )
        if decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be ',' or '.'; it is {decimal!r}")
        if decimal is not None and decimal == separator:
            raise ValueError(f"separator and decimal are both {decimal!r}; a file has two signs")
        if self.text_encoding is not None:
            try:
                codecs.lookup(self.text_encoding)
            except LookupError as error:
                raise ValueError(
                    f"text_encoding must be one that Python knows, such as 'utf-8', 'latin-1' or "
                    f"'cp1252'; it is {self.text_encoding!r}"
                ) from error

    @classmethod
    def given(cls, known: FileFormat | None, *, missing: Sequence[str], **settings: Any) -> Self:
        """Return the format with what was given, else as it is known from an earlier file.

        Raises:
            ValueError: as the class; ``missing`` that is one word.

        >>> FileFormat.given(FileFormat(decimal=","), missing=("?",), separator=";").decimal
        ','
        """
        if isinstance(missing, str):
            raise ValueError(
                f"missing must be a sequence of cells, as in ('?',); it is {missing!r}"
            )
        before = {} if known is None else asdict(known)
        told = {name: value for name, value in settings.items() if value is not None}
        if missing:
            told["missing"] = tuple(missing)
        return cls(**{**before, **told})

    def to_json(self) -> dict[str, Any]:
        """Return what is not found out from the file, as ``json.dumps`` accepts it."""
        given = {name: value for name, value in asdict(self).items() if value}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in given.items()}

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> Self:
        """Return the format that :meth:`to_json` described.

        >>> FileFormat.from_json({"missing": ["?"]}).missing
        ('?',)
        """
        return cls(**{**description, "missing": tuple(description.get("missing", ()))})


def encoding_by_mark(start: bytes) -> str:
    """The encoding that a byte-order mark tells; UTF-8 without one.

    >>> encoding_by_mark(b"name;age"), encoding_by_mark(codecs.BOM_UTF8 + b"name")
    ('utf-8', 'utf-8-sig')
    """
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")


def separator_of(lines: Sequence[str], decimal: str | None, otherwise: str) -> str:
    """What parts the cells of a file's first lines.

    It is the one that gives every line as many cells, two or more; of several the first of
    :data:`SEPARATORS`; of none the one that parts the first line into the most cells.

    Args:
        lines: the first, without line ends.
        decimal: the sign of decimals, which parts no cells.
        otherwise: what it is where none parts the first line.

    >>> separator_of(["name;size", "a, b;1,5", "c;2,5"], ",", ",")
    ';'
    """
    likely = [sign for sign in SEPARATORS if sign != decimal]
    counts = {sign: [len(cells) for cells in csv.reader(lines, delimiter=sign)] for sign in likely}
    even = [sign for sign in likely if len(set(counts[sign])) == 1 and counts[sign][0] > 1]
    if even:
        return even[0]
    most = max(likely, key=lambda sign: counts[sign][0] if counts[sign] else 0)
    return most if counts[most] and counts[most][0] > 1 else otherwise
