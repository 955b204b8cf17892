"""From a loop that has come to its end to what a fit hands back."""

import math

import numpy as np

from lexppl.inference.batches import LoadedRows
from lexppl.inference.replicates.replicate_rows import Rows, of_replicate
from lexppl.inference.stages import TrainingModules
from lexppl.inference.training.loop import TrainingLoop
from lexppl.inference.training.result import FitResult, History
from lexppl.inference.training.rows.response_checks import holds_labels
from lexppl.inference.training.rows.row_checks import are_unit_pixels
from lexppl.inference.training.rows.row_weights import WeightedRows
from lexppl.inference.training.watched.collapse import collapses

WATCHED_ROWS = 1000
"""Rows of the validation set on which a collapse is looked for."""


def result_of(
    finished: list[TrainingModules],
    loop: TrainingLoop,
    rows: Rows,
    held_out: Rows | WeightedRows | None,
    seed: int,
) -> FitResult:
    """The result of a loop that has come to its end.

    Args:
        finished: the replicates' modules.
        loop: with its history.
        rows, held_out: to learn from, and to judge by.
        seed: of the fit.
    """
    watched = held_out if held_out is not None else rows
    several = next(iter(watched.batches(WATCHED_ROWS, shuffle=False)))
    batches = [
        tuple(c[:WATCHED_ROWS] for c in of_replicate(watched, several, replicate))
        for replicate in range(len(finished))
    ]
    terms = [one.stages[-1].terms[0] for one in finished]
    models, guides = [term.model for term in terms], [term.guide for term in terms]
    objective = terms[0].objective
    found: list[str | None] = [None] * len(terms)
    if objective.watched:
        found = collapses(models, guides, batches)
    y = None
    if not isinstance(rows, LoadedRows) and len(rows.columns) > 1:
        y = rows.columns[1]
    event_shape = tuple(batches[-1][0].shape[1:])
    seen = batches[-1][0] if isinstance(rows, LoadedRows) else rows.columns[0]
    labels = None
    if y is not None and holds_labels(models[0], y):
        labels = tuple(y.unique().tolist())
    train, valid, stage, seconds = (
        zip(*loop.records, strict=True) if loop.records else ((), (), (), ())
    )
    return FitResult(
        models=models,
        guides=guides,
        objective=objective.at(1.0),
        history=History(np.array(train), np.array(valid), np.array(stage), np.array(seconds)),
        best_epoch=loop.best_epoch,
        best_valid=loop.best_valid,
        collapse=found,
        interrupted=loop.interrupted,
        event_shape=event_shape,
        unit_pixels=are_unit_pixels(seen, event_shape),
        labels=labels,
        seed=seed,
        modules=list(finished),
        skipped_steps=loop.skipped.count,
        ended=loop.skipped.ended,
        steps=None
        if isinstance(rows, LoadedRows)
        else len(loop.records) * math.ceil(len(rows) / loop.batch_size),
    )
