"""The mask of the entries with the largest logits, for certain."""

from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor

from lexppl.distributions.k_hot import checked_k, checked_logits


class TopEntries(dist.Delta):
    """The k entries of largest logit, with probability one: how L2X selects once it is trained.

    Args:
        logits: ``(*batch, G)``.
        k: how many, 1 ≤ k ≤ G; by row in an integer tensor that broadcasts with ``batch``.

    Raises:
        ValueError: k < 1 or k > G.

    Source: Chen, Song, Wainwright and Jordan (2018), "Learning to explain", ICML, § 4.

    Example:
        >>> TopEntries(torch.tensor([0.3, -1.0, 2.0]), k=2).sample()
        tensor([1., 0., 1.])
    """

    def __init__(self, logits: Tensor, k: int | Tensor, validate_args: bool | None = None) -> None:
        size = checked_logits(logits)
        self.k = k if isinstance(k, Tensor) else checked_k(k, size)
        self.logits = logits
        if isinstance(self.k, Tensor):
            rank = logits.argsort(dim=-1, descending=True, stable=True).argsort(-1)
            mask = (rank < self.k.unsqueeze(-1)).to(logits.dtype)
        else:
            chosen = logits.topk(self.k, -1).indices
            mask = torch.zeros_like(logits).scatter(-1, chosen, 1.0)
        super().__init__(mask, event_dim=1, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """A Delta at the mask: the logits stay with the distribution of the rows."""
        return dist.Delta(self.v, event_dim=1).expand(batch_shape)
