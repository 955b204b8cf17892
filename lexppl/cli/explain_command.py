"""`lexppl explain` of data of any kind: fit, save, score, draw the posterior, write the report."""

from __future__ import annotations

import argparse
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pandas as pd
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.files import (
    DIGITS,
    EXPLAINER,
    IMPORTANCE,
    MODEL,
    OUTPUTS,
    POSTERIOR,
    REPORT,
    ROWS,
)
from lexppl.cli.options.plan_options import device_of
from lexppl.cli.printed import print_report
from lexppl.cli.terminal import (
    INTERRUPTED,
    deferred_interrupts,
    progress_of,
    short_warnings,
    show_progress,
    warn,
)
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.judges import EvalX, FittedPredictor
from lexppl.evaluation.prediction import BaseRateGain
from lexppl.explanation import save_posterior
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.reading.modes import with_modes
from lexppl.inference import Checkpoints, FitResult
from lexppl.report.fit_warnings import collapse_messages, learned_messages
from lexppl.report.page import write_report
from lexppl.report.results.scores import (
    JUDGED_DRAWS,
    PREDICTED_MASKS,
    Judgement,
    ScoreRow,
    judge_base_rate,
    judge_by_evalx,
    judge_explainer,
    score_full,
)
from lexppl.report.results.single_rows import ExplainedRow, write_lines
from lexppl.saving import save
from lexppl.sealed_files import is_full_disk, output_folder
from lexppl.systems.fit_plan import FitPlan

Found = TypeVar("Found")
Otherwise = TypeVar("Otherwise")

PROPOSALS = 2  # Masks weighed for each draw given the held-out y


class Sections:
    """Sections of a report in order: Ctrl-C skips the one that runs, a second one ends the run.

    Args:
        complete: False where Ctrl-C has ended the fit.
    """

    def __init__(self, quiet: bool, complete: bool = True) -> None:
        self.quiet, self.complete = quiet, complete
        self.warnings: list[str] = []

    def warn(self, messages: Sequence[str], first: bool = False) -> None:
        """Print warnings and add them to the report, at its head if they come first."""
        for message in messages:
            warn(message)
        ordered = (messages, self.warnings) if first else (self.warnings, messages)
        self.warnings = [message for part in ordered for message in part]

    def run(
        self,
        name: str,
        work: Callable[[], Found],
        otherwise: Otherwise,
        early: str,
        failed: str = "",
    ) -> Found | Otherwise:
        """The result of a section, or `otherwise`.

        Args:
            name: printed before it; nothing if empty.
            early: warning after Ctrl-C.
            failed: begin of the warning of numbers that are none; raised if empty.
        """
        if name:
            show_progress(name, self.quiet)
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


class ExplainRun(ABC):
    """One run of `lexppl explain` on data of one kind."""

    source: Any
    plan: FitPlan
    result: FitResult
    sections: Sections
    full: FittedPredictor | None = None
    """The predictor of the labels that sees everything, if fitted first."""
    entries = "features"
    masks: ClassVar[int] = PREDICTED_MASKS
    draws: ClassVar[int] = JUDGED_DRAWS
    """Masks of a row by which the explainer is judged, and draws of them by EVAL-X."""

    def __init__(self, options: argparse.Namespace, command: Sequence[str]) -> None:
        self.options, self.command = options, tuple(command)
        self.progress = progress_of(options)

    @abstractmethod
    def read(self, device: Any) -> None:
        """Read the rows and plan the fit."""

    @abstractmethod
    def fit(self) -> None:
        """Fit the explainer, and first what it explains."""

    @abstractmethod
    def write_reading(self, folder: Path) -> None:
        """Write how rows are read."""

    @abstractmethod
    def fit_full(self) -> FittedPredictor:
        """Return a fitted predictor of the labels that sees all of x, which others are compared
        with."""

    @abstractmethod
    def fit_judge(self) -> EvalX:
        """Return EVAL-X, fitted to the labels."""

    @abstractmethod
    def warnings_of_fit(self) -> list[str]:
        """Lines that warn of faults of the fit."""

    @abstractmethod
    def learned(self) -> BaseRateGain:
        """Gain over the base rate."""

    @abstractmethod
    def report(self, gain: BaseRateGain, judgement: Judgement, judge: EvalX | None) -> Any:
        """Draw the posterior, run the other sections, and gather their results."""

    @abstractmethod
    def write(self, folder: Path, report: Any) -> None:
        """Write the posterior and the tables."""

    def threads(self) -> AbstractContextManager[None]:
        """Context in which torch uses the number of threads that suits the run."""
        return nullcontext()

    def run(self) -> int:
        """Exit code of the command that it runs: 0, or 130 if interrupted. The model is written
        first, and stays if what follows fails.

        Raises:
            KeyboardInterrupt: before there was anything to write.
        """
        options, out, ended = self.options, Path(self.options.out), None
        device = device_of(options.device)
        with output_folder(out, options.overwrite, OUTPUTS) as folder:
            with short_warnings() as printed:
                self.read(device)
                with self.threads():
                    self.fit()
            with self.threads():
                if len(self.result.history) == 0 and self.result.sampler is None:
                    raise KeyboardInterrupt
                self.sections = Sections(options.quiet, not self.result.interrupted)
                self.sections.warnings += printed
                with deferred_interrupts():
                    save(self.result, folder / EXPLAINER)
                    self.write_reading(folder)
                try:
                    report = self._report()
                    self.write(folder, report)
                    write_report(report, folder / REPORT)
                except (Exception, KeyboardInterrupt) as error:
                    # Without room for the results the folder is left as it was.
                    if is_full_disk(error):
                        raise
                    _keep_model(folder)
                    ended = error
        if ended is None:
            print_report(report, out)
            return 0 if self.sections.complete else INTERRUPTED
        stopped = isinstance(ended, KeyboardInterrupt)
        why = "interrupted" if stopped else "not all was done"
        show_progress(f"{why}: {out} holds the fitted explainer, and not what follows from it")
        if not stopped:
            raise ended
        return INTERRUPTED

    def checkpoint(self, name: str) -> Checkpoints | None:
        """Where the state of a fit is kept, if anywhere."""
        folder = self.options.resume or self.options.checkpoint
        return None if folder is None else Checkpoints(folder).below(name)

    def posterior(
        self, x: Tensor, y: Tensor, row_names: list[int], folds: Folds | None = None
    ) -> Posterior:
        """Masks of rows, given x alone and given y too."""
        how: dict[str, Any] = {"draws": self.options.draws, "seed": self.options.seed}
        how |= {"proposals": PROPOSALS, "held_out": True, "row_names": row_names}
        if folds is None:
            posterior = explanation_tree(self.result, x, y, **how)
        else:
            posterior = folds.posterior(self.result, x, y, explain=explanation_tree, **how)
        return with_modes(posterior)

    def shared(self, posterior: Posterior, judgement: Judgement) -> dict[str, Any]:
        """Fields of a report on data of any kind, but for the ranking."""
        names = ("options", "command", "source", "plan", "result")
        of_run = {name: getattr(self, name) for name in names}
        warnings = tuple(self.sections.warnings)
        return of_run | {"posterior": posterior, "judgement": judgement, "warnings": warnings}

    def behind(self, judgement: Judgement) -> list[str]:
        """A line that warns of predictions worse than those by all features, if they are."""
        return []

    def other_scores(self, own: ScoreRow) -> list[ScoreRow]:
        """The explainer's scores, with those of models that need no fit."""
        return [own, judge_base_rate(self.source)]

    def _report(self) -> Any:
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
        show_progress("drawing the posterior", self.options.quiet)
        return self.report(gain, judgement, judge)

    def judged(self) -> tuple[Judgement, EvalX | None]:
        """Scores, and EVAL-X; of an interrupted fit its own scores alone."""
        scores: list[ScoreRow] = []
        early = "the scores were interrupted and are not complete"
        work = partial(self._scores, scores)
        judge = self.sections.run("", work, None, early)
        return Judgement(tuple(scores)), judge

    def _scores(self, scores: list[ScoreRow]) -> EvalX | None:
        source, seed, quiet = self.source, self.options.seed, self.options.quiet
        own = judge_explainer(self.result, source, seed, self.masks)
        scores += self.other_scores(own)
        if self.result.interrupted:
            return None
        show_progress("fitting a predictor that sees everything", quiet)
        full = self.fit_full()
        scores.append(score_full(full, source))
        show_progress("fitting EVAL-X, the judge", quiet)
        judge = self.fit_judge()
        if full.result.interrupted or judge.result.interrupted:
            raise KeyboardInterrupt
        scores.append(judge_by_evalx(judge, self.result, source, seed, self.draws))
        return judge

    def _worded(self, messages: list[str]) -> list[str]:
        return [message.replace("features", self.entries) for message in messages]


def write_tables(
    folder: Path, posterior: Posterior, ranking: pd.DataFrame, lines: pd.DataFrame | None
) -> None:
    """Write the posterior, the ranking, and lines of single rows, if any."""
    save_posterior(posterior, folder / POSTERIOR)
    ranking.to_csv(folder / IMPORTANCE, float_format=DIGITS)
    if lines is not None:
        write_lines(lines, folder / ROWS)


def lines_of(rows: Sequence[ExplainedRow]) -> pd.DataFrame | None:
    """Single rows as lines of a table, if any."""
    return pd.concat([row.lines() for row in rows], ignore_index=True) if rows else None


def _keep_model(folder: Path) -> None:
    """Remove all but the model."""
    with deferred_interrupts(raises=False):
        for path in folder.iterdir():
            if path.name not in MODEL:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
