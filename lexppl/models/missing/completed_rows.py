"""Rows that an imputer is fitted on, with their gaps filled by values of other rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["completed_rows"]


def completed_rows(x: Tensor, observed: Tensor, groups: Sequence[int], seed: int) -> Tensor:
    """Rows whose missing values are those of random rows in which they are there.

    The values of one entry are taken from one row. Each column so has the distribution of its
    observed values, up to chance; what a value has to do with the rest of its row is lost where it
    was missing, in so large a share of the rows.

    Args:
        x: values, `(N, D)`.
        observed: 1 where a value is there and 0 where it is missing, `(N, D)`.
        groups: the entry of each of the D values.
        seed: of the choice.

    Raises:
        ValueError: an entry that is missing in every row.

    Example:
        >>> x, there = torch.tensor([[1.0], [0.0], [1.0]]), torch.tensor([[1.0], [0.0], [1.0]])
        >>> completed_rows(x, there, [0], seed=0).flatten()
        tensor([1., 1., 1.])
    """
    generator = torch.Generator().manual_seed(seed)
    filled = x.clone()
    places = torch.tensor(list(groups), device=x.device)
    for entry in range(max(groups) + 1):
        columns = (places == entry).nonzero().flatten()
        # Columns of one entry that are missing apart are filled apart.
        for pattern in observed[:, columns].T.unique(dim=0):
            mine = columns[(pattern == observed[:, columns].T).all(1)]
            lacking, there = (pattern == 0).nonzero().flatten(), pattern.nonzero().flatten()
            if len(there) == 0:
                raise ValueError(f"entry {entry} is missing in all {len(x)} rows")
            drawn = torch.randint(len(there), (len(lacking),), generator=generator)
            donors = there[drawn.to(x.device)]
            filled[lacking[:, None], mine] = x[donors[:, None], mine]
    return filled
