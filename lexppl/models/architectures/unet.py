"""A U-Net that gives numbers for mask entries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate

from lexppl.argument_checks import int_at_least, int_between
from lexppl.configured import Configured
from lexppl.models.architectures.convolutional import ConvolutionBlock, halved
from lexppl.models.architectures.weights import check_images, initial_weights
from lexppl.models.grouping import Grouping, image_shape
from lexppl.models.networks import ACTIVATIONS

MOST_LEVELS = 30
"""More than any image can be halved."""


class UNet(Configured, nn.Module):
    """A U-Net and the mean of its output over each mask entry: `(N, C, H, W)` to `(N, outputs)`.

    On the way down each level has two 3 × 3 convolutions and halves height and width,
    upwards where they are odd, while the filters double; on the way up the image is enlarged to the
    size that it had, put beside what the level below saw then, and convolved twice again. A 1 × 1
    convolution gives m maps of the image's size, of which the means over the pixels of each entry
    are the output. Sides may be of any size.

    Args:
        shape: of an image, `(C, H, W)`.
        outputs: m · G, the G means of the first map, then of the second …
        grouping: which pixels an entry stands for; one entry a pixel if None, G = H · W.
        levels: how often the image is halved, up to 30 times; 0 for convolutions alone.
        width: filters of the first level.
        activation: after each 3 × 3 convolution, one of :data:`ACTIVATIONS`.
        batch_norm: as :class:`ConvolutionalNetwork` has it; the statistics are those of the rows
            of the batch, which a selector sees once each.
        seed: of the initial weights, which leaves the global random state as it is; None draws them
            from torch's default generator.

    Raises:
        ValueError: another shape, a grouping of other images or one whose channels differ, outputs
            that are no multiple of G; from a call, images of another shape.

    Source: Ronneberger, Fischer & Brox, "U-Net: convolutional networks for biomedical image
    segmentation", MICCAI 2015; the selector of Senetaire et al. 2023 and Jethani et al. 2021.

    Example:
        >>> grouping = Grouping.patches((1, 7, 5), 2)
        >>> UNet((1, 7, 5), 12, grouping, levels=2, width=4, seed=0)(torch.zeros(3, 1, 7, 5)).shape
        torch.Size([3, 12])
    """

    not_described: ClassVar[frozenset[str]] = frozenset({"seed"})

    def __init__(
        self,
        shape: Sequence[int],
        outputs: int,
        grouping: Grouping | None = None,
        levels: int = 3,
        width: int = 16,
        *,
        activation: str = "relu",
        batch_norm: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.shape = image_shape(shape)
        self.outputs = int_at_least("outputs", outputs)
        self.levels = int_between("levels", levels, 0, MOST_LEVELS)
        self.width = int_at_least("width", width)
        self.batch_norm = bool(batch_norm)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {ACTIVATIONS}; it is {activation!r}")
        self.activation = activation
        self.grouping = grouping
        self.means = EntryMeans(self.shape, grouping)
        channels, height, across = self.shape
        entries = height * across if grouping is None else grouping.entries
        if self.outputs % entries:
            raise ValueError(
                f"outputs must be a multiple of the {entries} mask entries; it is {outputs}"
            )
        filters = [self.width * 2**level for level in range(self.levels + 1)]
        with initial_weights(seed):
            self.down = nn.ModuleList(
                ConvolutionBlock(a, b, 2, self.batch_norm, activation)
                for a, b in pairwise((channels, *filters))
            )
            self.up = nn.ModuleList(
                ConvolutionBlock(a + b, a, 2, self.batch_norm, activation)
                for a, b in reversed(list(pairwise(filters)))
            )
            self.maps = nn.Conv2d(self.width, self.outputs // entries, 1)

    @property
    def numbers_a_row(self) -> int:
        """Numbers that its largest layer makes of an image."""
        return 3 * self.width * prod(self.shape[1:])

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, self.shape)
        *before, last = self.down
        seen = []
        for block in before:
            x = block(x)
            seen.append(x)
            x = halved(x)
        x = last(x)
        for block in self.up:
            beside = seen.pop()
            x = block(torch.cat([beside, interpolate(x, beside.shape[-2:])], 1))
        means: Tensor = self.means(self.maps(x)).flatten(1)
        return means


class EntryMeans(nn.Module):
    """Means of maps over the pixels of each entry: `(N, m, H, W)` to `(N, m, G)`.

    Args:
        shape: of an image, `(C, H, W)`.
        grouping: which pixels an entry stands for; one entry a pixel if None.

    Raises:
        ValueError: a grouping of other images, or one whose channels differ.

    Example:
        >>> means = EntryMeans((1, 2, 3), Grouping.patches((1, 2, 3), 2))
        >>> means(torch.tensor([[[[1.0, 2.0, 6.0], [3.0, 4.0, 8.0]]]]))
        tensor([[[2.5000, 7.0000]]])
    """

    index: Tensor
    pixels: Tensor

    def __init__(self, shape: Sequence[int], grouping: Grouping | None = None) -> None:
        super().__init__()
        _, height, width = image_shape(shape)
        self.entries = height * width if grouping is None else grouping.entries
        groups = tuple(range(height * width)) if grouping is None else grouping.groups
        if grouping is not None and grouping.event_shape != tuple(shape):
            raise ValueError(
                f"the grouping is of rows {grouping.event_shape}; the images are {tuple(shape)}"
            )
        if len(groups) != height * width:
            raise ValueError(
                "a U-Net has one number for each pixel, and the grouping gives the channels of a "
                "pixel different entries: give one whose channels share them, such as "
                "Grouping.patches"
            )
        self._patch = _patch(groups, height, width)
        index = torch.tensor(groups)
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("pixels", index.bincount(minlength=self.entries), persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        if self._patch is not None:
            pooled = maps if self._patch == 1 else avg_pool2d(maps, self._patch, ceil_mode=True)
            return pooled.flatten(-2)
        flat = maps.flatten(-2)
        summed = flat.new_zeros(*flat.shape[:-1], self.entries).index_add(-1, self.index, flat)
        return summed / self.pixels


def _patch(groups: Sequence[int], height: int, width: int) -> int | None:
    """The side of the patches, where the entries are patches, row by row."""
    side = next((place for place, g in enumerate(groups[:width]) if g), max(height, width))
    return side if Grouping.patches((1, height, width), side).groups == tuple(groups) else None
