"""Folders of images: one for each class, or one for each part with the classes in it."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from lexppl.argument_checks import fraction, int_at_least
from lexppl.data.checks import folder_of, listed
from lexppl.data.images.dataset import DividedImages, ImageDataset
from lexppl.data.stratification import at_most

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
        raise ValueError(f"{str(folder)!r} has no images of class {listed(empty)}")
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
        raise ValueError(f"{str(folder)!r} has {listed(parts.values())} and no folder 'train'")
    names = _class_names(folder / parts["train"])
    read: dict[str, ImageDataset] = {}
    for part, below in parts.items():
        others = sorted(set(_subfolders(folder / below)) - set(names))
        if others:
            raise ValueError(
                f"{str(folder / below)!r} has the class {others[0]!r}, which {parts['train']!r} "
                "has not"
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
    found = kinds.make_dataset(
        str(folder), there, extensions=kinds.IMG_EXTENSIONS, allow_empty=True
    )
    labels = {Path(file): int(label) for file, label in found}
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
    names = sorted(one.name for one in folder.iterdir() if one.is_dir())
    return [name for name in names if not name.startswith((".", "__MACOSX"))]


def _class_names(folder: Path) -> list[str]:
    if parts := _parts_in(folder):
        raise ValueError(
            f"{str(folder)!r} has the folders {listed(parts.values())}, which are parts and no "
            "classes; read all with divided_folder, or one of them by its own path"
        )
    names = _subfolders(folder)
    if len(names) < 2:
        raise ValueError(
            f"{str(folder)!r} must have a folder of images for each of two or more classes; it has "
            f"{listed(names) or 'no folder'}"
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
            f"{str(folder)!r} has the folders {listed(names)}, which are not one for each part; "
            "move what is no part elsewhere, or read one part by its own path"
        )
    return {}
