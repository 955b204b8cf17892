"""Networks of images: a U-Net for the entries of a mask, and convolutional predictors."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from math import prod
from typing import Any, ClassVar, Literal

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
    """Blocks of 3 × 3 convolutions with ReLU, each halving height and width (rounded up), and a
    linear layer: `(N, C, H, W)` to `(N, outputs)`; by default the predictor of Senetaire et al.
    2023, App. D. Batch norm, where asked for, is over all N images: the L · K masked copies of the
    batch's rows."""

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
        return self.last(x.flatten(1))


class ConvolutionBlock(nn.Module):
    """3 × 3 convolutions with activations: `(N, C, H, W)` to `(N, filters, H, W)`."""

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
    """A 3 × 3 convolution that keeps height and width, with weights `U[−b, b]`, `b = gain · √(3 /
    fan_in)` (He et al. 2015, eq. 10): the activations' mean square stays what it is from layer to
    layer, where torch's own weights take it to a sixth."""

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
    """Means of 2 × 2 pixels, the last of those that there are where a side is odd."""
    return avg_pool2d(x, 2, ceil_mode=True)


def check_images(x: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse rows that are no images of a shape.

    Example:
        >>> check_images(torch.zeros(2, 1, 8, 8), (1, 28, 28))
        Traceback (most recent call last):
        ValueError: the network takes images (N, 1, 28, 28); it is given (2, 1, 8, 8)
    """
    if x.dim() != 1 + len(shape) or x.shape[1:] != shape:
        raise ValueError(
            f"the network takes images (N, {', '.join(map(str, shape))}); it is given "
            f"{tuple(x.shape)}"
        )


class UNet(Configured, nn.Module):
    """A U-Net (Ronneberger, Fischer & Brox 2015) and the means of its m maps over the pixels of
    each mask entry: `(N, C, H, W)` to `(N, m · G)`, by map and then by entry. Each of `levels`
    halvings, rounded up, doubles the filters, of which the first level has `width`; without a
    grouping G is H · W."""

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
        return self.means(self.maps(x)).flatten(1)


class EntryMeans(nn.Module):
    """Means of maps over the pixels of each entry: `(N, m, H, W)` to `(N, m, G)`."""

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


NETWORKS = ("densenet121", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large")
"""Torchvision's networks that are taken."""

LEAST = 32
"""Pixels of a side that they need: all of them halve an image five times."""

IMAGENET_MEAN, IMAGENET_SCALE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's channels, as torchvision's weights expect them to be standardised by."""


class TorchvisionNetwork(Configured, nn.Module):
    """A network of torchvision, "densenet121" or a "mobilenet_…", with a last layer of its own:
    `(N, C, H, W)`, C = 1 or 3, to `(N, outputs)`. Sides below 32 pixels are enlarged to that; named
    `weights` have channels standardised as ImageNet's."""

    not_described: ClassVar[frozenset[str]] = frozenset({"weights"})

    mean: Tensor
    scale: Tensor

    def __init__(
        self, name: str, shape: Sequence[int], outputs: int, *, weights: str | None = None
    ) -> None:
        super().__init__()
        if name not in NETWORKS:
            raise ValueError(f"name must be one of {list(NETWORKS)}; it is {name!r}")
        self.name = name
        self.shape = image_shape(shape)
        self.outputs = int_at_least("outputs", outputs)
        if self.shape[0] not in (1, 3):
            raise ValueError(
                f"{name} takes images of 3 channels, or of 1, which is repeated; they have "
                f"{self.shape[0]}"
            )
        # Loaded where it is used: it takes seconds.
        models = import_module("torchvision.models")
        if weights is None:
            self.network = models.get_model(name, weights=None, num_classes=self.outputs)
        else:
            _check_weights(models, name, weights)
            self.network = models.get_model(name, weights=weights)
            _replace_last(self.network, self.outputs)
        mean, scale = (0.0, 1.0) if weights is None else (IMAGENET_MEAN, IMAGENET_SCALE)
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1).expand(3, 1, 1).clone())
        self.register_buffer("scale", torch.tensor(scale).reshape(-1, 1, 1).expand(3, 1, 1).clone())

    @property
    def numbers_a_row(self) -> int:
        """Numbers that its largest layers make of an image, about: 64 channels of half the size."""
        _, height, width = self.shape
        return 16 * max(height, LEAST) * max(width, LEAST)

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, self.shape)
        x = x.expand(-1, 3, -1, -1)
        x = (x - self.mean) / self.scale
        if min(x.shape[-2:]) < LEAST:
            size = [max(side, LEAST) for side in x.shape[-2:]]
            x = interpolate(x, size, mode="bilinear", align_corners=False)
        return self.network(x)


def _check_weights(models: Any, name: str, weights: str) -> None:
    known = [weight.name for weight in models.get_model_weights(name)]
    if weights not in (*known, "DEFAULT"):
        raise ValueError(f"weights of {name} must be one of {known}, or None; they are {weights!r}")


def _replace_last(network: nn.Module, outputs: int) -> None:
    """A new last layer in place of ImageNet's thousand classes."""
    last = network.classifier
    if isinstance(last, nn.Linear):
        network.classifier = nn.Linear(last.in_features, outputs)
    elif isinstance(last, nn.Sequential) and isinstance(last[-1], nn.Linear):
        last[-1] = nn.Linear(last[-1].in_features, outputs)
