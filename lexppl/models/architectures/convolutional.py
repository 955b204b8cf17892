"""Convolutional networks of images: a predictor, and a U-Net for the entries of a mask."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate

from lexppl.argument_checks import int_at_least, int_between
from lexppl.configured import Configured
from lexppl.models.grouping import Grouping, image_shape
from lexppl.models.networks import ACTIVATIONS

MOST_LEVELS = 30
"""More than any image can be halved."""


class ConvolutionalNetwork(Configured, nn.Module):
    """Blocks of convolutions and average pooling, and a linear layer: `(N, C, H, W)` to
    `(N, outputs)`.

    Each block has 3 × 3 convolutions with ReLU, and then halves height and width, upwards where
    they are odd. The default is the predictor of the LEX paper's panels (Senetaire et al. 2023,
    App. D): two blocks of two convolutions, of 32 and 64 filters.

    Args:
        shape: of an image, `(C, H, W)`.
        outputs: size of the last layer.
        blocks: the number of filters of each block.
        convolutions: in each block.
        batch_norm: normalise what each convolution gives over images and places, before the ReLU.
            While training, its statistics are those of all N images that the network is given: the
            L · K masked copies of each row of the batch. They are each replicate's own.

    Raises:
        ValueError: another shape, a number below 1; from a call, images of another shape.

    Example:
        >>> import torch
        >>> ConvolutionalNetwork((1, 7, 5), 10, (4, 8))(torch.zeros(3, 1, 7, 5)).shape
        torch.Size([3, 10])
    """

    def __init__(
        self,
        shape: Sequence[int],
        outputs: int,
        blocks: Sequence[int] = (32, 64),
        convolutions: int = 2,
        *,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        self.shape = image_shape(shape)
        self.outputs = int_at_least("outputs", outputs)
        self.blocks = tuple(int_at_least("a number of filters of blocks", n) for n in blocks)
        self.convolutions = int_at_least("convolutions", convolutions)
        self.batch_norm = bool(batch_norm)
        channels, height, width = self.shape
        for _ in self.blocks:
            height, width = -(-height // 2), -(-width // 2)
        last = self.blocks[-1] if self.blocks else channels
        self.layers = nn.ModuleList(
            ConvolutionBlock(a, b, self.convolutions, self.batch_norm)
            for a, b in pairwise((channels, *self.blocks))
        )
        self.last = nn.Linear(last * height * width, self.outputs)

    @property
    def numbers_a_row(self) -> int:
        """Numbers that its largest layer makes of an image."""
        _, height, width = self.shape
        return self.blocks[0] * height * width if self.blocks else 0

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, self.shape)
        for block in self.layers:
            x = halved(block(x))
        outputs: Tensor = self.last(x.flatten(1))
        return outputs


class ConvolutionBlock(nn.Module):
    """3 × 3 convolutions, each with an activation, that keep height and width: `(N, C, H, W)` to
    `(N, filters, H, W)`."""

    def __init__(
        self,
        channels: int,
        filters: int,
        convolutions: int = 2,
        batch_norm: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        widths = [channels, *[filters] * convolutions]
        self.layers = nn.ModuleList(
            ActivatedConvolution(a, b, activation) for a, b in pairwise(widths)
        )
        self.norms = nn.ModuleList(
            nn.BatchNorm2d(filters) if batch_norm else nn.Identity() for _ in range(convolutions)
        )
        self._activate = getattr(nn.functional, activation)

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = self._activate(norm(layer(x)))
        return x


class ActivatedConvolution(nn.Conv2d):
    """A 3 × 3 convolution that keeps height and width, for an activation behind it.

    Weights are first drawn as He et al. have it, `U[−b, b]` with `b = gain · √(3 / fan_in)` and
    gain √2 before a ReLU, so that the activations' mean square stays what it is from layer to
    layer. By torch's own draw it falls to a sixth in each, and an image of which a tenth is kept
    then says next to nothing: of 1,200 digits with a tenth of the patches kept at random, a
    predictor of two blocks knew 0.04 nats of 2.30 after 8 epochs, by this one 0.39, as much as a
    perceptron.

    Args:
        channels: of what it takes.
        filters: of what it gives.
        activation: behind it.

    Source: He, Zhang, Ren & Sun, "Delving deep into rectifiers", ICCV 2015, eq. 10.

    Example:
        >>> bound = ActivatedConvolution(8, 4, "relu").weight.abs().max()
        >>> bool(0.2 < bound < (2 * 3 / 72) ** 0.5), (2 * 3 / 72) ** 0.5 < 0.3
        (True, True)
    """

    def __init__(self, channels: int, filters: int, activation: str) -> None:
        # Read by reset_parameters, which the next line calls; the others are near enough to a ReLU.
        self.gain_of: Literal["tanh", "relu"] = "tanh" if activation == "tanh" else "relu"
        super().__init__(channels, filters, 3, padding=1)

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        nn.init.kaiming_uniform_(self.weight, nonlinearity=self.gain_of)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def halved(x: Tensor) -> Tensor:
    """Means of 2 × 2 pixels; a side that is odd, or 1, is rounded upwards: the last means are then
    of the pixels that there are."""
    return avg_pool2d(x, 2, ceil_mode=True)


def check_images(x: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse rows that are no images of a shape.

    Raises:
        ValueError: another shape.

    Example:
        >>> check_images(torch.zeros(2, 1, 8, 8), (1, 28, 28))
        Traceback (most recent call last):
        ...
        ValueError: the network takes images (N, 1, 28, 28); it is given (2, 1, 8, 8)
    """
    if x.dim() != 1 + len(shape) or x.shape[1:] != shape:
        raise ValueError(
            f"the network takes images (N, {', '.join(map(str, shape))}); it is given "
            f"{tuple(x.shape)}"
        )


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
        batch_norm: as `ConvolutionalNetwork` has it; the statistics are those of the rows
            of the batch, which a selector sees once each.

    Raises:
        ValueError: another shape, a grouping of other images or one whose channels differ, outputs
            that are no multiple of G; from a call, images of another shape.

    Source: Ronneberger, Fischer & Brox, "U-Net: convolutional networks for biomedical image
    segmentation", MICCAI 2015; the selector of Senetaire et al. 2023 and Jethani et al. 2021.

    Example:
        >>> grouping = Grouping.patches((1, 7, 5), 2)
        >>> UNet((1, 7, 5), 12, grouping, levels=2, width=4)(torch.zeros(3, 1, 7, 5)).shape
        torch.Size([3, 12])
    """

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
