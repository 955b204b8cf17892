"""An explainer of a table, and what groups and features of the table are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import Regime
from lexppl.data.divided_table import DividedTable
from lexppl.evaluation.evalx import FittedPredictor
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.importance import Importance, importance
from lexppl.evaluation.prediction import LEAST_RARE, BaseRateGain, gain_over_base_rate, rare_rows
from lexppl.explanation import selection_table
from lexppl.explanation.reading.masks import by_groups
from lexppl.inference import FitResult
from lexppl.models import regime_targets
from lexppl.report.results.scores import folds_at, folds_of_judged
from lexppl.systems.fit_plan import FitPlan
from lexppl.tabular.table_fit import TableFit

JUDGED_ROWS = 2000  # Most held-out rows of the gain over the base rate
GAIN_ROWS = 20_000  # Most rows that gains are of
MEASURING = "measuring what the features are worth"
MOST_SETS = 80  # Of columns, each with predictors of its own: seconds
REPORTED = {f"last{end}": f"gain{end}" for end in ("", "_error", "_lower", "_upper", "_p")}


@dataclass(frozen=True, eq=False)
class FittedTable:
    """An explainer of a table: its fit and plan, and what it was fitted to.

    Args:
        outputs: of a black box for every row, or None.
        full: the predictor that was fitted on all features before, or None.
        calls: rows that a black box was given, in words, or None.
        worth: :func:`measured_importance` of all groups, where it was measured before the fit.
    """

    fit: TableFit
    source: DividedTable
    groups: FeatureGroups
    outputs: Tensor | None = None
    full: FittedPredictor | None = None
    calls: str | None = None
    worth: Importance | None = None

    @property
    def result(self) -> FitResult:
        """The fitted models and their history."""
        return self.fit.result

    @property
    def plan(self) -> FitPlan:
        """The plan of the fit, with its penalty."""
        return self.fit.plan

    @property
    def seed(self) -> int:
        """The seed of draws and of choices of rows."""
        return self.plan.seed

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
    """What groups and features are worth, of :func:`lexppl.evaluation.importance`: its `last` as
    `gain`.

    Args:
        groups: of `group_table`, with :func:`selection_table` of groups.
        table: of `feature_table`.
        rate: the error rate, in words.
        predicted: what is predicted, in words.
        worth: of rows.
        row_names: their places in the table.
        measured: how many groups were measured.
    """

    groups: pd.DataFrame
    table: pd.DataFrame
    rate: str
    predicted: str
    worth: Importance
    row_names: tuple[int, ...]
    measured: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.row_names)

    def joined(self, ranking: pd.DataFrame) -> pd.DataFrame:
        """A selection table with gains: of each group the member kept most, then all others."""
        joined = _joined(ranking, self.table)
        place = self.groups.index.get_indexer(pd.Index(joined["group"]))
        within = joined.iloc[:, 0].groupby(place).rank(ascending=False, method="first")
        return joined.iloc[np.lexsort((within, place, within > 1.0))]


def _joined(ranking: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    named = table.rename(columns=REPORTED)
    named.index = named.index.astype(ranking.index.dtype)
    return ranking.join(named).loc[named.index]


def measured_first(groups: FeatureGroups, names: Sequence[str]) -> list[str]:
    """Of groups in an order, those whose sets of columns are few enough to be measured."""
    size = dict(zip(groups.names, map(len, groups.members), strict=True))
    sets = np.cumsum([2 * (1 + size[name] * (size[name] > 1)) for name in names])
    return list(names[: max(1, int((sets <= MOST_SETS).sum()))])


def measured_rows(source: DividedTable, seed: int) -> NDArray[np.int64]:
    """The rows, by their places, that gains are of: all that are read, or some of very many."""
    # Of a black box those that --max-calls left out have no answer.
    parts = (source.train_rows, source.valid_rows, source.test_rows)
    rows = np.unique(np.concatenate([part for part in parts if part is not None]))
    if len(rows) > GAIN_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, GAIN_ROWS, replace=False))
    return rows


def measured_importance(
    source: DividedTable,
    groups: FeatureGroups,
    names: Sequence[str],
    rows: NDArray[np.int64],
    outputs: Tensor,
    seed: int,
) -> Importance | None:
    """:func:`lexppl.evaluation.importance` of groups by their names, for the outputs of rows; None
    where these do not vary."""
    if bool((outputs == outputs[:1]).all()):
        return None
    return importance(
        source.data.subset(torch.from_numpy(rows)),
        groups=groups,
        measured=names,
        folds=folds_at(source, rows),
        outputs=outputs,
        unit=None if source.unit is None else torch.from_numpy(source.unit[rows]),
        seed=seed,
    )


def few_rare(source: DividedTable) -> int | None:
    """How many held-out labels are of the rarer class, if too few for the mean of their gains to be
    normal."""
    rare = rare_rows(source.test.y)
    few = rare is not None and rare < min(LEAST_RARE / 4, len(source.test_rows) / 10)
    return rare if few else None


def judge_gains(
    fitted: FittedTable, posterior: Posterior, fdr: float, fwer: float | None
) -> JudgedGains | None:
    """What groups and features say of what the explainer observes, over all rows that it read; of
    many groups, over those that it keeps most; None where that does not vary.

    Raises:
        FloatingPointError: a likelihood that is no number.
    """
    source, groups, worth, seed = fitted.source, fitted.groups, fitted.worth, fitted.seed
    data, every = source.data, zip(groups.names, groups.members, strict=True)
    members = {name: [data.entry_names[g] for g in group] for name, group in every}
    selection = selection_table(by_groups(posterior, members))
    selection.index.name = "group"
    order = selection.iloc[:, 0].sort_values(ascending=False, kind="stable").index
    measured = measured_first(groups, [str(name) for name in order])
    rows = measured_rows(source, seed)
    if worth is None:
        worth = measured_importance(source, groups, measured, rows, fitted.targets(rows), seed)
    if worth is None:
        return None
    table = worth.group_table(fdr, fwer=fwer, level=None)
    # Of a response, in its own units.
    table[["error", "error_without"]] *= source.target_scale
    rate = f"a false discovery rate of {fdr:g}"
    if fwer is not None:
        rate = f"a family-wise error of {fwer:g}"
    tables = _joined(selection, table), worth.feature_table(fdr, fwer=fwer, level=None)
    return JudgedGains(*tables, rate, fitted.predicted, worth, tuple(rows.tolist()), len(measured))


def judge_learning(fitted: FittedTable) -> BaseRateGain:
    """Gain of the predictions of held-out rows over the base rate."""
    source, seed = fitted.source, fitted.seed
    train_y, y = fitted.targets(source.train_rows), fitted.targets(source.test_rows)
    chosen, folds = torch.arange(len(y), device=y.device), folds_of_judged(source)
    if len(y) > JUDGED_ROWS:
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed)).to(y.device)
        chosen = order[:JUDGED_ROWS]
    folds = None if folds is None else folds.take(chosen)
    x = source.test.x[chosen]
    return gain_over_base_rate(fitted.result, train_y, x, y[chosen], seed=seed, folds=folds)
