"""Files that a data set needs under its root, found or asked for."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path


def folder_of(root: str | Path) -> Path:
    """The root as a folder that is there.

    Args:
        root: as the user wrote it; ``~`` is the user's own folder.

    Raises:
        ValueError: no such folder.

    Example:
        >>> folder_of("/no/such/place")
        Traceback (most recent call last):
        ValueError: root must be a folder that is there; it is '/no/such/place'
    """
    if isinstance(root, str | PathLike):
        folder = Path(root).expanduser()
        if folder.is_dir():
            return folder
    given = str(root) if isinstance(root, PathLike) else root
    raise ValueError(f"root must be a folder that is there; it is {given!r}")


def needed_file(file: Path, source: str, *others: Path) -> Path:
    """The first of some files that is there.

    Args:
        file: as it should be, which the message names.
        source: where to get it.
        others: other places and forms of it.

    Raises:
        ValueError: none is there.
    """
    for one in (file, *others):
        if one.is_file():
            return one
    nor = "".join(f" nor {str(one)!r}" for one in others)
    raise ValueError(f"there is no file {str(file)!r}{nor}; get it from {source}")


def downloaded(name: str, load: Callable[[], object], source: str) -> None:
    """Let a library download a data set.

    Args:
        name: of the data set.
        load: that does it.
        source: where it may be got by hand.

    Raises:
        ValueError: it could not, in one line.
    """
    try:
        load()
    except (RuntimeError, OSError, ImportError) as error:
        said = " ".join(str(error).split())
        raise ValueError(
            f"{name} could not be downloaded ({said[:200]}); get it by hand from {source}"
        ) from error
