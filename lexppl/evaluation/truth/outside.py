"""How much of a selection lies where nothing matters."""

from __future__ import annotations

import torch
from torch import Tensor

from lexppl.argument_checks import fraction


def share_outside(masks: Tensor, truth: Tensor, empty: float = 1.0) -> Tensor:
    r"""Judge what share of each row's selection lies outside its truth.

    With ``z`` the masks and ``t`` the truth,

        share_n = 1/L Σ_l  Σ_g z_lng (1 − t_ng) / Σ_g z_lng        ``empty`` where Σ_g z_lng = 0

    On switching panels it is the share of the selection in the wrong panel. Its mean over the rows
    is the false discovery rate (``fdr``) of :func:`selection_scores`, and its spread gives that
    figure's standard error. Here masks may be means too, such as selection probabilities: where
    each draw selects the same number k, the share of the means is the mean of the shares,

        Σ_g E[z_g] (1 − t_g) / Σ_g E[z_g] = Σ_g E[z_g] (1 − t_g) / k = E[Σ_g z_g (1 − t_g) / k],

    so that a row's L draws need not be kept. Where the number differs by draw the two differ: give
    draws for the false discovery rate, means for the share of all that is selected.

    Args:
        masks: draws of 0 and 1, shape ``(L, N, G)``, or one mask a row, ``(N, G)``, with values
            from 0 to 1. An image's mask may have its own shape in place of G, such as
            ``(L, N, H, W)``, where the truth has it too.
        truth: 0 and 1, shape ``(N, G)``; a row without any is judged like the others.
        empty: the share of a mask that selects nothing, 0 to 1.

    Returns:
        ``(N,)``, float64, each in 0 … 1.

    Raises:
        ValueError: shapes that do not fit, no draws, masks outside 0 … 1, a truth that is not 0 or
            1.

    Source: Senetaire et al. 2023 (LEX), § 5.2, Figures 5, 13 and 14.

    Example:
        >>> truth = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]])
        >>> masks = torch.tensor([[[1, 0, 1, 0], [0, 0, 1, 0]], [[1, 0, 0, 0], [1, 1, 0, 0]]])
        >>> share_outside(masks, truth)
        tensor([0.2500, 0.5000], dtype=torch.float64)
        >>> share_outside(torch.tensor([[0.9, 0.5, 0.6, 0.0], [0.0, 0.0, 1.0, 1.0]]), truth)
        tensor([0.3000, 0.0000], dtype=torch.float64)
    """
    _check(masks, truth)
    fraction("empty", empty, zero=True, one=True)
    outside = 1 - truth.flatten(1).to(torch.float64)
    draws = masks.reshape(-1, *outside.shape)
    shares = torch.zeros(len(outside), dtype=torch.float64, device=truth.device)
    # Draw by draw, as 100 draws of 10,000 images would take gigabytes in float64.
    for draw in draws:
        kept = draw.to(torch.float64)
        selected = kept.sum(-1)
        shares += torch.where(selected > 0, (kept * outside).sum(-1) / selected, empty)
    return shares / len(draws)


def _check(masks: Tensor, truth: Tensor) -> None:
    if truth.ndim < 2 or truth.numel() == 0:
        raise ValueError(f"truth must have shape (N, G), N, G >= 1; it has {tuple(truth.shape)}")
    draws = masks.ndim - truth.ndim
    if draws not in (0, 1) or masks.shape[draws:] != truth.shape or masks.numel() == 0:
        raise ValueError(
            f"masks must have shape {tuple(truth.shape)}, as truth, or a first dimension of draws "
            f"before it; they have {tuple(masks.shape)}: flatten an image's truth, as "
            "entry_truth() of its data set does, where masks are of entries"
        )
    if not ((masks >= 0) & (masks <= 1)).all():
        raise ValueError("masks must lie in [0, 1]; they hold other values")
    if not ((truth == 0) | (truth == 1)).all():
        raise ValueError("truth must hold 0 and 1 only; it holds other values")
