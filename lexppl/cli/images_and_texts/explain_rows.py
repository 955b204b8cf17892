"""`lexppl explain` of images and of texts: fit, judge, draw, write."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.methods import METHODS
from lexppl.cli.images_and_texts.divided_rows import DividedRows, words_of
from lexppl.cli.images_and_texts.fitted_rows import (
    FittedRows,
    fit_evalx_of,
    fit_full,
    fit_rows,
    plan_of_rows,
)
from lexppl.cli.images_and_texts.found_rows import FoundRows
from lexppl.cli.images_and_texts.image_rows import read_images
from lexppl.cli.images_and_texts.page_of_rows import write_page
from lexppl.cli.images_and_texts.printed_rows import print_rows
from lexppl.cli.images_and_texts.ranked_words import ranked_words
from lexppl.cli.images_and_texts.text_rows import read_texts
from lexppl.cli.images_and_texts.written_model import write_model
from lexppl.cli.judged.closer_look import ExplainedRow, explained_row, unasked_rows
from lexppl.cli.judged.judging import (
    Judgement,
    ScoreRow,
    SizeCurve,
    judge_base_rate,
    judge_by_evalx,
    judge_explainer,
    score_full,
)
from lexppl.cli.notes.messages import collapse_messages, early_message, learned_messages
from lexppl.cli.options.data_checks import TEXTS, kind_of_data
from lexppl.cli.options.plan_options import device_of
from lexppl.cli.outputs import IMPORTANCE, POSTERIOR, REPORT, ROWS
from lexppl.cli.terminal.short_warnings import short_warnings
from lexppl.cli.terminal.standard_error import progress_of, tell, warn
from lexppl.cli.written.checkpoints import checkpoints_of
from lexppl.cli.written.model_first import run_model_first
from lexppl.data import TextDataset
from lexppl.evaluation.learned import base_frequencies, gain_over_base_rate
from lexppl.evaluation.prediction import predictive
from lexppl.evaluation.revealed import revealed_predictions
from lexppl.explanation import explain, mask_means, save_posterior, selection_table
from lexppl.explanation.layout.importance_kind import PROBABILITY, kind_of

DIGITS = "%.4g"
EXPLAINED_ROWS, EXPLAINED_NUMBERS = 300, 50_000_000
"""Most held-out rows whose masks are written, and most entries of all of their draws."""
JUDGED_MASKS, JUDGED_DRAWS = 20, 5
LEARNED_ROWS = 500
"""Most held-out rows by which it is told whether anything was learned."""
PROPOSALS = 2
STEPS = 200_000
"""Predictions of a row that single rows may cost in all, so that they take seconds."""
STEP_MASKS = 100
RANKED_DRAWS = 2


@short_warnings()
def run_explain_rows(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl explain` of images or texts.

    Args:
        options: as typed.
        command: the words that were typed, for the report.

    Returns:
        the exit code: 0, or 130 if the fit was interrupted.

    Raises:
        UsageError, ValueError, TypeError, OSError: a mistake in what was typed or in the data.
        KeyboardInterrupt: interrupted before there was anything to write.
    """
    device = device_of(options.device)

    def fit(folder: Path) -> tuple[DividedRows, FittedRows]:
        read = read_texts if kind_of_data(options) == TEXTS else read_images
        source = read(options, device)
        plan = plan_of_rows(options, source)
        if source.data.left_out:
            tell(source.data.left_out, options.quiet)
        fitted = fit_rows(plan, source, progress_of(options), checkpoints_of(options))
        write_model(folder, fitted.result, source, source.keep)
        return source, fitted

    def find(done: tuple[DividedRows, FittedRows]) -> tuple[FoundRows, bool]:
        return _find(options, *done, command)

    return run_model_first(options, fit, find, _write, print_rows)


def _find(
    options: argparse.Namespace, source: DividedRows, fitted: FittedRows, command: Sequence[str]
) -> tuple[FoundRows, bool]:
    """Judge and draw; and whether Ctrl-C has left all of it alone."""
    result = fitted.result
    judgement, complete = _judge(options, source, fitted)
    notes = _notes(options, source, fitted, judgement)
    if not complete and not result.interrupted:
        notes.append("the scores were interrupted and are not complete")
    for note in notes:
        warn(note)
    tell("drawing the posterior", options.quiet)
    count = _explained(source, result.replicates, options.draws)
    numbers = source.test_numbers[:count]
    posterior = _posterior(options, fitted, source.test.x[:count], source.test.y[:count], numbers)
    rows = _rows(options, source, fitted, posterior)
    asked = None
    if options.row:
        part = source.by_number(list(dict.fromkeys(options.row)))
        asked = _posterior(options, fitted, part.x, part.y, list(dict.fromkeys(options.row)))
    return FoundRows(
        source=source,
        given=options.data,
        plan=fitted.plan,
        result=result,
        posterior=posterior,
        asked=asked,
        ranking=_ranking(options, source, fitted, posterior),
        rows=rows,
        judgement=judgement,
        warnings=tuple(notes),
        command=tuple(command),
        draws=options.draws,
        device=options.device,
        numbers=(numbers, list(dict.fromkeys(options.row))),
    ), complete


def _judge(
    options: argparse.Namespace, source: DividedRows, fitted: FittedRows
) -> tuple[Judgement, bool]:
    """The scores, and whether they are all there; an interrupted fit is scored by itself alone."""
    scores: list[ScoreRow] = []
    curve: SizeCurve | None = None
    plan, result, quiet = fitted.plan, fitted.result, options.quiet
    try:
        scores.append(judge_explainer(result, source, options.seed, JUDGED_MASKS))
        scores.append(judge_base_rate(source))
        if result.interrupted:
            return Judgement(tuple(scores), None), False
        full = fitted.full
        if full is None:
            tell("fitting a predictor that sees everything", quiet)
            full = fit_full(plan, source, progress_of(options), checkpoints_of(options))
        scores.append(score_full(full, source))
        tell("fitting EVAL-X, the judge", quiet)
        judge = fit_evalx_of(plan, source, progress_of(options), checkpoints_of(options))
        if full.result.interrupted or judge.result.interrupted:
            return Judgement(tuple(scores), None), False
        row, curve = judge_by_evalx(judge, result, source, options.seed, JUDGED_DRAWS)
        scores.append(row)
    except KeyboardInterrupt:
        return Judgement(tuple(scores), None), False
    return Judgement(tuple(scores), curve), True


def _notes(
    options: argparse.Namespace, source: DividedRows, fitted: FittedRows, judgement: Judgement
) -> list[str]:
    """What the reader should mind."""
    result, plan = fitted.result, fitted.plan
    notes = []
    if source.valid is None:
        notes.append(
            "too few rows of each class to set any apart for choosing the best epoch: the best one "
            "is the one that fits the rows to fit on best"
        )
    if result.interrupted:
        notes.append(
            f"interrupted after {len(result.history)} of {plan.epochs} epochs; the best state so "
            "far is written, judged by itself"
        )
    elif METHODS[plan.method].takes("imputations") and plan.penalty is not None:
        notes += early_message(result.best_epoch.tolist(), len(result.history), True)
    x, y = source.test.x[:LEARNED_ROWS], source.test.y[:LEARNED_ROWS]
    gain = gain_over_base_rate(result, source.train.y, x, y, masks=JUDGED_MASKS, seed=options.seed)
    what = source.data.entries
    told = learned_messages(gain, None)
    told += collapse_messages(result.collapse, judgement.as_good_as_all(gain.error), gain.shown)
    return notes + [line.replace("features", what.partition(" of ")[0]) for line in told]


def _explained(source: DividedRows, replicates: int, draws: int) -> int:
    """How many held-out rows are explained one by one: as many as a file has room for."""
    room = EXPLAINED_NUMBERS // (replicates * draws * source.data.n_entries)
    return min(len(source.test), EXPLAINED_ROWS, max(10, room))


def _posterior(
    options: argparse.Namespace,
    fitted: FittedRows,
    x: torch.Tensor,
    y: torch.Tensor,
    numbers: list[int],
) -> Posterior:
    """The masks of rows, given x alone and given y too."""
    return explain(
        fitted.result,
        x,
        y,
        draws=options.draws,
        proposals=PROPOSALS,
        held_out=True,
        seed=options.seed,
        row_names=numbers,
    )


def _ranking(
    options: argparse.Namespace, source: DividedRows, fitted: FittedRows, posterior: Posterior
) -> pd.DataFrame:
    """The entries of images by how often they are kept, or the words of texts by how much."""
    if not isinstance(source.test, TextDataset):
        return selection_table(posterior)
    result, test = fitted.result, source.test
    every = explain(result, test.x, draws=RANKED_DRAWS, seed=options.seed)
    said = predictive(result, test.x, masks=JUDGED_MASKS, seed=options.seed).mean(0)
    return ranked_words(
        mask_means(every).values,
        test.x,
        test.vocabulary,
        kind_of(posterior),
        said.argmax(-1).cpu().numpy(),
        test.class_names,
    )


def _rows(
    options: argparse.Namespace, source: DividedRows, fitted: FittedRows, posterior: Posterior
) -> tuple[ExplainedRow, ...]:
    """Single rows step by step: those that are asked for, or three held-out ones; none of masks
    that do not select."""
    if kind_of(posterior) is not PROBABILITY:
        return ()
    tell("looking at single rows", options.quiet)
    labels = torch.zeros(int(source.numbers.max()) + 1, dtype=torch.long)
    labels[torch.from_numpy(source.numbers)] = source.numbered.y.cpu()
    chosen = {row: "asked for" for row in options.row} or unasked_rows(posterior, labels)
    part = source.by_number(list(chosen))
    cost = len(chosen) * (source.data.n_entries + 1) * fitted.result.replicates
    masks = max(4, min(STEP_MASKS, STEPS // cost))
    found = revealed_predictions(fitted.result, part.x, masks=masks, seed=options.seed)
    base = base_frequencies(source.train.y, len(source.data.class_names)).cpu().numpy()
    words = words_of(part)
    names = source.data.entry_names
    return tuple(
        explained_row(
            found,
            place,
            base,
            number=number,
            why=why + source.part_of(number),
            observed=source.data.class_names[int(labels[number])],
            values=dict(zip(names, words[place], strict=False)) if words else {},
        )
        for place, (number, why) in enumerate(chosen.items())
    )


def _write(folder: Path, found: FoundRows) -> None:
    save_posterior(found.posterior, folder / POSTERIOR)
    found.ranking.to_csv(folder / IMPORTANCE, float_format=DIGITS)
    if found.rows:
        lines = pd.concat([row.lines() for row in found.rows], ignore_index=True)
        kept = lines["step"].isna() | (np.abs(lines["step"]) > 0)
        lines[kept].to_csv(folder / ROWS, index=False, float_format=DIGITS)
    write_page(found, folder / REPORT)
