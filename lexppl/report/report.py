"""Report: page, tables and posterior of an explainer of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.argument_checks import int_between
from lexppl.arviz_compatibility import Posterior
from lexppl.choices.files import CERTIFIED, DIGITS, DIRECTIONS, GROUPS, PATH
from lexppl.choices.settings import chooses_penalty
from lexppl.data.divided_table import DividedTable, capped
from lexppl.evaluation.evalx import EvalX, FittedPredictor
from lexppl.evaluation.penalty_path import HASTY_ROWS
from lexppl.evaluation.prediction import BaseRateGain, rare_rows
from lexppl.explanation import selection_table
from lexppl.explanation.reading.masks import PROBABILITY, kind_of, masks_of
from lexppl.inference import Checkpoints
from lexppl.inference.training.checkpoint import below
from lexppl.inference.training.watch import Progress
from lexppl.models import Grouping
from lexppl.report import fit_warnings
from lexppl.report.data import ReportOptions, TableReport
from lexppl.report.results import scores
from lexppl.report.results.certified_rows import certified_rows
from lexppl.report.results.encoded_choice import EncodedChoice, encoded_choice
from lexppl.report.results.gains import (
    MEASURING,
    FittedTable,
    JudgedGains,
    few_rare,
    judge_gains,
    judge_learning,
)
from lexppl.report.results.penalties import AllPenalties, at_each_penalty
from lexppl.report.results.scores import Judgement, ScoreRow
from lexppl.report.results.single_rows import Details, add_row_values, details_of
from lexppl.report.sections import SectionedReport, Sections
from lexppl.tabular.encoded_rows import EncodedRows, encoded_data, judged_groups
from lexppl.tabular.estimators import TableExplainer, in_response_units
from lexppl.tabular.predictors import best_full_predictor, fit_full_predictor, fit_judge

EXPLAINED_ROWS = 1000  # Most held-out rows whose masks are written
NO_PATH = "for the same reason the penalty is not chosen from the data: it is {:.3g} nats"
CHOICE = "whether the choice of features encodes the answer is"


class Report(SectionedReport):
    """Report of an explainer of a table on held-out rows: what `lexppl explain` writes.

    Use it after the fit of an estimator, with rows that it has not seen: how much better than the
    base rate they are predicted, beside all features and EVAL-X; what each feature is worth, in
    all rows; which way features point, and single rows step by step. Ctrl-C leaves out the section
    that runs.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sklearn.datasets import load_iris
        >>> from lexppl import ExplainerClassifier
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> explainer = ExplainerClassifier(k=1, epochs=30, random_state=0).fit(X[::2], y[::2])
        >>> with TemporaryDirectory() as folder:
        ...     report = Report(explainer, X[1::2], y[1::2], draws=10).write(f"{folder}/report")
        ...     sorted(path.name for path in Path(folder, "report").glob("*.*"))
        ['directions.csv', 'encoding.json', 'groups.csv', 'importance.csv', 'posterior.nc',
         'report.html', 'rows.csv']
        >>> report.judgement.scores[0].who, len(report.ranking)
        ('the explainer', 4)

    Args:
        explainer: a fitted estimator without weights and `model=`, or, after
            :func:`lexppl.tabular.table_fit.fit_table`, a
            :class:`lexppl.report.results.gains.FittedTable`, which has its held-out rows.
        X, y: held-out rows of an estimator.
        groups: the mask entries of each group of an estimator by its name; None for those that
            depend on each other.
        progress: show the progress of the fits that others are compared with.
        checkpoints: where their state is kept.
        options: of :class:`lexppl.report.data.ReportOptions`: `draws`, `row` (places in X), `fdr`,
            `fwer`, `guarantee`, and `data`, the name of the table.

    Raises:
        ValueError, TypeError: an estimator that is not fitted, that was loaded from a file, which
            leaves out the rows of the fit, or that has weights or a model; rows unlike those of its
            fit; an option outside its range, a `guarantee` of a fit of one penalty.
    """

    source: DividedTable
    table: FittedTable
    judged_by = f"judged by itself on at most {HASTY_ROWS} held-out rows"

    def __init__(
        self,
        explainer: TableExplainer | FittedTable,
        X: Any = None,
        y: Any = None,
        *,
        groups: Mapping[str, Sequence[str]] | None = None,
        progress: Progress = False,
        checkpoints: Checkpoints | None = None,
        **options: Any,
    ) -> None:
        self.options = ReportOptions(**options)
        table: Any = explainer
        if isinstance(explainer, TableExplainer):
            table = _fitted_table(explainer, X, y, groups, self.options.data or "data")
        if not isinstance(table, FittedTable):
            kinds = "an ExplainerClassifier, an ExplainerRegressor (of a search, best_estimator_)"
            raise TypeError(f"explainer must be {kinds} or a FittedTable; it is {type(table)}")
        held_out = table.source.test_rows
        if table.source.fold is None and len(held_out) > EXPLAINED_ROWS:
            # The first ones are explained, and rows may be sorted by label or date.
            held_out = np.random.default_rng(table.seed).permutation(held_out)
            table = replace(table, source=replace(table.source, test_rows=held_out))
        self.table, self.progress, self.checkpoints = table, progress, checkpoints
        self.source, self.plan, self.result = table.source, table.plan, table.result
        for row in self.options.row:
            int_between("row", row, 0, len(self.source.data) - 1, note="rows of the table")
        if self.options.guarantee is not None and table.fit.path is None:
            raise ValueError(
                "guarantee takes the order in which features go as their penalty rises: give it of "
                "a fit with penalty='auto'"
            )
        self.sections = Sections(not self.result.interrupted)

    def fit_full(self) -> FittedPredictor:
        table, rows, plan = self.table, encoded_rows(self.source), self.plan
        if table.fit.full is not None and table.outputs is None:
            return table.fit.full
        states = below(self.checkpoints, "full-predictor")
        full = table.full or fit_full_predictor(plan, rows, self.progress, states)
        return best_full_predictor(full, plan, rows)

    def fit_judge(self) -> EvalX:
        data = self.source.data
        # A marker of a missing value is hidden with it.
        grouping = Grouping(data.groups, data.entry_names, (data.n_features,)).to(data.x.device)
        rows = replace(encoded_rows(self.source), grouping=grouping)
        return fit_judge(self.plan, rows, self.progress, below(self.checkpoints, "judge"))

    def warnings_of_fit(self) -> list[str]:
        plan, result, source, path = self.plan, self.result, self.source, self.table.fit.path
        unjudged = source.valid_rows is None and source.fold is None and not result.sampler
        lines = [fit_warnings.NO_VALIDATION] if unjudged else []
        if unjudged and not plan.penalty_given and plan.k is None:
            lines += [NO_PATH.format(plan.penalty)] * chooses_penalty(plan.method)
        of_fit = super().warnings_of_fit()
        if result.interrupted:
            self.source = capped(source, plan.seed, HASTY_ROWS)
            self.table = replace(self.table, source=self.source)
            lines = of_fit + lines
        else:
            if path is not None:
                lines += fit_warnings.path_message(path.table["penalty"].tolist(), path.index)
            lines += of_fit
        return lines + fit_warnings.table_warnings(self.source, self.table.outputs)

    def learned(self) -> BaseRateGain:
        return judge_learning(self.table)

    def behind(self, judgement: Judgement) -> list[str]:
        if self.plan.regime.post_hoc or not judgement.behind:
            return []
        return [fit_warnings.behind_message(judgement.behind, judgement.other_kind)]

    def other_scores(self, of_explainer: ScoreRow) -> list[ScoreRow]:
        outputs, source = self.table.outputs, self.source
        if outputs is None:
            return super().other_scores(of_explainer)
        agrees = scores.agreement(self.result, outputs, source, self.plan.seed)
        answers = outputs[source.test_rows]
        rarer = rare_rows(answers.argmax(-1) if answers.dim() > 1 else answers)
        share = None if rarer is None else rarer / len(answers)
        self.sections.warn(fit_warnings.fidelity_message(agrees, share), first=True)
        of_explainer = replace(of_explainer, figures={**of_explainer.figures, "agreement": agrees})
        return [*super().other_scores(of_explainer), scores.judge_black_box(outputs, source)]

    def report(self, gain: BaseRateGain, judgement: Judgement, judge: EvalX | None) -> TableReport:
        source, sections, table = self.source, self.sections, self.table
        explained = min(len(source.test), EXPLAINED_ROWS)
        numbers = source.test_rows[:explained]
        rows = source.test.x[:explained], source.test.y[:explained], numbers.tolist()
        posterior = self.posterior(*rows, scores.folds_at(source, numbers))
        ranking, gains = selection_table(posterior), None
        if kind_of(posterior) is PROBABILITY and judge is not None:
            name = "" if table.worth is not None else MEASURING
            work = partial(self.gains, posterior)
            early = "the gains were interrupted; features are ranked without them"
            gains = sections.run(name, work, None, early, "gains are")
        details = self._details(posterior, gains)
        certified = None
        if (level := self.options.guarantee) is not None:
            certify = partial(certified_rows, table, explained, level)
            name, early = "certifying features by row", "certified features were interrupted"
            certified = sections.run(name, certify, None, early)
        path, penalties = table.fit.path, self._penalties(judgement, details, posterior)
        choice = EncodedChoice()
        if sections.complete:
            early = f"{CHOICE} not known: it was interrupted"
            choice = sections.run("", partial(encoded_choice, table), choice, early, CHOICE)
            sections.warn(choice.warnings())
        if path is not None:
            nats = path.table["log_likelihood"] - math.log(source.target_scale)
            path = replace(path, table=path.table.assign(log_likelihood=nats))
        return TableReport(
            **self.shared(posterior, judgement),
            ranking=ranking if gains is None else gains.joined(ranking),
            predictor=table.fit.predictor,
            gains=gains,
            details=details,
            calls=table.calls,
            path=path,
            choice=choice,
            learning=gain,
            penalties=penalties,
            certified=certified,
            limited=table.worth is not None,
        )

    def gains(self, posterior: Posterior) -> JudgedGains | None:
        """Gains of groups and features; none of one row, which has no spread, of so few rows of
        rarer labels that their mean is not normal, or of outputs that do not vary."""
        rows, rare = len(self.source.test_rows), few_rare(self.source)
        if rare is not None and self.table.observes_labels:
            few = f"only {rare} of {rows} held-out rows have a rarer label"
            self.sections.warn([f"gains were not tested: {few}"])
            return None
        fdr, fwer = self.options.fdr, self.options.fwer
        return None if rows < 2 else judge_gains(self.table, posterior, fdr, fwer)

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
        path = self.table.fit.path
        of_explainer = judgement.of(scores.EXPLAINER)
        selects = kind_of(posterior) is PROBABILITY
        if not (self.sections.complete and selects) or path is None or of_explainer is None:
            return None
        rows, count = [row.number for row in details.rows], len(masks_of(posterior)["row"])
        work = partial(at_each_penalty, self.table, path, of_explainer, rows, count)
        early = "the fit at other penalties was interrupted"
        return self.sections.run("", work, None, early)

    def write_tables(self, folder: Path, report: TableReport) -> None:
        data, details = report.source.data, report.details
        if data.class_names is None and data.encoding is not None:
            in_units = in_response_units(report.posterior, data.encoding.target)
            report = replace(report, posterior=in_units)
        super().write_tables(folder, report)
        if report.gains is not None:
            report.gains.groups.to_csv(folder / GROUPS, float_format=DIGITS)
        if details.directions is not None:
            details.directions.to_csv(folder / DIRECTIONS, index=False, float_format=DIGITS)
        if report.certified is not None:
            report.certified.table.to_csv(folder / CERTIFIED, index=False)
        if report.path is not None:
            report.path.table.to_csv(folder / PATH, index=False)


def encoded_rows(source: DividedTable, observed: Tensor | None = None) -> EncodedRows:
    """Rows of a table to fit on, with their folds; `observed` replaces y."""
    folds = scores.folds_at(source, source.train_rows)
    return EncodedRows.of(source.data, source.train_rows, source.valid_rows, observed, folds)


def _fitted_table(
    explainer: TableExplainer, X: Any, y: Any, groups: Mapping[str, Sequence[str]] | None, name: str
) -> FittedTable:
    """An estimator's fit, with held-out rows before those of the fit."""
    if X is None or y is None:
        raise ValueError("a report is of held-out rows: give X and y, rows that were not fitted on")
    x, target = explainer.encode(X, y)
    if not (of_fit := getattr(explainer, "_fitted_rows", ())):
        raise ValueError(
            "a report compares with predictors of the rows of the fit, which an explainer from a "
            "file, with weights or with model= does not have: fit it without these; `lexppl "
            "explain --black-box` reports on a model"
        )
    fit, frame, fitted_x, fitted_y, train, valid = of_fit
    encoding, rows = explainer.encoding_, torch.cat([x, fitted_x])
    response = str(getattr(y, "name", None) or encoding.target.name)
    encoding = replace(encoding, target=replace(encoding.target, name=response))
    y = torch.cat([target, fitted_y])
    data = encoded_data(encoding, explainer.groups, rows, y, name)
    table = pd.concat([explainer._named(X), frame], ignore_index=True)
    valid = None if valid is None else valid + len(x)
    source = DividedTable(data, table, train + len(x), valid, np.arange(len(x)))
    return FittedTable(fit, source, judged_groups(data, groups))
