"""Networks of a VAEAC: on tables and on images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, silu

from lexppl.argument_checks import int_at_least
from lexppl.configured import Configured
from lexppl.models.networks import MLP

POOLED = 4
"""Height and width to which an image's features are pooled before the latent variable."""


class TableDecoder(Configured, nn.Module):
    """From a latent variable `(N, H)` and what is seen of rows `(N, 2D)` to `(N, 2D)`."""

    def __init__(
        self,
        latent: int,
        features: int,
        hidden: Sequence[int] = (200, 200),
    ) -> None:
        super().__init__()
        self.latent, self.features = latent, features
        self.hidden = tuple(hidden)
        self.network = MLP(latent + 2 * features, 2 * features, hidden, "silu")

    def forward(self, h: Tensor, seen: Tensor) -> Tensor:
        result: Tensor = self.network(torch.cat([h, seen], -1))
        return result


class ImageEncoder(Configured, nn.Module):
    """Convolutions that halve the image, then a linear layer on what is pooled to 4 × 4:
    `(N, channels, H, W)` to `(N, outputs)`."""

    def __init__(self, channels: int, outputs: int, widths: Sequence[int] = (32, 64)) -> None:
        super().__init__()
        self.channels, self.outputs = int_at_least("channels", channels), outputs
        self.widths = tuple(int_at_least("a width of widths", width) for width in widths)
        before = [channels, *self.widths]
        self.layers = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=2, padding=1)
            for a, b in zip(before, self.widths, strict=False)
        )
        self.last = nn.Linear(before[-1] * POOLED**2, outputs)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = silu(layer(x))
        pooled = nn.functional.adaptive_avg_pool2d(x, POOLED)
        result: Tensor = self.last(pooled.flatten(1))
        return result


class ImageDecoder(Configured, nn.Module):
    """From a latent variable `(N, H)`, enlarged from a coarse image, and what is seen of images
    `(N, 2 channels, H, W)` to `(N, 2 channels, H, W)`."""

    def __init__(self, latent: int, channels: int, width: int = 32) -> None:
        super().__init__()
        self.latent, self.channels = latent, channels
        self.width = int_at_least("width", width)
        self.first = nn.Linear(latent, width * POOLED**2)
        self.coarse = nn.Conv2d(width, width, 3, padding=1)
        self.seen = nn.Conv2d(2 * channels, width, 3, padding=1)
        self.joined = nn.Conv2d(2 * width, width, 3, padding=1)
        self.last = nn.Conv2d(width, 2 * channels, 3, padding=1)

    def forward(self, h: Tensor, seen: Tensor) -> Tensor:
        image = silu(self.first(h)).reshape(len(h), self.width, POOLED, POOLED)
        height, width = seen.shape[-2:]
        image = interpolate(image, (-(-height // 2), -(-width // 2)), mode="nearest")
        image = interpolate(silu(self.coarse(image)), (height, width), mode="nearest")
        joined = silu(self.joined(torch.cat([image, silu(self.seen(seen))], 1)))
        result: Tensor = self.last(joined)
        return result
