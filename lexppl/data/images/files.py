"""Files of images: those that a set needs, and a picture's numbers."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


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


GREY = ("1", "L")
COLOUR = ("RGB", "P", "CMYK", "YCbCr")
SEE_THROUGH = ("RGBA", "LA", "PA")
"""Pillow's names of what a file has."""


def read_picture(
    file: Path, size: tuple[int, int] | None = None, grayscale: bool | None = None
) -> NDArray[np.uint8]:
    """Read one picture, turned as a viewer shows it.

    Args:
        file: in a format that Pillow reads.
        size: height and width to which it is brought: scaled until it covers them, its middle
            kept. ``None`` leaves it as it is.
        grayscale: one channel, or three; as the file has it where ``None``.

    Returns:
        ``(C, H, W)`` bytes, C one or three.

    Raises:
        ValueError: a file that is no picture or broken, more than 8 bits a channel, pixels that
            are see-through.
    """
    # Pillow is not needed before there is a picture.
    from PIL import Image, ImageOps, UnidentifiedImageError  # noqa: PLC0415

    try:
        with Image.open(file) as opened:
            picture: Image.Image = ImageOps.exif_transpose(opened)
            picture.load()
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{str(file)!r} cannot be read as a picture: {error}") from error
    mode = picture.mode
    if mode in SEE_THROUGH or "transparency" in picture.info:
        alpha = np.asarray(picture.convert("RGBA"))[..., 3]
        if alpha.min() < 255:
            raise ValueError(
                f"{str(file)!r} has pixels that are see-through; save it on a background"
            )
    elif mode not in (*GREY, *COLOUR):
        raise ValueError(
            f"{str(file)!r} has pixels of kind {mode!r}; save it with 8 bits a channel, in grey "
            "or in colour"
        )
    grey = mode in (*GREY, "LA") if grayscale is None else grayscale
    picture = picture.convert("L" if grey else "RGB")
    if size is not None:
        picture = ImageOps.fit(picture, (size[1], size[0]), method=Image.Resampling.BILINEAR)
    values = np.array(picture, dtype=np.uint8)
    return values[None] if grey else np.ascontiguousarray(values.transpose(2, 0, 1))
