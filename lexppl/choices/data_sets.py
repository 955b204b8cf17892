"""Names of the data sets: those that need no file, and sets of images and texts in a folder."""

from collections.abc import Mapping
from typing import NamedTuple

SYNTHETIC: Mapping[str, str] = {
    "Syn1": "A",
    "Syn2": "B",
    "Syn3": "C",
    "Syn4": "AB",
    "Syn5": "AC",
    "Syn6": "BC",
}
"""Synthetic sets, and the functions that make their labels: one, or two and a switch."""

ALIASES: Mapping[str, str] = {"S1": "Syn4", "S2": "Syn5", "S3": "Syn6"}

TARGETS: Mapping[str, str] = {
    "breast_cancer": "diagnosis",
    "wine": "cultivar",
    "digits": "digit",
    "diabetes": "progression",
}
"""Real sets, and what is predicted in each."""


class ImageSet(NamedTuple):
    """Channels, height and width of an image of a set, and its files under the root."""

    shape: tuple[int, int, int]
    files: tuple[str, ...]


_DIGITS, _GARMENTS = "MNIST/raw", "FashionMNIST/raw"
IMAGE_SETS: Mapping[str, ImageSet] = {
    "mnist": ImageSet((1, 28, 28), (_DIGITS,)),
    "fashion_mnist": ImageSet((1, 28, 28), (_GARMENTS,)),
    "mnist_3_8": ImageSet((1, 28, 28), (_DIGITS,)),
    "fashion_pullover_shirt": ImageSet((1, 28, 28), (_GARMENTS,)),
    "panels_mnist": ImageSet((1, 28, 56), (_DIGITS, _GARMENTS)),
    "panels_fashion": ImageSet((1, 28, 56), (_DIGITS, _GARMENTS)),
}
"""Sets of images that :func:`lexppl.data.image_set` reads from files under a root."""


def image_names() -> tuple[str, ...]:
    """Return the names that :func:`lexppl.data.image_set` knows.

    >>> image_names()[:4]
    ('mnist', 'fashion_mnist', 'mnist_3_8', 'fashion_pullover_shirt')
    """
    return tuple(IMAGE_SETS)


def text_names() -> tuple[str, ...]:
    """Return the names of the sets of texts.

    >>> text_names()
    ('imdb',)
    """
    return ("imdb",)


def synthetic_names() -> tuple[str, ...]:
    """Return the names of the synthetic sets, aliases last.

    >>> synthetic_names()
    ('Syn1', 'Syn2', 'Syn3', 'Syn4', 'Syn5', 'Syn6', 'S1', 'S2', 'S3')
    """
    return (*SYNTHETIC, *ALIASES)


def shipped_names() -> tuple[str, ...]:
    """Return the names that :func:`lexppl.data.load` knows.

    >>> shipped_names()[:5]
    ('breast_cancer', 'wine', 'digits', 'diabetes', 'Syn1')
    """
    return (*TARGETS, *synthetic_names())
