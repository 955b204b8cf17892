"""Files that are read as they were written, or refused: checksums, which are no signatures."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lexppl.atomic_output import output_file, write_through

SEAL = "sha256"
"""The entry of a JSON file that has the checksum of its text."""
MOST_BYTES = 2**30
"""Of a JSON file; the largest that are written have some megabytes."""
_BLANK = "0" * 64
_LONGEST = 300


class UnreadableFileError(ValueError):
    """A file that is not what this library wrote: damaged, changed, of a newer version, or never
    its own. The message is one line, and names the file.

    Example:
        >>> print(UnreadableFileError("explainer.json", "it is empty"))
        explainer.json cannot be read: it is empty
    """

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = Path(path), _one_line(reason)

    def __str__(self) -> str:
        return f"{self.path} cannot be read: {self.reason}"


@contextmanager
def refused_by_name(path: str | os.PathLike[str]) -> Iterator[None]:
    """Any error inside is an :class:`UnreadableFileError` of the file, but for the system's own
    that name it."""
    try:
        yield
    except UnreadableFileError:
        raise
    except OSError as error:
        if error.errno is not None and error.filename is not None:
            raise
        raise UnreadableFileError(path, _reason_of(error)) from error
    except Exception as error:
        # A hostile file may make any library below raise anything.
        raise UnreadableFileError(path, _reason_of(error)) from error


def checksum(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_of(content: bytes | memoryview) -> str:
    """The SHA-256 of bytes, as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def refuse_changed(path: str | os.PathLike[str], found: str, written: Any) -> None:
    """Refuse a file whose checksum is another than when it was written."""
    if found != written:
        raise UnreadableFileError(
            path,
            "its checksum is not the one it was written with, so it was damaged, cut short or "
            "changed, or belongs to another one; take it from a copy, or write it again",
        )


def refuse_formats(
    path: str | os.PathLike[str], form: Any, newest: int, is_whole: bool, by: Any = None
) -> None:
    """Refuse a file of a format newer than `newest`, of none, or of the newest without a checksum.

    Example:
        >>> refuse_formats("words.json", 3, 2, True)
        Traceback (most recent call last):
        ...
        lexppl.sealed_files.UnreadableFileError: words.json cannot be read: lexppl wrote it in
        format 3, and this version reads the formats up to 2: update lexppl, as by pip install
        --upgrade lexppl
    """
    if type(form) is not int or form < 1:
        raise UnreadableFileError(
            path,
            f"its format is {form!r}, none of 1 to {newest}, which this version reads; it is "
            "another file, or was changed",
        )
    if form > newest:
        name = "lexppl" if by is None else f"lexppl {by}"
        raise UnreadableFileError(
            path,
            f"{name} wrote it in format {form}, and this version reads the formats up to {newest}: "
            "update lexppl, as by pip install --upgrade lexppl",
        )
    if form == newest and not is_whole:
        raise UnreadableFileError(
            path, "it has no checksum, which every file of its format has: it was changed"
        )


def sealed(description: Mapping[str, Any], indent: int | None = 1) -> str:
    """JSON, without NaN, with the SHA-256 of its own text, as which 64 zeros stand meanwhile."""
    if SEAL in description:
        raise ValueError(f"the description has an entry {SEAL!r} already, which is its checksum's")
    blank = {**description, SEAL: _BLANK}
    text = json.dumps(blank, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        # Half a letter, as names from broken files have it, is no UTF-8.
        text = json.dumps(blank, indent=indent, allow_nan=False) + "\n"
    return _with_seal(text, _BLANK, checksum_of(text.encode()))


def write_sealed(path: str | os.PathLike[str], description: Mapping[str, Any]) -> None:
    """Write :func:`sealed` JSON to a file, aside and then renamed."""
    text = sealed(description)
    with output_file(Path(path), overwrite=True) as written:
        write_through(written, text.encode())


def read_sealed(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bool]:
    """A description of :func:`sealed`, and whether it was sealed; older files have no seal."""
    path = Path(path)
    if path.stat().st_size > MOST_BYTES:
        raise UnreadableFileError(path, f"it has more than {MOST_BYTES:,} bytes")
    with refused_by_name(path):
        # Line ends may be another system's.
        text = path.read_text(encoding="utf-8")
        described = _parsed(path, text)
        seal = described.pop(SEAL, None)
        if seal is not None:
            is_seal = isinstance(seal, str) and len(seal) == len(_BLANK) and seal.isalnum()
            blank = _with_seal(text, seal, _BLANK) if is_seal else ""
            refuse_changed(path, checksum_of(blank.encode()) if is_seal else "", seal)
        return described, seal is not None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        described = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise UnreadableFileError(path, f"it is not JSON ({error})") from error
    except RecursionError as error:
        raise UnreadableFileError(path, "it is nested too deep") from error
    if not isinstance(described, dict):
        raise UnreadableFileError(path, "it holds no description, but a bare value")
    return described


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}, which no file of this library has")


def _with_seal(text: str, old: str, new: str) -> str:
    """The text with another seal in place of the last one."""
    start, _, end = text.rpartition(f'"{old}"')
    return f'{start}"{new}"{end}'


def _reason_of(error: Exception) -> str:
    """Another library's error message, or its kind."""
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, MemoryError):
        return "it asks for more memory than there is"
    has_words = isinstance(error, ValueError | TypeError) and str(error)
    return str(error) if has_words else f"{type(error).__name__}: {error}"


def _one_line(message: str) -> str:
    words = " ".join(message.split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
