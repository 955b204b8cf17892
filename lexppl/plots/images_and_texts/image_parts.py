"""Images as pixels of a picture: in grey or colour, tinted by a map, and with parts hidden."""

from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from numpy.typing import NDArray

from lexppl.plots.style import BLUE, ORANGE

Pixels = NDArray[np.float64]
"""Colours of pixels `(…, H, W, 3)`, in [0, 1]."""

STRONGEST = 0.9
"""How much of a tint covers a pixel of the largest value."""
DARKEST = 0.65
"""What a black pixel becomes below a tint, so that it is seen."""
NARROWEST = 0.1
"""The least that a map of widths ends at, in shares of the largest value: narrow ones are faint."""
HIDDEN = "#CDB4DB"
"""The colour of what a mask hides: in no grey image, and in few photographs."""


def value_ends(images: Any) -> tuple[float, float]:
    """What is shown black and white: 0 and 1; of images with values outside, such as standardised
    ones, the least and the largest value of all.

    Example:
        >>> value_ends([0.2, 0.7]), value_ends([-1.0, 0.5])
        ((0.0, 1.0), (-1.0, 0.5))
    """
    low, high = float(np.min(images, initial=0.0)), float(np.max(images, initial=0.0))
    return (0.0, 1.0) if low >= 0.0 and high <= 1.0 else (low, high)


def as_colours(images: Any, ends: tuple[float, float] | None = None) -> Pixels:
    """Images `(…, C, H, W)` as colours: three channels as they are, one or another number as grey,
    the mean over channels.

    Args:
        images: the images.
        ends: the values that are black and white; what is beyond them is cut. Those of
            :func:`value_ends` if None.

    Example:
        >>> as_colours(np.array([[[0.0, 0.5]]])).tolist()
        [[[0.0, 0.0, 0.0], [0.5, 0.5, 0.5]]]
        >>> as_colours(np.array([[[-1.0, 3.0]]]))[..., 0].tolist()
        [[0.0, 1.0]]
    """
    values = np.asarray(images, dtype=np.float64)
    low, high = value_ends(values) if ends is None else ends
    values = ((values - low) / (high - low)).clip(0.0, 1.0)
    if values.shape[-3] == 3:
        return np.moveaxis(values, -3, -1)
    grey = values.mean(-3)
    return np.repeat(grey[..., None], 3, axis=-1)


def tinted(colours: Pixels, values: NDArray[Any], most: float, signed: bool = False) -> Pixels:
    """Images below a map: the image in a light grey, and over it blue, the more the larger the
    value; with signs blue above 0 and orange below.

    Args:
        colours: of the images, `(…, H, W, 3)`.
        values: the map, `(…, H, W)`.
        most: the value of the strongest tint.
        signed: whether values below 0 have a tint of their own.

    Example:
        >>> white = np.ones((1, 2, 3))
        >>> tinted(white, np.array([[0.0, 1.0]]), 1.0).round(2).tolist()
        [[[1.0, 1.0, 1.0], [0.1, 0.5, 0.73]]]
    """
    light = DARKEST + (1.0 - DARKEST) * colours.mean(-1, keepdims=True)
    share = np.asarray(values, dtype=np.float64)[..., None] / most
    strength = STRONGEST * (np.abs(share) if signed else share).clip(0.0, 1.0)
    hue = np.where(share < 0.0, to_rgb(ORANGE), to_rgb(BLUE)) if signed else np.array(to_rgb(BLUE))
    mixed: Pixels = (1.0 - strength) * light + strength * hue
    return mixed


def tints(signed: bool = False) -> LinearSegmentedColormap:
    """The colours of :func:`tinted` over a white pixel, for a colour bar."""
    white = np.ones((1, 2, 3))
    ends = tinted(white, np.array([[-1.0, 1.0]]), 1.0, signed)[0]
    return LinearSegmentedColormap.from_list(
        "tints", [ends[0], (1.0, 1.0, 1.0), ends[1]] if signed else [(1.0, 1.0, 1.0), ends[1]]
    )


def only_kept(colours: Pixels, keep: NDArray[Any]) -> Pixels:
    """Images of which a mask hides a part, which is lilac; a mask between 0 and 1 hides
    in part.

    Args:
        colours: of the images, `(…, H, W, 3)`.
        keep: what is kept of each pixel, `(…, H, W)`.

    Example:
        >>> only_kept(np.zeros((1, 1, 3)), np.array([[1]])).tolist()
        [[[0.0, 0.0, 0.0]]]
    """
    share = np.asarray(keep, dtype=np.float64)[..., None].clip(0.0, 1.0)
    mixed: Pixels = share * colours + (1.0 - share) * np.array(to_rgb(HIDDEN))
    return mixed


def widest_of(widths: NDArray[Any], most: float) -> float:
    """Where a map of the widths of intervals ends.

    Args:
        widths: NaN where they are not known.
        most: the largest value there can be, or is.

    Example:
        >>> widest_of(np.array([0.3, np.nan]), 1.0), widest_of(np.array([1e-5]), 1.0)
        (0.3, 0.1)
    """
    return max(float(np.nan_to_num(widths).max(initial=0.0)), NARROWEST * most)
