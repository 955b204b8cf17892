"""Masks of any size, that know nothing of x."""

from pyro.distributions import TorchDistribution
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.distributions import UniformSize
from lexppl.distributions.computed_once import MadeOnce


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
        self._kept = MadeOnce()

    def forward(self, x: Tensor) -> TorchDistribution:
        masks: UniformSize = self._kept.like(x, self.entries, UniformSize)
        return masks.expand((len(x),))
