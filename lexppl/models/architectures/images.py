"""Architectures of images."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.configured import Configured
from lexppl.models.architectures.base import Architecture, TableArchitecture
from lexppl.models.architectures.image_networks import (
    NETWORKS,
    ConvolutionalNetwork,
    TorchvisionNetwork,
    UNet,
)
from lexppl.models.grouping import Grouping, image_shape, patch_side
from lexppl.models.networks import initial_weights


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
        channel = self.map(output).reshape(len(x), 1, *x.shape[-2:])
        return torch.cat([x, channel], 1)


class Flattened(Configured, nn.Module):
    """`network(x)` of rows `(N, *event)` laid out flat, row-major."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x.flatten(1))


CONVOLUTIONAL = "convolutional"
"""The predictor of the LEX paper."""


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
        levels: how often the selector halves an image.
        width: filters of its first level.
        batch_norm: whether both have batch norm; of torchvision's the selector alone.

    Raises:
        ValueError: another shape, patches larger than an image, both patches and a grouping, a
            grouping of other images or whose channels differ, an unknown predictor.

    Example:
        >>> images((1, 8, 8), patches=4, blocks=(4,), levels=1)
        ImageArchitecture(rows (1, 8, 8), 4 mask entries)
    """

    def __init__(
        self,
        shape: Sequence[int],
        patches: int = 1,
        *,
        grouping: Grouping | None = None,
        predictor: str | Callable[[int], nn.Module] = CONVOLUTIONAL,
        weights: str | None = None,
        blocks: Sequence[int] = (32, 64),
        levels: int = 3,
        width: int = 16,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(shape, patches, grouping)
        if isinstance(predictor, str) and predictor not in (CONVOLUTIONAL, *NETWORKS):
            raise ValueError(
                f"predictor must be one of {[CONVOLUTIONAL, *NETWORKS]}, or a function from the "
                f"number of outputs to a module; it is {predictor!r}"
            )
        if weights is not None and predictor not in NETWORKS:
            raise ValueError(
                f"weights= are torchvision's, of {list(NETWORKS)}; predictor is {predictor!r}"
            )
        self._predictor, self._weights = predictor, weights
        self._blocks, self._batch_norm = tuple(blocks), batch_norm
        self._unet = partial(UNet, levels=levels, width=width, batch_norm=batch_norm)
        # What does not fit is refused here, and not where a system is built of it; neither network
        # is kept, and the seed leaves the global random state alone.
        with initial_weights(0):
            self.selector(self.entries)
            if predictor == CONVOLUTIONAL:
                self.predictor(1)

    def selector(self, outputs: int) -> nn.Module:
        """A U-Net, `(N, C, H, W)` to `(N, outputs)`."""
        return self._unet(self._shape, outputs, self.grouping)

    def predictor(self, outputs: int, seed: int | None = None) -> nn.Module:
        """The convolutional network, or the one that was named or given: `(N, C, H, W)` to
        `(N, outputs)`."""
        with initial_weights(seed):
            if not isinstance(self._predictor, str):
                return self._predictor(outputs)
            if self._predictor in NETWORKS:
                name, weights = self._predictor, self._weights
                return TorchvisionNetwork(name, self._shape, outputs, weights=weights)
            blocks, norm = self._blocks, self._batch_norm
            return ConvolutionalNetwork(self._shape, outputs, blocks, batch_norm=norm)

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
        hidden, predictor_hidden, activation, batch_norm: as :class:`TableArchitecture`.

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
        hidden: Sequence[int] = (200, 200),
        predictor_hidden: Sequence[int] = (200, 200, 200),
        activation: str = "relu",
        batch_norm: bool = False,
    ) -> None:
        super().__init__(shape, patches, grouping)
        self._flat = TableArchitecture(
            prod(self._shape), hidden, predictor_hidden, activation, batch_norm
        )
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
        """A perceptron of the pixels and the output after them."""
        return self._flat.feedback(outputs, shown)


images, flat_images = ImageArchitecture, FlatImageArchitecture
