"""After a cross-fitted fit of few predictors, each without a fold's rows: one of all rows."""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lexppl.inference import (
    CollapseWarning,
    FitResult,
    LossTerm,
    NestedIWAE,
    Stage,
    System,
    Unscored,
    fit,
)
from lexppl.inference.batches import TensorRows
from lexppl.inference.training.cross_fitting import CrossFitted
from lexppl.inference.training.rows.row_fitted import FitsRows
from lexppl.inference.training.rows.row_weights import DIRICHLET, RowWeighting
from lexppl.models.lex import LEX
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.fit_plan import FitPlan
from lexppl.tabular.says_more import says_more

SHARE, STEPS = 0.5, 500
"""Of the epochs of the fit, and at most so many steps: the predictor goes on from where it is, on
masks that have settled."""


def with_predictor_of_all_rows(
    result: FitResult, plan: FitPlan, rows: EncodedRows, training: dict[str, Any]
) -> FitResult:
    r"""A cross-fitted explainer whose predictor has learned from all rows.

    While the selector learns, each row is judged by a predictor that has not seen it, so that each
    of F predictors has `1 − 1/F` of the rows, and their mean predicts new ones. The selector has
    then no more to learn, and new rows are no row of the fit: the first of the predictors goes on,
    with the selector as it is, on the rows of all folds,

        max_θ  Σ_n E_{z ~ p_γ(z | x_n)} log 1/(LK) Σ_{l,k} Φ(y_n | f_θ(x̃_{n,l,k})),   γ as fitted,

    and its best epoch by the validation rows takes their place, in all fits, where it says more of
    validation rows by more than a standard error over these rows. Of few rows the mean of two often
    says more. The fits of a bootstrap do the same with their rows' weights. Masks, importances and
    the chosen λ stay what they are.

    Args:
        result: the fit, whose programs get the predictor.
        plan: how it was fitted.
        rows: what it was fitted on.
        training: arguments of :func:`lexppl.inference.fit`.

    Returns:
        `result`; as it was where nothing is cross-fitted by its masks, there are no validation rows
        or it was interrupted. Interrupted meanwhile, it says so.
    """
    bootstrap = result.bootstrap
    each = [result] if bootstrap is None else [result, bootstrap]
    if result.interrupted or rows.valid is None or not all(map(_learned_by_its_masks, each)):
        return result
    models = [model for one in each for model in one.models]
    if isinstance(models[0].predictor.predictors[0], FitsRows):
        return result
    try:
        with warnings.catch_warnings():
            # The masks are those of the fit, which has warned of them.
            warnings.simplefilter("ignore", CollapseWarning)
            found = fit(
                [_of_predictor(model, plan) for model in models],
                rows.train,
                valid=rows.valid,
                row_weights=None if bootstrap is None else drawn_weights(result, bootstrap, rows),
                **{**training, "epochs": _epochs(plan, len(rows.train[0]))},
            )
        result.interrupted = found.interrupted
        going_on = replace(result, models=found.models[: result.replicates])
        if says_more(going_on, result, rows)[0]:
            for model, fitted in zip(models, found.models, strict=True):
                model.predictor = fitted.predictor
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def _epochs(plan: FitPlan, rows: int) -> int:
    steps = math.ceil(rows / plan.batch_size)
    return max(1, min(round(SHARE * plan.epochs), STEPS // steps))


def _learned_by_its_masks(result: FitResult) -> bool:
    """Whether predictors are cross-fitted, and no program but the explainer teaches them."""
    each: list[Any] = list(result.modules)
    terms = [
        (model, term.model)
        for model, modules in zip(result.models, each, strict=False)
        for stage in modules.stages
        for term in stage.terms
    ]
    return bool(terms) and all(
        isinstance(model, LEX) and isinstance(model.predictor, CrossFitted) and taught is model
        for model, taught in terms
    )


def _of_predictor(model: Any, plan: FitPlan) -> System:
    """The explainer, of which the first predictor alone learns."""
    particles = {"masks": plan.masks or 1, "imputations": plan.imputations or 1}
    # What draws the masks stands still, so that they need no score.
    bound = NestedIWAE(**particles, estimator=Unscored())

    def build() -> list[Stage]:
        selector, predictor = copy.deepcopy((model.selector, model.predictor.predictors[0]))
        program = LEX(
            selector.requires_grad_(False), model.imputer, predictor, grouping=model.grouping
        )
        return [Stage([LossTerm(program, bound, learns=[predictor])])]

    return System(build)


def drawn_weights(result: FitResult, bootstrap: FitResult, rows: EncodedRows) -> Tensor:
    """The rows' weights that a fit has drawn, `(R + B, N)`, with the rows' number as sums."""
    count = result.replicates + bootstrap.replicates
    given = TensorRows(tuple(rows.train))
    drawn = RowWeighting.of(DIRICHLET, given, count, result.seed, plain=result.replicates).weights
    times = torch.ones_like(drawn[0]) if rows.weights is None else rows.weights[0].to(drawn)
    total: Tensor = (drawn * times).sum(1, keepdim=True)
    return drawn * (times.sum() / total)
