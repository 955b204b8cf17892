"""Masks of rows: checked draws of 0 and 1, and rows of which some entries are hidden."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lexppl.evaluation.prediction import check_binary
from lexppl.models import ConstantImputer, Grouping


def mask_entries(x: Tensor, grouping: Grouping | None) -> int:
    """G, the mask entries of rows `(N, *event)`.

    Raises:
        ValueError: rows that are no table, without a grouping.
    """
    if grouping is not None:
        return grouping.entries
    if x.dim() != 2:
        raise ValueError(f"rows of shape {tuple(x.shape[1:])} need a grouping= of a mask's entries")
    return x.shape[1]


def with_hidden(
    x: Tensor, masks: Tensor, imputer: nn.Module | None, grouping: Grouping | None
) -> Tensor:
    """A draw of the rows with what a mask hides replaced, `x̃ ~ p(x̃ | x, z)`.

    Args:
        x: rows, `(N, *event)`.
        masks: 1 for kept and 0 for hidden, `(…, N, G)`.
        imputer: distribution of the hidden features; 0 if None.
        grouping: which features an entry keeps; one entry a feature if None.

    Returns:
        `(…, N, *event)`, in the type of x.

    Raises:
        ValueError, TypeError: as the imputer.

    Example:
        >>> with_hidden(torch.tensor([[2.0, 3.0]]), torch.tensor([[1, 0]]), None, None)
        tensor([[2., 0.]])
    """
    keep = masks if grouping is None else grouping(masks)
    distribution = ConstantImputer(0.0).to(x.device, x.dtype) if imputer is None else imputer
    with torch.no_grad():
        imputed: Tensor = distribution(x, keep.to(x.dtype)).sample()
    return imputed


def hard_draws(x: Tensor, masks: Tensor, entries: int) -> Tensor:
    """Checked masks, `(L, N, G)`, in the type of x.

    Args:
        x: rows, `(N, *event)`.
        masks: 0 and 1, `(L, N, G)`, or `(N, G)` for one draw.
        entries: G.

    Raises:
        ValueError: another shape, no draws, another device, values other than 0 and 1.

    Example:
        >>> hard_draws(torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool), 3).shape
        torch.Size([1, 2, 3])
    """
    check_binary("masks", masks, (len(x), entries), draws=True)
    if masks.device != x.device:
        raise ValueError(f"x is on {x.device} and masks on {masks.device}; move one")
    return masks.reshape(-1, *masks.shape[-2:]).to(x.dtype)
