"""Masks of rows: checked draws of 0 and 1, and rows of which some entries are hidden."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lexppl.evaluation.prediction import check_binary
from lexppl.models import ConstantImputer, Grouping


def mask_entries(x: Tensor, grouping: Grouping | None) -> int:
    """G, the mask entries of rows `(N, *event)`."""
    if grouping is not None:
        return grouping.entries
    if x.dim() != 2:
        raise ValueError(f"rows of shape {tuple(x.shape[1:])} need a grouping= of a mask's entries")
    return x.shape[1]


def with_hidden(
    x: Tensor, masks: Tensor, imputer: nn.Module | None, grouping: Grouping | None
) -> Tensor:
    """`x̃ ~ p(x̃ | x, z)`, `(…, N, *event)`, of masks `(…, N, G)`; hidden features are 0 without an
    imputer."""
    keep = masks if grouping is None else grouping(masks)
    distribution = ConstantImputer(0.0).to(x.device, x.dtype) if imputer is None else imputer
    with torch.no_grad():
        imputed: Tensor = distribution(x, keep.to(x.dtype)).sample()
    return imputed


def hard_draws(x: Tensor, masks: Tensor, entries: int) -> Tensor:
    """Checked masks of 0 and 1, `(L, N, G)` or `(N, G)`, as `(L, N, G)` in the type of x."""
    check_binary("masks", masks, (len(x), entries), draws=True)
    if masks.device != x.device:
        raise ValueError(f"x is on {x.device} and masks on {masks.device}; move one")
    return masks.reshape(-1, *masks.shape[-2:]).to(x.dtype)
