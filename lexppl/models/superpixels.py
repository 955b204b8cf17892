"""Super-pixels: segments of an image that are alike."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.extras import extra_library
from lexppl.models.grouping import image_shape


def slic_segments(image: Tensor, count: int, compactness: float = 0.1) -> Tensor:
    """A map of about `count` super-pixels of an image, by scikit-image's SLIC: k-means of colour
    and place. Give it to :meth:`Grouping.superpixels`.

    A mask's entries stand for the same pixels in every row. Take the mean of aligned training
    images, such as centred faces, `slic_segments(x.mean(0), 64)`; the segments of a single image
    explain that image alone.

    Args:
        image: `(C, H, W)`, values in [0, 1].
        count: of segments; SLIC may make a few more or fewer.
        compactness: weight of places against colours: higher for squarer segments.

    Returns:
        whole numbers `(H, W)`, 0 … G−1.

    Raises:
        ValueError: another shape, values outside [0, 1], fewer than one segment.
        ImportError: there is no scikit-image, of the extra `images`.

    Source: Achanta et al., "SLIC superpixels compared to state-of-the-art superpixel methods",
    TPAMI 2012.

    Example:
        >>> image = torch.zeros(1, 8, 8)
        >>> image[:, :, 4:] = 1.0
        >>> segments = slic_segments(image, 4)
        >>> segments.unique().tolist(), segments[0].tolist()
        ([0, 1, 2, 3], [0, 0, 0, 0, 1, 1, 1, 1])
    """
    image_shape(image.shape)
    if not bool(((image >= 0) & (image <= 1)).all()):
        raise ValueError(
            f"image must have values in [0, 1]; they are {float(image.min()):g} to "
            f"{float(image.max()):g}"
        )
    slic = extra_library("skimage.segmentation", "images").slic
    made = slic(
        image.detach().double().cpu().numpy(),
        n_segments=int_at_least("count", count),
        compactness=finite_float("compactness", compactness, above=0.0),
        channel_axis=0,
        start_label=0,
        convert2lab=False,
    )
    return torch.from_numpy(np.asarray(made, dtype=np.int64)).to(image.device)
