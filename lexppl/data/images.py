"""Images of classes, with the pixels that matter where they are known, and folders of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from numbers import Integral
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import folder_of, fraction, int_at_least, quoted, shaped
from lexppl.data.rows import Divisible
from lexppl.data.stratification import at_most, part_counts
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
    task: ClassVar[Literal["classification"]] = "classification"

    pixels: Tensor
    y: Tensor
    class_names: tuple[str, ...]
    truth: Tensor | None = None
    name: str = "images"
    target_name: str = "class"
    row_names: tuple[str, ...] | None = None
    is_part: bool = False

    def __post_init__(self) -> None:
        self._check_tensors(("pixels", "y"), ("truth",))
        _check_pixels(self)
        self._check_labels()

    def summarised(self) -> Summary:
        """What is in it, without its values."""
        shape = " × ".join(map(str, self.event_shape))
        lines = {
            "images": f"{shape}, {str(self.pixels.dtype).removeprefix('torch.')}, {self.y.device}",
            "y": self._label_counts(),
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
        chosen = [self._place(label) for label in classes]
        names = tuple(self.class_names[place] for place in chosen)
        if len(chosen) < 2 or len(set(chosen)) < len(chosen):
            raise ValueError(f"give two or more different classes; these are {quoted(names)}")
        wanted = torch.tensor(chosen, device=self.y.device)
        part = self.subset(torch.isin(self.y, wanted))
        y = (part.y.unsqueeze(1) == wanted).long().argmax(1)
        name = f"{self.name} {', '.join(names)}"
        return replace(part, y=y, class_names=names, name=name, is_part=self.is_part)

    def _place(self, label: str | int) -> int:
        if label in self.class_names:
            return self.class_names.index(str(label))
        if isinstance(label, Integral) and 0 <= label < self.n_classes:
            return int(label)
        raise ValueError(
            f"{self.name!r} has no class {label!r}; it has {quoted(self.class_names, most=20)}"
        )


def _check_pixels(data: ImageDataset) -> None:
    pixels, truth = data.pixels, data.truth
    if pixels.dtype != torch.uint8 and not pixels.is_floating_point():
        raise TypeError(
            f"pixels must be torch.uint8 (0 to 255) or floating (0 to 1); they are {pixels.dtype}"
        )
    rows, _, height, width = shaped("pixels", pixels, "N C H W", filled=True)
    shaped("y", data.y, (rows,))
    if data.row_names is not None:
        shaped("row_names", data.row_names, (rows,))
    if truth is not None:
        shaped("truth", truth, (rows, height, width))
        if truth.dtype != torch.bool:
            raise ValueError(f"truth must be torch.bool; it is {truth.dtype}")
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
                    raise ValueError(f"{name} must have train's {what}, {here}; it has {there}")

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


Size = int | tuple[int, int] | None

# What the folders of the parts may be called.
PART_NAMES: Mapping[str, str] = MappingProxyType(
    {"train": "train", "training": "train", "test": "test"}
    | dict.fromkeys(("val", "valid", "validation"), "valid")
)


def read_picture(
    file: Path, size: tuple[int, int] | None = None, grayscale: bool | None = None
) -> NDArray[np.uint8]:
    """One picture, turned as a viewer shows it: bytes ``(C, H, W)``, C one or three; scaled
    until it covers a size (H, W), its middle kept."""
    # Pillow is not needed before there is a picture.
    from PIL import Image, ImageOps  # noqa: PLC0415

    try:
        with Image.open(file) as opened:
            picture: Image.Image = ImageOps.exif_transpose(opened)
            picture.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{str(file)!r} cannot be read as a picture: {error}") from error
    mode, clear = picture.mode, picture.has_transparency_data
    if clear and np.asarray(picture.convert("RGBA"))[..., 3].min() < 255:
        raise ValueError(f"{str(file)!r} has pixels that are see-through; save it on a background")
    if not clear and mode not in ("1", "L", "RGB", "P", "CMYK", "YCbCr"):
        raise ValueError(
            f"{str(file)!r} has pixels of kind {mode!r}; save it with 8 bits a channel, in grey "
            "or in colour"
        )
    grey = mode in ("1", "L", "LA") if grayscale is None else grayscale
    picture = picture.convert("L" if grey else "RGB")
    if size is not None:
        picture = ImageOps.fit(picture, (size[1], size[0]), method=Image.Resampling.BILINEAR)
    values = np.array(picture, dtype=np.uint8)
    return values[None] if grey else values.transpose(2, 0, 1)


def image_folder(
    path: str | Path,
    *,
    size: Size = None,
    grayscale: bool | None = None,
    rows: int | None = None,
    seed: int = 0,
    class_names: Sequence[str] | None = None,
) -> ImageDataset:
    """Read a folder that has a folder of images for each class, in alphabetical order.

    Names that begin with a dot are left out, and files that are no images with a warning.

    Args:
        size: H and W, or one number for a square; ``None`` where all images have one size.
        grayscale: one channel, or three; as the files have it where ``None``.
        rows: read at most so many, drawn at random, one of each class among them; all if ``None``.
        class_names: of a part of a larger set, some of whose classes may have no images here.
    """
    folder = folder_of(path)
    names, is_part = class_names or _class_names(folder), class_names is not None
    files, labels = _files(folder, names)
    empty = [name for place, name in enumerate(names) if place not in labels]
    if not files or (empty and not is_part):
        raise ValueError(f"{str(folder)!r} has no images of class {quoted(empty)}")
    chosen = at_most(labels, rows, seed)
    files = [files[place] for place in chosen]
    sides = (size, size) if isinstance(size, int) else size
    if sides is not None and len(sides) != 2:
        raise ValueError(f"size must be one number, or height and width; it is {size!r}")
    if sides is not None:
        sides = (int_at_least("size", sides[0]), int_at_least("size", sides[1]))
    pictures = []
    for file in files:
        pictures.append(read_picture(file, sides, grayscale))
        if pictures[-1].shape != pictures[0].shape:
            here, there = (
                f"{shape[1]} × {shape[2]} pixels {'in grey' if shape[0] == 1 else 'in colour'}"
                for shape in (pictures[-1].shape, pictures[0].shape)
            )
            raise ValueError(
                f"{str(file)!r} is {here} and {str(files[0])!r} is {there}; give size= and "
                "grayscale= to bring them to one"
            )
    return ImageDataset(
        torch.from_numpy(np.stack(pictures)),
        torch.from_numpy(labels[chosen]),
        tuple(names),
        name=folder.resolve().name,
        row_names=tuple(file.relative_to(folder).as_posix() for file in files),
        is_part=is_part,
    )


def divided_folder(
    path: str | Path,
    *,
    size: Size = None,
    grayscale: bool | None = None,
    rows: int | None = None,
    valid_share: float | None = 0.2,
    test_share: float = 0.2,
    seed: int = 0,
) -> DividedImages:
    """Read a folder of images with its parts, or divide one that has none.

    Parts are folders called train, val (or valid, validation) and test, each with a folder for
    each class, those of train. A part that has no folder is drawn from train at random, each class
    alike.

    Args:
        path: the folder, of parts or of classes.
        size: height and width to which every image is brought, one number for a square: it is
            scaled until it covers them, and its middle kept. ``None`` where all have one size.
        grayscale: one channel, or three; as the files have it where ``None``.
        rows: most images of each folder that is read, drawn at random.
        valid_share, test_share: shares of the images on which the best epoch is chosen (``None``
            for none), and to judge, where no folder has them.
        seed: of the division.

    Raises:
        ValueError: fewer than two classes, a class without images or that train has not; images of
            different sizes, in grey and in colour together, with more than 8 bits a channel,
            see-through or broken, by name; parts without train.
    """
    folder = folder_of(path)
    parts = _parts_in(folder) or {"train": "."}
    if "train" not in parts:
        raise ValueError(f"{str(folder)!r} has {quoted(parts.values())} and no folder 'train'")
    names = _class_names(folder / parts["train"])
    read: dict[str, ImageDataset] = {}
    for part, below in parts.items():
        others = sorted(set(_subfolders(folder / below)) - set(names))
        if others:
            raise ValueError(
                f"{str(folder / below)!r} has the class {others[0]!r}, not in {parts['train']!r}"
            )
        images = image_folder(
            folder / below,
            size=size,
            grayscale=grayscale,
            rows=rows,
            seed=seed,
            class_names=None if part == "train" else names,
        )
        read[part] = replace(images, name=folder.resolve().name)
    valid = "valid" not in read and valid_share is not None
    wanted = fraction("valid_share", valid_share) if valid else 0.0
    judged = 0.0 if "test" in read else fraction("test_share", test_share)
    if wanted + judged >= 1:
        raise ValueError(
            "valid_share and test_share must leave images to fit on; together they are "
            f"{wanted + judged:g}"
        )
    if judged:
        read["train"], read["test"] = read["train"].split(1 - judged, judged, seed=seed)
    if wanted:
        share = wanted / (1 - judged)
        read["train"], read["valid"] = read["train"].split(1 - share, share, seed=seed)
    return DividedImages(read["train"], read.get("valid"), read["test"])


def _files(folder: Path, names: Sequence[str]) -> tuple[list[Path], NDArray[np.int64]]:
    """Images and the places of their classes, by class and name."""
    there = {name: place for place, name in enumerate(names) if (folder / name).is_dir()}
    # torchvision takes a second to import, and only a folder that is read needs it.
    kinds = import_module("torchvision.datasets.folder")
    images = kinds.make_dataset(
        str(folder), there, extensions=kinds.IMG_EXTENSIONS, allow_empty=True
    )
    labels = {Path(file): int(label) for file, label in images}
    every = [file for name in there for file in sorted((folder / name).rglob("*"))]
    shown = [
        file
        for file in every
        if file.is_file() and not any(p.startswith(".") for p in file.relative_to(folder).parts)
    ]
    others = [file for file in shown if file not in labels]
    if others:
        warnings.warn(
            f"{len(others):,} files in {str(folder)!r} are no images that can be read and are left "
            f"out, such as {others[0].relative_to(folder).as_posix()!r}",
            UserWarning,
            stacklevel=4,
        )
    files = [file for file in labels if file in set(shown)]
    return files, np.array([labels[file] for file in files], dtype=np.int64)


def _subfolders(folder: Path) -> list[str]:
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    return [name for name in names if not name.startswith((".", "__MACOSX"))]


def _class_names(folder: Path) -> list[str]:
    if parts := _parts_in(folder):
        raise ValueError(
            f"{str(folder)!r} has the folders {quoted(parts.values())}, which are parts and no "
            "classes; read all with divided_folder, or one of them by its own path"
        )
    names = _subfolders(folder)
    if len(names) < 2:
        raise ValueError(
            f"{str(folder)!r} must have a folder of images for each of two or more classes; it has "
            f"{quoted(names) or 'no folder'}"
        )
    return names


def _parts_in(folder: Path) -> dict[str, str]:
    """The folders of parts, by part, where folders are parts and nothing else."""
    names = _subfolders(folder)
    parts = {PART_NAMES[name.lower()]: name for name in names if name.lower() in PART_NAMES}
    if len(parts) == len(names):
        return {part: parts[part] for part in ("train", "valid", "test") if part in parts}
    if {"train", "test"} <= set(parts):
        raise ValueError(
            f"{str(folder)!r} has the folders {quoted(names)}, which are not one for each part; "
            "move what is no part elsewhere, or read one part by its own path"
        )
    return {}
