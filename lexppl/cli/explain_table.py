"""`lexppl explain` of a table."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.files import CERTIFIED, DIGITS, DIRECTIONS, ENCODING, GROUPS, PATH
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import AUTO, NETWORK, TREES, USUAL_PREDICTOR, Regime, chooses_penalty
from lexppl.cli.black_box_file import asked_black_box, black_box_targets, load_black_box
from lexppl.cli.explain_command import ExplainRun, lines_of, write_tables
from lexppl.cli.first_answer import first_answer
from lexppl.cli.options.checks import check_row_numbers, regime_of
from lexppl.cli.options.plan_options import groups_of, plan_of
from lexppl.cli.table_rows import read_source
from lexppl.cli.terminal import UsageError, one_thread, show_progress
from lexppl.data.divided_table import DividedTable, capped
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.importance import Importance
from lexppl.evaluation.judges import EvalX, FittedPredictor
from lexppl.evaluation.penalty_path import HASTY_ROWS
from lexppl.evaluation.prediction import LEAST_RARE, BaseRateGain, rare_rows
from lexppl.explanation import selection_table
from lexppl.explanation.reading.masks import PROBABILITY, kind_of, masks_of
from lexppl.inference import entropy_unit
from lexppl.models import Grouping
from lexppl.models.black_box import BlackBox
from lexppl.report import fit_warnings
from lexppl.report.data import TableReport
from lexppl.report.results import scores
from lexppl.report.results.certified_rows import certified_rows
from lexppl.report.results.encoded_choice import EncodedChoice, encoded_choice
from lexppl.report.results.gains import (
    FittedTable,
    JudgedGains,
    judge_gains,
    judge_learning,
    measured_first,
    measured_importance,
    measured_rows,
)
from lexppl.report.results.penalties import AllPenalties, at_each_penalty
from lexppl.report.results.scores import Judgement, ScoreRow
from lexppl.report.results.single_rows import Details, add_row_values, details_of
from lexppl.sealed_files import refuse_without_space
from lexppl.summary import counted
from lexppl.systems.fit_plan import FEW_ROWS, FitPlan
from lexppl.tabular.encoded_rows import EncodedRows, markers_in
from lexppl.tabular.estimators import in_response_units
from lexppl.tabular.missing_values import check_missing
from lexppl.tabular.predictors import best_full_predictor, fit_full_predictor, fit_judge
from lexppl.tabular.table_fit import TableFit, fit_table

EXPLAINED_ROWS = 1000  # Most held-out rows whose masks are written
NO_VALIDATION = (
    "too few rows of each class to set any apart for choosing the best epoch: all that are not "
    "held out are fitted on, and the best epoch is the one that fits them best"
)
NO_PATH = "for the same reason the penalty is not chosen from the data: it is {:.3g} nats"
MEASURING = "measuring what the features are worth"
CHOICE = "whether the choice of features encodes the answer is"
LEAST_REPORT = 200_000  # Bytes of the smallest report, with the posterior and the tables
BYTES_OF_A_WEIGHT = 4


def run_explain(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl explain` of a table; the exit code."""
    return TableRun(options, command).run()


class TableRun(ExplainRun):
    """One run of `lexppl explain` on a table."""

    source: DividedTable
    groups: FeatureGroups
    fitted: TableFit
    outputs: Tensor | None = None  # Of the black box for every row
    box: BlackBox | None = None
    worth: Importance | None = None  # Of all groups, where it was measured before the fit

    @property
    def table(self) -> FittedTable:
        """The explainer with all that it was fitted to."""
        observed = self.outputs, self.full, self.options.seed
        fit = self.result, self.plan, self.source, self.groups
        return FittedTable(*fit, *observed)

    def read(self, device: torch.device) -> None:
        options, regime = self.options, regime_of(self.options)
        model = load_black_box(options.black_box) if options.black_box else None
        source = self.source = capped(read_source(options, device), options.seed)
        rows = len(source.data)
        check_row_numbers(options.row, rows, f"as the table has {rows} rows")
        self.groups = groups_of(options.groups, source)
        with self.threads():
            if model is not None:
                self.box, x, places, source = asked_black_box(model, source, options)
                self.outputs, source = black_box_targets(self.box, x, places, source)
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
        options, source = self.options, self.source
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

    def fit(self) -> None:
        plan, options, full = self.plan, self.options, None
        rows = self._rows(self.outputs)
        if plan.needs_full_predictor:
            show_progress("fitting the predictor that sees everything", options.quiet)
            kept = self.checkpoint("explained-predictor")
            full = fit_full_predictor(plan, rows, self.progress, kept)
        left_out = self._left_out()
        show_progress(_what_is_fitted(plan), options.quiet)
        watch = partial(first_answer, groups=self.groups, seed=plan.seed, quiet=options.quiet)
        kept = self.checkpoint(TREES if plan.predictor_kind == TREES else NETWORK)
        self.fitted = fit_table(
            plan,
            rows,
            full=full,
            checkpoint=kept,
            progress=self.progress,
            watch=watch,
            left_out=left_out,
        )
        self.plan, self.result = self.fitted.plan, self.fitted.result
        # A predictor that was fitted to a black box is no reference for the labels.
        self.full = full if self.outputs is None else None

    def _left_out(self) -> list[list[bool]] | None:
        """The entries, `(F, G)`, that the rows outside each fold do not show to be worth anything:
        the masks of the fold's replicate do not keep them. None where masks may keep all."""
        plan, source, groups, seed = self.plan, self.source, self.groups, self.options.seed
        reads_rows = plan.penalties is not None and source.folds is not None
        few = self.outputs is None and self._few_rare() is not None
        if not reads_rows or few or plan.needs_full_predictor:
            return None
        rows = measured_rows(source, seed)
        outputs = source.data.y[rows] if self.outputs is None else self.outputs[rows]
        folds = scores.folds_at(source, rows)
        names = measured_first(groups, groups.names)
        if folds is None or len(names) < len(groups.names):
            return None
        show_progress(MEASURING, self.options.quiet)
        try:
            self.worth = measured_importance(source, groups, names, rows, outputs, seed)
        except FloatingPointError:  # Reported where the gains are.
            return None
        if self.worth is None:
            return None
        return [(~shown).tolist() for shown in self.worth.shown_outside(folds)]

    def _rows(self, observed: Tensor | None = None) -> EncodedRows:
        source = self.source
        folds = scores.folds_at(source, source.train_rows)
        return EncodedRows.of(source.data, source.train_rows, source.valid_rows, observed, folds)

    def write_reading(self, folder: Path) -> None:
        if self.source.data.encoding is not None:
            self.source.data.encoding.save(folder / ENCODING)

    def fit_full(self) -> FittedPredictor:
        if self.fitted.full is not None and self.outputs is None:
            return self.fitted.full
        rows, full = self._rows(), self.full
        if full is None:
            checkpoint = self.checkpoint("full-predictor")
            full = fit_full_predictor(self.plan, rows, self.progress, checkpoint)
        return best_full_predictor(full, self.plan, rows)

    def fit_judge(self) -> EvalX:
        data = self.source.data
        # A marker of a missing value is hidden with it.
        grouping = Grouping(data.groups, data.entry_names, (data.n_features,)).to(data.x.device)
        rows = replace(self._rows(), grouping=grouping)
        return fit_judge(self.plan, rows, self.progress, self.checkpoint("judge"))

    def warnings_of_fit(self) -> list[str]:
        plan, result, source = self.plan, self.result, self.source
        unjudged = source.valid_rows is None and source.fold is None and not result.sampler
        found = [NO_VALIDATION] if unjudged else []
        if unjudged and self.options.penalty is None and plan.k is None:
            found += [NO_PATH.format(plan.penalty)] * chooses_penalty(plan.method)
        if result.interrupted:
            self.source = capped(source, self.options.seed, HASTY_ROWS)
            found.insert(
                0,
                f"interrupted after {len(result.history)} of {plan.epochs} epochs; the best state "
                f"so far is written, judged by itself on at most {HASTY_ROWS} held-out rows "
                "(Ctrl-C again ends with the model alone)",
            )
        elif plan.posterior is None:
            if (path := self.fitted.path) is not None:
                found += fit_warnings.path_message(path.table["penalty"].tolist(), path.index)
            grows = METHODS[plan.method].takes("imputations") and plan.penalty is not None
            found += fit_warnings.early_message(
                result.best_epoch.tolist(), len(result.history), grows
            )
        return found + fit_warnings.table_warnings(self.source, self.outputs)

    def learned(self) -> BaseRateGain:
        return judge_learning(self.table)

    def behind(self, judgement: Judgement) -> list[str]:
        if self.plan.regime.post_hoc or not judgement.behind:
            return []
        return [fit_warnings.behind_message(judgement.behind, judgement.other_kind)]

    def other_scores(self, own: ScoreRow) -> list[ScoreRow]:
        if self.outputs is None:
            return super().other_scores(own)
        agrees = scores.agreement(self.result, self.outputs, self.source, self.options.seed)
        answers = self.outputs[self.source.test_rows]
        rarer = rare_rows(answers.argmax(-1) if answers.dim() > 1 else answers)
        share = None if rarer is None else rarer / len(answers)
        self.sections.warn(fit_warnings.fidelity_message(agrees, share), first=True)
        own = replace(own, figures={**own.figures, "agreement": agrees})
        return [*super().other_scores(own), scores.judge_black_box(self.outputs, self.source)]

    def report(self, gain: BaseRateGain, judgement: Judgement, judge: EvalX | None) -> TableReport:
        source, sections = self.source, self.sections
        explained = min(len(source.test), EXPLAINED_ROWS)
        numbers = source.test_rows[:explained]
        rows = source.test.x[:explained], source.test.y[:explained], numbers.tolist()
        posterior = self.posterior(*rows, scores.folds_at(source, numbers))
        ranking, gains = selection_table(posterior), None
        if kind_of(posterior) is PROBABILITY and judge is not None:
            name = "" if self.worth is not None else MEASURING
            work = partial(self.gains, posterior)
            early = "the gains were interrupted; features are ranked without them"
            gains = sections.run(name, work, None, early, "gains are")
        details = self._details(posterior, gains)
        certified = None
        if (level := self.options.guarantee) is not None:
            certify = partial(certified_rows, self.table, explained, level)
            name, early = "certifying features by row", "certified features were interrupted"
            certified = sections.run(name, certify, None, early)
        path, penalties = self.fitted.path, self._penalties(judgement, details, posterior)
        choice = EncodedChoice()
        if sections.complete:
            early = f"{CHOICE} not known: it was interrupted"
            choice = sections.run("", partial(encoded_choice, self.table), choice, early, CHOICE)
            sections.warn(choice.warnings())
        if path is not None:
            nats = path.table["log_likelihood"] - math.log(source.target_scale)
            path = replace(path, table=path.table.assign(log_likelihood=nats))
        return TableReport(
            **self.shared(posterior, judgement),
            ranking=ranking if gains is None else gains.joined(ranking),
            predictor=self.fitted.predictor,
            gains=gains,
            details=details,
            calls=None if self.box is None else self.box.calls.summary(source.data.n_entries),
            path=path,
            choice=choice,
            learning=gain,
            penalties=penalties,
            certified=certified,
            limited=self.worth is not None,
        )

    def gains(self, posterior: Posterior) -> JudgedGains | None:
        """Gains of groups and features; none of one row, which has no spread, of so few rows of
        rarer labels that their mean is not normal, or of outputs that do not vary."""
        rows, rare = len(self.source.test_rows), self._few_rare()
        if rare is not None and self.table.observes_labels:
            few = f"only {rare} of {rows} held-out rows have a rarer label"
            self.sections.warn([f"gains were not tested: {few}"])
            return None
        if rows < 2:
            return None
        options = self.options
        return judge_gains(self.table, posterior, options.fdr, options.fwer, self.worth)

    def _few_rare(self) -> int | None:
        """How many held-out labels are of the rarer class, if too few for the mean of their gains
        to be normal."""
        rare = rare_rows(self.source.test.y)
        few = rare is not None and rare < min(LEAST_RARE / 4, len(self.source.test_rows) / 10)
        return rare if few else None

    def _details(self, posterior: Posterior, gains: JudgedGains | None) -> Details:
        """Directions and single rows."""
        requested = self.options.row
        if kind_of(posterior) is not PROBABILITY:
            if requested:
                self.sections.warn(["--row: masks that do not select have no steps by feature"])
            return Details()

        def work() -> Details:
            add_row_values(posterior, self.source, gains)
            return details_of(self.table, posterior, requested)

        early = "single rows and directions were interrupted"
        name = "looking at directions and single rows"
        details = self.sections.run(name, work, Details(), early)
        self.sections.warn(details.warnings)
        return details

    def _penalties(
        self, judgement: Judgement, details: Details, posterior: Posterior
    ) -> AllPenalties | None:
        """The fit at each of its penalties, if it has several."""
        path = self.fitted.path
        own = next((score for score in judgement.scores if score.who == scores.EXPLAINER), None)
        selects = kind_of(posterior) is PROBABILITY
        if not (self.sections.complete and selects) or path is None or own is None:
            return None
        rows, count = [row.number for row in details.rows], len(masks_of(posterior)["row"])
        work = partial(at_each_penalty, self.table, path, own, rows, count)
        early = "the fit at other penalties was interrupted"
        return self.sections.run("", work, None, early)

    def write(self, folder: Path, report: TableReport) -> None:
        posterior, data, details = report.posterior, report.source.data, report.details
        if data.class_names is None and data.encoding is not None:
            posterior = in_response_units(posterior, data.encoding.target)
        write_tables(folder, posterior, report.ranking, lines_of(details.rows))
        if report.gains is not None:
            report.gains.groups.to_csv(folder / GROUPS, float_format=DIGITS)
        if details.directions is not None:
            details.directions.to_csv(folder / DIRECTIONS, index=False, float_format=DIGITS)
        if report.certified is not None:
            report.certified.table.to_csv(folder / CERTIFIED, index=False)
        if report.path is not None:
            report.path.table.to_csv(folder / PATH, index=False)


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
