"""Where an image's mask entries stand: what a picture of an explanation needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior, group_names, group_of
from lexppl.explanation.reading.masks import constants_name, mask_means

CHANNEL, HEIGHT, WIDTH = "channel", "height", "width"
PIXELS = (HEIGHT, WIDTH)
EVENT = (CHANNEL, *PIXELS)  # The dimensions of an image row
# The variable of `constant_data`: the place of each pixel's entry along `feature`.
FEATURE_MAP = "feature_map"
IMAGE = "image"  # The variable of `constant_data` that holds images whose x is a table of pixels


@dataclass(frozen=True, eq=False)
class ImageGeometry:
    """The images `(N, C, H, W)` of a posterior's rows, and the entry of each pixel, `(H, W)` or
    `(C, H, W)`."""

    images: NDArray[Any]
    feature_map: NDArray[np.integer[Any]]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of an image, `(C, H, W)`."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def on_pixels(self, values: Any) -> NDArray[Any]:
        """Values of entries `(…, G)` as maps of pixels `(…, H, W)`, means over channels."""
        maps: NDArray[Any] = np.asarray(values)[..., self.feature_map]
        return maps if self.feature_map.ndim == 2 else maps.mean(-3)


def feature_map_of(
    shape: Sequence[int], entries: int, groups: Sequence[int] | None = None
) -> NDArray[np.int32] | None:
    """The place of each pixel's entry, `(H, W)`, or `(C, H, W)` where channels have entries of
    their own; None where the entries are not those of pixels.

    >>> feature_map_of((3, 1, 2), 2), feature_map_of((1, 2, 2), 3)
    (array([[0, 1]], dtype=int32), None)
    """
    channels, height, width = shape
    places = np.arange(entries, dtype=np.int32)
    if groups is not None:
        places = np.asarray(groups, dtype=np.int32)
    if not np.array_equal(np.unique(places), np.arange(entries)):
        return None
    if places.size == height * width:
        return places.reshape(height, width)
    if places.size == channels * height * width:
        cube = places.reshape(channels, height, width)
        return cube[0] if bool((cube == cube[:1]).all()) else cube
    return None


def map_dimensions(feature_map: NDArray[Any]) -> tuple[str, ...]:
    """The names of a feature map's dimensions."""
    return PIXELS if feature_map.ndim == 2 else EVENT


def image_geometry(posterior: Posterior) -> ImageGeometry:
    """The images of a posterior's rows, and where its mask entries stand."""
    name = constants_name(posterior)
    constant = group_of(posterior, name) if name in group_names(posterior) else xr.Dataset()
    known = [n for n in (IMAGE, "x") if n in constant and set(constant[n].dims) == {"row", *EVENT}]
    if not known:
        sizes = dict(constant["x"].sizes) if "x" in constant else "no x"
        raise ValueError(
            "the rows of this posterior are no images (row, channel, height, width); its "
            f"constant_data has {sizes}. Of rows of pixels say which images they are: "
            "with_images(posterior, (C, H, W))"
        )
    if FEATURE_MAP not in constant:
        raise ValueError(
            "the posterior does not say which pixels its mask entries are; say it with "
            "with_images(posterior, (C, H, W), groups), groups the entry of each pixel"
        )
    pixels = constant[FEATURE_MAP].transpose(..., *PIXELS)
    return ImageGeometry(constant[known[0]].transpose("row", *EVENT).values, pixels.values)


def with_images(
    posterior: Posterior, shape: Sequence[int], groups: Sequence[int] | None = None
) -> Posterior:
    """Write into a posterior that its rows are images: `image` (row, channel, height, width), where
    x is a table of pixels, and `feature_map` (height, width), the place of each pixel's entry.

    Args:
        posterior: what :func:`lexppl.explain` returned; it is changed in place.
        shape: `(C, H, W)`: a row's values are those of the first channel, line by line, then of the
            next.
        groups: the entry of each pixel, 0 … G−1, H·W or C·H·W of them, such as
            `grouping.groups`; if None each pixel has its own.

    Returns:
        the posterior.

    Raises:
        TypeError: not a posterior.
        ValueError: a shape of another number of values than a row has, or other entries than the
            posterior's.

    Example:
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> stated = (("chain", "row", "feature"), [[[1.0, 0.5, 0.0, 0.0]]], {"site": "mask"})
        >>> posterior = posterior_of({
        ...     "constant_data": xr.Dataset({"x": (("row", "input"), [[0.1, 0.2, 0.3, 0.4]])}),
        ...     "sample_stats": xr.Dataset({"selection_probability": stated}),
        ... }, {})
        >>> with_images(posterior, (1, 2, 2))["constant_data"]["image"].shape
        (1, 1, 2, 2)
    """
    if len(shape) != 3:
        raise ValueError(f"shape must be (C, H, W), of an image; it is {tuple(shape)}")
    channels, height, width = (int_at_least("shape", size) for size in shape)
    constant = group_of(posterior, constants_name(posterior))
    if "x" not in constant:
        raise ValueError("the posterior has no x in constant_data, of which images could be made")
    x = constant["x"]
    dims = x.shape[1:]
    if int(np.prod(dims)) != channels * height * width or (len(dims) > 1 and dims != tuple(shape)):
        raise ValueError(
            f"shape {tuple(shape)} has {channels * height * width} values; a row of x has shape "
            f"{dims}"
        )
    means = mask_means(posterior)
    entries = means.sizes[str(means.dims[-1])]
    places = feature_map_of((channels, height, width), entries, groups)
    if places is None:
        count = entries if groups is None else len(groups)
        raise ValueError(
            f"{'the mask' if groups is None else 'groups'} must have an entry for each of the "
            f"{height} × {width} pixels, and be of the posterior's {entries} entries; there are "
            f"{count}" + (": give groups, the entry of each pixel" if groups is None else "")
        )
    group = posterior[constants_name(posterior)]
    if len(dims) == 1:
        images = x.values.reshape(-1, channels, height, width)
        coordinates = {"row": x["row"].values} if "row" in x.coords else {}
        group[IMAGE] = xr.DataArray(images, coordinates, ("row", *EVENT))
    group[FEATURE_MAP] = xr.DataArray(places, dims=map_dimensions(places))
    return posterior
