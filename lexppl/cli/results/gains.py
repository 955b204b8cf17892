"""An explainer of a table, and the gains of groups and features on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import Regime
from lexppl.cli.results.scores import folds_of_judged
from lexppl.data.divided_table import DividedTable
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import Folds, judged
from lexppl.evaluation.gains import FeatureGains, feature_gains, gain_table, group_table
from lexppl.evaluation.judges import EvalX, FittedPredictor
from lexppl.evaluation.prediction import (
    BaseRateGain,
    gain_over_base_rate,
    predictive_log_likelihood,
)
from lexppl.explanation import selection_table
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.reading.masks import by_groups, drawn_masks
from lexppl.inference import FitResult
from lexppl.models import regime_targets
from lexppl.tabular.fit_plan import FitPlan
from lexppl.tabular.predictors import own_judge

GAIN_ROWS = 2000  # Most held-out rows that are judged
MASKS, LEAST_MASKS = 20, 4
EVALUATIONS = 4_000_000  # Most predictions of a row that gains may cost: seconds


@dataclass(frozen=True, eq=False)
class FittedTable:
    """An explainer of a table: its fit and plan, and what it was fitted to.

    Args:
        outputs: of a black box for every row, or None.
        full: the predictor that was fitted on all features before, or None.
        seed: of draws and of choices of rows.
        networks: the fit whose networks trees replaced, or None.
    """

    result: FitResult
    plan: FitPlan
    source: DividedTable
    groups: FeatureGroups
    outputs: Tensor | None
    full: FittedPredictor | None
    seed: int
    networks: FitResult | None = None

    @property
    def observes_predictor(self) -> bool:
        """Whether it observes outputs of :attr:`full` in place of labels."""
        explains = METHODS[self.plan.method].explains_model
        post_hoc = explains or self.plan.regime is Regime.SELF_POST_HOC
        return self.outputs is None and self.full is not None and post_hoc

    @property
    def observes_labels(self) -> bool:
        """Whether it observes labels or responses, and no outputs of a model."""
        return self.outputs is None and not self.observes_predictor

    @property
    def predicted(self) -> str:
        """What it observes, in words."""
        if self.outputs is not None:
            return "what the black box says"
        if self.observes_predictor:
            return "what the predictor that was fitted before says"
        return str(self.source.data.target_name)

    def targets(self, rows: NDArray[np.int64] | None = None) -> Tensor:
        """What it observes of rows by their places, of all if None: labels, responses or
        outputs."""
        data = self.source.data
        if self.outputs is not None:
            return self.outputs if rows is None else self.outputs[rows]
        if rows is not None:
            data = data.subset(torch.from_numpy(rows))
        if self.observes_predictor and self.full is not None:
            return regime_targets(Regime.SELF_POST_HOC, data.x, predictor=self.full.predictor)
        return data.y


@dataclass(frozen=True, eq=False)
class JudgedGains:
    """Groups and features by their gain.

    Args:
        groups: of :func:`lexppl.evaluation.group_table`, with :func:`selection_table` of groups.
        table: of :func:`lexppl.evaluation.gain_table`.
        rate: the error rate, in words.
        predicted: what is predicted, in words.
        each: gains of rows.
        row_names: their places in the table.
    """

    groups: pd.DataFrame
    table: pd.DataFrame
    rate: str
    predicted: str
    each: FeatureGains
    row_names: tuple[int, ...]

    @property
    def known(self) -> bool:
        """Whether there was a judge of groups."""
        return bool(self.groups["gain"].notna().any())

    @property
    def rows(self) -> int:
        """Number of held-out rows."""
        return len(self.row_names)

    def joined(self, ranking: pd.DataFrame) -> pd.DataFrame:
        """A selection table with gains: of each group the member kept most, then all others."""
        joined = _joined(ranking, self.table)
        place = self.groups.index.get_indexer(pd.Index(joined["group"]))
        within = joined.iloc[:, 0].groupby(place).rank(ascending=False, method="first")
        return joined.iloc[np.lexsort((within, place, within > 1.0))]


def _joined(ranking: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    named = table.rename(columns={"lower": "gain_lower", "upper": "gain_upper"})
    named.index = named.index.astype(ranking.index.dtype)
    return ranking.join(named).loc[named.index]


def judge_gains(
    fitted: FittedTable, judge: EvalX, posterior: Posterior, fdr: float, fwer: float | None
) -> JudgedGains:
    """Gains of groups and features of held-out rows, by the explainer's masks, and by the networks
    fitted with it or EVAL-X of the targets.

    Raises:
        FloatingPointError: a likelihood that is no number.
        ValueError: fewer than two held-out rows.
    """
    source, groups, seed = fitted.source, fitted.groups, fitted.seed
    every = fitted.targets(source.test_rows)
    labels = fitted.observes_labels and source.data.class_names is not None
    chosen, weight = _judged_rows(every, seed, labels)
    x, y, places = source.test.x[chosen], every[chosen], source.test_rows[chosen.cpu().numpy()]
    cost = 2 * len(x) * (source.data.n_entries + len(groups.names))
    draws = min(MASKS, max(LEAST_MASKS, EVALUATIONS // cost * 2))
    folds = _folds(source, chosen)
    masks = drawn_masks(judged(folds, explanation_tree, fitted.result, x, draws=draws, seed=seed))
    likelihood = judged(folds, predictive_log_likelihood, fitted.result, x, y, seed=seed)
    name = None if fitted.networks is None else "the network that trees replaced"
    explainer_judge = own_judge(fitted.networks or fitted.result, judge.entries, name=name)
    itself = own_judge(fitted.result, judge.entries, of_any=True)
    unit = None if source.unit is None else torch.from_numpy(source.unit[places])
    how: dict[str, Any] = {"groups": groups, "folds": folds, "unit": unit, "weight": weight}
    how |= {"explainer": likelihood.double().mean(0), "itself": itself, "member_judge": judge}
    by = judge if explainer_judge is None else explainer_judge
    gains = feature_gains(by, x, y, masks.to(x), seed=seed, **how)
    members = {
        name: [gains.entry_names[g] for g in group]
        for name, group in zip(groups.names, groups.members, strict=True)
    }
    kept = selection_table(by_groups(posterior, members))
    kept.index.name = "group"
    table = group_table(gains, fdr, fwer=fwer)
    # Of a response, in its own units.
    table[["error", "error_without"]] *= source.target_scale
    rate = f"a false discovery rate of {fdr:g}"
    if fwer is not None:
        rate = f"a family-wise error of {fwer:g}"
    tables = _joined(kept, table), gain_table(gains, fdr, fwer=fwer)
    return JudgedGains(*tables, rate, fitted.predicted, gains, tuple(places.tolist()))


def judge_learning(fitted: FittedTable) -> BaseRateGain:
    """Gain of the predictions of held-out rows over the base rate."""
    source, seed = fitted.source, fitted.seed
    train_y, y = fitted.targets(source.train_rows), fitted.targets(source.test_rows)
    chosen = _judged_rows(y, seed)[0]
    x, folds = source.test.x[chosen], _folds(source, chosen)
    return gain_over_base_rate(fitted.result, train_y, x, y[chosen], seed=seed, folds=folds)


def _folds(source: DividedTable, chosen: Tensor) -> Folds | None:
    folds = folds_of_judged(source)
    return None if folds is None else folds.take(chosen)


def _judged_rows(y: Tensor, seed: int, labels: bool = False) -> tuple[Tensor, Tensor | None]:
    """Places of the rows that are judged, at random of many; of labels as many of each as there
    are, and with weights that make up for it, so that rare ones are judged too."""
    if len(y) <= GAIN_ROWS:
        return torch.arange(len(y), device=y.device), None
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed)).to(y.device)
    if not labels:
        return order[:GAIN_ROWS], None
    label = pd.Series(y[order].cpu())
    rank = torch.from_numpy(label.groupby(label).cumcount().to_numpy())
    chosen = order[rank.argsort(stable=True)[:GAIN_ROWS]]
    own = y[chosen]
    return chosen, (y.bincount().double() / own.bincount(minlength=int(y.max()) + 1))[own]
