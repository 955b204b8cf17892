"""`lexppl explain` of a table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from lexppl.choices.methods import METHODS
from lexppl.choices.settings import AUTO, NETWORK, TREES, USUAL_PREDICTOR, Regime, chooses_penalty
from lexppl.cli.black_box_file import asked_black_box, load_black_box
from lexppl.cli.explain_command import ExplainRun
from lexppl.cli.first_answer import first_answer
from lexppl.cli.options.checks import check_row_numbers, regime_of
from lexppl.cli.options.plan_options import groups_of, plan_of
from lexppl.cli.table_rows import read_source
from lexppl.cli.terminal import UsageError, one_thread, show_progress
from lexppl.data.divided_table import DividedTable, capped
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.importance import Importance
from lexppl.inference import entropy_unit
from lexppl.inference.training.checkpoint import below
from lexppl.models.black_box import BlackBox
from lexppl.report.report import Report, encoded_rows
from lexppl.report.results import gains
from lexppl.report.results.scores import folds_at
from lexppl.sealed_files import refuse_without_space
from lexppl.summary import counted
from lexppl.systems.fit_plan import FEW_ROWS, FitPlan
from lexppl.tabular.encoded_rows import markers_in
from lexppl.tabular.missing_values import check_missing
from lexppl.tabular.predictors import fit_full_predictor
from lexppl.tabular.table_fit import fit_table

LEAST_REPORT = 200_000  # Bytes of the smallest report, with the posterior and the tables
BYTES_OF_A_WEIGHT = 4


def run_explain(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl explain` of a table; the exit code."""
    return TableRun(options, command).run()


class TableRun(ExplainRun):
    """One run of `lexppl explain` on a table."""

    source: DividedTable
    groups: FeatureGroups
    outputs: Tensor | None = None  # Of the black box for every row
    box: BlackBox | None = None

    def read(self, device: torch.device) -> None:
        options, regime = self.typed, regime_of(self.typed)
        model = load_black_box(options.black_box) if options.black_box else None
        source = self.source = capped(read_source(options, device), options.seed)
        rows = len(source.data)
        check_row_numbers(options.row, rows, f"as the table has {rows} rows")
        self.groups = groups_of(options.groups, source)
        with self.threads():
            if model is not None:
                self.box, self.outputs, source = asked_black_box(model, source, options)
                self.source = source
        data = source.data
        observed = data.y if self.outputs is None else self.outputs
        unit = entropy_unit(observed[source.train_rows], len(data.class_names or ()))
        otherwise = self._usual_settings(regime)
        rows = len(source.train_rows)
        self.plan = plan_of(options, rows, data, regime=regime, unit=unit, **otherwise)
        if options.guarantee is not None:
            _check_guarantee(self.plan)
        if markers_in(data.encoding):
            check_missing(self.plan.method, self.plan.imputer, not self.plan.needs_full_predictor)
        refuse_without_space(options.out, _least_bytes(self.plan, source))

    def threads(self) -> AbstractContextManager[None]:
        return one_thread(len(self.source.train_rows) < FEW_ROWS)

    def _usual_settings(self, regime: Regime) -> dict[str, Any]:
        """Settings if none are typed: the penalty from the data, where the method can choose one
        on some rows, and the predictor of a method that leaves it open."""
        options, source = self.typed, self.source
        settings: dict[str, Any] = {}
        if source.folds is not None:
            options.replicates, settings["in_folds"] = source.folds, True
        if options.inference is not None or options.guide is not None:
            return settings
        has_judged = source.valid_rows is not None or source.fold is not None
        if chooses_penalty(options.method) and has_judged:
            settings["penalty"] = AUTO
        is_open = METHODS[options.method].takes("predictor") and regime.learns_predictor
        if is_open and options.imputer is None:
            # Trees predict from what is kept alone: there are no hidden values to draw.
            certifies = options.guarantee is not None
            settings["predictor"] = NETWORK if certifies else USUAL_PREDICTOR
        return settings

    def fit(self) -> Report:
        plan, typed, full = self.plan, self.typed, None
        rows = encoded_rows(self.source, self.outputs)
        if plan.needs_full_predictor:
            show_progress("fitting the predictor that sees everything", typed.quiet)
            states = below(self.checkpoints, "explained-predictor")
            full = fit_full_predictor(plan, rows, self.progress, states)
        worth, left_out = self._limits()
        show_progress(_what_is_fitted(plan), typed.quiet)
        states = below(self.checkpoints, TREES if plan.predictor_kind == TREES else NETWORK)
        fitted = fit_table(
            plan,
            rows,
            full=full,
            checkpoint=states,
            progress=self.progress,
            watch=partial(first_answer, groups=self.groups, seed=plan.seed, quiet=typed.quiet),
            left_out=left_out,
        )
        # A predictor that was fitted to a black box is no reference for the labels.
        full = full if self.outputs is None else None
        calls = None if self.box is None else self.box.calls.summary(self.source.data.n_entries)
        observed = self.outputs, full, calls, worth
        table = gains.FittedTable(fitted, self.source, self.groups, *observed)
        states, options = self.checkpoints, vars(self.options)
        return Report(table, progress=self.progress, checkpoints=states, **options)

    def _limits(self) -> tuple[Importance | None, list[list[bool]] | None]:
        """What all groups are worth, and the entries, `(F, G)`, that the rows outside each fold do
        not show to be worth anything: the masks of the fold's replicate do not keep them. None
        where masks may keep all."""
        plan, source, groups, seed = self.plan, self.source, self.groups, self.typed.seed
        reads_rows = plan.penalties is not None and source.folds is not None
        few = self.outputs is None and gains.few_rare(source) is not None
        if not reads_rows or few or plan.needs_full_predictor:
            return None, None
        rows = gains.measured_rows(source, seed)
        outputs = source.data.y[rows] if self.outputs is None else self.outputs[rows]
        folds = folds_at(source, rows)
        names = gains.measured_first(groups, groups.names)
        if folds is None or len(names) < len(groups.names):
            return None, None
        show_progress(gains.MEASURING, self.typed.quiet)
        try:
            worth = gains.measured_importance(source, groups, names, rows, outputs, seed)
        except FloatingPointError:  # Reported where the gains are.
            return None, None
        return worth, None if worth is None else (~worth.shown_outside()).tolist()


def _check_guarantee(plan: FitPlan) -> None:
    if plan.penalty != AUTO:
        raise UsageError(
            "--guarantee takes the order in which features go as their penalty rises: it is of a "
            "fit of many penalties, without --k, --penalty, --inference and --guide"
        )
    if plan.predictor_kind != NETWORK or plan.imputer == "constant":
        raise UsageError(
            "--guarantee is about draws of hidden values, and boosted trees and --imputer constant "
            "draw none: leave --predictor and --imputer out"
        )


def _what_is_fitted(plan: FitPlan) -> str:
    posterior = plan.posterior
    if posterior is not None and posterior.inference is not None:
        return f"sampling the explainer: {posterior.words}"
    first = "for all penalties at once, " if plan.penalties is not None else ""
    by = "" if posterior is None else f", {posterior.words}"
    return f"fitting the explainer, {first}{counted(plan.replicates, 'replicate')}{by}"


def _least_bytes(plan: FitPlan, source: DividedTable) -> int:
    """Least number of bytes that the results take: report, and weights of the networks."""
    columns, data, method = source.data.x.shape[1], source.data, METHODS[plan.method]
    weights = 0
    if method.takes("hidden"):
        weights += _weights(columns, *plan.hidden, data.n_entries)
    if method.takes("predictor_hidden") and plan.predictor_kind != TREES:
        outputs = len(data.class_names or ("a mean",))
        weights += (plan.folds or 1) * _weights(columns, *plan.predictor_hidden, outputs)
    return LEAST_REPORT + BYTES_OF_A_WEIGHT * plan.replicates * weights


def _weights(*widths: int) -> int:
    """Numbers of a perceptron."""
    return sum((a + 1) * b for a, b in pairwise(widths))
