"""Chest radiographs of children, with pneumonia or without."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Literal
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray

from lexppl.data.images.dataset import ImageDataset
from lexppl.data.images.needed_files import downloaded, folder_of, needed_file
from lexppl.data.listing import listed

PARTS = ("train", "val", "test")
SIZES = (28, 64, 128, 224)
SOURCE = "https://zenodo.org/records/10519652"
OF_28 = (
    "https://zenodo.org/record/6496656/files/pneumoniamnist.npz",
    "28209eda62fecd6e6a2d98b1501bb15f",
)
"""Of the small images: where they are, and their MD5."""


def pneumonia(
    root: str | Path,
    part: Literal["train", "val", "test"] = "train",
    *,
    size: int = 28,
    download: bool = False,
) -> ImageDataset:
    """Read PneumoniaMNIST: 4,708 radiographs for training, 524 for validation, 624 for tests.

    The file is ``pneumoniamnist.npz`` (of larger images ``pneumoniamnist_64.npz``, …), in ``root``
    or in ``root/pneumonia``.

    Args:
        root: the folder with the file.
        part: "train", "val" or "test".
        size: height and width in pixels: 28, 64, 128 or 224.
        download: get the file of 28 pixels if it is not there, which writes to ``root``.

    Returns:
        images ``(N, 1, size, size)``, classes "normal" and "pneumonia".

    Raises:
        ValueError: another part or size, a file that is not there or holds something else.

    Source: Kermany et al. 2018; Yang et al. 2023 (MedMNIST v2).
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {listed(PARTS)}; it is {part!r}")
    if size not in SIZES:
        raise ValueError(f"size must be one of {SIZES}; it is {size!r}")
    base = folder_of(root)
    name = "pneumoniamnist.npz" if size == 28 else f"pneumoniamnist_{size}.npz"
    places = (base / name, base / "pneumonia" / name)
    if download and size == 28 and not any(place.is_file() for place in places):
        downloaded("PneumoniaMNIST", partial(_download, base, name), f"{SOURCE} into {str(base)!r}")
    file = needed_file(places[0], SOURCE, places[1])
    images, labels = _arrays(file, part)
    if images.ndim != 3 or images.shape[1:] != (size, size) or images.dtype != np.uint8:
        raise ValueError(
            f"{str(file)!r} must hold images (N, {size}, {size}) of bytes; those of {part} are "
            f"{images.shape} of {images.dtype}"
        )
    if labels.size != len(images):
        raise ValueError(
            f"{str(file)!r} must hold a label for each image; of {part} it holds {labels.size} "
            f"labels and {len(images)} images"
        )
    return ImageDataset(
        torch.from_numpy(images).unsqueeze(1),
        torch.from_numpy(labels.reshape(-1).astype(np.int64)),
        ("normal", "pneumonia"),
        name="pneumonia",
        target_name="finding",
    )


def _arrays(file: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    try:
        with np.load(file) as arrays:
            return arrays[f"{part}_images"], arrays[f"{part}_labels"]
    except (BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{str(file)!r} cannot be read as PneumoniaMNIST ({error}); get it anew from {SOURCE}"
        ) from error


def _download(root: Path, name: str) -> None:
    address, md5 = OF_28
    import_module("torchvision.datasets.utils").download_url(address, str(root), name, md5)
