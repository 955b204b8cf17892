"""Rows scaled by the square of a soft mask."""

import pyro.distributions as dist
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor, nn

from lexppl.configured import Configured

__all__ = ["SquaredMaskImputer"]


class SquaredMaskImputer(Configured, nn.Module):
    """Soft masks act by their square, `x̃ = z² ⊙ x` (XTab, Uçar & Hajiramezanali 2022, eq. 4): an
    entry of one half lets a quarter through.

    Example:
        >>> import torch
        >>> SquaredMaskImputer()(torch.ones(1, 2), torch.tensor([1.0, 0.5])).sample()
        tensor([[1.0000, 0.2500]])
    """

    def forward(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """A Delta at the scaled rows, batch shape `(…, B)`."""
        return dist.Delta(keep.square() * x, event_dim=x.dim() - 1)
