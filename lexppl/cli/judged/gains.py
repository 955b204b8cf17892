"""What the features are worth on held-out rows, as `lexppl explain` ranks them."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.choices.methods import METHODS
from lexppl.choices.regimes import Regime
from lexppl.cli.judged.judged_rows import JudgedRows, test_folds
from lexppl.data import Dataset, DividedTable
from lexppl.evaluation.folds import Folds, judged
from lexppl.evaluation.gain_tables import gain_table
from lexppl.evaluation.gains import FeatureGains, feature_gains
from lexppl.evaluation.learned import BaseRateGain, gain_over_base_rate
from lexppl.evaluation.rare_labels import rare_rows
from lexppl.evaluation.refits.fitted_predictor import FittedPredictor
from lexppl.explanation import explain, mask_means
from lexppl.explanation.layout.importance_kind import PROBABILITY, STATED, kind_of
from lexppl.inference import FitResult
from lexppl.models import regime_targets
from lexppl.tabular.fit_plan import FitPlan

GAIN_ROWS = 2000
"""Most held-out rows on which gains are measured."""
MASKS = 20
LEAST_MASKS = 4
EVALUATIONS = 4_000_000
"""Predictions of a row that gains may cost in all, so that they take seconds."""


@dataclass(frozen=True, eq=False)
class JudgedGains:
    """The features by what keeping them is worth.

    Args:
        table: of :func:`lexppl.evaluation.gain_table`.
        fdr: the false discovery rate at which features are found.
        rows: held-out rows that they were judged on.
        predicted: what is predicted, in words.
        each: the gains of the rows that were judged.
        row_names: their places in the table.
        rare: how many of the rows have another label than the commonest; None of responses, and
            where a model is explained.
    """

    table: pd.DataFrame
    fdr: float
    rows: int
    predicted: str
    each: FeatureGains
    row_names: tuple[int, ...]
    rare: int | None = None

    @property
    def lost(self) -> list[str]:
        """Features that are not found, the largest gain first."""
        return [str(name) for name in self.table.index[~self.table["found"]]]

    def joined(self, ranking: pd.DataFrame) -> pd.DataFrame:
        """A table of selections with the gains beside them, the largest gain first.

        Args:
            ranking: of :func:`lexppl.explanation.selection_table`.
        """
        named = self.table.rename(columns={"lower": "gain_lower", "upper": "gain_upper"})
        named.index = named.index.astype(ranking.index.dtype)
        return ranking.join(named).loc[named.index]


def judge_gains(
    result: FitResult,
    source: DividedTable,
    plan: FitPlan,
    *,
    outputs: Tensor | None,
    full: FittedPredictor | None,
    fdr: float,
    seed: int,
) -> JudgedGains:
    """The gains of the features on held-out rows, in predicting what the explainer explains.

    Args:
        result: the fit, of masks that select.
        source: the table.
        plan: how it was fitted.
        outputs: what the black box says of every row, or None.
        full: the predictor that was fitted on all features before, or None.
        fdr: the rate at which features are found.
        seed: of the draws, and of the rows where there are more than are judged.

    Raises:
        FloatingPointError: a likelihood that is no number.
        ValueError: fewer than two held-out rows.
    """
    x = source.test.x
    y = explained_targets(source.test, source.test_rows, plan, outputs, full)
    predicted = str(source.data.target_name)
    if outputs is not None:
        predicted = "what the black box says"
    elif full is not None and _explains(plan):
        predicted = "what the predictor that was fitted before says"
    chosen = _judged_rows(x, seed)
    x, y = x[chosen], y[chosen]
    fits = result.replicates if source.fold is None else 1
    cost = len(x) * fits * (source.data.n_entries + 1)
    masks = min(MASKS, max(LEAST_MASKS, EVALUATIONS // cost))
    folds = _folds(source, chosen)
    by = partial(feature_gains, result) if folds is None else partial(folds.gains, result)
    gains = by(x, y, masks=masks, seed=seed)
    names = tuple(int(source.test_rows[place]) for place in chosen.tolist())
    return JudgedGains(gain_table(gains, fdr), fdr, len(x), predicted, gains, names, rare_rows(y))


def judge_learning(
    result: FitResult,
    source: DividedTable,
    plan: FitPlan,
    outputs: Tensor | None,
    full: FittedPredictor | None,
    seed: int,
) -> BaseRateGain:
    """What the explainer's predictions are worth on held-out rows against the base rate.

    Args:
        result, source, plan, outputs, full, seed: as in :func:`judge_gains`.
    """
    x = source.test.x
    chosen = _judged_rows(x, seed)
    train_y = explained_targets(source.train, source.train_rows, plan, outputs, full)
    y = explained_targets(source.test, source.test_rows, plan, outputs, full)
    folds = _folds(source, chosen)
    return gain_over_base_rate(result, train_y, x[chosen], y[chosen], seed=seed, folds=folds)


def undecided(result: FitResult, source: JudgedRows, plan: FitPlan) -> float | None:
    """Share of held-out rows and features that are kept with a probability from .1 to .9; None
    where masks are not selections of a free size with stated probabilities."""
    if plan.k is not None:
        return None
    x = source.test.x[:GAIN_ROWS]
    folds = _folds(source, torch.arange(len(x)))
    posterior = judged(folds, explain, result, x, draws=1)
    means = mask_means(posterior)
    stated = means.attrs.get("source") == STATED
    if kind_of(posterior) is not PROBABILITY or not stated:
        return None
    return float(((means > 0.1) & (means < 0.9)).mean())


def _folds(source: JudgedRows, chosen: Tensor) -> Folds | None:
    folds = test_folds(source)
    return None if folds is None else folds.take(chosen)


def _judged_rows(x: Tensor, seed: int) -> Tensor:
    """Places of the rows that are judged, at random where there are many."""
    if len(x) <= GAIN_ROWS:
        return torch.arange(len(x), device=x.device)
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(len(x), generator=generator)[:GAIN_ROWS].to(x.device)


def explained_targets(
    part: Dataset,
    rows: NDArray[np.int64],
    plan: FitPlan,
    outputs: Tensor | None,
    full: FittedPredictor | None,
) -> Tensor:
    """What the explainer observes of some rows: labels or responses, or a model's outputs.

    Args:
        part: the rows.
        rows: their places in the table.
        plan: how the explainer was fitted.
        outputs: what the black box says of every row, or None.
        full: the predictor that was fitted on all features before, or None.
    """
    if outputs is not None:
        return outputs[rows]
    if full is not None and _explains(plan):
        return regime_targets(Regime.SELF_POST_HOC, part.x, predictor=full.predictor)
    return part.y


def _explains(plan: FitPlan) -> bool:
    """Whether the explainer observes a predictor's outputs, and not the labels."""
    return METHODS[plan.method].explains_model or plan.regime is Regime.SELF_POST_HOC
