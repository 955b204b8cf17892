"""Outputs that are there in full or not at all: written aside, then renamed."""

import errno
import os
import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = (errno.ENOSPC, errno.EFBIG, *([errno.EDQUOT] if hasattr(errno, "EDQUOT") else []))
"""How a system says that there is no room."""


@contextmanager
def output_folder(
    target: str | Path, overwrite: bool = False, own: Collection[str] = ()
) -> Iterator[Path]:
    """A new folder beside the target, which takes the target's place at the end; removed on an
    error.

    Parents are made. A folder with files is replaced only with `overwrite` and where all its names
    are in `own`.
    """
    target = Path(target).expanduser().resolve()
    check_output_folder(target, overwrite, own)
    aside = _aside(target)
    made = _make_parents(target)
    try:
        with _naming(target):
            aside.mkdir()
        yield aside
        check_output_folder(target, overwrite, own)
        replace_folder(aside, target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        for folder in reversed(made):
            _remove_if_empty(folder)
        raise


@contextmanager
def output_file(target: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """A new file beside the target, which takes the target's place at the end."""
    check_output_file(target, overwrite)
    target = Path(target).expanduser().resolve()
    aside = _aside(target)
    made = _make_parents(target)
    try:
        with _naming(target):
            aside.touch(exist_ok=False)
        yield aside
        os.replace(aside, target)
    except BaseException:
        aside.unlink(missing_ok=True)
        for folder in reversed(made):
            _remove_if_empty(folder)
        raise


def write_through(path: Path, content: bytes | memoryview) -> None:
    """Write a file and wait until the disk has it; full disks report only then."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has a folder's names, where the system can."""
    if os.name != "posix":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


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
    target: str | Path, overwrite: bool = False, own: Collection[str] = ()
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
    foreign = [name for name in present if name not in own]
    if foreign:
        raise FileExistsError(
            f"folder {str(target)!r} holds {foreign[0]!r}, which this program did not write; "
            "give another --out"
        )


def _make_parents(target: Path) -> list[Path]:
    missing = [folder for folder in target.parents if not folder.exists()]
    made: list[Path] = []
    try:
        for folder in reversed(missing):
            with _naming(target):
                folder.mkdir()
            made.append(folder)
    except OSError:
        for folder in reversed(made):
            _remove_if_empty(folder)
        raise
    return made


@contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Name the output, not the folder aside, in an error."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"cannot be written: {reason}", str(target)) from error


def _aside(target: Path) -> Path:
    return target.parent / f".{target.name}-{uuid.uuid4().hex[:12]}.partial"


def replace_folder(aside: Path, target: Path) -> None:
    """Let a complete folder take a target's place; what was there is put back if that fails."""
    if not target.exists():
        aside.rename(target)
        return
    earlier = _aside(target)
    target.rename(earlier)
    try:
        aside.rename(target)
    except BaseException:
        earlier.rename(target)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
