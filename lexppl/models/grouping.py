"""From mask entries to features."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lexppl.argument_checks import finite_float, int_at_least, shaped
from lexppl.configured import Configured
from lexppl.extras import extra_library


class Grouping(Configured, nn.Module):
    """One mask entry for several features: feature `d` is kept where entry `groups[d]` is.

    Args:
        groups: for each of the D features the index of its entry, 0 … G−1; every entry has a
            feature. Of images `(C, H, W)`, row-major, one for each pixel, `H · W`, whose channels
            then share it, or one for each value, `C · H · W`.
        names: a name for each of the G entries; x1 … xG if None.
        event_shape: the shape of a row; `(D,)` if None.

    Raises:
        ValueError: indices that leave an entry out, names of another number or not unique, groups
            that are neither one for each value of a row nor one for each place of its channels.

    Example:
        >>> color = Grouping([0, 1, 1, 1], names=["age", "colour"])
        >>> color(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor([[1., 0., 0., 0.],
                [0., 1., 1., 1.]])
    """

    index: Tensor
    """The entry of each value of a row, `(D,)`, row-major."""

    def __init__(
        self,
        groups: Sequence[int],
        names: Sequence[str] | None = None,
        event_shape: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        groups = [int(g) for g in groups]
        count = max(groups, default=-1) + 1
        entries = sorted(set(groups))
        if not entries or entries[0] != 0 or len(entries) != count:
            raise ValueError(
                "groups must give each feature an entry 0 … G−1 and leave no entry out; "
                f"the entries given are {entries}"
            )
        if names is None:
            names = [f"x{g + 1}" for g in range(count)]
        if len(names) != count or len(set(names)) != count:
            raise ValueError(f"names must be {count} different names; they are {list(names)}")
        shape = (len(groups),) if event_shape is None else sizes("event_shape", event_shape)
        places = _places(len(groups), shape)
        self.names = tuple(names)
        self.event_shape = shape
        index = torch.tensor(groups)
        self.register_buffer("index", index.repeat(prod(shape) // len(groups)), persistent=False)
        self._places = places
        self._identity = groups == list(range(count))

    @classmethod
    def identity(cls, features: int, names: Sequence[str] | None = None) -> "Grouping":
        """One entry for each feature."""
        return cls(range(features), names)

    @classmethod
    def patches(cls, shape: Sequence[int], size: int) -> "Grouping":
        """One entry for each patch of `size × size` pixels of an image `(C, H, W)`, named by row
        and column from the upper left, "r3 c5"; where `size` does not divide a side, the last
        patches are smaller.

        Raises:
            ValueError: another shape, a size below 1 or above the longer side.

        Example:
            >>> Grouping.patches((3, 5, 5), 2).names[-1]
            'r3 c3'
        """
        _, height, width = image_shape(shape)
        size = patch_side("size", size, shape)
        rows, columns = -(-height // size), -(-width // size)
        return cls(
            [r // size * columns + c // size for r in range(height) for c in range(width)],
            [f"r{r + 1} c{c + 1}" for r in range(rows) for c in range(columns)],
            shape,
        )

    @classmethod
    def superpixels(cls, segments: Any, channels: int = 1) -> "Grouping":
        """One entry for each segment of a map that all images share.

        Args:
            segments: `(H, W)` of whole numbers, a tensor or an array: which segment a pixel is in.
                Entries are in the order of the numbers; see `slic_segments`.
            channels: C of the images.

        Raises:
            ValueError: another shape, numbers that are not whole.

        Example:
            >>> Grouping.superpixels([[7, 7, 9], [7, 9, 9]]).groups
            (0, 0, 1, 0, 1, 1)
        """
        pixels = torch.as_tensor(segments)
        shaped("segments", pixels, "H W", filled=True)
        if pixels.is_floating_point() and not bool((pixels == pixels.round()).all()):
            raise ValueError("segments must be whole numbers; some are fractions")
        numbers, entry = pixels.long().unique(return_inverse=True)
        names = [f"s{g + 1}" for g in range(len(numbers))]
        shape = (int_at_least("channels", channels), *pixels.shape)
        return cls(entry.flatten().tolist(), names, shape)

    @classmethod
    def time_by_feature(
        cls, shape: Sequence[int], window: int = 1, names: Sequence[str] | None = None
    ) -> "Grouping":
        """One entry for each feature in each window of time, of series `(T, F)`.

        Args:
            shape: `(T, F)`.
            window: times that share an entry; the last window may be shorter.
            names: of the F features; x1 … xF if None.

        Raises:
            ValueError: another shape, a window below 1, names of another number.

        Example:
            >>> Grouping.time_by_feature((4, 2), window=2).names
            ('t1-2 x1', 't1-2 x2', 't3-4 x1', 't3-4 x2')
        """
        shape = sizes("shape", shape)
        if len(shape) != 2:
            raise ValueError(f"shape must be (T, F), of times and features; it is {shape}")
        times, features = shape
        window = int_at_least("window", window)
        called = [f"x{f + 1}" for f in range(features)] if names is None else list(names)
        shaped("names", called, (features,))
        spans = [(start, min(start + window, times)) for start in range(0, times, window)]
        when = [f"t{a + 1}" if b == a + 1 else f"t{a + 1}-{b}" for a, b in spans]
        return cls(
            [t // window * features + f for t in range(times) for f in range(features)],
            [f"{time} {name}" for time in when for name in called],
            shape,
        )

    @classmethod
    def words(cls, length: int) -> "Grouping":
        """One entry for each place of a padded text, called "w1" … "wT"."""
        length = int_at_least("length", length)
        return cls(range(length), [f"w{t + 1}" for t in range(length)])

    @property
    def groups(self) -> tuple[int, ...]:
        """The entry of each feature, flat and row-major: `(D,)`, or of images whose channels share
        theirs one for each pixel, `(H · W,)`."""
        return tuple(self.index[: prod(self._places)].tolist())

    @property
    def entries(self) -> int:
        """Number of mask entries, G."""
        return len(self.names)

    @property
    def features(self) -> int:
        """D, the values of a row."""
        return len(self.index)

    def forward(self, mask: Tensor) -> Tensor:
        """Masks of features `(…, *event)` from masks of entries `(…, G)`.

        Raises:
            ValueError: masks of another number of entries.
        """
        if mask.shape[-1:] != (self.entries,):  # At each step of a fit
            shaped("masks", mask, ("…", self.entries))
        count = prod(self._places)
        keep = mask if self._identity else mask.index_select(-1, self.index[:count])
        if len(self.event_shape) == 1:
            return keep
        batch = mask.shape[:-1]
        return keep.reshape(*batch, *self._places).expand(*batch, *self.event_shape)

    def sums(self, values: Tensor) -> Tensor:
        """Sums over the features of each entry: `(…, *event)` to `(…, G)`."""
        batch = values.shape[: values.dim() - len(self.event_shape)]
        summed = values.new_zeros(*batch, self.entries)
        index = self.index.to(values.device)
        return summed.index_add(-1, index, values.reshape(*batch, len(index)))


def are_indicators(x: Tensor) -> bool:
    """Whether each row `(N, m)` without NaN is 1 in one place and 0 in the others, as the levels of
    a column are encoded."""
    x = x[~x.isnan().any(1)]
    return len(x) > 0 and bool(((x == 0) | (x == 1)).all() and (x.sum(1) == 1).all())


def patch_side(name: str, size: Any, shape: Sequence[int]) -> int:
    """A patch's side in pixels, from 1 to the longer side of an image `(C, H, W)`."""
    _, height, width = image_shape(shape)
    side = int_at_least(name, size)
    if side > max(height, width):
        raise ValueError(
            f"{name} must be at most {max(height, width)}, as the images are {height} × {width} "
            f"pixels; it is {side}"
        )
    return side


def sizes(name: str, shape: Any) -> tuple[int, ...]:
    """A shape as whole numbers of at least 1."""
    try:
        numbers = tuple(shape)
    except TypeError:
        raise ValueError(f"{name} must be a shape, such as (1, 28, 28); it is {shape!r}") from None
    if not numbers:
        raise ValueError(f"{name} must have a dimension; it is ()")
    return tuple(int_at_least(f"a size of {name}", size) for size in numbers)


def image_shape(shape: Any) -> tuple[int, int, int]:
    """The shape of an image, `(C, H, W)`.

    Example:
        >>> image_shape((28, 28))
        Traceback (most recent call last):
        ValueError: the shape of an image must be (C, H, W), channels first; it is (28, 28)
    """
    size = sizes("the shape of an image", shape)
    if len(size) != 3:
        raise ValueError(f"the shape of an image must be (C, H, W), channels first; it is {size}")
    return size[0], size[1], size[2]


def _places(groups: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """What of a row has an entry: its values, or its pixels, as `(1, *places)`."""
    if groups == prod(shape):
        return shape
    if len(shape) > 1 and groups == prod(shape[1:]):
        return (1, *shape[1:])
    pixels = f", or {prod(shape[1:])}, one for each place" if len(shape) > 1 else ""
    raise ValueError(
        f"groups must be {prod(shape)} for rows of shape {shape}, one for each value{pixels}; "
        f"there are {groups}"
    )


def slic_segments(image: Tensor, count: int, compactness: float = 0.1) -> Tensor:
    """A map of about `count` super-pixels of an image, whole numbers `(H, W)`, 0 … G−1, by
    scikit-image's SLIC: k-means of colour and place. Give it to :meth:`Grouping.superpixels`.

    A mask's entries stand for the same pixels in every row: take the mean of aligned training
    images, `slic_segments(x.mean(0), 64)`; the segments of a single image explain that image alone.

    Args:
        image: `(C, H, W)`, values in [0, 1].
        count: of segments; SLIC may make a few more or fewer.
        compactness: weight of places against colours: higher for squarer segments.

    Raises:
        ValueError: another shape, values outside [0, 1], fewer than one segment.
        ImportError: there is no scikit-image, of the extra `images`.

    Source: Achanta et al., "SLIC superpixels compared to state-of-the-art superpixel methods",
    TPAMI 2012.

    Example:
        >>> image = torch.zeros(1, 8, 8)
        >>> image[:, :, 4:] = 1.0
        >>> slic_segments(image, 4)[0].tolist()
        [0, 0, 0, 0, 1, 1, 1, 1]
    """
    image_shape(image.shape)
    if not bool(((image >= 0) & (image <= 1)).all()):
        raise ValueError(
            f"image must be in [0, 1]; it is {float(image.min()):g} to {float(image.max()):g}"
        )
    slic = extra_library("skimage.segmentation", "images").slic
    segments = slic(
        image.detach().double().cpu().numpy(),
        n_segments=int_at_least("count", count),
        compactness=finite_float("compactness", compactness, above=0.0),
        channel_axis=0,
        start_label=0,
        convert2lab=False,
    )
    return torch.from_numpy(np.asarray(segments, dtype=np.int64)).to(image.device)
