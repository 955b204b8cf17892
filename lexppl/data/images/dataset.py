"""Images and their labels, with the pixels that matter where they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d
from torch.utils.data import DataLoader

from lexppl.argument_checks import int_at_least
from lexppl.data.images.float_batches import as_floats, float_batches
from lexppl.data.labels import check_labels, labels_told, refuse_one_label, refuse_repeated
from lexppl.data.listing import listed
from lexppl.data.stratification import parts_by_fractions, some_of_each
from lexppl.summary import Summarised, Summary, counted

MOST_BYTES = 8 * 2**30
"""Of images that are held at once, as they are stored or as floats."""


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset(Summarised):
    """``N`` images of shape ``(C, H, W)`` and their classes.

    Pixels are kept as they are given. Of bytes (``torch.uint8``), ``x`` makes float32 in [0, 1] at
    its first use and keeps them: four times as many bytes, 376 MB for 60,000 of 28 × 56. It does so
    up to 8 GiB; :meth:`loader` makes floats batch by batch, of any number of images.

    Args:
        pixels: shape ``(N, C, H, W)``: ``torch.uint8`` from 0 to 255, or floating in [0, 1].
        y: classes ``0 … K-1``, shape ``(N,)``, ``torch.long``.
        class_names: ``K >= 2`` different names.
        truth: where it is known, the pixels that determine the label at most, ``(N, H, W)`` bool;
            or ``(N, H/p, W/p)`` of patches of p × p pixels.
        name: of the data set.
        target_name: of what the classes are, such as "digit".
        row_names: a name for each image, such as its file's, or ``None``.
        is_part: the images are a part of a larger set, so that a single class among them is no
            mistake.

    Raises:
        ValueError: no images, values outside [0, 1], NaN, lengths that differ, labels outside
            ``0 … K-1``, names that repeat, a truth of another shape; and, unless ``is_part``, a
            single class.
        TypeError: pixels, labels or a truth of another type.

    Example:
        >>> pixels = torch.zeros(3, 1, 4, 4, dtype=torch.uint8)
        >>> pixels[1:] = 255
        >>> data = ImageDataset(pixels, torch.tensor([0, 1, 1]), ("dark", "light"))
        >>> data
        ImageDataset 'images': 3 images
          images  1 × 4 × 4, uint8, cpu
          y       class, 2 classes: dark (1), light (2)
        >>> data.x.dtype, data.x[:, 0, 0, 0]
        (torch.float32, tensor([0., 1., 1.]))
    """

    pixels: Tensor
    y: Tensor
    class_names: tuple[str, ...]
    truth: Tensor | None = None
    name: str = "images"
    target_name: str = "class"
    row_names: tuple[str, ...] | None = None
    is_part: bool = False

    def __post_init__(self) -> None:
        _check_types(self)
        _check_shapes(self)
        refuse_repeated("class_names", self.class_names)
        _check_values(self.pixels)
        check_labels(self.y, self.class_names, self.target_name)
        if not self.is_part:
            refuse_one_label(self.y, self.class_names, self.target_name)

    def summarised(self) -> Summary:
        """What is in it, without its values."""
        shape = " × ".join(map(str, self.event_shape))
        patch = self.truth_patch
        lines = {
            "images": f"{shape}, {str(self.pixels.dtype).removeprefix('torch.')}, {self.y.device}",
            "y": labels_told(self.y, self.class_names, self.target_name),
            "truth": None if patch is None else f"known for each {_patch_told(patch)}",
            "part": "of a larger set" if self.is_part else None,
        }
        return Summary(f"ImageDataset {self.name!r}: {counted(len(self), 'image')}", lines)

    def __len__(self) -> int:
        """Return ``N``, the number of images."""
        return len(self.pixels)

    @property
    def event_shape(self) -> tuple[int, int, int]:
        """Return ``(C, H, W)``."""
        channels, height, width = self.pixels.shape[1:]
        return channels, height, width

    @property
    def n_classes(self) -> int:
        """Return the number of classes."""
        return len(self.class_names)

    @property
    def task(self) -> Literal["classification"]:
        """Return ``"classification"``."""
        return "classification"

    @property
    def truth_patch(self) -> int | None:
        """Return p where the truth is of patches of p × p pixels, ``None`` without a truth."""
        return None if self.truth is None else self.event_shape[1] // self.truth.shape[1]

    @cached_property
    def x(self) -> Tensor:
        """Return the images as floats in [0, 1], shape ``(N, C, H, W)``.

        Raises:
            ValueError: images whose floats would take more than 8 GiB.
        """
        if not self.pixels.is_floating_point() and 4 * self.pixels.numel() > MOST_BYTES:
            raise ValueError(
                f"as floats, {counted(len(self), 'image')} would take "
                f"{4 * self.pixels.numel() / 2**30:.0f} GiB of memory; make them batch by batch, "
                "with loader(batch_size), or take fewer, with take(rows, seed=0)"
            )
        return as_floats(self.pixels)

    def loader(
        self, batch_size: int = 64, *, shuffle: bool = False, seed: int = 0
    ) -> DataLoader[tuple[Tensor, Tensor]]:
        """Return batches ``(x, y)`` whose floats are made as they are asked for.

        Memory is that of the stored pixels and one batch of floats. A fit takes it as its rows.

        Args:
            batch_size: images of a batch.
            shuffle: go through them in a new random order each time.
            seed: of the orders; no global random state is touched.

        Raises:
            ValueError: a batch size below 1, a seed below 0.

        Example:
            >>> pixels = torch.arange(3, dtype=torch.uint8).reshape(3, 1, 1, 1)
            >>> data = ImageDataset(pixels, torch.tensor([0, 1, 1]), ("a", "b"))
            >>> [y.tolist() for x, y in data.loader(2)]
            [[0, 1], [1]]
        """
        return float_batches(self.pixels, self.y, batch_size, shuffle, seed)

    def entry_truth(self, patches: int = 1) -> Tensor:
        """Return the truth of mask entries that are patches of pixels.

        Entries go row by row over ``ceil(H/p) × ceil(W/p)`` patches; those at the lower and the
        right border are smaller where p does not divide the size. An entry is relevant where more
        than half of its pixels are.

        Args:
            patches: p, their side in pixels.

        Returns:
            ``(N, G)`` bool, as :func:`lexppl.evaluation.selection_scores` takes it.

        Raises:
            ValueError: no truth; patches that cut through those of which the truth is.

        Example:
            >>> truth = torch.tensor([[[1, 1, 0, 0], [1, 1, 0, 0]]]).bool()
            >>> data = ImageDataset(
            ...     torch.zeros(1, 1, 2, 4), torch.tensor([0]), ("a", "b"), truth, is_part=True)
            >>> data.entry_truth(patches=2)
            tensor([[ True, False]])
        """
        if self.truth is None or self.truth_patch is None:
            raise ValueError(f"{self.name!r} has no known truth")
        side = int_at_least("patches", patches)
        if side % self.truth_patch:
            raise ValueError(
                f"patches must be a multiple of {self.truth_patch}, as the truth of {self.name!r} "
                f"is of patches of {self.truth_patch} × {self.truth_patch} pixels; it is {patches}"
            )
        side //= self.truth_patch
        if side == 1:
            return self.truth.flatten(1)
        shares = avg_pool2d(self.truth.float().unsqueeze(1), side, ceil_mode=True)
        return (shares > 0.5).flatten(1)

    def subset(self, index: Tensor | Sequence[int] | slice) -> ImageDataset:
        """Return the images of ``index``: integers, a boolean mask of length ``N`` or a slice.

        Raises:
            ValueError: no image is chosen.
            IndexError: an image that is not there.
        """
        chosen = index if isinstance(index, slice) else torch.as_tensor(index).cpu()
        if isinstance(chosen, Tensor) and chosen.numel() == 0:
            chosen = slice(0)
        rows = torch.arange(len(self))[chosen].flatten()
        if rows.numel() == 0:
            raise ValueError("index must choose at least one image; it chooses none")
        there = rows.to(self.y.device)
        names = None
        if self.row_names is not None:
            names = tuple(self.row_names[row] for row in rows.tolist())
        return replace(
            self,
            pixels=self.pixels[there],
            y=self.y[there],
            truth=None if self.truth is None else self.truth[there],
            row_names=names,
            is_part=True,
        )

    def only(self, *classes: str | int) -> ImageDataset:
        """Return the images of some classes, which become classes 0, 1, … in the order given.

        Args:
            classes: two or more different ones, by name or by number.

        Raises:
            ValueError: fewer than two, one that is not there or that repeats, no image of any.

        Example:
            >>> data = ImageDataset(
            ...     torch.zeros(4, 1, 2, 2), torch.tensor([0, 1, 2, 2]), ("cat", "dog", "owl"))
            >>> pair = data.only("owl", "cat")
            >>> pair.class_names, pair.y
            (('owl', 'cat'), tensor([1, 0, 0]))
        """
        chosen = [self._place(one) for one in classes]
        names = tuple(self.class_names[place] for place in chosen)
        if len(chosen) < 2 or len(set(chosen)) < len(chosen):
            raise ValueError(f"give two or more different classes; these are {listed(names)}")
        wanted = torch.tensor(chosen, device=self.y.device)
        rows = torch.isin(self.y, wanted).nonzero().flatten()
        if len(rows) == 0:
            raise ValueError(f"{self.name!r} has no image of {listed(names)}")
        part = self.subset(rows)
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

    def split(self, *fractions: float, seed: int) -> tuple[ImageDataset, ...]:
        """Divide the images at random into parts of the given fractions, each class alike.

        Args:
            fractions: two or more positive numbers that sum to 1.
            seed: of the division, which is that of :meth:`lexppl.data.Dataset.split`.

        Raises:
            ValueError: fractions that are not positive or do not sum to 1, a part without images.
        """
        parts = parts_by_fractions(self._labels, fractions, seed)
        return tuple(self.subset(torch.from_numpy(part)) for part in parts)

    def take(self, rows: int, *, seed: int) -> ImageDataset:
        """Return at most so many images, drawn at random, one of each class among them.

        Images keep their order. Fewer than there are classes leave some out.

        Args:
            rows: most images.
            seed: of the draw; no global random state is touched.

        Raises:
            ValueError: fewer than one.
        """
        most = int_at_least("rows", rows)
        if len(self) <= most:
            return self
        generator = np.random.default_rng(int_at_least("seed", seed, 0))
        return self.subset(torch.from_numpy(np.sort(some_of_each(self._labels, most, generator))))

    @property
    def _labels(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        labels: np.ndarray[tuple[int], np.dtype[np.int64]] = self.y.cpu().numpy()
        return labels

    def to(self, device: torch.device | str) -> ImageDataset:
        """Return the same images on ``device``."""
        return replace(
            self,
            pixels=self.pixels.to(device),
            y=self.y.to(device),
            truth=None if self.truth is None else self.truth.to(device),
        )


def _patch_told(side: int) -> str:
    return "pixel" if side == 1 else f"patch of {side} × {side} pixels"


def _check_types(data: ImageDataset) -> None:
    for name in ("pixels", "y", "truth"):
        value = getattr(data, name)
        if not isinstance(value, Tensor) and not (name == "truth" and value is None):
            raise TypeError(f"{name} must be a torch.Tensor; it is a {type(value).__name__}")
    if data.pixels.dtype != torch.uint8 and not data.pixels.is_floating_point():
        raise TypeError(
            "pixels must be torch.uint8 (0 to 255) or floating (0 to 1); they are "
            f"{data.pixels.dtype}"
        )
    if data.truth is not None and data.truth.dtype != torch.bool:
        raise TypeError(f"truth must be torch.bool; it is {data.truth.dtype}")


def _check_shapes(data: ImageDataset) -> None:
    if data.pixels.ndim != 4 or data.pixels.numel() == 0:
        raise ValueError(
            "pixels must have shape (N, C, H, W), none of them 0 (one grey channel is C = 1); "
            f"they have shape {tuple(data.pixels.shape)}"
        )
    rows, _, height, width = data.pixels.shape
    if data.y.shape != (rows,):
        raise ValueError(
            f"y must have shape ({rows},), one label an image; it has {tuple(data.y.shape)}"
        )
    if data.row_names is not None and len(data.row_names) != rows:
        raise ValueError(
            f"row_names must have {rows} names, one an image; it has {len(data.row_names)}"
        )
    if data.truth is None:
        return
    shape = tuple(data.truth.shape)
    fits = len(shape) == 3 and shape[0] == rows and min(shape) > 0
    if not fits or height * shape[2] != width * shape[1] or height % shape[1]:
        raise ValueError(
            f"truth must have shape {(rows, height, width)}, or that of patches of p × p pixels "
            f"with p a divisor of {height} and {width}; it has {shape}"
        )


def _check_values(pixels: Tensor) -> None:
    if not pixels.is_floating_point():
        return
    broken = int((~pixels.isfinite()).sum())
    if broken:
        raise ValueError(f"pixels must be finite; {broken} of them are NaN or infinite")
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 1:
        raise ValueError(
            f"pixels must lie in [0, 1]; they lie in [{low:g}, {high:g}]: divide by the largest "
            "that may be, or give bytes as torch.uint8"
        )
