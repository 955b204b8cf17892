"""Fits beside an explainer of a table: the predictor of all of x, and EVAL-X."""

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
    """Fit EVAL-X by a plan, of rows in folds one for each fold, with fewer steps and more decay for
    few rows."""
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
    """Fit the predictor of all of x by a plan; in folds each replicate has its best epoch on its
    own fold.

    Where the plan explains it, a normal scale is then that of the validation residuals.
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
    """Set a normal likelihood's scale to that of residuals of rows that were not learned from.

    Networks of few rows overfit before gradient steps have brought the scale down from 1.
    """
    likelihood = getattr(predictor, "likelihood", None)
    if not isinstance(likelihood, NormalLikelihood):
        return
    with torch.no_grad(), evaluating(predictor):
        residuals = y - predictor(x).mean
    if bool(residuals.any()):
        likelihood.settle(residuals, weights)
