"""Each row's entries in the order of their importance."""

from __future__ import annotations

import torch
from torch import Tensor


def places(ranking: Tensor, rows: int, entries: int, name: str = "ranking") -> Tensor:
    """Each entry's place in its row's order, 0 for the most important: `(N, G)`.

    Of equal entries the one that stands first comes first.

    Args:
        ranking: importances, larger is more important, `(N, G)`.
        rows: N.
        entries: G.
        name: what the ranking is called in errors.

    Raises:
        ValueError: another shape, or NaN.

    Example:
        >>> places(torch.tensor([[0.1, 0.7, 0.7]]), 1, 3)
        tensor([[2, 0, 1]])
    """
    if ranking.shape != (rows, entries):
        raise ValueError(
            f"{name} must have shape ({rows}, {entries}), (rows of x, mask entries); it has "
            f"{tuple(ranking.shape)}"
        )
    if bool(ranking.isnan().any()):
        raise ValueError(f"{name} must be numbers; it has NaN")
    return ranking.argsort(dim=1, descending=True, stable=True).argsort(1)


def random_places(rows: int, entries: int, seed: int, device: torch.device) -> Tensor:
    """The places of a random order in each row, `(N, G)`.

    Example:
        >>> random_places(2, 3, 0, torch.device("cpu")).sum(1)
        tensor([3, 3])
    """
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, entries, generator=generator).argsort(1).to(device)
