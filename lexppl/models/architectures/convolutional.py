"""A small convolutional predictor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from lexppl.argument_checks import int_at_least
from lexppl.configured import Configured
from lexppl.models.architectures.weights import check_images, initial_weights
from lexppl.models.grouping import image_shape


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
        seed: of the initial weights, which leaves the global random state as it is; None draws them
            from torch's default generator.

    Raises:
        ValueError: another shape, a number below 1; from a call, images of another shape.

    Example:
        >>> import torch
        >>> ConvolutionalNetwork((1, 7, 5), 10, (4, 8), seed=0)(torch.zeros(3, 1, 7, 5)).shape
        torch.Size([3, 10])
    """

    not_described: ClassVar[frozenset[str]] = frozenset({"seed"})

    def __init__(
        self,
        shape: Sequence[int],
        outputs: int,
        blocks: Sequence[int] = (32, 64),
        convolutions: int = 2,
        *,
        batch_norm: bool = False,
        seed: int | None = None,
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
        with initial_weights(seed):
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
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(
            nn.BatchNorm2d(filters) if batch_norm else nn.Identity() for _ in range(convolutions)
        )
        self._activate = getattr(nn.functional, activation)

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = self._activate(norm(layer(x)))
        return x


def halved(x: Tensor) -> Tensor:
    """Means of 2 × 2 pixels; a side that is odd, or 1, is rounded upwards: the last means are then
    of the pixels that there are."""
    return avg_pool2d(x, 2, ceil_mode=True)
