"""A network of vectors for rows of any shape."""

from __future__ import annotations

from torch import Tensor, nn

from lexppl.configured import Configured


class Flattened(Configured, nn.Module):
    """`network(x)` of rows laid out flat, row-major: `(N, *event)` to what the network makes of
    `(N, D)`.

    Args:
        network: of rows `(N, D)`.

    Example:
        >>> import torch
        >>> Flattened(nn.Linear(6, 2))(torch.zeros(5, 1, 2, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.network(x.flatten(1))
        return outputs
