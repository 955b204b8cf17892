"""What predicts from the features that an explainer keeps: a network, boosted trees, or whichever
does it better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor

from lexppl.choices.settings import AUTO_PREDICTOR, NETWORK, TREES
from lexppl.evaluation.prediction import predictive_log_likelihood
from lexppl.tabular.fit_plan import FitPlan
from lexppl.tabular.table_fit import TableFit

WORDS: Mapping[str, str] = MappingProxyType({NETWORK: "a network", TREES: "boosted trees"})
"""What the kinds of predictors are called."""


@dataclass(frozen=True)
class Chosen:
    """A fit, and what it was preferred to.

    Args:
        fit: with its plan, which names the predictor.
        log_likelihood: of each kind that was tried, the mean over validation rows in nats, of the
            replicate that is best by it; none where there was nothing to choose.
    """

    fit: TableFit
    log_likelihood: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def words(self) -> str:
        """The predictor, and by what it was chosen.

        Example:
            >>> from lexppl.tabular.fit_plan import plan_for
            >>> Chosen(TableFit(plan_for(90, 10), None), {"network": -0.61, "trees": -0.64}).words
            'a network (-0.610 nats a held-out row; boosted trees: -0.640)'
        """
        kind = self.fit.plan.predictor_kind
        if not self.log_likelihood:
            return WORDS[kind]
        others = ", ".join(
            f"{WORDS[other]}: {value:.3f}"
            for other, value in self.log_likelihood.items()
            if other != kind
        )
        return f"{WORDS[kind]} ({self.log_likelihood[kind]:.3f} nats a held-out row; {others})"


def fit_chosen(
    plan: FitPlan,
    valid: tuple[Tensor, Tensor] | None,
    fit_one: Callable[[FitPlan], TableFit],
    valid_weights: Tensor | None = None,
) -> Chosen:
    """Fit by a plan; by one that leaves the predictor open, with each kind, and keep the fit that
    predicts the validation rows better, from the features that it keeps.

    A fit that is interrupted is kept if it is the first, and else counts as it is; where the
    second or the choice is cut short before it has come to anything, the first is kept.

    Args:
        plan: of the fit.
        valid: x `(N, D)` and y, on which it is chosen.
        fit_one: fits by a plan that names its predictor.
        valid_weights: how often each validation row counts, `(N,)`; None for once.

    Raises:
        ValueError: a predictor that is to be chosen, and no rows to choose it on.
    """
    if plan.predictor_kind != AUTO_PREDICTOR:
        fitted = fit_one(plan)
        return Chosen(fitted, fitted.log_likelihood)
    if valid is None:
        raise ValueError(
            f"predictor={AUTO_PREDICTOR!r} is chosen on validation rows, and there are none: give "
            f"rows to set apart, or predictor={NETWORK!r} or {TREES!r}"
        )
    fits: dict[str, TableFit] = {}
    scores: dict[str, float] = {}
    for kind in (NETWORK, TREES):
        try:
            fits[kind] = fit_one(with_predictor(plan, kind))
            if fits[kind].result.interrupted and not scores:
                return Chosen(fits[kind])
            each = predictive_log_likelihood(fits[kind].result, *valid, seed=plan.seed)
        except KeyboardInterrupt:
            if NETWORK not in fits:
                raise
            fits[NETWORK].result.interrupted = True
            return Chosen(fits[NETWORK])
        weights = None if valid_weights is None else valid_weights.cpu().numpy()
        by_row = each.double().cpu().numpy()
        scores[kind] = float(np.average(by_row, axis=1, weights=weights).max())
    best = max(scores, key=lambda kind: scores[kind])
    return Chosen(fits[best], MappingProxyType(scores))


def with_predictor(plan: FitPlan, kind: str) -> FitPlan:
    """The plan with a kind of predictor, and with what it takes to hide features from it."""
    imputer: Any = "gap" if kind == TREES else plan.imputer
    return replace(plan, predictor_kind=kind, imputer=imputer)
