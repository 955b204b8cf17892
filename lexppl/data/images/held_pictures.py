"""Many pictures of one size in one array, within a bound of memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.data.images.dataset import MOST_BYTES


def refuse_too_many(count: int, shape: Sequence[int]) -> None:
    """Refuse pictures that would take more memory than 8 GiB as bytes, before they are read.

    Args:
        count: how many there are.
        shape: of one.

    Raises:
        ValueError: too many.

    Example:
        >>> refuse_too_many(10_000_000, (3, 128, 128))
        Traceback (most recent call last):
        ValueError: 10,000,000 images of 3 × 128 × 128 would take 458 GiB of memory; give rows=
        with at most 174,762
    """
    size = prod(shape)
    if count * size > MOST_BYTES:
        raise ValueError(
            f"{count:,} images of {' × '.join(map(str, shape))} would take "
            f"{count * size / 2**30:.0f} GiB of memory; give rows= with at most "
            f"{MOST_BYTES // size:,}"
        )


def held(pictures: Iterable[NDArray[np.uint8]], files: Sequence[Path], hint: str) -> Tensor:
    """Put pictures into one array, one after the other.

    Args:
        pictures: each ``(C, H, W)``, as many as files.
        files: their files, at least one.
        hint: what mends pictures of different shapes.

    Returns:
        ``(N, C, H, W)``, ``torch.uint8``.

    Raises:
        ValueError: pictures of different shapes, more than 8 GiB of them.
    """
    values: Tensor | None = None
    for place, (picture, file) in enumerate(zip(pictures, files, strict=True)):
        if values is None:
            refuse_too_many(len(files), picture.shape)
            values = torch.empty(len(files), *picture.shape, dtype=torch.uint8)
        if picture.shape != values.shape[1:]:
            raise ValueError(
                f"{str(file)!r} is {_told(picture.shape)} and {str(files[0])!r} is "
                f"{_told(values.shape[1:])}; {hint}"
            )
        values[place] = torch.from_numpy(picture)
    if values is None:
        raise ValueError("there are no pictures")
    return values


def _told(shape: Sequence[int]) -> str:
    channels, height, width = shape
    return f"{height} × {width} pixels {'in grey' if channels == 1 else 'in colour'}"
