"""Networks of images, and which of them an explainer of images is made of."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise
from math import prod
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate

from lexppl.argument_checks import int_at_least, int_between, one_of, shaped
from lexppl.configured import Configured
from lexppl.models.architectures.base import Architecture, TableArchitecture
from lexppl.models.grouping import Grouping, image_shape, patch_side
from lexppl.models.networks import ACTIVATIONS, initial_weights

MOST_LEVELS = 30  # More than any image can be halved


class ConvolutionalNetwork(Configured, nn.Module):
    """Blocks of 3 × 3 convolutions with ReLU, each halving height and width (rounded up), and a
    linear layer: `(N, C, H, W)` to `(N, outputs)`; by default the predictor of Senetaire et al.
    2023, App. D. The linear layer reads all places of the last block, or, where it is `pooled`, the
    largest value of each filter of every block, wherever it stands. Batch norm, where asked for, is
    over all N images: the L · K masked copies of the batch's rows."""

    def __init__(
        self,
        shape: Sequence[int],
        outputs: int,
        blocks: Sequence[int] = (32, 64),
        convolutions: int = 2,
        *,
        batch_norm: bool = False,
        pooled: bool = False,
    ) -> None:
        super().__init__()
        self.shape = image_shape(shape)
        self.outputs = int_at_least("outputs", outputs)
        self.pooled = bool(pooled)
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
        read = sum(self.blocks) if self.pooled else last * height * width
        self.last = nn.Linear(read, self.outputs)

    @property
    def numbers_a_row(self) -> int:
        """Numbers that its largest layer makes of an image."""
        _, height, width = self.shape
        return self.blocks[0] * height * width if self.blocks else 0

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, self.shape)
        largest = []
        for block in self.layers:
            x = block(x)
            if self.pooled:
                largest.append(x.amax((-2, -1)))
            x = halved(x)
        return self.last(torch.cat(largest, 1) if self.pooled else x.flatten(1))


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
        ValueError: images must have shape (N, 1, 28, 28); the shape is (2, 1, 8, 8)
    """
    shaped("images", x, ("N", *shape))


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
        convolutions: int = 2,
        activation: str = "relu",
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        self.shape = image_shape(shape)
        self.outputs = int_at_least("outputs", outputs)
        self.convolutions = int_at_least("convolutions", convolutions)
        self.levels = int_between("levels", levels, 0, MOST_LEVELS)
        self.width = int_at_least("width", width)
        self.batch_norm = bool(batch_norm)
        one_of(ACTIVATIONS, "activation", activation)
        self.activation = activation
        self.grouping = grouping
        self.means = EntryMeans(self.shape, grouping)
        channels, height, across = self.shape
        entries = height * across if grouping is None else grouping.entries
        if self.outputs % entries:
            raise ValueError(f"outputs must be a multiple of {entries} entries; it is {outputs}")
        filters = [self.width * 2**level for level in range(self.levels + 1)]
        self.down = nn.ModuleList(
            ConvolutionBlock(a, b, self.convolutions, self.batch_norm, activation)
            for a, b in pairwise((channels, *filters))
        )
        self.up = nn.ModuleList(
            ConvolutionBlock(a + b, a, self.convolutions, self.batch_norm, activation)
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
            raise ValueError(f"grouping is of {grouping.event_shape}; images are {tuple(shape)}")
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

LEAST = 32  # Pixels of a side that they need: all of them halve an image five times

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
        self.name: str = one_of(NETWORKS, "name", name)
        self.shape = image_shape(shape)
        self.outputs = int_at_least("outputs", outputs)
        if self.shape[0] not in (1, 3):
            raise ValueError(
                f"{name} takes images of 3 channels, or 1, repeated; they have {self.shape[0]}"
            )
        # Loaded where it is used: it takes seconds.
        models = import_module("torchvision.models")
        if weights is None:
            self.network = models.get_model(name, weights=None, num_classes=self.outputs)
        else:
            known = [weight.name for weight in models.get_model_weights(name)]
            if weights not in (*known, "DEFAULT"):
                raise ValueError(
                    f"weights of {name} must be one of {known}, or None; they are {weights!r}"
                )
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


def _replace_last(network: nn.Module, outputs: int) -> None:
    """A new last layer in place of ImageNet's thousand classes."""
    last = network.classifier
    if isinstance(last, nn.Linear):
        network.classifier = nn.Linear(last.in_features, outputs)
    elif isinstance(last, nn.Sequential) and isinstance(last[-1], nn.Linear):
        last[-1] = nn.Linear(last[-1].in_features, outputs)


class ExtraChannel(Configured, nn.Module):
    """An image `(N, C, H, W)` with a linear map of a vector `(N, shown)` as one more channel: how a
    selector is shown the model's output (Liang et al. 2020, § 3.1)."""

    def __init__(self, shape: Sequence[int], shown: int) -> None:
        super().__init__()
        self.shape = image_shape(shape)
        self.shown = int_at_least("shown", shown)
        _, height, width = self.shape
        self.map = nn.Linear(self.shown, height * width)

    def forward(self, x: Tensor, output: Tensor) -> Tensor:
        return torch.cat([x, self.map(output).reshape(len(x), 1, *x.shape[-2:])], 1)


class Flattened(Configured, nn.Module):
    """`network(x)` of rows `(N, *event)` laid out flat, row-major."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x.flatten(1))


CONVOLUTIONAL = "convolutional"  # The predictor of the LEX paper


class _OfImages(Architecture):
    """Rows that are images `(C, H, W)`, with a mask entry for each patch or group of pixels."""

    def __init__(self, shape: Sequence[int], patches: int, grouping: Grouping | None) -> None:
        self._shape = image_shape(shape)
        if grouping is None:
            grouping = Grouping.patches(shape, patch_side("patches", patches, shape))
        elif patches != 1:
            raise ValueError("give either patches, or a grouping, which says which pixels are one")
        elif grouping.event_shape != self._shape:
            raise ValueError(
                f"the grouping is of rows {grouping.event_shape}; the images are {self._shape}. "
                "Grouping.patches and Grouping.superpixels take the shape"
            )
        self._grouping = grouping

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of an image, `(C, H, W)`."""
        return self._shape

    @property
    def grouping(self) -> Grouping:
        """Which pixels an entry keeps: a copy, which may be moved to another device."""
        return copy.deepcopy(self._grouping)


class ImageArchitecture(_OfImages):
    """Convolutional networks for images `(C, H, W)`, values in [0, 1]: a U-Net selects (`UNet`), a
    small convolutional network predicts (`ConvolutionalNetwork`). The defaults are those of the LEX
    paper's panels (Senetaire et al. 2023, App. D); hidden pixels are 0, black, where a method is
    given no imputer.

    Args:
        shape: of an image, `(C, H, W)`; sides of any size.
        patches: p for a mask entry for each patch of p × p pixels; 1 for each pixel.
        grouping: in its place, such as :meth:`Grouping.superpixels`.
        predictor: "convolutional"; torchvision's "densenet121", "mobilenet_v2",
            "mobilenet_v3_small" or "mobilenet_v3_large" (`TorchvisionNetwork`); or a function from
            the number of outputs to a module of images. Batch norm, which torchvision's have, is
            over the L · K masked copies of the batch's rows while training.
        weights: of torchvision's network, such as "IMAGENET1K_V1", which torchvision downloads;
            None for random ones.
        blocks: filters of the convolutional predictor's blocks.
        pooled: whether it reads what there is and not where (`ConvolutionalNetwork`), as for things
            that may stand anywhere.
        levels: how often the selector halves an image.
        width: filters of its first level.
        convolutions: of each block of both.
        batch_norm: whether both have batch norm; of torchvision's the selector alone.

    Raises:
        ValueError: another shape, patches larger than an image, both patches and a grouping, a
            grouping of other images or whose channels differ, an unknown predictor.

    Example:
        >>> images((1, 8, 8), patches=4, blocks=(4,), levels=1)
        ImageArchitecture(rows (1, 8, 8), 4 mask entries)
    """

    _fitted: ConvolutionalNetwork | None = None

    def __init__(
        self,
        shape: Sequence[int],
        patches: int = 1,
        *,
        grouping: Grouping | None = None,
        predictor: str | Callable[[int], nn.Module] = CONVOLUTIONAL,
        weights: str | None = None,
        blocks: Sequence[int] = (32, 64),
        pooled: bool = False,
        levels: int = 3,
        width: int = 16,
        convolutions: int = 2,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(shape, patches, grouping)
        if isinstance(predictor, str):
            one_of((CONVOLUTIONAL, *NETWORKS), "predictor", predictor)
        if weights is not None and predictor not in NETWORKS:
            raise ValueError(
                f"weights= are torchvision's, of {list(NETWORKS)}; predictor is {predictor!r}"
            )
        self._predictor, self._weights = predictor, weights
        self._network = partial(
            ConvolutionalNetwork,
            blocks=tuple(blocks),
            convolutions=convolutions,
            batch_norm=batch_norm,
            pooled=pooled,
        )
        self._unet = partial(
            UNet, levels=levels, width=width, convolutions=convolutions, batch_norm=batch_norm
        )
        # What does not fit is refused here, and not where a system is built of it; neither network
        # is kept, and the seed leaves the global random state alone.
        with initial_weights(0):
            self.selector(self.entries)
            if predictor == CONVOLUTIONAL:
                self.predictor(1)

    def selector(self, outputs: int) -> nn.Module:
        """A U-Net, `(N, C, H, W)` to `(N, outputs)`."""
        network = self._unet(self._shape, outputs, self.grouping)
        fitted = () if self._fitted is None else self._fitted.layers
        for block, start in zip(network.down, fitted, strict=False):
            if [w.shape for w in block.parameters()] == [w.shape for w in start.parameters()]:
                block.load_state_dict(start.state_dict())
        return network

    def predictor(self, outputs: int, seed: int | None = None) -> nn.Module:
        """The convolutional network, or the one that was named or given: `(N, C, H, W)` to
        `(N, outputs)`."""
        if self._fitted is not None and self._fitted.outputs == outputs:
            return copy.deepcopy(self._fitted)
        with initial_weights(seed):
            if not isinstance(self._predictor, str):
                return self._predictor(outputs)
            if self._predictor in NETWORKS:
                name, weights = self._predictor, self._weights
                return TorchvisionNetwork(name, self._shape, outputs, weights=weights)
            return self._network(self._shape, outputs)

    def coefficients(self, outputs: int) -> nn.Module:
        """A U-Net of `outputs · C` maps, smooth as SENN has it: with tanh."""
        return self._unet(self._shape, outputs * prod(self._shape), None, activation="tanh")

    def feedback(self, outputs: int, shown: int) -> tuple[nn.Module, nn.Module | None]:
        """A U-Net of the image and a linear map of the output, as one more channel."""
        channels, *sides = self._shape
        wider = (channels + 1, *sides)
        grouping = Grouping(self._grouping.groups, self._grouping.names, wider)
        return self._unet(wider, outputs, grouping), ExtraChannel(self._shape, shown)


class FlatImageArchitecture(_OfImages):
    """Perceptrons on the pixels of images `(C, H, W)`, values in [0, 1]: what REAL-X and Q-FIT have
    on MNIST. Hidden pixels are 0, black, where a method is given no imputer.

    Args:
        shape, patches, grouping: as :class:`ImageArchitecture`.
        perceptrons: hidden, predictor_hidden, activation and batch_norm of
            :class:`TableArchitecture`.

    Raises:
        ValueError: another shape, both patches and a grouping, a grouping of other images.

    Example:
        >>> mnist = flat_images((1, 28, 28), patches=4)
        >>> mnist.selector(mnist.entries)(torch.zeros(5, 1, 28, 28)).shape
        torch.Size([5, 49])
    """

    def __init__(
        self,
        shape: Sequence[int],
        patches: int = 1,
        *,
        grouping: Grouping | None = None,
        **perceptrons: Any,
    ) -> None:
        super().__init__(shape, patches, grouping)
        self._flat = TableArchitecture(prod(self._shape), **perceptrons)
        # Widths that do not fit are refused here, and not where a system is built.
        with initial_weights(0):
            self.selector(1), self.predictor(1)

    def selector(self, outputs: int) -> nn.Module:
        """A perceptron of the pixels, `(N, C, H, W)` to `(N, outputs)`."""
        return Flattened(self._flat.selector(outputs))

    def predictor(self, outputs: int, seed: int | None = None) -> nn.Module:
        """A perceptron of the pixels, `(N, C, H, W)` to `(N, outputs)`."""
        return Flattened(self._flat.predictor(outputs, seed))

    def coefficients(self, outputs: int) -> nn.Module:
        """A perceptron of the pixels, `(N, C, H, W)` to `(N, outputs · C · H · W)`."""
        return self.selector(outputs * prod(self._shape))

    def feedback(self, outputs: int, shown: int) -> tuple[nn.Module, nn.Module | None]:
        """A perceptron that reads the pixels followed by the output."""
        return self._flat.feedback(outputs, shown)


images, flat_images = ImageArchitecture, FlatImageArchitecture
