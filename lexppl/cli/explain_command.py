"""`lexppl explain`: fit an explainer, judge it and draw its masks, whatever the data; write it."""

from __future__ import annotations

import argparse
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.atomic_output import is_full_disk, output_folder
from lexppl.cli.judged.closer_look import ExplainedRow
from lexppl.cli.judged.judging import (
    JUDGED_DRAWS,
    PREDICTED_MASKS,
    Judgement,
    ScoreRow,
    SizeCurve,
    judge_base_rate,
    judge_by_evalx,
    judge_explainer,
    score_full,
)
from lexppl.cli.notes import collapse_messages, learned_messages
from lexppl.cli.options.plan_options import device_of
from lexppl.cli.outputs import EXPLAINER, IMPORTANCE, MODEL, OUTPUTS, POSTERIOR, ROWS
from lexppl.cli.terminal.exit_codes import INTERRUPTED
from lexppl.cli.terminal.signals import deferred_interrupts
from lexppl.cli.terminal.standard_error import progress_of, tell, warn
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.judges import EvalX, FittedPredictor
from lexppl.evaluation.prediction import BaseRateGain
from lexppl.explanation import explain, save_posterior
from lexppl.inference import Checkpoints, FitResult
from lexppl.inference.training.checkpoint import below
from lexppl.saving import save
from lexppl.tabular.fit_plan import FitPlan

PROPOSALS = 2
"""Masks weighed for each draw of those given the held-out y."""
DIGITS = "%.4g"
"""Of numbers in tables for people; what is computed with is in posterior.nc."""


class Sections:
    """Sections of a report, one after the other: Ctrl-C leaves out the one under way, and a second
    one ends the run.

    Args:
        quiet: whether what begins is not announced.
        complete: False where Ctrl-C has ended the fit already.
    """

    def __init__(self, quiet: bool, complete: bool = True) -> None:
        self.quiet, self.complete = quiet, complete
        self.notes: list[str] = []

    def warn(self, notes: Sequence[str], first: bool = False) -> None:
        """Warn of what the reader should mind, here and in the report, where it may come first."""
        for note in notes:
            warn(note)
        self.notes = [*notes, *self.notes] if first else [*self.notes, *notes]

    def run(
        self, what: str, work: Callable[[], Any], otherwise: Any, early: str, failed: str = ""
    ) -> Any:
        """A section's result.

        Args:
            what: what begins, in words; empty where the section says so itself.
            work: the section.
            otherwise: the result where it is left out.
            early: the note where Ctrl-C has left it out.
            failed: the beginning of the note where numbers are no numbers; raised if empty.
        """
        if what:
            tell(what, self.quiet)
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
    """One run of `lexppl explain` on data of one kind.

    Args:
        options: as typed.
        command: the words that were typed, for the report.
    """

    source: Any
    plan: FitPlan
    result: FitResult
    sections: Sections
    full: FittedPredictor | None = None
    """The predictor of the labels that sees everything, where it was fitted first."""
    entries = "features"
    masks: ClassVar[int] = PREDICTED_MASKS
    draws: ClassVar[int] = JUDGED_DRAWS
    """Masks of a row by which the explainer is judged, and draws of them by EVAL-X."""

    def __init__(self, options: argparse.Namespace, command: Sequence[str]) -> None:
        self.options, self.command = options, tuple(command)
        self.progress = progress_of(options)

    @abstractmethod
    def read(self, device: Any) -> None:
        """Read the rows, and plan the fit."""

    @abstractmethod
    def fit(self) -> None:
        """Fit the explainer, and first what it explains."""

    @abstractmethod
    def write_reading(self, folder: Path) -> None:
        """Write how rows are read."""

    @abstractmethod
    def fit_full(self) -> FittedPredictor:
        """Fit a predictor of the labels that sees everything."""

    @abstractmethod
    def fit_judge(self) -> EvalX:
        """Fit EVAL-X of the labels."""

    @abstractmethod
    def notes_of_fit(self) -> list[str]:
        """What the reader should mind of the fit."""

    @abstractmethod
    def learned(self) -> tuple[BaseRateGain, float | None]:
        """What predictions are worth against the base rate, and the share of undecided masks."""

    @abstractmethod
    def found(self, gain: BaseRateGain, judgement: Judgement, judge: EvalX | None) -> Any:
        """Draw the posterior, run the other sections, and gather what was found."""

    @abstractmethod
    def write(self, folder: Path, found: Any) -> None:
        """Write the posterior, the tables and the report."""

    @abstractmethod
    def show(self, found: Any, folder: Path) -> None:
        """Print what was found."""

    def threads(self) -> AbstractContextManager[None]:
        """How many threads torch may use."""
        return nullcontext()

    def run(self) -> int:
        """Carry it out: the model is written first, then what follows from it, whose failure leaves
        the model alone in the folder.

        Returns:
            the exit code: 0, or 130 if the fit or what follows was interrupted.

        Raises:
            UsageError, ValueError, TypeError, OSError: a mistake in what was typed or in the data.
            KeyboardInterrupt: interrupted before there was anything to write.
        """
        options, out, ended = self.options, Path(self.options.out), None
        device = device_of(options.device)
        with output_folder(out, options.overwrite, OUTPUTS) as folder:
            self.read(device)
            with self.threads():
                self.fit()
                if len(self.result.history) == 0 and self.result.sampler is None:
                    raise KeyboardInterrupt
                self.sections = Sections(options.quiet, not self.result.interrupted)
                with deferred_interrupts():
                    save(self.result, folder / EXPLAINER)
                    self.write_reading(folder)
                try:
                    found = self._find()
                    self.write(folder, found)
                except (Exception, KeyboardInterrupt) as error:
                    # What has no room for the results is left as it was.
                    if is_full_disk(error):
                        raise
                    _keep_model(folder)
                    ended = error
        if ended is None:
            self.show(found, out)
            return 0 if self.sections.complete else INTERRUPTED
        stopped = isinstance(ended, KeyboardInterrupt)
        why = "interrupted" if stopped else "not all was done"
        tell(f"{why}: {out} holds the fitted explainer, and not what follows from it")
        if not stopped:
            raise ended
        return INTERRUPTED

    def checkpoint(self, *names: str) -> Checkpoints | None:
        """Where the states of a fit are kept, below the folder that was typed; None for nowhere."""
        folder = self.options.resume or self.options.checkpoint
        kept = None if folder is None else Checkpoints(folder)
        for name in names:
            kept = below(kept, name)
        return kept

    def posterior(
        self, x: Tensor, y: Tensor, row_names: list[int], folds: Folds | None = None
    ) -> Posterior:
        """The masks of rows, given x alone and given y too."""
        draw = partial(explain if folds is None else folds.posterior, self.result)
        return draw(
            x,
            y,
            draws=self.options.draws,
            proposals=PROPOSALS,
            held_out=True,
            seed=self.options.seed,
            row_names=row_names,
        )

    def other_scores(self, own: ScoreRow) -> list[ScoreRow]:
        """The scores so far, the explainer's first, with those of other models that there are."""
        return [own, judge_base_rate(self.source)]

    def _find(self) -> Any:
        self.sections.warn(self.notes_of_fit())
        gain, undecided = self.learned()
        sampled = self.result.sampler is not None
        self.sections.warn(self._worded(learned_messages(gain, undecided, sampled)))
        judgement, judge = self.judged()
        as_good = judgement.as_good_as_all(gain.error)
        collapsed = collapse_messages(self.result.collapse, as_good, gain.shown)
        self.sections.warn(self._worded(collapsed))
        tell("drawing the posterior", self.options.quiet)
        return self.found(gain, judgement, judge)

    def judged(self) -> tuple[Judgement, EvalX | None]:
        """The scores, and EVAL-X; an interrupted fit is scored by itself."""
        scores: list[ScoreRow] = []
        early = "the scores were interrupted and are not complete"
        work = partial(self._scores, scores)
        judge, curve = self.sections.run("", work, (None, None), early)
        return Judgement(tuple(scores), curve), judge

    def _scores(self, scores: list[ScoreRow]) -> tuple[EvalX | None, SizeCurve | None]:
        source, seed, quiet = self.source, self.options.seed, self.options.quiet
        own = judge_explainer(self.result, source, seed, self.masks)
        scores += self.other_scores(own)
        if self.result.interrupted:
            return None, None
        full = self.full
        if full is None:
            tell("fitting a predictor that sees everything", quiet)
            full = self.fit_full()
        scores.append(score_full(full, source))
        tell("fitting EVAL-X, the judge", quiet)
        judge = self.fit_judge()
        if full.result.interrupted or judge.result.interrupted:
            raise KeyboardInterrupt
        row, curve = judge_by_evalx(judge, self.result, source, seed, self.draws)
        scores.append(row)
        return judge, curve

    def _worded(self, notes: list[str]) -> list[str]:
        return [note.replace("features", self.entries) for note in notes]


def write_tables(
    folder: Path, posterior: Posterior, ranking: pd.DataFrame, lines: pd.DataFrame | None
) -> None:
    """Write the posterior, the ranking, and the lines of single rows where there are any."""
    save_posterior(posterior, folder / POSTERIOR)
    ranking.to_csv(folder / IMPORTANCE, float_format=DIGITS)
    if lines is not None:
        lines.to_csv(folder / ROWS, index=False, float_format=DIGITS)


def lines_of(rows: Sequence[ExplainedRow]) -> pd.DataFrame | None:
    """Single rows step by step as lines of a table; None of no rows."""
    return pd.concat([row.lines() for row in rows], ignore_index=True) if rows else None


def _keep_model(folder: Path) -> None:
    """Remove all but the model."""
    with deferred_interrupts(raises=False):
        for path in folder.iterdir():
            if path.name not in MODEL:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
