"""Image sets by name, among them radiographs and switching panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.choices.data_sets import image_names
from lexppl.data.images.celeba import celeba_smile
from lexppl.data.images.dataset import ImageDataset
from lexppl.data.images.divided_images import DividedImages
from lexppl.data.images.files import downloaded, folder_of, needed_file
from lexppl.data.images.mnist import BY_NAME, digits_pair, fashion_mnist, fashion_pair, mnist
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


ROWS = (48_000, 12_000, 10_000)
"""Rows to fit on, to choose the best epoch on, and to judge, as in the paper."""


def switching_panels(
    labelled: str,
    root: str | Path,
    *,
    rows: Sequence[int] = ROWS,
    seed: int = 0,
    download: bool = False,
) -> DividedImages:
    """Put an image of MNIST and one of Fashion-MNIST side by side, in random order.

    The label is that of the named one, and the truth its panel: the other tells nothing about the
    label, and of the panel itself a part may do. Images are paired at random; each stands in one
    row of one part at most. Rows to fit on and to choose an epoch on are of the images for
    training, those to judge of the images for tests.

    Args:
        labelled: "mnist" or "fashion".
        root: the folder with ``MNIST`` and ``FashionMNIST`` in it, as torchvision lays them out.
        rows: how many to fit on, to choose the best epoch on, and to judge.
        seed: of the pairs and their order; no global random state is touched.
        download: let torchvision get what is not there, which writes to ``root``.

    Returns:
        images ``(N, 1, 28, 56)`` with their truth ``(N, 28, 56)``.

    Raises:
        ValueError: another name, more rows than there are images; as
            :func:`lexppl.data.mnist`.

    Source: Senetaire et al. 2023 (LEX), § 5.2: SP-MNIST and SP-Fashion.
    """
    if labelled not in BY_NAME:
        raise ValueError(f"labelled must be one of {listed(BY_NAME)}; it is {labelled!r}")
    counts = [int_at_least("each of rows", count) for count in rows]
    if len(counts) != 3:
        raise ValueError(
            "rows must be three numbers, to fit on, to choose the best epoch on and to judge; "
            f"they are {tuple(rows)}"
        )
    generator = np.random.default_rng(int_at_least("seed", seed, 0))
    other = next(name for name in BY_NAME if name != labelled)
    parts = []
    for train, wanted in ((True, counts[:2]), (False, counts[2:])):
        of_label, beside = (
            BY_NAME[name].read(root, name, train, download) for name in (labelled, other)
        )
        there = min(len(of_label), len(beside))
        if sum(wanted) > there:
            raise ValueError(
                f"rows must be at most {there:,} {'in their first two' if train else 'to judge'}, "
                f"as there are so many images of each kind; they are {tuple(rows)}"
            )
        of_label = of_label.subset(torch.from_numpy(_drawn(len(of_label), sum(wanted), generator)))
        beside = beside.subset(torch.from_numpy(_drawn(len(beside), sum(wanted), generator)))
        left = torch.from_numpy(generator.integers(2, size=sum(wanted)).astype(bool))
        whole = _side_by_side(of_label, beside.pixels, left, f"panels_{labelled}")
        ends = np.cumsum(wanted).tolist()
        parts += [
            whole.subset(slice(end - count, end)) for end, count in zip(ends, wanted, strict=True)
        ]
    return DividedImages(*parts)


def _drawn(count: int, wanted: int, generator: np.random.Generator) -> NDArray[np.int64]:
    return generator.permutation(count)[:wanted]


def _side_by_side(of_label: ImageDataset, beside: Tensor, left: Tensor, name: str) -> ImageDataset:
    """Panels with the labelled image on the left where `left` says so, else on the right."""
    place = left.reshape(-1, 1, 1, 1)
    halves = (
        torch.where(place, of_label.pixels, beside),
        torch.where(place, beside, of_label.pixels),
    )
    height, width = of_label.event_shape[1:]
    half = left.reshape(-1, 1, 1).expand(-1, height, width)
    return ImageDataset(
        torch.cat(halves, dim=-1),
        of_label.y,
        of_label.class_names,
        truth=torch.cat((half, ~half), dim=-1),
        name=name,
        target_name=of_label.target_name,
        is_part=True,
    )


VALID_SHARE = 0.2
"""Of the images for training, as many as switching panels set apart."""


def image_set(
    name: str, root: str | Path, *, rows: int | None = None, seed: int = 0, download: bool = False
) -> DividedImages:
    """Read a set of images in its three parts.

    ======================  ======================  ============================================
    name                    images                  to fit on, to choose the epoch on, to judge
    ======================  ======================  ============================================
    mnist                   10 digits               48,000, 12,000, 10,000
    fashion_mnist           10 garments             48,000, 12,000, 10,000
    mnist_3_8               3 against 8             9,586, 2,396, 1,984
    fashion_pullover_shirt  Pullover against Shirt  9,600, 2,400, 2,000
    panels_mnist            a digit and a garment,  48,000, 12,000, 10,000
                            label from the digit
    panels_fashion          the same, label from    48,000, 12,000, 10,000
                            the garment
    celeba_smile            faces                   162,770, 19,867, 19,962 (official)
    pneumonia               radiographs             4,708, 524, 624 (official)
    ======================  ======================  ============================================

    Those to judge are the official ones. Where no part is given to choose an epoch on, a fifth of
    the images for training is drawn, each class alike.

    Args:
        name: one of :func:`image_names`.
        root: the folder with its files, as the function of that name says.
        rows: at most so many images of each part, drawn at random; all if ``None``.
        seed: of all draws; no global random state is touched.
        download: let torchvision get what is not there, where a network allows.

    Raises:
        ValueError: another name, a file that is not there or cannot be read.
    """
    if name not in image_names():
        raise ValueError(
            f"there is no set of images {name!r}; there are {listed(image_names(), most=20)}"
        )
    most = None if rows is None else int_at_least("rows", rows)
    given: dict[str, Any] = {"root": root, "download": download}
    if name.startswith("panels_"):
        panels = switching_panels(name.removeprefix("panels_"), seed=seed, **given)
        return _capped(panels, most, seed)
    if name == "celeba_smile":
        given |= {"rows": most, "seed": seed}
        return DividedImages(*(celeba_smile(part=p, **given) for p in ("train", "valid", "test")))
    if name == "pneumonia":
        parts = DividedImages(*(pneumonia(part=p, **given) for p in ("train", "val", "test")))
        return _capped(parts, most, seed)
    read = _DIVIDED[name]
    train, valid = read(train=True, **given).split(1 - VALID_SHARE, VALID_SHARE, seed=seed)
    return _capped(DividedImages(train, valid, read(train=False, **given)), most, seed)


def _capped(parts: DividedImages, rows: int | None, seed: int) -> DividedImages:
    if rows is None:
        return parts
    valid = None if parts.valid is None else parts.valid.take(rows, seed=seed)
    return DividedImages(parts.train.take(rows, seed=seed), valid, parts.test.take(rows, seed=seed))


_DIVIDED: Mapping[str, Callable[..., ImageDataset]] = MappingProxyType(
    {
        "mnist": mnist,
        "fashion_mnist": fashion_mnist,
        "mnist_3_8": partial(digits_pair, 3, 8),
        "fashion_pullover_shirt": partial(fashion_pair, "Pullover", "Shirt"),
    }
)
"""Those that come as images for training and for tests."""
