"""Hidden words read as padding."""

from __future__ import annotations

from typing import ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor

from lexppl.models.imputers.imputed import Imputed
from lexppl.models.imputers.imputer import Imputer

__all__ = ["PaddingImputer"]


class PaddingImputer(Imputer):
    """Every hidden word is read as padding: `x̃ = (w, z)`, rows of 2T numbers.

    The T word numbers stay as they are, and behind them stands how much of each is kept, which
    networks of texts multiply the words' vectors with (:class:`WordEmbedding`): the `x ⊙ v` of L2X,
    with a gradient in relaxed masks and in hard ones. Where masks are 0 and 1 these rows are read
    as those of `ConstantImputer(0.0)`, whose T numbers any model of texts can be asked about.

    Example:
        >>> imputer = PaddingImputer()
        >>> imputer(torch.tensor([[7.0, 4.0, 0.0]]), torch.tensor([1.0, 0.0, 0.5])).sample()
        tensor([[7.0000, 4.0000, 0.0000, 1.0000, 0.0000, 0.5000]])
    """

    puts_a_constant: ClassVar[bool] = True

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """A Delta at padding, event shape `(T,)`."""
        return dist.Delta(x.new_zeros(x.shape[1:]), event_dim=1)

    def forward(self, x: Tensor, keep: Tensor) -> Imputed:
        """The rows with what is kept of each word, batch shape `(…, B)` and event shape `(2T,)`.

        Args:
            x: word numbers, `(B, T)`.
            keep: boolean or in [0, 1], `(…, B, T)` or broadcastable to it.
        """
        self._check_input(x, keep)
        if x.dim() != 2:
            raise ValueError(f"x must be texts (B, T) of word numbers; it has {tuple(x.shape)}")
        keep = keep.to(x.dtype).expand(torch.broadcast_shapes(keep.shape, x.shape))
        rows = torch.cat([x, torch.ones_like(x)], -1)
        kept = torch.cat([torch.ones_like(keep), keep], -1)
        return Imputed(rows, kept, dist.Delta(torch.zeros_like(rows[0]), event_dim=1))
