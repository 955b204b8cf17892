"""Sections of a report of any kind of data: scores, the posterior, and what follows."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pandas as pd
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.files import DIGITS, EXPLAINER, IMPORTANCE, OUTPUTS, POSTERIOR, REPORT, ROWS
from lexppl.choices.methods import METHODS
from lexppl.evaluation.evalx import EvalX, FittedPredictor
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.prediction import BaseRateGain
from lexppl.explanation import save_posterior
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.reading.modes import with_modes
from lexppl.inference import Checkpoints, FitResult
from lexppl.inference.training.watch import Progress
from lexppl.report.data import ReportOptions
from lexppl.report.fit_warnings import (
    collapse_messages,
    early_message,
    learned_messages,
    with_arguments,
)
from lexppl.report.results import scores
from lexppl.report.results.single_rows import ExplainedRow, write_lines
from lexppl.saving import save
from lexppl.sealed_files import output_folder
from lexppl.systems.fit_plan import FitPlan

Result = TypeVar("Result")
Otherwise = TypeVar("Otherwise")
Tell = Callable[[str], object]

PROPOSALS = 2  # Masks weighed for each draw given the held-out y


class Sections:
    """Sections of a report in order: Ctrl-C skips the one that runs, a second one ends the run.

    Args:
        complete: False where Ctrl-C has ended the fit.
        say: called with the name of each section that takes long; nothing is called where None.
        alert: called with each warning; where None it is one of Python's.
    """

    def __init__(self, complete: bool, say: Tell | None = None, alert: Tell | None = None) -> None:
        self.complete = complete
        self.say: Tell = say or (lambda name: None)
        self.alert: Tell = alert or (lambda text: warnings.warn(with_arguments(text), stacklevel=3))
        self.warnings: list[str] = []

    def warn(self, messages: Sequence[str], first: bool = False) -> None:
        """Show warnings and add them to the report, at its head if they come first."""
        for message in messages:
            self.alert(message)
        ordered = (messages, self.warnings) if first else (self.warnings, messages)
        self.warnings = [message for part in ordered for message in part]

    def run(
        self,
        name: str,
        work: Callable[[], Result],
        otherwise: Otherwise,
        early: str,
        failed: str = "",
    ) -> Result | Otherwise:
        """The result of a section, or `otherwise`.

        Args:
            name: shown before it; nothing if empty.
            early: warning after Ctrl-C.
            failed: begin of the warning of numbers that are none; raised if empty.
        """
        if name:
            self.say(name)
        try:
            return work()
        except KeyboardInterrupt:
            if not self.complete:
                raise
            self.complete = False
            self.warn([early])
        except FloatingPointError as error:
            if not failed:
                raise
            self.warn([f"{failed} not known: {error}"])
        return otherwise


class SectionedReport(ABC):
    """Report of a fitted explainer of data of one kind, section by section."""

    source: Any
    plan: FitPlan
    result: FitResult
    options: ReportOptions
    sections: Sections
    progress: Progress = False
    checkpoints: Checkpoints | None = None
    entries, judged_by = "features", "judged by itself"
    masks: ClassVar[int] = scores.PREDICTED_MASKS
    draws: ClassVar[int] = scores.JUDGED_DRAWS
    """Masks of a row by which the explainer is judged, and draws of them by EVAL-X."""

    @abstractmethod
    def fit_full(self) -> FittedPredictor:
        """Return a fitted predictor of the labels that sees all of x, which others are compared
        with."""

    @abstractmethod
    def fit_judge(self) -> EvalX:
        """Return EVAL-X, fitted to the labels."""

    def warnings_of_fit(self) -> list[str]:
        """Lines that warn of an interrupted or an early fit."""
        plan, result, judged = self.plan, self.result, self.judged_by
        if result.interrupted:
            return [
                f"interrupted after {len(result.history)} of {plan.epochs} epochs; the best state "
                f"so far is written, {judged} (Ctrl-C again ends with the model alone)"
            ]
        if plan.posterior is not None:
            return []
        grows = METHODS[plan.method].takes("imputations") and plan.penalty is not None
        return early_message(result.best_epoch.tolist(), len(result.history), grows)

    @abstractmethod
    def learned(self) -> BaseRateGain:
        """Gain over the base rate."""

    @abstractmethod
    def report(self, gain: BaseRateGain, judgement: scores.Judgement, judge: EvalX | None) -> Any:
        """Draw the posterior, run the other sections, and gather their results."""

    def write_tables(self, folder: Path, report: Any) -> None:
        """Write the posterior, the ranking, and single rows, if any."""
        save_posterior(report.posterior, folder / POSTERIOR)
        report.ranking.to_csv(folder / IMPORTANCE, float_format=DIGITS)
        if report.rows:
            write_lines(self.lines_of(report.rows), folder / ROWS)

    def lines_of(self, rows: Sequence[ExplainedRow]) -> pd.DataFrame:
        """Single rows as lines of a table."""
        return pd.concat([row.lines() for row in rows], ignore_index=True)

    def write(self, folder: str | Path, overwrite: bool = False) -> Any:
        """Write the fitted explainer, the tables and the page into a folder; what the page says.

        Raises:
            FileExistsError: a folder with files; with `overwrite`, with files that are no report's.
        """
        with output_folder(folder, overwrite, OUTPUTS) as new:
            self.write_model(new)
            return self.write_results(new)

    def write_model(self, folder: Path) -> None:
        """Write the fitted explainer, and how rows are read."""
        save(self.result, folder / EXPLAINER)
        self.source.write_reading(folder)

    def write_results(self, folder: Path) -> Any:
        """Run the sections, and write the tables and the page; what the page says."""
        from lexppl.report.page import write_report  # noqa: PLC0415 - loads matplotlib

        report = self.results()
        self.write_tables(folder, report)
        write_report(report, folder / REPORT)
        return report

    def results(self) -> Any:
        """What the page says, of all sections in their order."""
        of_fit = self.warnings_of_fit()
        gain, sampled = self.learned(), self.result.sampler is not None
        judgement, judge = self.judged()
        self.sections.warn(self.behind(judgement), first=True)
        self.sections.warn(of_fit)
        self.sections.warn(self._worded(learned_messages(gain, self.result.steps, sampled)))
        # Another kind of predictor may be better by its shape, with the same features.
        as_good = bool(judgement.other_kind) or not judgement.behind
        collapsed = collapse_messages(self.result.collapse, as_good, gain.shown)
        self.sections.warn(self._worded(collapsed))
        self.sections.say("drawing the posterior")
        return self.report(gain, judgement, judge)

    def posterior(
        self, x: Tensor, y: Tensor, row_names: list[int], folds: Folds | None = None
    ) -> Posterior:
        """Masks of rows, given x alone and given y too."""
        how: dict[str, Any] = {"draws": self.options.draws, "seed": self.plan.seed}
        how |= {"proposals": PROPOSALS, "held_out": True, "coords": {"row": row_names}}
        if folds is None:
            posterior = explanation_tree(self.result, x, y, **how)
        else:
            posterior = folds.posterior(self.result, x, y, explain=explanation_tree, **how)
        return with_modes(posterior)

    def shared(self, posterior: Posterior, judgement: scores.Judgement) -> dict[str, Any]:
        """Fields of a report on data of any kind, but for the ranking."""
        of_fit = {name: getattr(self, name) for name in ("options", "source", "plan", "result")}
        messages = tuple(self.sections.warnings)
        return of_fit | {"posterior": posterior, "judgement": judgement, "warnings": messages}

    def behind(self, judgement: scores.Judgement) -> list[str]:
        """A line that warns of predictions worse than those by all features, if they are."""
        return []

    def other_scores(self, of_explainer: scores.ScoreRow) -> list[scores.ScoreRow]:
        """The explainer's scores, with those of models that need no fit."""
        return [of_explainer, scores.judge_base_rate(self.source)]

    def judged(self) -> tuple[scores.Judgement, EvalX | None]:
        """Scores, and EVAL-X; of an interrupted fit its own scores alone."""
        rows: list[scores.ScoreRow] = []
        early = "the scores were interrupted and are not complete"
        judge = self.sections.run("", partial(self._judge, rows), None, early)
        return scores.Judgement(tuple(rows)), judge

    def _judge(self, rows: list[scores.ScoreRow]) -> EvalX | None:
        source, seed, say = self.source, self.plan.seed, self.sections.say
        rows += self.other_scores(scores.judge_explainer(self.result, source, seed, self.masks))
        if self.result.interrupted:
            return None
        say("comparing with a predictor that sees everything")
        full = self.fit_full()
        rows.append(scores.score_full(full, source))
        say("fitting EVAL-X, the judge")
        judge = self.fit_judge()
        if full.result.interrupted or judge.result.interrupted:
            raise KeyboardInterrupt
        rows.append(scores.judge_by_evalx(judge, self.result, source, seed, self.draws))
        return judge

    def _worded(self, messages: list[str]) -> list[str]:
        return [message.replace("features", self.entries) for message in messages]
