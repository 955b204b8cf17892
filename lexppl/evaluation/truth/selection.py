"""How well masks find the features that are truly relevant."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lexppl.argument_checks import fraction, int_between
from lexppl.evaluation.prediction import check_binary


@dataclass(frozen=True)
class SelectionScores:
    """Means over draws and rows as :func:`selection_scores` has them; ``precision = 1 − fdr``, and
    the shares that select the control entry, ``control_flow`` or ``None``, and nothing,
    ``empty``."""

    tpr: float
    fpr: float
    fdr: float
    precision: float
    mcc: float
    control_flow: float | None
    mean_size: float
    empty: float


def selection_scores(
    masks: Tensor, truth: Tensor, control: int | None = None, empty_fdr: float = 1.0
) -> SelectionScores:
    r"""Judge mask draws against the truly relevant entries.

    With ``z`` the mask draws and ``t`` the truth, ``L`` draws and ``N`` rows,

        TPR = 1/(LN) Σ_{l,n} |z_ln ∩ t_n| / |t_n|
        FPR = 1/(LN) Σ_{l,n} |z_ln \ t_n| / |¬t_n|        0 for a row without irrelevant entries
        FDR = 1/(LN) Σ_{l,n} |z_ln \ t_n| / |z_ln|        ``empty_fdr`` where |z_ln| = 0

    The Matthews coefficient is of the counts pooled over all entries, and 0 where a margin of that
    table is empty. A draw that selects nothing has FDR 1 here (precision 0, as scikit-learn counts
    it); INVASE's code and the usual definition count 0, which ``empty_fdr=0`` gives.

    Args:
        masks: draws of 0 and 1, shape ``(L, N, G)``, or ``(N, G)`` for one draw.
        truth: 0 and 1, shape ``(N, G)``; each row has at least one relevant entry.
        control: index of the control-flow entry (10 for S1, S2, S3).
        empty_fdr: FDR of a draw that selects nothing, 0 to 1.

    Raises:
        ValueError: shapes that do not fit, no draws, values other than 0 and 1, rows of ``truth``
            without a relevant entry, ``control`` outside ``0 … G-1``.

    Source: Yoon et al. 2018 (INVASE), § 4.1; Jethani et al. 2021, § 5.1.

    Example:
        >>> truth = torch.tensor([[1, 1, 0, 0]])
        >>> masks = torch.tensor([[[1, 1, 1, 0]], [[0, 1, 0, 0]]])
        >>> scores = selection_scores(masks, truth, control=0)
        >>> scores.tpr, scores.fpr, round(scores.fdr, 4), scores.control_flow, scores.mean_size
        (0.75, 0.25, 0.1667, 0.5, 2.0)
    """
    if truth.ndim != 2:
        raise ValueError(f"truth must have shape (N, G); it has {tuple(truth.shape)}")
    check_binary("truth", truth, tuple(truth.shape))
    check_binary("masks", masks, tuple(truth.shape), draws=True)
    without = int((truth.sum(-1) == 0).sum())
    if without:
        raise ValueError(
            f"each row of truth needs a relevant entry; {without} of {len(truth)} rows have none"
        )
    if control is not None:
        int_between("control", control, 0, truth.shape[1] - 1, note="the mask entries")
    fraction("empty_fdr", empty_fdr, zero=True, one=True)
    draws = masks.reshape(-1, *truth.shape).to(torch.float64)
    relevant = truth.to(torch.float64)
    n_relevant = relevant.sum(-1)
    n_irrelevant = (1 - relevant).sum(-1)
    n_selected = draws.sum(-1)
    found = torch.einsum("lng,ng->ln", draws, relevant)
    false = n_selected - found
    discovery = torch.where(n_selected > 0, false / n_selected.clamp(min=1), empty_fdr)
    fdr = float(discovery.mean())
    hits, alarms = float(found.sum()), float(false.sum())
    missed = len(draws) * float(n_relevant.sum()) - hits
    rejected = len(draws) * float(n_irrelevant.sum()) - alarms
    margins = (hits + alarms) * (hits + missed) * (rejected + alarms) * (rejected + missed)
    return SelectionScores(
        tpr=float((found / n_relevant).mean()),
        fpr=float((false / n_irrelevant.clamp(min=1)).mean()),
        fdr=fdr,
        precision=1 - fdr,
        mcc=(hits * rejected - alarms * missed) / math.sqrt(margins) if margins else 0.0,
        control_flow=None if control is None else float(draws[..., control].mean()),
        mean_size=float(n_selected.mean()),
        empty=float((n_selected == 0).to(torch.float64).mean()),
    )
