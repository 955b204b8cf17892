"""The fit of a method on encoded rows."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from lexppl.choices.methods import METHODS
from lexppl.choices.settings import AUTO, AUTO_PREDICTOR, NETWORK, TREES, Regime
from lexppl.data.stratification import evenly
from lexppl.evaluation import penalty_path, plateau
from lexppl.evaluation.evalx import FittedPredictor
from lexppl.evaluation.penalty_path import HASTY_ROWS, PenaltyPath
from lexppl.evaluation.prediction import BehindWarning
from lexppl.inference import (
    Checkpoints,
    CollapseWarning,
    FitResult,
    System,
    TrainingOptions,
    fit,
)
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.training.checkpoint import below
from lexppl.inference.training.diagnostics import (
    ALL_OFF,
    ALL_ON,
    ONE_MASK,
    collapses,
    report_collapse,
)
from lexppl.inference.training.fit import WATCHED_ROWS
from lexppl.inference.training.watch import Callback, Progress
from lexppl.models import CopulaImputer, tree_predictor
from lexppl.models.imputers import imputer_by_dependence
from lexppl.models.imputers.imputer import repeated_rows
from lexppl.models.regimes import frozen
from lexppl.summary import Summarised, Summary
from lexppl.systems import system_for
from lexppl.systems.fit_plan import FitPlan
from lexppl.tabular.encoded_rows import MOST_JUDGED, EncodedRows
from lexppl.tabular.global_posterior import fit_posterior, prior_of
from lexppl.tabular.missing_values import (
    check_missing,
    fitted_imputer,
    gapped,
    with_missing,
    without_entries,
)
from lexppl.tabular.predictors import WORDS, fit_full_predictor, rescale_logits, trees_where_better
from lexppl.tabular.reference import Reference

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        ALL_OFF: "no row keeps any feature: give a lower penalty=, penalty='auto', or k=",
        ALL_ON: "every row keeps every feature: give a higher penalty=, penalty='auto', or k=",
        ONE_MASK: "every row keeps the same features, which is right only if the same ones matter "
        "everywhere: if not, give a lower penalty=, more epochs=, or another random_state=",
    }
)
"""What to try where masks have collapsed, in the words of the estimators."""
BEHIND_ADVICE = (
    "it leaves out what matters; give a lower penalty= or a larger k=, more epochs=, more rows, or "
    "imputer='copula' where columns depend on each other"
)
PATH_ROWS, PATH_MASKS = 2000, 20
"""Most validation rows, and masks of each, by which λ is chosen."""
Watch = Callable[[tuple[Tensor, Tensor]], Iterable[Callback]]


@dataclass(frozen=True, eq=False, repr=False)
class TableFit(Summarised):
    """An explainer of a table: its plan with the chosen penalty, its fit, the penalty path if λ was
    chosen, the mean validation log-likelihood of networks and of trees, in nats, if both were
    tried, the predictor of all features that it was compared with, if any, and that it predicts
    held-out rows worse than this predictor, in words, empty where it does not.
    """

    plan: FitPlan
    result: FitResult
    path: PenaltyPath | None = None
    log_likelihood: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    full: FittedPredictor | None = None
    behind: str = ""

    def summarised(self) -> Summary:
        """Heading and settings of the fit."""
        plan, of_fit = self.plan, self.result.summarised()
        path = "" if self.path is None else f" of a path of {len(self.path.table)}"
        settings = [
            None if plan.k is None else f"k={plan.k}",
            None if self.penalty is None else f"penalty={self.penalty:.4g}{path}",
            f"imputer {plan.imputer_name}",
            f"predictor {plan.predictor_kind}",
        ]
        heading = of_fit.heading.replace("FitResult", f"TableFit by {plan.method}", 1)
        lines = {**of_fit.lines, "parts": ", ".join(filter(None, settings))}
        return Summary(heading, lines)

    @property
    def predictor(self) -> str:
        """The predictor in words, with how much likelier labels are by it than by the other."""
        kind, scores = self.plan.predictor_kind, dict(self.log_likelihood)
        if not scores:
            return WORDS[kind]
        best = scores.pop(kind)
        more = [f"{best - value:+.3f} nats a row beside {WORDS[k]}" for k, value in scores.items()]
        return f"{WORDS[kind]} ({', '.join(more)})"

    @property
    def penalty(self) -> float | None:
        """λ of the fit in nats, or None."""
        penalty = self.plan.penalty
        return None if isinstance(penalty, str) else penalty


def fit_table(
    plan: FitPlan,
    rows: EncodedRows,
    *,
    black_box: nn.Module | None = None,
    full: FittedPredictor | None = None,
    checkpoint: Checkpoints | None = None,
    progress: Progress = False,
    watch: Watch | None = None,
    left_out: Sequence[Sequence[bool]] | None = None,
) -> TableFit:
    """Fit a method by a plan; a penalty "auto" is chosen on at most 10,000 judged rows, and a full
    predictor comes first where the method explains a model or its own predictor does not learn.

    Where a predictor learns with the explainer, the fit is compared with a full predictor on judged
    rows (:func:`lexppl.evaluation.prediction.is_behind`). Of a penalty "auto" that is behind, a
    lower one that is not is taken. If all are, a second fit of as many steps begins at full masks,
    with the full predictor in place of one that learns, and the better of both is taken.

    `full` is that predictor if it exists already; `watch` makes callbacks from the rows of the fit;
    `left_out` are the entries, `(R, G)`, that the masks of each replicate never keep.

    Warns:
        BehindWarning: the fit is still behind.
    """
    rows = rows.with_valid_at_most(MOST_JUDGED, plan.seed)
    _refuse_rows(plan, rows)
    reference = full
    if not plan.needs_full_predictor or black_box is not None:
        full = None
    elif rows.folds is not None:
        raise ValueError(
            "in folds a predictor that was fitted before has learned from rows that other "
            "replicates hold out: hold rows out from all, or take a regime whose predictor learns"
        )
    elif full is None:
        full = fit_full_predictor(plan, rows, progress, below(checkpoint, "predictor"))
    if full is not None and (
        METHODS[plan.method].explains_model or plan.regime is Regime.SELF_POST_HOC
    ):
        rows = rows.observing(full.predictor)
    predictor_of_all = None if full is None else full.predictor
    explained = predictor_of_all if black_box is None else copy.deepcopy(black_box)
    predictor = None if predictor_of_all is None else frozen(predictor_of_all)
    settings = _settings(plan, rows, explained, predictor)
    if plan.conditional and isinstance(settings["imputer"], CopulaImputer):
        plan = replace(plan, imputer="copula")
    fitted = _fitted(plan, rows, settings, checkpoint, progress, watch, reference, left_out)
    result = fitted.result
    result.entry_names = rows.grouping.names
    result.feature_names, result.class_names = rows.feature_names, rows.class_names
    if fitted.behind:
        warnings.warn(f"{fitted.behind}: {BEHIND_ADVICE}", BehindWarning, stacklevel=4)
    if plan.posterior is None:
        report_collapse(result.collapse, ADVICE)
    return fitted


def _refuse_rows(plan: FitPlan, rows: EncodedRows) -> None:
    """Refuse rows that a plan cannot be fitted to."""
    if plan.penalty == AUTO and not rows.has_judged:
        raise ValueError(
            "penalty='auto' is chosen on validation rows, and there are none: give rows of each "
            "class to set apart, or a penalty in nats"
        )
    if rows.markers:
        check_missing(plan.method, plan.imputer, not plan.needs_full_predictor)


def _fitted(
    plan: FitPlan,
    rows: EncodedRows,
    settings: Mapping[str, Any],
    checkpoint: Checkpoints | None,
    progress: Progress,
    watch: Watch | None,
    full: FittedPredictor | None,
    left_out: Sequence[Sequence[bool]] | None,
) -> TableFit:
    """The fit of a method, at its penalty, with trees where they are better."""
    system, several = _system(plan, rows, settings), plan.penalties is not None
    training: dict[str, Any] = {
        **plan.training,
        "sample_weight": rows.weights[0] if several and rows.weights else rows.weights,
        "seed": plan.seed,
        "checkpoint": below(checkpoint, "explainer"),
        "progress": progress,
        "training": TrainingOptions(compile="graph" if several else False),
    }
    if plan.posterior is not None:
        posterior, chains = plan.posterior, plan.replicates
        result = fit_posterior(
            posterior, system, rows.train, rows.valid, chains=chains, training=training
        )
        return TableFit(replace(plan, replicates=result.replicates), result)
    training |= {
        "valid": None if several else rows.valid,
        "row_weights": None if rows.folds is None else rows.folds.weights,
    }
    with warnings.catch_warnings():
        # A collapse is reported after all other faults.
        warnings.simplefilter("ignore", CollapseWarning)
        if several:
            # Of trees and of others' imputers no graph is made.
            warnings.filterwarnings("ignore", ".* is not compiled")
        calls = () if watch is None else watch(rows.train)
        systems = _limited([system] * plan.replicates, left_out)
        watched = {"training": replace(training["training"], callbacks=calls)}
        result = fit(systems, rows.train, **{**training, **watched})
        reference = _reference(plan, rows, result, full, progress, checkpoint)
        fitted = _at_penalty(TableFit(plan, result), rows, reference)
        if reference is not None and _goes_on(fitted, rows, reference):
            plan = replace(plan, regime=Regime.FIXED_IN_SITU, predictor_kind=NETWORK)
            settings = {**settings, "likelihood": None}
            networks = reference.network.result.models
            systems = [
                _system(plan, rows, {**settings, "predictor": frozen(network.predictor)})
                for network, _ in zip(cycle(networks), range(plan.replicates), strict=False)
            ]
            training["checkpoint"] = below(checkpoint, "explainer at full masks")
            again = TableFit(plan, fit(_limited(systems, left_out), rows.train, **training))
            again = _at_penalty(again, rows, reference)
            fitted = max(
                fitted, again, key=lambda other: reference.mean(_likelihoods(other, reference))
            )
    fitted = _with_trees(fitted, rows)
    if reference is None:
        return fitted
    by_row = _likelihoods(fitted, reference)
    sentence = reference.sentence(fitted.result, by_row, PATH_MASKS)
    return replace(fitted, full=reference.full, behind=sentence)


def _limited(systems: list[System], left_out: Sequence[Sequence[bool]] | None) -> list[System]:
    """Systems of which each leaves its entries out."""
    if left_out is None:
        return systems
    return [without_entries(system, row) for system, row in zip(systems, left_out, strict=True)]


def _reference(
    plan: FitPlan,
    rows: EncodedRows,
    result: FitResult,
    full: FittedPredictor | None,
    progress: Progress,
    checkpoint: Checkpoints | None,
) -> Reference | None:
    """The predictor that a fit is compared with; None where none is fitted."""
    if not plan.regime.learns_predictor or not rows.has_judged or result.interrupted:
        return None
    if plan.regime.post_hoc and rows.class_names is None:
        return None  # A model's responses have no noise, and their log-likelihood has no bound.
    try:
        saved = below(checkpoint, "full-predictor")
        return Reference.of(plan, rows, PATH_ROWS, full, progress, saved)
    except KeyboardInterrupt:
        result.interrupted = True
        return None


def _likelihoods(fitted: TableFit, reference: Reference) -> NDArray[np.float64]:
    """log p of each judged row by a fit, `(N,)`."""
    if fitted.path is not None and fitted.plan.predictor_kind != TREES:
        return fitted.path.by_row[fitted.path.index]
    return reference.log_likelihood(fitted.result, PATH_MASKS)


def _goes_on(fitted: TableFit, rows: EncodedRows, reference: Reference) -> bool:
    """Whether a fit whose penalty the rows choose is behind a network that masks can be of."""
    possible = fitted.path is not None and fitted.plan.predictor_kind != TREES and not rows.markers
    return possible and reference.is_ahead(_likelihoods(fitted, reference))


def _at_penalty(fitted: TableFit, rows: EncodedRows, reference: Reference | None) -> TableFit:
    """The fit at the given penalty, or at the one that the judged rows choose."""
    plan, result, path = fitted.plan, fitted.result, None
    if plan.penalties is None:
        return fitted
    if rows.has_judged:
        most = HASTY_ROWS if result.interrupted else PATH_ROWS
        judged, folds, weights = rows.judged(most, plan.seed)
    settings: dict[str, Any] = {"penalties": plan.path, "masks": PATH_MASKS}
    if plan.penalty == AUTO:
        settings |= {"folds": folds, "sample_weight": weights}
        rule = partial(plateau, usual=plan.usual_penalty)
        path = penalty_path(result, *judged, rule=rule, **settings)
        plan = replace(plan, penalty=path.penalty)
    result = result.at(float(plan.penalty or 0.0))
    if rows.has_judged and plan.regime.learns_predictor and not result.interrupted:
        factor = rescale_logits(result, judged, folds, weights, PATH_MASKS)
        if path is not None and factor != 1.0:
            # The same penalty, which surer predictors leave as it is.
            place = path.index
            path = penalty_path(result, *judged, rule=lambda *_: place, **settings)
    if path is not None and reference is not None:
        # A network that was fitted to full masks predicts best by them, at whatever cost of λ.
        highest = (
            path.index if plan.regime.learns_predictor else plan.path.index(plan.usual_penalty)
        )
        places = range(highest, -1, -1)
        level = (place for place in places if not reference.is_ahead(path.by_row[place]))
        path = path.at(next(level, path.index))
        plan, result = replace(plan, penalty=path.penalty), result.at(path.penalty)
    even = evenly(len(rows.train[0]), WATCHED_ROWS)
    watched = tuple(column[even] for column in rows.train)
    with seeded(plan.seed, rows.train[0].device), program_settings(validate=False):
        every = [watched] * result.replicates
        result.collapse = collapses(result.models, result.guides, every)
    return TableFit(plan, result, path)


def _with_trees(fitted: TableFit, rows: EncodedRows) -> TableFit:
    """The fit with boosted trees, where the plan tries them and they predict better."""
    plan, result = fitted.plan, fitted.result
    if plan.predictor_kind != AUTO_PREDICTOR:
        return fitted
    likelihoods, plan = trees_where_better(result, rows), replace(plan, predictor_kind=NETWORK)
    if getattr(result.model.predictor, "reads_gaps", False):
        plan = replace(plan, predictor_kind=TREES, imputer="gap")
    return replace(fitted, plan=plan, log_likelihood=likelihoods)


def _settings(
    plan: FitPlan,
    rows: EncodedRows,
    black_box: nn.Module | None,
    predictor: nn.Module | None,
) -> dict[str, Any]:
    classes = None if rows.class_names is None else len(rows.class_names)
    if predictor is None and plan.predictor_kind not in (NETWORK, AUTO_PREDICTOR):
        predictor = tree_predictor(gapped(rows.train[0], rows.markers), classes, rows.grouping)
    weights = None if rows.weights is None else rows.weights[0]
    x, groups = repeated_rows(rows.train[0], weights, plan.seed), rows.grouping.groups
    imputer: nn.Module | None = None
    if plan.conditional and not rows.markers:
        imputer = imputer_by_dependence(x, groups, plan.seed)
    elif METHODS[plan.method].takes("imputer"):
        imputer = fitted_imputer(plan.imputer, x, rows.markers, groups, plan.seed)
    likelihood = rows.likelihood if predictor is None else None
    if likelihood is not None and METHODS[plan.method].takes("likelihood"):
        warnings.warn(
            "the tail of the response stays heavy: its likelihood is Student's t of 4 degrees of "
            "freedom, and what is predicted is its centre",
            stacklevel=3,
        )
    return {
        "features": rows.grouping.features,
        **plan.settings,
        "classes": classes,
        "black_box": black_box,
        "predictor": predictor,
        "imputer": imputer,
        "likelihood": likelihood,
        "grouping": rows.grouping,
    }


def _system(plan: FitPlan, rows: EncodedRows, settings: Mapping[str, Any]) -> System:
    x = rows.train[0]
    system = method_system(plan, settings, x)
    return with_missing(system, rows.markers).to(x.device, x.dtype) if rows.markers else system


def method_system(plan: FitPlan, settings: Mapping[str, Any], x: Tensor) -> System:
    """The system of a plan's method for rows such as x; a given learning rate replaces the method's
    optimizers by Adam."""
    method = METHODS[plan.method]
    if plan.posterior is not None:
        method = replace(method, fixed={"prior": prior_of(plan.posterior)})
    with seeded(plan.seed):
        system = system_for(method, settings).to(x.device, x.dtype)
    if not plan.rate_given:
        return system
    return system.changed(
        lambda stages: [replace(stage, optimizer=None, learning_rate=None) for stage in stages]
    )
