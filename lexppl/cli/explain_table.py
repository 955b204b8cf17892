"""`lexppl explain` of a table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.atomic_output import refuse_without_space
from lexppl.choices.methods import METHODS
from lexppl.choices.regimes import Regime
from lexppl.choices.settings import AUTO, NETWORK, TREES, USUAL_PREDICTOR, chooses_penalty
from lexppl.cli.black_box_file import asked_black_box, black_box_targets, load_black_box
from lexppl.cli.explain_command import DIGITS, ExplainRun, lines_of, write_tables
from lexppl.cli.judged.closer_look import CloserLook, check_rows, look_closer, note_rows
from lexppl.cli.judged.encoded_choice import judge_choice
from lexppl.cli.judged.gains import (
    JudgedGains,
    explained_by,
    explained_targets,
    judge_gains,
    judge_learning,
    undecided,
)
from lexppl.cli.judged.judged_rows import folds_at
from lexppl.cli.judged.judging import (
    EXPLAINER,
    FULL,
    Judgement,
    ScoreRow,
    agreement,
    judge_black_box,
)
from lexppl.cli.judged.settings import Settings, at_each_penalty
from lexppl.cli.notes import (
    behind_message,
    early_message,
    path_message,
    table_notes,
    warnings_of_posterior,
    what_is_fitted,
)
from lexppl.cli.options.checks import regime_of
from lexppl.cli.options.feature_groups import groups_of
from lexppl.cli.options.plan_options import plan_of
from lexppl.cli.outputs import DIRECTIONS, ENCODING, GROUPS, PATH, REPORT
from lexppl.cli.report.findings import ReportData
from lexppl.cli.report.page import write_report
from lexppl.cli.report.printed import print_findings
from lexppl.cli.source import capped, read_source
from lexppl.cli.terminal.first_answer import first_answer
from lexppl.cli.terminal.short_warnings import short_warnings
from lexppl.cli.terminal.standard_error import tell
from lexppl.cli.terminal.threads import one_thread
from lexppl.data import DividedTable
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.learned import BaseRateGain
from lexppl.evaluation.penalty_path import HASTY_ROWS
from lexppl.evaluation.refits.evalx import EvalX
from lexppl.evaluation.refits.fitted_predictor import FittedPredictor
from lexppl.explanation import selection_table
from lexppl.explanation.layout.importance_kind import PROBABILITY, kind_of
from lexppl.explanation.layout.mask_groups import masks_of
from lexppl.inference import entropy_unit
from lexppl.models import BlackBox, Grouping
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.fit_plan import FEW_ROWS, FitPlan
from lexppl.tabular.missing_values import check_missing
from lexppl.tabular.reference_fits import fit_full_predictor, fit_judge
from lexppl.tabular.response_units import in_response_units
from lexppl.tabular.table_columns import markers_in
from lexppl.tabular.table_fit import TableFit, fit_table

EXPLAINED_ROWS = 1000
"""Most held-out rows whose masks are written."""
NO_VALIDATION = (
    "too few rows of each class to set any apart for choosing the best epoch: all that are not "
    "held out are fitted on, and the best epoch is the one that fits them best"
)
NO_PATH = "for the same reason the penalty is not chosen from the data: it is {:.3g} nats"
LEAST_REPORT = 200_000
"""Bytes of the smallest report, with the posterior and the tables beside it."""
BYTES_OF_A_WEIGHT = 4


@short_warnings()
def run_explain(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl explain` of a table: :meth:`ExplainRun.run`."""
    return TableRun(options, command).run()


class TableRun(ExplainRun):
    """One run of `lexppl explain` on a table."""

    source: DividedTable
    groups: FeatureGroups
    """Of the features that are judged together."""
    fitted: TableFit
    outputs: Tensor | None = None
    """What the black box says of every row."""
    box: BlackBox | None = None

    def read(self, device: torch.device) -> None:
        options, regime = self.options, regime_of(self.options)
        model = load_black_box(options) if options.black_box else None
        source = self.source = capped(read_source(options, device), options.seed)
        check_rows(options.row, source)
        self.groups = groups_of(options.groups, source)
        with self.threads():
            if model is not None:
                self.box, x, places, source = asked_black_box(model, source, options)
                self.source = source
                self.outputs = black_box_targets(self.box, x, places, source)
        data = source.data
        observed = data.y if self.outputs is None else self.outputs
        unit = entropy_unit(observed[source.train_rows], len(data.class_names or ()))
        otherwise = self._usual_settings(regime)
        rows = len(source.train_rows)
        self.plan = plan_of(options, rows, data, regime=regime, unit=unit, **otherwise)
        if markers_in(data.encoding):
            check_missing(self.plan.method, self.plan.imputer, not self.plan.needs_full_predictor)
        refuse_without_space(options.out, _least_bytes(self.plan, source))

    def threads(self) -> AbstractContextManager[None]:
        return one_thread(len(self.source.train_rows) < FEW_ROWS)

    def _usual_settings(self, regime: Regime) -> dict[str, Any]:
        """Settings where none are typed: the penalty from the data, where the method can choose one
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
            settings["predictor"] = USUAL_PREDICTOR
        return settings

    def fit(self) -> None:
        plan, options, full = self.plan, self.options, None
        rows = self._rows(self.outputs)
        if plan.needs_full_predictor:
            tell("fitting the predictor that sees everything", options.quiet)
            kept = self.checkpoint("explained-predictor")
            full = fit_full_predictor(plan, rows, self.progress, kept)
        tell(what_is_fitted(plan), options.quiet)
        watch = partial(first_answer, groups=self.groups, seed=plan.seed, quiet=options.quiet)
        kind = TREES if plan.predictor_kind == TREES else NETWORK
        with warnings_of_posterior() as self.of_posterior:
            self.fitted = fit_table(
                plan,
                rows,
                full=full,
                checkpoint=self.checkpoint(kind),
                progress=self.progress,
                watch=watch,
            )
        self.plan, self.result = self.fitted.plan, self.fitted.result
        # A predictor that was fitted to a black box is no reference for the labels.
        self.full = full if self.outputs is None else None

    def _rows(self, observed: Tensor | None = None) -> EncodedRows:
        source = self.source
        folds = folds_at(source, source.train_rows)
        return EncodedRows.of(source.data, source.train_rows, source.valid_rows, observed, folds)

    def write_reading(self, folder: Path) -> None:
        if self.source.data.encoding is not None:
            self.source.data.encoding.save(folder / ENCODING)

    def fit_full(self) -> FittedPredictor:
        kept = self.checkpoint("full-predictor")
        return fit_full_predictor(self.plan, self._rows(), self.progress, kept)

    def fit_judge(self, targets: Tensor | None = None) -> EvalX:
        """Fit EVAL-X on the rows of the explainer, of the labels or of other targets."""
        data = self.source.data
        # A marker of a missing value is hidden with it.
        grouping = Grouping(data.groups, data.entry_names, (data.n_features,)).to(data.x.device)
        rows = replace(self._rows(targets), grouping=grouping)
        kept = self.checkpoint("judge") if targets is None else None
        return fit_judge(self.plan, rows, self.progress, kept)

    def notes_of_fit(self) -> list[str]:
        plan, result, source = self.plan, self.result, self.source
        unjudged = source.valid_rows is None and source.fold is None and not result.sampler
        notes = [NO_VALIDATION] if unjudged else []
        if unjudged and self.options.penalty is None and plan.k is None:
            notes += [NO_PATH.format(plan.penalty)] * chooses_penalty(plan.method)
        if result.interrupted:
            self.source = capped(source, self.options.seed, HASTY_ROWS)
            notes.insert(0, self._interruption())
        elif plan.posterior is not None:
            notes += self.of_posterior
        else:
            if (path := self.fitted.path) is not None:
                notes += path_message(path.table["penalty"].tolist(), path.index)
            grows = METHODS[plan.method].takes("imputations") and plan.penalty is not None
            notes += early_message(result.best_epoch.tolist(), len(result.history), grows)
        return notes + table_notes(self.source, self.outputs)

    def _interruption(self) -> str:
        done = f"after {len(self.result.history)} of {self.plan.epochs} epochs"
        return (
            f"interrupted {done}; the best state so far is written, judged by itself on at most "
            f"{HASTY_ROWS} held-out rows (Ctrl-C again ends with the model alone)"
        )

    def learned(self) -> tuple[BaseRateGain, float | None]:
        result, source, plan = self.result, self.source, self.plan
        gain = judge_learning(result, source, plan, self.outputs, self.full, self.options.seed)
        return gain, undecided(result, source, plan)

    def other_scores(self, own: ScoreRow) -> list[ScoreRow]:
        if self.outputs is None:
            return super().other_scores(own)
        agrees = agreement(self.result, self.outputs, self.source, self.options.seed)
        own = replace(own, figures={**own.figures, "agreement": agrees})
        return [*super().other_scores(own), judge_black_box(self.outputs, self.source)]

    def found(self, gain: BaseRateGain, judgement: Judgement, judge: EvalX | None) -> ReportData:
        options, source, plan, sections = self.options, self.source, self.plan, self.sections
        if plan.regime is Regime.FREE_IN_SITU:
            own, full = (judgement.log_likelihood(who) for who in (EXPLAINER, FULL))
            sections.warn(behind_message(own, full, gain.error), first=True)
        explained = min(len(source.test), EXPLAINED_ROWS)
        numbers = source.test_rows[:explained]
        posterior = self.posterior(
            source.test.x[:explained],
            source.test.y[:explained],
            [int(row) for row in numbers],
            folds_at(source, numbers),
        )
        ranking, gains = selection_table(posterior), None
        if kind_of(posterior) is PROBABILITY and judge is not None:
            gains = sections.run(
                "measuring what the features are worth",
                partial(self.gains, judge, posterior),
                None,
                "the gains were interrupted; features are ranked without them",
                "gains are",
            )
        closer = self._closer(posterior, gains)
        settings = self._settings(judgement, closer, posterior)
        choice = judge_choice(
            self.result,
            source,
            plan,
            outputs=self.outputs,
            full=self.full,
            seed=options.seed,
            complete=sections.complete,
        )
        sections.complete &= choice.complete
        sections.warn(choice.notes())
        return ReportData(
            source=source,
            given=options.data,
            plan=plan,
            predictor=self.fitted.predictor,
            result=self.result,
            posterior=posterior,
            ranking=ranking if gains is None else gains.joined(ranking),
            gains=gains,
            closer=closer,
            judgement=judgement,
            explained=explained,
            warnings=tuple(sections.notes),
            command=self.command,
            draws=options.draws,
            device=options.device,
            black_box=options.black_box,
            calls=None if self.box is None else self.box.calls.summary(source.data.n_entries),
            path=self.fitted.path,
            choice=choice,
            learning=gain,
            settings=settings,
        )

    def gains(self, judge: EvalX, posterior: Posterior) -> JudgedGains | None:
        """What groups and features are worth; one row alone has no spread to tell it by."""
        source, options = self.source, self.options
        if len(source.test_rows) < 2:
            return None
        targets, predicted = explained_by(source, self.plan, self.outputs, self.full)
        if targets is not source.data.y:
            judge = self.fit_judge(targets)
            if judge.result.interrupted:
                raise KeyboardInterrupt
        return judge_gains(
            judge,
            self.result,
            source,
            posterior,
            targets,
            predicted,
            groups=self.groups,
            fdr=options.fdr,
            fwer=options.fwer,
            seed=options.seed,
        )

    def _closer(self, posterior: Posterior, gains: JudgedGains | None) -> CloserLook:
        """Directions and single rows."""
        options = self.options
        if kind_of(posterior) is not PROBABILITY:
            if options.row:
                self.sections.warn(["--row: masks that do not select have no steps by feature"])
            return CloserLook()

        def look() -> CloserLook:
            note_rows(posterior, self.source, gains)
            return look_closer(
                self.result,
                self.source,
                self.plan,
                posterior,
                outputs=self.outputs,
                full=self.full,
                groups=self.groups,
                asked=options.row,
                seed=options.seed,
            )

        early = "single rows and directions were interrupted"
        what = "looking at directions and single rows"
        closer = self.sections.run(what, look, CloserLook(), early)
        self.sections.warn(closer.notes)
        return closer

    def _settings(
        self, judgement: Judgement, closer: CloserLook, posterior: Posterior
    ) -> Settings | None:
        """The fit at each of its penalties, where it has several."""
        source, path = self.source, self.fitted.path
        own = next((score for score in judgement.scores if score.who == EXPLAINER), None)
        selects = kind_of(posterior) is PROBABILITY
        if not (self.sections.complete and selects) or path is None or own is None:
            return None
        rows = np.arange(len(source.data))
        targets = explained_targets(source.data, rows, self.plan, self.outputs, self.full)
        return self.sections.run(
            "",
            lambda: at_each_penalty(
                path,
                source,
                own,
                targets,
                self.groups,
                [row.number for row in closer.rows],
                len(masks_of(posterior)["row"]),
                self.options.seed,
            ),
            None,
            "the fit at other penalties was interrupted",
        )

    def write(self, folder: Path, found: ReportData) -> None:
        posterior, data, closer = found.posterior, found.source.data, found.closer
        if data.class_names is None and data.encoding is not None:
            posterior = in_response_units(posterior, data.encoding.target)
        write_tables(folder, posterior, found.ranking, lines_of(closer.rows))
        if found.gains is not None:
            found.gains.groups.to_csv(folder / GROUPS, float_format=DIGITS)
        if closer.directions is not None:
            closer.directions.to_csv(folder / DIRECTIONS, index=False, float_format=DIGITS)
        if found.path is not None:
            found.path.table.to_csv(folder / PATH, index=False)
        write_report(found, folder / REPORT)

    def show(self, found: ReportData, folder: Path) -> None:
        print_findings(found, folder, bool(self.options.row))


def _least_bytes(plan: FitPlan, source: DividedTable) -> int:
    """Bytes that the results need at least: the report's, and the weights' of the networks."""
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
