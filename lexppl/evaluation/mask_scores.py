"""Scores of masks: TPR and FDR against a known truth, and the four fidelities to a black box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lexppl.argument_checks import check_binary, fraction, int_between, shaped
from lexppl.evaluation.evalx import HIDDEN, fit_predictor, hard_draws, mask_entries, with_hidden
from lexppl.evaluation.prediction import prediction_scores
from lexppl.inference.predictive import drawing
from lexppl.models import Grouping, black_box
from lexppl.models.architectures.base import Architecture
from lexppl.models.black_box import BlackBox


@dataclass(frozen=True)
class SelectionScores:
    """Means over draws and rows as :func:`selection_scores` has them; ``precision = 1 − fdr``, and
    the shares that select the ``control_flow`` entry, or ``None``, and nothing, ``empty``."""

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
    shape = shaped("truth", truth, "N G")
    check_binary("truth", truth, shape)
    check_binary("masks", masks, shape, draws=True)
    without = int((truth.sum(-1) == 0).sum())
    if without:
        raise ValueError(f"truth needs a relevant entry a row; {without} of {len(truth)} have none")
    if control is not None:
        int_between("control", control, 0, truth.shape[1] - 1, note="the mask entries")
    fraction("empty_fdr", empty_fdr, zero=True, one=True)
    draws = masks.reshape(-1, *truth.shape).to(torch.float64)
    relevant = truth.to(torch.float64)
    n_relevant = relevant.sum(-1)
    n_irrelevant = (1 - relevant).sum(-1)
    n_selected = draws.sum(-1)
    n_right = torch.einsum("lng,ng->ln", draws, relevant)
    false = n_selected - n_right
    discovery = torch.where(n_selected > 0, false / n_selected.clamp(min=1), empty_fdr)
    fdr = float(discovery.mean())
    hits, alarms = float(n_right.sum()), float(false.sum())
    missed = len(draws) * float(n_relevant.sum()) - hits
    rejected = len(draws) * float(n_irrelevant.sum()) - alarms
    margins = (hits + alarms) * (hits + missed) * (rejected + alarms) * (rejected + missed)
    return SelectionScores(
        tpr=float((n_right / n_relevant).mean()),
        fpr=float((false / n_irrelevant.clamp(min=1)).mean()),
        fdr=fdr,
        precision=1 - fdr,
        mcc=(hits * rejected - alarms * missed) / math.sqrt(margins) if margins else 0.0,
        control_flow=None if control is None else float(draws[..., control].mean()),
        mean_size=float(n_selected.mean()),
        empty=float((n_selected == 0).to(torch.float64).mean()),
    )


@dataclass(frozen=True)
class FidelityScores:
    """Agreement with a black box on the selected features (`fs`) and on the others (`fu`), of the
    black box itself (`_m`) and of fresh predictors (`_a`, None without training rows); for
    responses R²."""

    fs_m: float
    fu_m: float
    fs_a: float | None = None
    fu_a: float | None = None


def fidelity_scores(
    model: Any,
    x: Tensor,
    masks: Tensor,
    *,
    train_x: Tensor | None = None,
    train_masks: Tensor | None = None,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
    valid: float = 0.2,
    architecture: Architecture | None = None,
    network: nn.Module | None = None,
    hidden: Sequence[int] = HIDDEN,
    seed: int = 0,
    **fit_arguments: Any,
) -> FidelityScores:
    """The four fidelities of masks z to a black box m, with `ŷ(x) = argmax_c p_m(c | x)`:

        FS-M = P(ŷ(x ⊙ z) = ŷ(x)),             FU-M = P(ŷ(x ⊙ (1 − z)) = ŷ(x)),
        FS-A = P(argmax A_s(x ⊙ z) = ŷ(x)),    FU-A = P(argmax A_u(x ⊙ (1 − z)) = ŷ(x)),

    over rows and draws of the masks. A_s and A_u are fresh predictors
    (:func:`~lexppl.evaluation.fit_predictor`), fitted to `p_m(· | x)` on the training rows with
    their own masks; they may read the prediction off *which* features are hidden (EVAL-X does not).

    Args:
        model: a `BlackBox`, or what :func:`~lexppl.models.black_box` makes
            one of with no more words (a predictor, an estimator, a function).
        x, masks: test rows, `(N, *event)`, and their masks, 1 for selected, `(N, G)` or
            `(draws, N, G)`.
        train_x, train_masks: the same of training rows, for FS-A and FU-A.
        grouping: which features a mask's entry keeps; the architecture's if None, or one entry a
            feature.
        imputer: distribution of the features that are left out; if None the architecture's, or 0.
        valid: share of the training rows that is set apart to choose the best epoch.
        architecture, network, hidden, fit_arguments: as in
            :func:`~lexppl.evaluation.fit_predictor`.

    Raises:
        ValueError, TypeError: masks of another shape or not 0 and 1, training rows without masks
            or masks without rows; as `black_box` and `fit_predictor`.

    Source: Liang, Bai, Cao, Bai, Wang. Adversarial infidelity learning for model interpretation.
        KDD 2020.

    Example:
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> model = black_box(lambda rows: (rows[:, 0] > 0).astype(float))
        >>> scores = fidelity_scores(model, x, torch.tensor([1, 0, 0]).expand(200, 3))
        >>> scores.fs_m, scores.fu_m < 0.6
        (1.0, True)
    """
    box = model if isinstance(model, BlackBox) else black_box(model)
    if architecture is not None:
        grouping = architecture.grouping if grouping is None else grouping
        imputer = architecture.imputer().to(x.device, x.dtype) if imputer is None else imputer
    entries = mask_entries(x, grouping)
    draws = hard_draws(x, masks, entries)
    train_draws = _train_draws(x, train_x, train_masks, entries)
    valid = fraction("valid", valid, of="the rows")
    answers = box.targets(x)

    def sides_of(rows: Tensor, mask: Tensor) -> list[Tensor]:
        """The rows with their selected features only, and with the others only, `(L, N, …)`."""
        with drawing(seed, x.device):
            return [with_hidden(rows, side, imputer, grouping) for side in (mask, 1 - mask)]

    sides = sides_of(x, draws)
    predictions = [[box.targets(rows) for rows in side] for side in sides]
    if train_x is not None and train_draws is not None:
        targets = box.targets(train_x)
        for train_side, side in zip(sides_of(train_x, train_draws), sides, strict=True):
            train, apart = _apart(train_side, targets, valid, seed)
            options: Any = {"architecture": architecture, "network": network, "hidden": hidden}
            fresh = fit_predictor(train, valid=apart, seed=seed, **options, **fit_arguments)
            predictions.append([fresh.predict(rows) for rows in side])
    likeliest = answers.argmax(-1) if answers.dim() == 2 else answers
    fidelities = []
    for by_draw in predictions:
        scores = [prediction_scores(drawn, likeliest) for drawn in by_draw]
        values = [s.r2 if s.accuracy is None else s.accuracy for s in scores]
        fidelities.append(sum(float("nan") if v is None else v for v in values) / len(values))
    return FidelityScores(*fidelities)


def _train_draws(
    x: Tensor, train_x: Tensor | None, train_masks: Tensor | None, entries: int
) -> Tensor | None:
    if train_x is None or train_masks is None:
        if train_x is not train_masks:
            raise ValueError("FS-A and FU-A need train_x and train_masks; give both or neither")
        return None
    if train_x.shape[1:] != x.shape[1:] or len(train_x) < 2:
        raise ValueError(
            f"train_x must have at least 2 rows of the shape of x's, {tuple(x.shape[1:])}; it has "
            f"shape {tuple(train_x.shape)}"
        )
    return hard_draws(train_x, train_masks, entries)


def _apart(
    rows: Tensor, targets: Tensor, share: float, seed: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    count = len(targets)
    held = min(max(round(share * count), 1), count - 1)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).to(rows.device)

    def part(chosen: Tensor) -> tuple[Tensor, Tensor]:
        repeats = (len(rows), *[1] * (targets.dim() - 1))
        return rows[:, chosen].flatten(0, 1), targets[chosen].repeat(repeats)

    return part(order[held:]), part(order[:held])
