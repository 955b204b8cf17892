"""Sets of images by name: MNIST and Fashion-MNIST, and panels of both."""

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.choices.data_sets import image_names
from lexppl.data.checks import folder_of, listed
from lexppl.data.images.dataset import DividedImages, ImageDataset

GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag"),
    "Ankle boot",
)


def mnist(root: str | Path, *, train: bool = True, download: bool = False) -> ImageDataset:
    """Read MNIST: handwritten digits ``(N, 1, 28, 28)``, 60,000 for training and 10,000 for tests.

    Files lie where torchvision has them, in ``root/MNIST/raw``, packed (``.gz``) or not. Two digits
    alone are ``mnist(root).only(3, 8)``.

    Args:
        root: the folder with ``MNIST`` in it.
        train: the images for training, or those for tests.
        download: let torchvision get what is not there, which writes to ``root``.

    Raises:
        ValueError: a file that is not there or cannot be read, a download that failed.

    Source: LeCun, Cortes & Burges, THE MNIST DATABASE of handwritten digits.
    """
    pixels, y = _mnist("MNIST", root, train, download)
    return ImageDataset(pixels, y, tuple("0123456789"), name="mnist", target_name="digit")


def fashion_mnist(root: str | Path, *, train: bool = True, download: bool = False) -> ImageDataset:
    """Read Fashion-MNIST: garments ``(N, 1, 28, 28)``, as :func:`mnist`, from
    ``root/FashionMNIST``.

    Source: Xiao, Rasul & Vollgraf 2017.
    """
    pixels, y = _mnist("FashionMNIST", root, train, download)
    return ImageDataset(pixels, y, GARMENTS, name="fashion_mnist", target_name="garment")


def _mnist(kind: str, root: str | Path, train: bool, download: bool) -> tuple[Tensor, Tensor]:
    raw, part = folder_of(root) / kind / "raw", "train" if train else "t10k"
    stems = [raw / f"{part}-{what}-ubyte" for what in ("images-idx3", "labels-idx1")]
    try:
        if download and not all(s.is_file() or Path(f"{s}.gz").is_file() for s in stems):
            getattr(import_module("torchvision.datasets"), kind)(str(root), download=True)
        # Of bytes: 16 of a header, then images; 8, then labels.
        pixels = _unpacked(stems[0])[16:].reshape(-1, 1, 28, 28)
        y = _unpacked(stems[1])[8:].reshape(len(pixels))
    except (OSError, EOFError, zlib.error, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{kind} in {str(raw)!r} cannot be read: {error}; get it from torchvision, with "
            "download=True where the network allows it"
        ) from error
    return torch.from_numpy(pixels), torch.from_numpy(y).long()


def _unpacked(stem: Path) -> NDArray[np.uint8]:
    content = (
        stem.read_bytes() if stem.is_file() else gzip.decompress(Path(f"{stem}.gz").read_bytes())
    )
    return np.frombuffer(bytearray(content), np.uint8)


def switching_panels(
    labelled: str,
    root: str | Path,
    *,
    rows: Sequence[int] = (48_000, 12_000, 10_000),
    seed: int = 0,
    download: bool = False,
) -> DividedImages:
    """Put an image of MNIST and one of Fashion-MNIST side by side, in random order: ``(N, 1, 28,
    56)``.

    The label is that of the named one, and the truth ``(N, 28, 56)`` its panel. Images are paired
    at random; each stands in one row of one part at most. Rows to judge are of the images for
    tests.

    Args:
        labelled: "mnist" or "fashion".
        root: the folder with ``MNIST`` and ``FashionMNIST`` in it, as torchvision lays them out.
        rows: how many to fit on, to choose the best epoch on, and to judge.
        seed: of the pairs and their order; no global random state is touched.
        download: let torchvision get what is not there, which writes to ``root``.

    Raises:
        ValueError: another name, more rows than there are images; as :func:`mnist`.

    Source: Senetaire et al. 2023 (LEX), § 5.2: SP-MNIST and SP-Fashion.
    """
    readers = {"mnist": mnist, "fashion": fashion_mnist}
    if labelled not in readers:
        raise ValueError(f"labelled must be one of {listed(readers)}; it is {labelled!r}")
    counts = [int_at_least("each of rows", count) for count in rows]
    if len(counts) != 3:
        raise ValueError(
            "rows must be three numbers, to fit on, to choose the best epoch on and to judge; "
            f"they are {tuple(rows)}"
        )
    generator = np.random.default_rng(int_at_least("seed", seed, 0))
    readers = {labelled: readers.pop(labelled), **readers}
    parts = []
    for train, wanted in ((True, counts[:2]), (False, counts[2:])):
        total = sum(wanted)
        images = [read(root, train=train, download=download) for read in readers.values()]
        there = min(map(len, images))
        if total > there:
            raise ValueError(
                f"rows must be at most {there:,} {'in their first two' if train else 'to judge'}, "
                f"as there are so many images of each kind; they are {tuple(rows)}"
            )
        of_label, beside = (
            one.subset(torch.from_numpy(generator.permutation(len(one))[:total])) for one in images
        )
        left = torch.from_numpy(generator.integers(2, size=total).astype(bool))
        place = left.reshape(-1, 1, 1, 1)
        first = torch.where(place, of_label.pixels, beside.pixels)
        second = torch.where(place, beside.pixels, of_label.pixels)
        half = place.squeeze(1).expand(-1, *of_label.event_shape[1:])
        whole = replace(
            of_label,
            pixels=torch.cat((first, second), dim=-1),
            truth=torch.cat((half, ~half), dim=-1),
            name=f"panels_{labelled}",
        )
        parts += [whole.subset(rows) for rows in torch.arange(total).split(wanted)]
    return DividedImages(*parts)


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
    ======================  ======================  ============================================

    Those to judge are the official ones. To choose an epoch on, a fifth of the images for training
    is drawn, each class alike.

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
    reading: dict[str, Any] = {"root": root, "download": download}
    if name.startswith("panels_"):
        parts = switching_panels(name.removeprefix("panels_"), seed=seed, **reading)
    else:
        read = fashion_mnist if name.startswith("fashion") else mnist
        pairs: dict[str, tuple[int | str, int | str]] = {
            "mnist_3_8": (3, 8),
            "fashion_pullover_shirt": ("Pullover", "Shirt"),
        }
        whole, test = (read(train=train, **reading) for train in (True, False))
        if name in pairs:
            whole, test = whole.only(*pairs[name]), test.only(*pairs[name])
        train, valid = whole.split(0.8, 0.2, seed=seed)
        parts = DividedImages(train, valid, test)
    return parts if most is None else parts.take(most, seed=seed)
