"""Images of classes, with the pixels that matter where they are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lexppl.data.checks import check_labels, check_tensors, label_counts, listed, part_counts
from lexppl.data.stratification import Divisible
from lexppl.summary import Summarised, Summary, counted


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset(Divisible, Summarised):
    """``N`` images of shape ``(C, H, W)`` and their classes.

    Args:
        pixels: shape ``(N, C, H, W)``: ``torch.uint8`` from 0 to 255, of which ``x`` makes float32
            in [0, 1] at its first use, or floating in [0, 1].
        y: classes ``0 … K-1``, shape ``(N,)``, ``torch.long``.
        class_names: ``K >= 2`` different names.
        truth: where it is known, the pixels that determine the label at most, ``(N, H, W)`` bool.
        target_name: of what the classes are, such as "digit".
        row_names: a name for each image, such as its file's, or ``None``.
        is_part: the images are a part of a larger set, so that a single class is no mistake.

    Raises:
        ValueError: no images, values outside [0, 1], NaN, lengths that differ, labels outside
            ``0 … K-1``, names that repeat, a truth of another shape; and, unless ``is_part``, a
            single class.
        TypeError: pixels, labels or a truth of another type.

    Example:
        >>> pixels = torch.zeros(3, 1, 4, 4, dtype=torch.uint8)
        >>> ImageDataset(pixels, torch.tensor([0, 1, 1]), ("dark", "light"))
        ImageDataset 'images': 3 images
          images  1 × 4 × 4, uint8, cpu
          y       class, 2 classes: dark (1), light (2)
    """

    by_row: ClassVar[tuple[str, ...]] = ("pixels", "y", "truth", "row_names")

    pixels: Tensor
    y: Tensor
    class_names: tuple[str, ...]
    truth: Tensor | None = None
    name: str = "images"
    target_name: str = "class"
    row_names: tuple[str, ...] | None = None
    is_part: bool = False

    def __post_init__(self) -> None:
        check_tensors(self, ("pixels", "y"), ("truth",))
        _check_pixels(self)
        check_labels(self.y, self.class_names, self.target_name, self.is_part)

    def summarised(self) -> Summary:
        """What is in it, without its values."""
        shape = " × ".join(map(str, self.event_shape))
        lines = {
            "images": f"{shape}, {str(self.pixels.dtype).removeprefix('torch.')}, {self.y.device}",
            "y": label_counts(self.y, self.class_names, self.target_name),
            "truth": None if self.truth is None else "known for each pixel",
            "part": "of a larger set" if self.is_part else None,
        }
        return Summary(f"ImageDataset {self.name!r}: {counted(len(self), 'image')}", lines)

    @property
    def event_shape(self) -> tuple[int, int, int]:
        """Shape of an image, ``(C, H, W)``."""
        channels, height, width = self.pixels.shape[1:]
        return channels, height, width

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def task(self) -> Literal["classification"]:
        """The kind of y: always ``"classification"``."""
        return "classification"

    @cached_property
    def x(self) -> Tensor:
        """The images as floats in [0, 1], shape ``(N, C, H, W)``."""
        whole = self.pixels.is_floating_point()
        return self.pixels if whole else self.pixels.to(torch.float32).div_(255)

    def only(self, *classes: str | int) -> ImageDataset:
        """The images of two or more classes, by name or number, as classes 0, 1, … in the order
        given.

        Raises:
            ValueError: fewer than two, one that is not there or that repeats, no image of any.

        Example:
            >>> data = ImageDataset(
            ...     torch.zeros(4, 1, 2, 2), torch.tensor([0, 1, 2, 2]), ("cat", "dog", "owl"))
            >>> data.only("owl", "cat").y
            tensor([1, 0, 0])
        """
        chosen = [self._place(one) for one in classes]
        names = tuple(self.class_names[place] for place in chosen)
        if len(chosen) < 2 or len(set(chosen)) < len(chosen):
            raise ValueError(f"give two or more different classes; these are {listed(names)}")
        wanted = torch.tensor(chosen, device=self.y.device)
        part = self.subset(torch.isin(self.y, wanted))
        y = (part.y.unsqueeze(1) == wanted).long().argmax(1)
        name = f"{self.name} {', '.join(names)}"
        return replace(part, y=y, class_names=names, name=name, is_part=self.is_part)

    def _place(self, one: str | int) -> int:
        if one in self.class_names:
            return self.class_names.index(str(one))
        if isinstance(one, Integral) and 0 <= one < self.n_classes:
            return int(one)
        raise ValueError(
            f"{self.name!r} has no class {one!r}; it has {listed(self.class_names, most=20)}"
        )


def _check_pixels(data: ImageDataset) -> None:
    pixels, truth = data.pixels, data.truth
    if pixels.dtype != torch.uint8 and not pixels.is_floating_point():
        raise TypeError(
            f"pixels must be torch.uint8 (0 to 255) or floating (0 to 1); they are {pixels.dtype}"
        )
    if pixels.ndim != 4 or pixels.numel() == 0:
        raise ValueError(
            "pixels must have shape (N, C, H, W), none of them 0 (one grey channel is C = 1); "
            f"they have shape {tuple(pixels.shape)}"
        )
    rows, _, height, width = pixels.shape
    if data.y.shape != (rows,):
        raise ValueError(
            f"y must have shape ({rows},), one label an image; it has {tuple(data.y.shape)}"
        )
    if data.row_names is not None and len(data.row_names) != rows:
        raise ValueError(
            f"row_names must have {rows} names, one an image; it has {len(data.row_names)}"
        )
    if truth is not None and (truth.dtype != torch.bool or truth.shape != (rows, height, width)):
        raise ValueError(
            f"truth must be torch.bool of shape {(rows, height, width)}; it is {truth.dtype} of "
            f"shape {tuple(truth.shape)}"
        )
    low, high = float(pixels.min()), float(pixels.max())
    if pixels.is_floating_point() and not (low >= 0 and high <= 1):
        raise ValueError(
            f"pixels must lie in [0, 1]; they lie in [{low:g}, {high:g}]: divide by the largest "
            "that may be, or give bytes as torch.uint8"
        )


@dataclass(frozen=True, eq=False, repr=False)
class DividedImages(Summarised):
    """Three parts of a set of images, which share none: to fit on, to choose the best epoch on (or
    ``None``), and to judge.

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
            for what in () if part is None else ("class_names", "event_shape"):
                here, there = getattr(self.train, what), getattr(part, what)
                if here != there:
                    raise ValueError(
                        f"{name} must have the {what} of train, {here}; it has {there}"
                    )

    def summarised(self) -> Summary:
        """The images to fit on, and how many there are of each part."""
        valid = 0 if self.valid is None else len(self.valid)
        counts = (len(self.train), valid, len(self.test))
        lines = {"parts": part_counts(*counts), **self.train.summarised().lines, "part": None}
        return Summary(f"DividedImages {self.train.name!r}: {sum(counts):,} images", lines)

    def to(self, device: torch.device | str) -> DividedImages:
        """The same images on ``device``."""
        return self._each(lambda part: part.to(device))

    def take(self, rows: int, *, seed: int) -> DividedImages:
        """At most so many images of each part, as :meth:`ImageDataset.take`."""
        return self._each(lambda part: part.take(rows, seed=seed))

    def _each(self, change: Callable[[ImageDataset], ImageDataset]) -> DividedImages:
        valid = None if self.valid is None else change(self.valid)
        return DividedImages(change(self.train), valid, change(self.test))
