"""`lexppl explain` of images and of texts."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.methods import METHODS
from lexppl.cli.explain_command import ExplainRun, lines_of, write_tables
from lexppl.cli.images_and_texts.divided_rows import DividedRows, words_of
from lexppl.cli.images_and_texts.fitted_rows import fit_explainer, observed_rows, plan_of_rows
from lexppl.cli.images_and_texts.found_rows import FoundRows
from lexppl.cli.images_and_texts.image_rows import read_images
from lexppl.cli.images_and_texts.page_of_rows import write_page
from lexppl.cli.images_and_texts.printed_rows import print_rows
from lexppl.cli.images_and_texts.ranked_words import ranked_words
from lexppl.cli.images_and_texts.text_rows import read_texts, write_reading
from lexppl.cli.judged.closer_look import ExplainedRow, explained_row, unasked_rows
from lexppl.cli.judged.judging import Judgement
from lexppl.cli.notes import early_message
from lexppl.cli.options.data_checks import TEXTS, kind_of_data
from lexppl.cli.outputs import REPORT
from lexppl.cli.terminal.short_warnings import short_warnings
from lexppl.cli.terminal.standard_error import tell
from lexppl.data import TextDataset
from lexppl.evaluation import FittedPredictor, fit_predictor
from lexppl.evaluation.learned import BaseRateGain, base_frequencies, gain_over_base_rate
from lexppl.evaluation.prediction import predictive
from lexppl.evaluation.refits.evalx import EvalX, fit_evalx
from lexppl.evaluation.revealed import revealed_predictions
from lexppl.explanation import explain, mask_means, selection_table
from lexppl.explanation.reading.masks import PROBABILITY, kind_of
from lexppl.summary import counted

EXPLAINED_ROWS, EXPLAINED_NUMBERS = 300, 50_000_000
"""Most held-out rows whose masks are written, and most entries of all of their draws."""
LEARNED_ROWS = 500
"""Most held-out rows by which it is judged whether anything was learned."""
STEPS, STEP_MASKS = 200_000, 100
"""Predictions of a row that single rows may cost in all, so that they take seconds, and the most
masks of each."""
RANKED_DRAWS = 2
JUDGE_EPOCHS, JUDGE_PATIENCE = 3, 10
"""EVAL-X, which sees random masks, learns for so many times as many epochs as the explainer, and
ends where it no longer gets better."""


@short_warnings()
def run_explain_rows(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl explain` of images or texts: :meth:`ExplainRun.run`."""
    return RowsRun(options, command).run()


class RowsRun(ExplainRun):
    """One run of `lexppl explain` on images or on texts."""

    source: DividedRows
    masks, draws = 20, 5

    def read(self, device: torch.device) -> None:
        read = read_texts if kind_of_data(self.options) == TEXTS else read_images
        self.source = read(self.options, device)
        self.plan = plan_of_rows(self.options, self.source)
        self.entries = self.source.data.entries.partition(" of ")[0]
        if self.source.data.left_out:
            tell(self.source.data.left_out, self.options.quiet)

    def fit(self) -> None:
        plan, quiet = self.plan, self.options.quiet
        if plan.needs_full_predictor:
            tell("fitting the predictor that sees everything", quiet)
            self.full = self.fit_full()
            if self.full.result.interrupted:
                raise KeyboardInterrupt
        tell(f"fitting the explainer, {counted(plan.replicates, 'replicate')}", quiet)
        observed = None if self.full is None else self.full.predictor
        kept = self.checkpoint("explainer")
        self.result = fit_explainer(plan, self.source, observed, self.progress, kept)

    def write_reading(self, folder: Path) -> None:
        write_reading(self.source, folder)

    def fit_full(self) -> FittedPredictor:
        epochs, rate = self.plan.epochs, self.plan.schedule
        fitted: FittedPredictor = self._fit_beside(
            fit_predictor, "full-predictor", epochs=epochs, learning_rate=rate, patience=None
        )
        return fitted

    def fit_judge(self) -> EvalX:
        """Fit EVAL-X, to which hidden entries are black, or padding."""
        judge: EvalX = self._fit_beside(
            fit_evalx,
            "judge",
            epochs=JUDGE_EPOCHS * self.plan.epochs,
            learning_rate=self.plan.learning_rate,
            patience=JUDGE_PATIENCE,
        )
        return judge

    def _fit_beside(self, fit: Callable[..., Any], name: str, **settings: Any) -> Any:
        """Fit what stands beside the explainer to the labels, by its plan."""
        plan, source = self.plan, self.source
        return fit(
            observed_rows(source.train),
            valid=None if source.valid is None else observed_rows(source.valid),
            architecture=source.architecture,
            batch_size=plan.batch_size,
            weight_decay=plan.weight_decay,
            seed=plan.seed,
            checkpoint=self.checkpoint(name),
            progress=self.progress,
            **settings,
        )

    def notes_of_fit(self) -> list[str]:
        result, plan, notes = self.result, self.plan, []
        if self.source.valid is None:
            notes.append(
                "too few rows of each class to set any apart for choosing the best epoch: the best "
                "one is the one that fits the rows to fit on best"
            )
        if result.interrupted:
            notes.append(
                f"interrupted after {len(result.history)} of {plan.epochs} epochs; the best state "
                "so far is written, judged by itself (Ctrl-C again ends with the model alone)"
            )
        elif METHODS[plan.method].takes("imputations") and plan.penalty is not None:
            notes += early_message(result.best_epoch.tolist(), len(result.history), True)
        return notes

    def learned(self) -> tuple[BaseRateGain, float | None]:
        train_y, test, seed = self.source.train.y, self.source.test, self.options.seed
        x, y = test.x[:LEARNED_ROWS], test.y[:LEARNED_ROWS]
        return gain_over_base_rate(self.result, train_y, x, y, masks=self.masks, seed=seed), None

    def found(self, gain: BaseRateGain, judgement: Judgement, judge: EvalX | None) -> FoundRows:
        options, source = self.options, self.source
        room = EXPLAINED_NUMBERS // (self.result.replicates * options.draws * source.data.n_entries)
        count = min(len(source.test), EXPLAINED_ROWS, max(10, room))
        numbers, asked_for = source.test_numbers[:count], list(dict.fromkeys(options.row))
        posterior = self.posterior(source.test.x[:count], source.test.y[:count], numbers)
        early = "single rows were interrupted"
        rows = self.sections.run(
            "looking at single rows", lambda: self._single_rows(posterior), (), early
        )
        asked = None
        if asked_for:
            part = source.by_number(asked_for)
            asked = self.posterior(part.x, part.y, asked_for)
        return FoundRows(
            source=source,
            given=options.data,
            plan=self.plan,
            result=self.result,
            posterior=posterior,
            asked=asked,
            ranking=self._ranking(posterior),
            rows=rows,
            judgement=judgement,
            warnings=tuple(self.sections.notes),
            command=self.command,
            draws=options.draws,
            device=options.device,
            numbers=(numbers, asked_for),
        )

    def _ranking(self, posterior: Posterior) -> pd.DataFrame:
        """The entries of images by how often they are kept, or the words of texts by how much."""
        test, result, seed = self.source.test, self.result, self.options.seed
        if not isinstance(test, TextDataset):
            return selection_table(posterior)
        every = explain(result, test.x, draws=RANKED_DRAWS, seed=seed)
        predicted = predictive(result, test.x, masks=self.masks, seed=seed).mean(0).argmax(-1)
        return ranked_words(
            mask_means(every).values,
            test.x,
            test.vocabulary,
            kind_of(posterior),
            predicted.cpu().numpy(),
            test.class_names,
        )

    def _single_rows(self, posterior: Posterior) -> tuple[ExplainedRow, ...]:
        """Rows step by step: those of --row, or three held-out ones; none of masks that do not
        select."""
        if kind_of(posterior) is not PROBABILITY:
            return ()
        source, options, result = self.source, self.options, self.result
        labels = torch.zeros(int(source.numbers.max()) + 1, dtype=torch.long)
        labels[torch.from_numpy(source.numbers)] = source.numbered.y.cpu()
        chosen = {row: "asked for" for row in options.row} or unasked_rows(posterior, labels)
        part = source.by_number(list(chosen))
        cost = len(chosen) * (source.data.n_entries + 1) * result.replicates
        masks = max(4, min(STEP_MASKS, STEPS // cost))
        steps = revealed_predictions(result, part.x, masks=masks, seed=options.seed)
        base = base_frequencies(source.train.y, len(source.data.class_names)).cpu().numpy()
        words, names = words_of(part), source.data.entry_names
        return tuple(
            explained_row(
                steps,
                place,
                base,
                number=number,
                why=why + source.part_of(number),
                observed=source.data.class_names[int(labels[number])],
                values=dict(zip(names, words[place], strict=False)) if words else {},
            )
            for place, (number, why) in enumerate(chosen.items())
        )

    def write(self, folder: Path, found: FoundRows) -> None:
        lines = lines_of(found.rows)
        if lines is not None:
            lines = lines[lines["step"].isna() | (lines["step"].abs() > 0)]
        write_tables(folder, found.posterior, found.ranking, lines)
        write_page(found, folder / REPORT)

    def show(self, found: FoundRows, folder: Path) -> None:
        print_rows(found, folder, bool(self.options.row))
