"""What the features are worth on held-out rows, as `lexppl explain` ranks them."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.methods import METHODS
from lexppl.choices.regimes import Regime
from lexppl.cli.judged.judged_rows import JudgedRows, test_folds
from lexppl.data import Dataset, DividedTable
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import Folds, judged
from lexppl.evaluation.gain_tables import gain_table, group_table
from lexppl.evaluation.gains import FeatureGains, feature_gains
from lexppl.evaluation.learned import BaseRateGain, gain_over_base_rate
from lexppl.evaluation.refits.evalx import EvalX
from lexppl.evaluation.refits.fitted_predictor import FittedPredictor
from lexppl.explanation import explain, mask_means, selection_table
from lexppl.explanation.reading.masks import PROBABILITY, STATED, by_groups, drawn_masks, kind_of
from lexppl.inference import FitResult
from lexppl.models import regime_targets
from lexppl.tabular.fit_plan import FitPlan

GAIN_ROWS = 2000
"""Most held-out rows that are judged."""
MASKS, LEAST_MASKS = 20, 4
EVALUATIONS = 4_000_000
"""Predictions of a row that gains may cost in all, so that they take seconds."""


@dataclass(frozen=True, eq=False)
class JudgedGains:
    """Groups and features by what they are worth.

    Args:
        groups: of :func:`lexppl.evaluation.group_table`, with the masks of the groups beside it
            (:func:`lexppl.explanation.selection_table`).
        table: of :func:`lexppl.evaluation.gain_table`.
        rate: the error rate, in words.
        predicted: what is predicted, in words.
        each: the gains of the rows that were judged.
        row_names: their places in the table.
    """

    groups: pd.DataFrame
    table: pd.DataFrame
    rate: str
    predicted: str
    each: FeatureGains
    row_names: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Held-out rows that they were judged on."""
        return len(self.row_names)

    def joined(self, ranking: pd.DataFrame) -> pd.DataFrame:
        """A table of selections with the gains beside them: of each group, in their order, the
        member that is kept most, and then the others.

        Args:
            ranking: of :func:`lexppl.explanation.selection_table`.
        """
        joined = _joined(ranking, self.table)
        place = self.groups.index.get_indexer(pd.Index(joined["group"]))
        within = joined.iloc[:, 0].groupby(place).rank(ascending=False, method="first")
        return joined.iloc[np.lexsort((within, place, within > 1.0))]


def _joined(ranking: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    named = table.rename(columns={"lower": "gain_lower", "upper": "gain_upper"})
    named.index = named.index.astype(ranking.index.dtype)
    return ranking.join(named).loc[named.index]


def judge_gains(
    judge: EvalX,
    result: FitResult,
    source: DividedTable,
    posterior: Posterior,
    targets: Tensor,
    predicted: str,
    *,
    groups: FeatureGroups,
    fdr: float,
    fwer: float | None,
    seed: int,
) -> JudgedGains:
    """The gains of groups and features on held-out rows, in predicting what is explained.

    Args:
        judge: EVAL-X of the targets.
        result: the fit, of masks that select.
        source: the table.
        posterior: the masks of held-out rows.
        targets: what the explainer observes of each row of the table.
        predicted: the same in words.
        groups: of the features.
        fdr, fwer: as in :func:`lexppl.evaluation.group_table`.
        seed: of the rows where there are more than are judged.

    Raises:
        FloatingPointError: a likelihood that is no number.
        ValueError: fewer than two held-out rows.
    """
    chosen = _judged_rows(source.test.x, seed)
    x, places = source.test.x[chosen], source.test_rows[chosen.cpu().numpy()]
    cost = len(x) * (source.data.n_entries + len(groups.names))
    draws = min(MASKS, max(LEAST_MASKS, EVALUATIONS // cost))
    folds = _folds(source, chosen)
    masks = drawn_masks(judged(folds, explain, result, x, draws=draws, seed=seed))
    gains = feature_gains(
        judge,
        x,
        targets[places],
        masks.to(x),
        groups=groups,
        folds=folds,
        seed=seed,
    )
    if source.unit is not None:
        gains = replace(gains, unit=torch.from_numpy(source.unit[places]))
    members = {
        name: [gains.entry_names[g] for g in group]
        for name, group in zip(groups.names, groups.members, strict=True)
    }
    kept = selection_table(by_groups(posterior, members))
    kept.index.name = "group"
    found = group_table(gains, fdr, fwer=fwer)
    # Of a response, in its own units.
    found[["error", "error_without"]] *= source.target_scale
    return JudgedGains(
        _joined(kept, found),
        gain_table(gains, fdr, fwer=fwer),
        f"a false discovery rate of {fdr:g}"
        if fwer is None
        else f"a family-wise error of {fwer:g}",
        predicted,
        gains,
        tuple(int(place) for place in places),
    )


def explained_by(
    source: DividedTable, plan: FitPlan, outputs: Tensor | None, full: FittedPredictor | None
) -> tuple[Tensor, str]:
    """What the explainer observes of every row of a table, and the same in words.

    Args:
        source, plan, outputs, full: as in :func:`explained_targets`.
    """
    rows = np.arange(len(source.data))
    targets = explained_targets(source.data, rows, plan, outputs, full)
    if outputs is not None:
        return targets, "what the black box says"
    if full is not None and _explains(plan):
        return targets, "what the predictor that was fitted before says"
    return targets, str(source.data.target_name)


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
