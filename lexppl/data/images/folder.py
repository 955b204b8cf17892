"""Folders of images: one for each class, or one for each part with the classes in it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from lexppl.argument_checks import fraction, int_at_least
from lexppl.data.images.dataset import ImageDataset
from lexppl.data.images.divided_images import DividedImages, held
from lexppl.data.images.files import folder_of, read_picture
from lexppl.data.listing import listed
from lexppl.data.stratification import some_of_each

Size = int | tuple[int, int] | None

PART_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"train": ("train", "training"), "valid": ("val", "valid", "validation"), "test": ("test",)}
)
"""What the folders of the parts may be called."""


def image_folder(
    path: str | Path,
    *,
    size: Size = None,
    grayscale: bool | None = None,
    rows: int | None = None,
    seed: int = 0,
) -> ImageDataset:
    """Read a folder that has a folder of images for each class.

    Classes are the names of the folders within, in alphabetical order; images may lie in folders
    below them. Names that begin with a dot are left out, and files that are no images with a
    warning. Images are held as bytes, up to 8 GiB.

    Args:
        path: the folder.
        size: height and width to which every image is brought, one number for a square: it is
            scaled until it covers them, and its middle kept. ``None`` where all have one size.
        grayscale: one channel, or three; as the files have it where ``None``.
        rows: read at most so many, drawn at random, one of each class among them; all if ``None``.
        seed: of that draw; no global random state is touched.

    Returns:
        images ``(N, C, H, W)``, with the files' names below ``path`` as ``row_names``.

    Raises:
        ValueError: fewer than two classes, a class without images; images of different sizes, in
            grey and in colour together, with more than 8 bits a channel, see-through or broken,
            by name; more than 8 GiB; a folder of parts, which :func:`divided_folder` reads.
    """
    folder = folder_of(path)
    parts = _parts_in(folder)
    if parts:
        raise ValueError(
            f"{str(folder)!r} has the folders {listed(parts.values())}, which are parts and no "
            "classes; read all with divided_folder, or one of them by its own path"
        )
    return _read(folder, _class_names(folder), size, grayscale, rows, seed)


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
        size, grayscale: as :func:`image_folder`.
        rows: most images of each folder that is read.
        valid_share: share of the images that are divided on which the best epoch is chosen, where
            no folder has them; ``None`` for none.
        test_share: share of those to judge, where no folder has them.
        seed: of the division.

    Raises:
        ValueError: as :func:`image_folder`; parts without train, a class that train has not.
    """
    folder = folder_of(path)
    parts = _parts_in(folder)
    if not parts:
        whole = image_folder(folder, size=size, grayscale=grayscale, rows=rows, seed=seed)
        return _divided(whole, None, None, valid_share, test_share, seed)
    if "train" not in parts:
        raise ValueError(f"{str(folder)!r} has {listed(parts.values())} and no folder 'train'")
    names = _class_names(folder / parts["train"])
    read = {}
    for part, below in parts.items():
        others = set(_subfolders(folder / below)) - set(names)
        if others:
            raise ValueError(
                f"{str(folder / below)!r} has the class {sorted(others)[0]!r}, which "
                f"{parts['train']!r} has not"
            )
        images = _read(folder / below, names, size, grayscale, rows, seed, part == "train")
        read[part] = replace(images, name=folder.resolve().name)
    return _divided(
        read["train"], read.get("valid"), read.get("test"), valid_share, test_share, seed
    )


def _divided(
    train: ImageDataset,
    valid: ImageDataset | None,
    test: ImageDataset | None,
    valid_share: float | None,
    test_share: float,
    seed: int,
) -> DividedImages:
    wanted = (
        0.0 if valid is not None or valid_share is None else fraction("valid_share", valid_share)
    )
    judged = 0.0 if test is not None else fraction("test_share", test_share)
    if wanted + judged >= 1:
        raise ValueError(
            "valid_share and test_share must leave images to fit on; together they are "
            f"{wanted + judged:g}"
        )
    if judged:
        train, test = train.split(1 - judged, judged, seed=seed)
    if wanted:
        share = wanted / (1 - judged)
        train, valid = train.split(1 - share, share, seed=seed)
    if test is None:
        raise ValueError("there are no images to judge")
    return DividedImages(train, valid, test)


def _read(
    folder: Path,
    names: Sequence[str],
    size: Size,
    grayscale: bool | None,
    rows: int | None,
    seed: int,
    all_classes: bool = True,
) -> ImageDataset:
    samples = _samples(folder, names)
    labels = np.array([label for _, label in samples], dtype=np.int64)
    empty = [name for place, name in enumerate(names) if place not in set(labels.tolist())]
    if not samples or (empty and all_classes):
        raise ValueError(f"{str(folder)!r} has no images of class {listed(empty)}")
    if rows is not None:
        generator = np.random.default_rng(int_at_least("seed", seed, 0))
        chosen = np.sort(some_of_each(labels, int_at_least("rows", rows), generator))
        samples, labels = [samples[place] for place in chosen], labels[chosen]
    shape = _shape(size)
    files = [file for file, _ in samples]
    hint = "give size= and grayscale= to bring them to one"
    return ImageDataset(
        held((read_picture(file, shape, grayscale) for file in files), files, hint),
        torch.from_numpy(labels),
        tuple(names),
        name=folder.resolve().name,
        row_names=tuple(file.relative_to(folder).as_posix() for file in files),
        is_part=not all_classes,
    )


def _samples(folder: Path, names: Sequence[str]) -> list[tuple[Path, int]]:
    """Images with their class, by class and name."""
    there = {name: place for place, name in enumerate(names) if (folder / name).is_dir()}
    # torchvision takes a second to import, and only a folder that is read needs it.
    kinds = import_module("torchvision.datasets.folder")
    found = kinds.make_dataset(
        str(folder), there, extensions=kinds.IMG_EXTENSIONS, allow_empty=True
    )
    samples = [(Path(file), int(label)) for file, label in found if _shown(Path(file), folder)]
    read = {file for file, _ in samples}
    others = [
        file
        for name in there
        for file in sorted((folder / name).rglob("*"))
        if file.is_file() and file not in read and _shown(file, folder)
    ]
    if others:
        warnings.warn(
            f"{len(others):,} files in {str(folder)!r} are no images that can be read and are left "
            f"out, such as {others[0].relative_to(folder).as_posix()!r}",
            UserWarning,
            stacklevel=4,
        )
    return samples


def _shown(file: Path, folder: Path) -> bool:
    return not any(part.startswith(".") for part in file.relative_to(folder).parts)


def _subfolders(folder: Path) -> list[str]:
    return sorted(
        one.name
        for one in folder.iterdir()
        if one.is_dir() and not one.name.startswith((".", "__MACOSX"))
    )


def _class_names(folder: Path) -> list[str]:
    names = _subfolders(folder)
    if len(names) < 2:
        raise ValueError(
            f"{str(folder)!r} must have a folder of images for each of two or more classes; it has "
            f"{listed(names) or 'no folder'}"
        )
    return names


def _parts_in(folder: Path) -> dict[str, str]:
    """The folders of parts, by part, where folders are parts and nothing else."""
    found = _subfolders(folder)
    by_name = {name: part for part, names in PART_NAMES.items() for name in names}
    others = [name for name in found if name.lower() not in by_name]
    if others and {"train", "test"} <= {by_name.get(name.lower()) for name in found}:
        raise ValueError(
            f"{str(folder)!r} has the folders of parts and {listed(others)} beside them; move what "
            "is no part elsewhere, or read one part by its own path"
        )
    if others:
        return {}
    parts: dict[str, str] = {}
    for name in found:
        part = by_name[name.lower()]
        if part in parts:
            raise ValueError(
                f"{str(folder)!r} has {parts[part]!r} and {name!r}, which are the same part"
            )
        parts[part] = name
    return {part: parts[part] for part in PART_NAMES if part in parts}


def _shape(size: Size) -> tuple[int, int] | None:
    if size is None:
        return None
    pair = size if isinstance(size, tuple | list) else (size, size)
    if len(pair) != 2:
        raise ValueError(f"size must be one number, or height and width; it is {size!r}")
    return int_at_least("size", pair[0]), int_at_least("size", pair[1])
