"""What the features are worth on held-out rows, as `lexppl explain` ranks them."""

from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from lexppl.data import DividedTable
from lexppl.evaluation.gains import feature_gains, gain_table
from lexppl.evaluation.refits.fitted_predictor import FittedPredictor
from lexppl.inference import FitResult
from lexppl.models import regime_targets
from lexppl.models.regimes import Regime
from lexppl.systems import METHODS
from lexppl.tabular.fit_plan import FitPlan

JUDGED_ROWS = 2000
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
    """

    table: pd.DataFrame
    fdr: float
    rows: int
    predicted: str

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
    if outputs is not None:
        y, predicted = outputs[source.test_rows], "what the black box says"
    elif full is not None and _explains(plan):
        y = regime_targets(Regime.SELF_POST_HOC, x, predictor=full.predictor)
        predicted = "what the predictor that was fitted before says"
    else:
        y, predicted = source.test.y, str(source.data.target_name)
    if len(x) > JUDGED_ROWS:
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(x), generator=generator)[:JUDGED_ROWS].to(x.device)
        x, y = x[chosen], y[chosen]
    cost = len(x) * result.replicates * (source.data.n_entries + 1)
    masks = min(MASKS, max(LEAST_MASKS, EVALUATIONS // cost))
    gains = feature_gains(result, x, y, masks=masks, seed=seed)
    return JudgedGains(gain_table(gains, fdr), fdr, len(x), predicted)


def _explains(plan: FitPlan) -> bool:
    """Whether the explainer observes a predictor's outputs, and not the labels."""
    return METHODS[plan.method].explains_model or plan.regime is Regime.SELF_POST_HOC
