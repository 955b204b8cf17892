"""From importances to masks of the k most important entries."""

from __future__ import annotations

import torch
from torch import Tensor


def top_masks(importances: Tensor, sizes: int | Tensor, *, seed: int = 0) -> Tensor:
    """Keep each row's most important entries.

    Of equal importances the ones to be kept are drawn at random, so that a method gains nothing by
    the order of the columns.

    Args:
        importances: larger is more important, `(B, G)`.
        sizes: how many to keep: k, or one number a row, `(B,)`.
        seed: of the draws. Global random state is left alone.

    Returns:
        1 for kept and 0 for hidden, `(B, G)`.

    Example:
        >>> top_masks(torch.tensor([[0.2, 0.9, 0.1]]), 2)
        tensor([[1., 1., 0.]])
    """
    generator = torch.Generator().manual_seed(seed)
    lot = torch.rand(importances.shape, generator=generator).argsort(1).to(importances.device)
    order = importances.gather(1, lot).argsort(dim=1, descending=True, stable=True)
    place = lot.gather(1, order).argsort(1)
    most = sizes[:, None].to(importances.device) if isinstance(sizes, Tensor) else sizes
    return (place < most).to(importances.dtype)
