"""Masks of any size, that know nothing of x."""

from pyro.distributions import TorchDistribution
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.distributions import UniformSize


class UniformSizeSelector(Configured, nn.Module):
    """Masks that know nothing of x, of a size that is uniform on 0 … G: `z ~ UniformSize(G)`.

    Args:
        entries: G.

    Raises:
        ValueError: fewer entries than 1.

    Source: Jethani et al. 2022 (FastSHAP): the masks of its surrogate.

    Example:
        >>> import torch
        >>> UniformSizeSelector(3)(torch.zeros(2, 5)).mean
        tensor([[0.5000, 0.5000, 0.5000],
                [0.5000, 0.5000, 0.5000]])
    """

    def __init__(self, entries: int) -> None:
        super().__init__()
        UniformSize(entries)
        self.entries = entries

    def forward(self, x: Tensor) -> TorchDistribution:
        return UniformSize(self.entries, (len(x),), dtype=x.dtype, device=x.device)
