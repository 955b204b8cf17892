"""An explainer of images or texts: its plan and its fit."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

from torch import Tensor, nn

from lexppl.choices.imputers import OF_WORDS
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import usual_imputer
from lexppl.cli.images_and_texts.divided_rows import DividedRows, Part
from lexppl.cli.options.plan_options import typed_settings
from lexppl.inference import Checkpoints, FitResult, System, entropy_unit, fit
from lexppl.inference.training.watch import Progress
from lexppl.models import BigramImputer, UnigramImputer, regime_targets
from lexppl.models.imputers import imputer_of
from lexppl.systems import Settings
from lexppl.tabular.fit_plan import FitPlan, plan_for
from lexppl.tabular.table_fit import method_system

BATCH = 100
STEPS_OF_IMAGES, STEPS_OF_TEXTS = 400, 200
LEAST_EPOCHS, MOST_EPOCHS = 5, 200
"""Where nobody says how many: what takes minutes of 2,000 rows."""
RATE_OF_TEXTS = 5e-3
"""Of Adam, where nobody says: vectors of words, of which a batch has few, learn slowly."""
WORDS_KEPT = 10
"""By a method that keeps a given number of words, where nobody says; L2X's. LEX is one: of
hundreds of places each is worth so little at first that a penalty a word leaves none."""


def plan_of_rows(options: argparse.Namespace, source: DividedRows) -> FitPlan:
    """The plan of what was typed.

    Weights of networks of texts do not decay: the decay of a fit is an L2 term of the gradient,
    which flattens the selector of words (:func:`lexppl.models.texts`).

    Raises:
        ValueError: a k above the number of entries.
    """
    rows, entries = len(source.train), source.data.n_entries
    method = METHODS[options.method]
    settings = typed_settings(options, options.method)
    size = settings.setdefault("batch_size", min(BATCH, math.ceil(rows / 3)))
    steps = STEPS_OF_TEXTS if source.are_texts else STEPS_OF_IMAGES
    epochs = math.ceil(steps / math.ceil(rows / size))
    settings.setdefault("epochs", max(LEAST_EPOCHS, min(MOST_EPOCHS, epochs)) * method.epochs)
    if method.takes("imputer"):
        settings.setdefault("imputer", "padding" if source.are_texts else usual_imputer(method))
    if source.are_texts and method.takes("k") and "penalty" not in settings:
        settings.setdefault("k", min(WORDS_KEPT, entries))
    plan = plan_for(
        rows,
        entries,
        options.method,
        unit=entropy_unit(source.train.y, len(source.data.class_names)),
        one_penalty=True,
        **settings,
    )
    if not source.are_texts:
        return plan
    rate = plan.learning_rate if plan.rate_given else RATE_OF_TEXTS
    return replace(plan, weight_decay=0.0, learning_rate=rate)


def fit_explainer(
    plan: FitPlan,
    source: DividedRows,
    observed: nn.Module | None,
    progress: Progress,
    checkpoint: Checkpoints | None,
) -> FitResult:
    """Fit the explainer of the labels, or of what a predictor says.

    Args:
        plan: how.
        source: the rows.
        observed: the predictor, where the method explains one.
        progress, checkpoint: as in :func:`lexppl.inference.fit`.
    """
    has_own_rate = METHODS[plan.method].own_rate is not None and not plan.rate_given
    result = fit(
        _system(plan, source, observed),
        observed_rows(source.train, observed),
        valid=None if source.valid is None else observed_rows(source.valid, observed),
        replicates=plan.replicates,
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        learning_rate=None if has_own_rate else plan.schedule,
        weight_decay=plan.weight_decay,
        seed=plan.seed,
        checkpoint=checkpoint,
        progress=progress,
    )
    result.entry_names = source.data.entry_names
    result.class_names = source.data.class_names
    return result


def observed_rows(part: Part, observed: nn.Module | None = None) -> tuple[Tensor, Tensor]:
    """Rows and labels, or what a predictor says of them."""
    if observed is None:
        return part.x, part.y
    return part.x, regime_targets("self post-hoc", part.x, predictor=observed)


def _system(plan: FitPlan, source: DividedRows, black_box: nn.Module | None) -> System:
    x = source.train.x
    settings = Settings(
        features=source.architecture,
        classes=len(source.data.class_names),
        k=plan.k,
        penalty=None if isinstance(plan.penalty, str) else plan.penalty,
        black_box=black_box,
        masks=plan.masks,
        imputations=plan.imputations,
        folds=plan.folds,
        unit=plan.unit,
        imputer=_imputer(plan, source) if METHODS[plan.method].takes("imputer") else None,
    )
    return method_system(plan, settings, x)


def _imputer(plan: FitPlan, source: DividedRows) -> nn.Module | None:
    """The imputer of the plan's name, fitted; None for the architecture's own, padding."""
    name, x = str(plan.imputer), source.train.x
    if name not in OF_WORDS:
        return imputer_of(name, x, plan.seed)
    size: int = getattr(source.architecture, "vocabulary_size", 0)
    if name == "unigram":
        return UnigramImputer.fit(x, size)
    return BigramImputer.fit(x, size, seed=plan.seed) if name == "bigram" else None
