"""A vector beside an image, as one more channel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.configured import Configured
from lexppl.models.grouping import image_shape


class ExtraChannel(Configured, nn.Module):
    """An image with a linear map of a vector as one more channel: `(N, C, H, W)` and `(N, shown)`
    to `(N, C + 1, H, W)`.

    Args:
        shape: of an image, `(C, H, W)`.
        shown: numbers of the vector.

    Source: Liang et al. 2020 (MEED), § 3.1: how a selector of images is shown the model's output.

    Example:
        >>> ExtraChannel((1, 2, 3), 10)(torch.zeros(5, 1, 2, 3), torch.zeros(5, 10)).shape
        torch.Size([5, 2, 2, 3])
    """

    def __init__(self, shape: Sequence[int], shown: int) -> None:
        super().__init__()
        self.shape = image_shape(shape)
        self.shown = int_at_least("shown", shown)
        _, height, width = self.shape
        self.map = nn.Linear(self.shown, height * width)

    def forward(self, x: Tensor, output: Tensor) -> Tensor:
        channel = self.map(output).reshape(len(x), 1, *x.shape[-2:])
        return torch.cat([x, channel], 1)
