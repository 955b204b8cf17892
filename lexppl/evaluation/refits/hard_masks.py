"""Masks as draws of 0 and 1, checked."""

from __future__ import annotations

from torch import Tensor


def hard_draws(x: Tensor, masks: Tensor, entries: int) -> Tensor:
    """Checked masks, `(L, N, G)`, in the type of x.

    Args:
        x: rows, `(N, *event)`.
        masks: 0 and 1, `(L, N, G)`, or `(N, G)` for one draw.
        entries: G.

    Raises:
        ValueError: another shape, no draws, another device, values other than 0 and 1.

    Example:
        >>> import torch
        >>> hard_draws(torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool), 3).shape
        torch.Size([1, 2, 3])
    """
    if masks.dim() not in (2, 3) or masks.shape[-2:] != (len(x), entries):
        raise ValueError(
            f"masks must have shape (draws, {len(x)}, {entries}), with the rows of x and its mask "
            f"entries, or ({len(x)}, {entries}); they have {tuple(masks.shape)}"
        )
    if masks.numel() == 0:
        raise ValueError("masks must have at least one draw; there is none")
    if masks.device != x.device:
        raise ValueError(f"x is on {x.device} and masks on {masks.device}; move one")
    if not bool(((masks == 0) | (masks == 1)).all()):
        raise ValueError(
            "masks must be hard, 0 or 1: a soft mask lets a feature through in part. Draw "
            "masks, or threshold them, as in probability > 0.5"
        )
    return masks.reshape(-1, *masks.shape[-2:]).to(x.dtype)
