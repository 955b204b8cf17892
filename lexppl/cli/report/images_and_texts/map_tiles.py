"""Small pictures of single images, as they stand side by side in a page."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.image import imsave
from numpy.typing import NDArray

from lexppl.plots.images import Pixels

LARGEST = 224
"""Pixels of a side above which an image is shrunk: pages shall stay small."""
GAP = 0.04
"""Between two images of one tile, in shares of their width; it is transparent."""
PLAIN: Mapping[str, Any] = MappingProxyType({"Software": None})
"""No version of matplotlib in the file, so that the same colours are the same bytes."""


@dataclass(frozen=True)
class Tile:
    """A picture in a page.

    Args:
        uri: of its PNG.
        alt: what it shows, for who does not see it.
        lines: what stands below it.
        width, height: of the picture, in its own pixels.
    """

    uri: str
    alt: str
    lines: tuple[str, ...]
    width: int
    height: int


def tile(images: list[Pixels], alt: str, lines: list[str]) -> Tile:
    """Images side by side in one picture.

    Args:
        images: `(H, W, 3)` each.
        alt: what they show.
        lines: what stands below.

    Example:
        >>> one = tile([np.zeros((4, 4, 3)), np.ones((4, 4, 3))], "black and white", ["row 1"])
        >>> one.uri[:22], one.width, one.height
        ('data:image/png;base64,', 9, 4)
    """
    parts: list[NDArray[Any]] = []
    for image in map(shrunk, images):
        high, across = image.shape[:2]
        if parts:
            parts.append(np.zeros((high, max(1, round(GAP * across)), 4)))
        parts.append(np.concatenate([image.clip(0.0, 1.0), np.ones((high, across, 1))], -1))
    whole = np.concatenate(parts, 1)
    return Tile(png_uri(whole), alt, tuple(lines), whole.shape[1], whole.shape[0])


def png_uri(colours: NDArray[Any]) -> str:
    """Colours `(H, W, 3 or 4)` as a PNG in a data URI, a pixel each. The same colours, the same
    bytes."""
    buffer = io.BytesIO()
    imsave(buffer, np.ascontiguousarray(colours), format="png", metadata=dict(PLAIN))
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def shrunk(image: Pixels, most: int = LARGEST) -> Pixels:
    """An image of at most some pixels a side, each the mean of a block; smaller ones as they are.

    Example:
        >>> shrunk(np.ones((450, 300, 3))).shape, shrunk(np.ones((28, 28, 3))).shape
        ((150, 100, 3), (28, 28, 3))
    """
    step = -(-max(image.shape[:2]) // most)
    if step == 1:
        return image
    high, across = (size - size % step for size in image.shape[:2])
    blocks = image[:high, :across].reshape(high // step, step, across // step, step, -1)
    small: Pixels = blocks.mean((1, 3))
    return small
