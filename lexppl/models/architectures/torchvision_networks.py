"""Torchvision's networks as predictors of images of any size."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from lexppl.argument_checks import int_at_least
from lexppl.configured import Configured
from lexppl.models.architectures.convolutional import check_images
from lexppl.models.grouping import image_shape

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
        self,
        name: str,
        shape: Sequence[int],
        outputs: int,
        *,
        weights: str | None = None,
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
        outputs: Tensor = self.network(x)
        return outputs


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
