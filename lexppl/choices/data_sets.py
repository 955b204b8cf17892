"""The data sets by name: those that need no file, and sets of images and texts under a root."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

SYNTHETIC: Mapping[str, str] = MappingProxyType(
    {"Syn1": "A", "Syn2": "B", "Syn3": "C", "Syn4": "AB", "Syn5": "AC", "Syn6": "BC"}
)
"""Synthetic sets, and the functions that make their labels: one, or two and a switch."""

ALIASES: Mapping[str, str] = MappingProxyType({"S1": "Syn4", "S2": "Syn5", "S3": "Syn6"})

TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "breast_cancer": "diagnosis",
        "wine": "cultivar",
        "digits": "digit",
        "diabetes": "progression",
    }
)
"""Real sets, and what is predicted in each."""


@dataclass(frozen=True)
class ImageSet:
    """A set of images by name, as it is known before it is read.

    Args:
        target: what is predicted.
        shape: of an image: channels, height, width.
        classes: how many there are.
        files: what must lie under the root.
        truth: side of the patches of pixels of which it is known what matters, in pixels; ``None``
            where it is not known.
    """

    target: str
    shape: tuple[int, int, int]
    classes: int
    files: tuple[str, ...]
    truth: int | None = None


IMAGE_SETS: Mapping[str, ImageSet] = MappingProxyType(
    {
        "mnist": ImageSet("digit", (1, 28, 28), 10, ("MNIST/raw",)),
        "fashion_mnist": ImageSet("garment", (1, 28, 28), 10, ("FashionMNIST/raw",)),
        "mnist_3_8": ImageSet("digit", (1, 28, 28), 2, ("MNIST/raw",)),
        "fashion_pullover_shirt": ImageSet("garment", (1, 28, 28), 2, ("FashionMNIST/raw",)),
        "panels_mnist": ImageSet(
            "digit", (1, 28, 56), 10, ("MNIST/raw", "FashionMNIST/raw"), truth=1
        ),
        "panels_fashion": ImageSet(
            "garment", (1, 28, 56), 10, ("MNIST/raw", "FashionMNIST/raw"), truth=1
        ),
        "celeba_smile": ImageSet("expression", (3, 128, 128), 2, ("celeba",), truth=4),
    }
)
"""Sets of images that :func:`lexppl.data.image_set` reads from files under a root."""


TEXT_SETS: Mapping[str, str] = MappingProxyType({"imdb": "review"})
"""Sets of texts that are read from files under a root, and what is predicted in each."""


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
    return tuple(TEXT_SETS)


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
