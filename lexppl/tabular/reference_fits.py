"""Fits beside an explainer of a table: the predictor that sees all of x, and EVAL-X."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lexppl.evaluation import EvalX, FittedPredictor, fit_evalx, fit_predictor
from lexppl.evaluation_mode import evaluating
from lexppl.inference import Checkpoints, ReplicateData
from lexppl.inference.training.watch import Progress
from lexppl.models import NormalLikelihood
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.fit_plan import FitPlan

JUDGE_BITS = 2000
"""Rows of one bit each from which EVAL-X has all epochs of a plan."""


def fit_judge(
    plan: FitPlan,
    rows: EncodedRows,
    progress: Progress = False,
    checkpoint: Checkpoints | None = None,
) -> EvalX:
    """Fit EVAL-X, of what the rows observe, by a plan; of rows in folds one for each.

    In folds no rows choose the epoch: few rows, counted by the bits of their labels, have fewer
    steps and more weight decay.

    Args:
        plan, rows, progress, checkpoint: as in :func:`fit_full_predictor`.
    """
    folds = rows.folds
    share = (plan.unit * len(rows.train[0]) / JUDGE_BITS) ** 0.5
    fewer = 1.0 if folds is None else min(1.0, max(0.5, share))
    return fit_evalx(
        rows.train,
        valid=rows.valid,
        grouping=rows.grouping,
        hidden=plan.predictor_hidden,
        epochs=max(1, round(fewer * plan.epochs)),
        batch_size=plan.batch_size,
        learning_rate=plan.learning_rate if folds is None else plan.schedule,
        weight_decay=plan.weight_decay if folds is None else plan.weight_decay / plan.unit**2,
        patience=50 if folds is None else None,
        row_weights=None if folds is None else folds.weights,
        seed=plan.seed,
        progress=progress,
        checkpoint=checkpoint,
    )


def fit_full_predictor(
    plan: FitPlan,
    rows: EncodedRows,
    progress: Progress = False,
    checkpoint: Checkpoints | None = None,
) -> FittedPredictor:
    """Fit the predictor that sees all of x, of what the rows observe, by a plan.

    Of rows in folds each replicate leaves its fold out, and has its best epoch on it: a reference
    that is a little too good rather than one that has been trained too long.

    Where the plan explains it, the scale of a response's normal distribution is then that of its
    validation residuals: the explainer weighs each row's response by it. Where it only stands
    beside an explainer it keeps the scale that it has learned, as the explainer does.

    Args:
        plan: how long and how fast.
        rows: what it is fitted on.
        progress: as in :func:`lexppl.inference.fit`.
        checkpoint: where its state is kept; None for nowhere.

    Raises:
        KeyboardInterrupt: interrupted; half a predictor is none to explain.
    """
    folds = rows.folds
    valid: Any = rows.valid
    if folds is not None:
        parts = [folds.rows(r) for r in range(folds.count)]
        fewest = min(map(len, parts))
        valid = ReplicateData([tuple(c[part[:fewest]] for c in rows.train) for part in parts])
    full = fit_predictor(
        rows.train,
        valid=valid,
        row_weights=None if folds is None else folds.weights,
        hidden=plan.predictor_hidden,
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        learning_rate=plan.schedule,
        patience=None,
        seed=plan.seed,
        progress=progress,
        sample_weight=rows.weights,
        checkpoint=checkpoint,
    )
    if full.result.interrupted:
        raise KeyboardInterrupt
    if plan.needs_full_predictor and rows.valid is not None:
        settle_scale(full.predictor, *rows.valid, None if rows.weights is None else rows.weights[1])
    return full


def settle_scale(predictor: nn.Module, x: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
    """Put the learned scale of a normal response to that of the residuals of some rows; leave other
    predictors, and one without any residual, as they are.

    The network of few rows overfits, and its fit ends, long before the scale has come down from 1
    by gradient steps. What explains the predictor weighs a row by that scale: one too wide by 1.8
    says a third of what the response does.

    Args:
        predictor: of x, with a likelihood.
        x, y: rows that it has not learned from, and their responses.
        weights: how often each counts, `(N,)`.

    Example:
        >>> from lexppl.models import Predictor
        >>> predictor = Predictor(nn.Identity(), NormalLikelihood())
        >>> settle_scale(predictor, torch.zeros(2, 1), torch.tensor([0.5, -0.5]))
        >>> predictor(torch.zeros(1, 1)).stddev.item()
        0.5
    """
    likelihood = getattr(predictor, "likelihood", None)
    if not isinstance(likelihood, NormalLikelihood):
        return
    with torch.no_grad(), evaluating(predictor):
        residuals = y - predictor(x).mean
    if bool(residuals.any()):
        likelihood.settle(residuals, weights)
