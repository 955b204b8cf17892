"""Images to fit on, to choose the best epoch on, and to judge."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lexppl.data.images.dataset import ImageDataset
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
