"""Files written whole or not at all, and verified by checksum as they are read."""

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, AnyStr, NoReturn

FULL = (errno.ENOSPC, errno.EFBIG, *([errno.EDQUOT] if hasattr(errno, "EDQUOT") else []))
"""How a system says that there is no room."""
# Ends of names beside a target: what is being written, and what was there, as it is replaced.
PARTIAL, EARLIER, DIGITS = ".partial", ".earlier", 12


@contextmanager
def output_folder(
    target: str | Path, overwrite: bool = False, ours: Collection[str] = ()
) -> Iterator[Path]:
    """A new folder beside the target, which takes the target's place at the end; removed on an
    error.

    Parents are made. A folder with files is replaced only with `overwrite` and where all its names
    are in `ours`.
    """
    target = Path(target).expanduser().resolve()
    clear(target)
    check_output_folder(target, overwrite, ours)
    with _beside(target, Path.mkdir) as aside:
        yield aside
        put_folder(aside, target, partial(check_output_folder, target, overwrite, ours))


@contextmanager
def output_file(target: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """A new file beside the target, which takes the target's place when the disk has it."""
    check_output_file(target, overwrite)
    target = Path(target).expanduser().resolve()
    clear(target)
    with _beside(target, Path.touch) as aside:
        yield aside
        sync(aside)
        with nullcontext() if overwrite else held(target.parent, wait=True):
            check_output_file(target, overwrite)
            os.replace(aside, target)
        sync(target.parent)


@contextmanager
def _beside(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """A new file or folder beside the target; on an error it goes, with the parents made for it."""
    missing = [folder for folder in target.parents if not folder.exists()]
    aside = _aside(target)
    with ExitStack() as lock:
        try:
            with named(target, full_disk_alone=False):
                if missing:
                    missing[0].mkdir(parents=True, exist_ok=True)
                    for folder in missing:
                        sync(folder.parent)
                # By its last name once it is locked: others remove what no run holds.
                made = aside.with_suffix(".new")
                make(made)
                lock.enter_context(held(made))
                made.rename(aside)
            with named(target):
                yield aside
        except BaseException:
            remove(aside)
            for folder in missing:
                with suppress(OSError):
                    folder.rmdir()
            raise


def remove(path: Path) -> None:
    """Remove a file, or a folder with all in it, if it is there."""
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.unlink()


@contextmanager
def held(path: Path, wait: bool = False, needed: bool = False) -> Iterator[None]:
    """Hold a file or folder alone, until the process ends at most; where the system has no such
    locks without one, or with its error if the lock is needed.

    Raises:
        BlockingIOError: another process or thread holds it, and this one does not wait.
    """
    with ExitStack() as lock:
        try:
            import fcntl  # noqa: PLC0415

            opened = os.open(path, os.O_RDONLY)
            lock.callback(os.close, opened)
            fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if not os.path.samestat(os.fstat(opened), path.stat()):
                raise FileNotFoundError(path)
        except (BlockingIOError, FileNotFoundError) as error:
            message = "another process or thread writes there: wait for it, or give another path"
            raise BlockingIOError(errno.EAGAIN, message, str(path)) from error
        except (OSError, ImportError):
            if needed:
                raise
        yield


def clear(target: Path) -> None:
    """Remove what killed runs have left beside a target; put back what the last moved away."""
    # While none replaces it.
    with suppress(OSError, ImportError), held(target.parent, needed=True):
        for end in (EARLIER, PARTIAL):
            for left in target.parent.glob(f".{escape(target.name)}-{'?' * DIGITS}{end}"):
                with suppress(OSError), held(left, needed=True):
                    if end == EARLIER and not target.exists():
                        left.rename(target)
                    else:
                        remove(left)


def write_whole(target: str | Path, content: bytes | memoryview) -> None:
    """Write a file aside, and let it take the target's place."""
    with output_file(target, overwrite=True) as aside:
        aside.write_bytes(content)


def written_checksum(path: Path) -> str:
    """Wait until the disk has a file and its name; its SHA-256."""
    sync(path.parent)
    sync(path)
    return checksum(path)


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder, where the system can."""
    with suppress(OSError) if path.is_dir() else nullcontext(), ExitStack() as closed:
        opened = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
        closed.callback(os.close, opened)
        os.fsync(opened)


def refuse_without_space(target: str | Path, needed: int) -> None:
    """Refuse a place with fewer free bytes than needed, before any work."""
    target = Path(target).expanduser().resolve()
    place = next(folder for folder in (target, *target.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        message = (
            f"at least {needed / 1e6:.1f} MB are needed, and there are {free / 1e6:.1f} MB: make "
            "room, or give another place"
        )
        raise OSError(errno.ENOSPC, message, str(target))


def is_full_disk(error: BaseException) -> bool:
    """Whether an error reports that there is no more room."""
    return isinstance(error, OSError) and error.errno in FULL


def check_output_file(target: str | Path, overwrite: bool = False) -> None:
    """Refuse to replace a folder, or a file without `overwrite`."""
    target = Path(target).expanduser().resolve()
    if target.is_dir():
        raise FileExistsError(f"{str(target)!r} is a folder; give the name of a file")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{str(target)!r} exists; give --overwrite to replace it")


def check_output_folder(
    target: str | Path, overwrite: bool = False, ours: Collection[str] = ()
) -> None:
    """Refuse to replace a file, files without `overwrite`, or foreign files."""
    target = Path(target).expanduser().resolve()
    if not target.exists():
        return
    if not target.is_dir():
        raise FileExistsError(f"{str(target)!r} is a file; give the name of a folder")
    present = sorted(entry.name for entry in target.iterdir())
    if present and not overwrite:
        raise FileExistsError(
            f"folder {str(target)!r} is not empty; give --overwrite to replace what an earlier "
            "run left there, or another --out"
        )
    foreign = [name for name in present if name not in ours]
    if foreign:
        raise FileExistsError(
            f"folder {str(target)!r} holds {foreign[0]!r}, which this program did not write; "
            "give another --out"
        )


@contextmanager
def named(target: Path, full_disk_alone: bool = True) -> Iterator[None]:
    """Name the output in an error: in that of a full disk which names no file, or in any."""
    try:
        yield
    except OSError as error:
        if full_disk_alone and (error.filename is not None or not is_full_disk(error)):
            raise
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"cannot be written: {reason}", str(target)) from error


def _aside(target: Path) -> Path:
    return target.parent / f".{target.name}-{uuid.uuid4().hex[:DIGITS]}{PARTIAL}"


def put_folder(aside: Path, target: Path, check: Callable[[], object]) -> None:
    """Let a complete folder take a target's place, where `check` refuses nothing; what was there is
    put back if that fails, and goes when the disk has the new one."""
    for path in (*aside.rglob("*"), aside):
        sync(path)
    with held(target.parent, wait=True):
        check()
        earlier = _aside(target).with_suffix(EARLIER)
        if target.exists():
            target.rename(earlier)
        try:
            aside.rename(target)
        finally:
            if earlier.exists() and not target.exists():
                earlier.rename(target)
        sync(target.parent)
        remove(earlier)


SEAL = "sha256"  # The entry of a JSON file that has the checksum of its text
MOST_BYTES = 2**30  # Of a JSON file; the largest that are written have some megabytes
BLANK = "0" * 64
_LONGEST = 300


class UnreadableFileError(ValueError):
    """A file that is not what this library wrote: damaged, changed, of another version, or never
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
    # A hostile file may make any library below raise anything.
    except Exception as error:
        names_it = isinstance(error, OSError) and None not in (error.errno, error.filename)
        if names_it or isinstance(error, UnreadableFileError):
            raise
        raise UnreadableFileError(path, _reason_of(error)) from error


def checksum(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_of(content: bytes | memoryview) -> str:
    """The SHA-256 of bytes, as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def refuse_changed(path: str | os.PathLike[str], actual: str, written: Any) -> None:
    """Refuse a file whose checksum is another than when it was written."""
    if actual != written:
        raise UnreadableFileError(
            path,
            "its checksum is not the one it was written with, so it was damaged, cut short or "
            "changed, or belongs to another one; take it from a copy, or write it again",
        )


def refuse_other_format(
    path: str | os.PathLike[str], form: Any, known: int, by: Any = None
) -> None:
    """Refuse a file of another format than the one that is read, or of none.

    Example:
        >>> refuse_other_format("words.json", 3, 2)
        Traceback (most recent call last):
        ...
        lexppl.sealed_files.UnreadableFileError: words.json cannot be read: lexppl wrote it in
        format 3, and this version reads format 2: update lexppl, as by pip install --upgrade
        lexppl
    """
    if type(form) is not int or form < 1:
        raise UnreadableFileError(
            path,
            f"its format is {form!r}, and this version reads format {known}; it is another file, "
            "or was changed",
        )
    if form != known:
        name = "lexppl" if by is None else f"lexppl {by}"
        advice = "read it by the version that wrote it, or write it again"
        if form > known:
            advice = "update lexppl, as by pip install --upgrade lexppl"
        raise UnreadableFileError(
            path,
            f"{name} wrote it in format {form}, and this version reads format {known}: {advice}",
        )


def blank(description: Mapping[str, Any]) -> str:
    """JSON, without NaN, that ends in place of a checksum with 64 zeros."""
    if SEAL in description:
        raise ValueError(f"the description has an entry {SEAL!r} already, which is its checksum's")
    blank = {**description, SEAL: BLANK}
    text = json.dumps(blank, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        # Half a letter, as names from broken files have it, is no UTF-8.
        text = json.dumps(blank, indent=1, allow_nan=False) + "\n"
    return text


def sealed(description: Mapping[str, Any]) -> str:
    """JSON, without NaN, with the SHA-256 of its own text, as which 64 zeros stand meanwhile."""
    text = blank(description)
    return with_seal(text, BLANK, checksum_of(text.encode()))


def write_sealed(path: str | os.PathLike[str], description: Mapping[str, Any]) -> None:
    """Write :func:`sealed` JSON to a file, aside and then renamed."""
    write_whole(Path(path), sealed(description).encode())


def read_sealed(path: str | os.PathLike[str], form: int) -> dict[str, Any]:
    """A description that :func:`sealed` wrote, whose entry `format` is the one that is read."""
    path = Path(path)
    if path.stat().st_size > MOST_BYTES:
        raise UnreadableFileError(path, f"it has more than {MOST_BYTES:,} bytes")
    with refused_by_name(path):
        # Line ends may be another system's.
        text = path.read_text(encoding="utf-8")
        described, seal = description_and_seal(path, text, form)
        refuse_changed(path, checksum_of(with_seal(text, seal, BLANK).encode()), seal)
        return described


def description_and_seal(path: Path, text: str, form: int) -> tuple[dict[str, Any], str]:
    """A description whose entry `format` is the one that is read, and the checksum in it, which is
    yet to be compared."""
    described = _parsed(path, text)
    refuse_other_format(path, described.get("format"), form, described.get("version"))
    seal = described.pop(SEAL, None)
    if seal is None:
        raise ValueError("it has no checksum, which every file has: it was changed")
    if not (isinstance(seal, str) and len(seal) == len(BLANK) and seal.isalnum()):
        refuse_changed(path, "", seal)
    return described, seal


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        described = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise UnreadableFileError(path, f"it is not JSON ({error})") from error
    if not isinstance(described, dict):
        raise UnreadableFileError(path, "it holds no description, but a bare value")
    return described


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which no file of this library has")


def with_seal(content: AnyStr, old: AnyStr, new: AnyStr) -> AnyStr:
    """The text or bytes with another seal in place of the last one."""
    start, _, end = content.rpartition(old)
    return start + new + end


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
