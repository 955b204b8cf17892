"""Sets of images by name, in their three parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lexppl.argument_checks import int_at_least
from lexppl.choices.data_sets import image_names
from lexppl.data.images.celeba import celeba_smile
from lexppl.data.images.dataset import ImageDataset
from lexppl.data.images.divided_images import DividedImages
from lexppl.data.images.mnist import digits_pair, fashion_mnist, fashion_pair, mnist
from lexppl.data.images.panels import switching_panels
from lexppl.data.images.radiographs import pneumonia
from lexppl.data.listing import listed

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
