"""Images divided into parts, and pictures held in memory as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.data.images.dataset import MOST_BYTES, ImageDataset
from lexppl.summary import Summarised, Summary


@dataclass(frozen=True, eq=False, repr=False)
class DividedImages(Summarised):
    """Three parts of a set of images, which share none.

    Args:
        train: to fit on.
        valid: to choose the best epoch on, or ``None``.
        test: to judge.

    Raises:
        ValueError: parts of other classes or another shape.

    Example:
        >>> pixels = torch.zeros(8, 1, 2, 2, dtype=torch.uint8)
        >>> data = ImageDataset(pixels, torch.arange(8) % 2, ("a", "b"))
        >>> DividedImages(*data.split(0.5, 0.25, 0.25, seed=0))
        DividedImages 'images': 8 images
          parts   4 to fit on, 2 to choose the best epoch on, 2 to judge
          images  1 × 2 × 2, uint8, cpu
          y       class, 2 classes: a (2), b (2)
    """

    train: ImageDataset
    valid: ImageDataset | None
    test: ImageDataset

    def __post_init__(self) -> None:
        for name, part in (("valid", self.valid), ("test", self.test)):
            if part is None:
                continue
            for what in ("class_names", "event_shape"):
                here, there = getattr(self.train, what), getattr(part, what)
                if here != there:
                    raise ValueError(
                        f"{name} must have the {what} of train, {here}; it has {there}"
                    )

    def summarised(self) -> Summary:
        """The images to fit on, and how many there are of each part."""
        of_train = self.train.summarised()
        valid = 0 if self.valid is None else len(self.valid)
        parts = (
            f"{len(self.train):,} to fit on, {valid:,} to choose the best epoch on, "
            f"{len(self.test):,} to judge"
        )
        count = len(self.train) + valid + len(self.test)
        lines = {"parts": parts, **of_train.lines, "part": None}
        return Summary(f"DividedImages {self.train.name!r}: {count:,} images", lines)

    def to(self, device: torch.device | str) -> DividedImages:
        """Return the same images on ``device``."""
        valid = None if self.valid is None else self.valid.to(device)
        return DividedImages(self.train.to(device), valid, self.test.to(device))


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
