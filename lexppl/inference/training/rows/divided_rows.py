"""Rows to learn from and rows to judge by, from what is given to `fit`."""

import torch

from lexppl.argument_checks import fraction
from lexppl.inference.batches import Data, LoadedRows
from lexppl.inference.replicates.replicate_rows import ReplicateData, Rows, training_rows
from lexppl.inference.training.rows.folded_rows import folded
from lexppl.inference.training.rows.row_weights import (
    RowWeighting,
    TrainingRows,
    WeightedRows,
    without_weights,
)


def divided_rows(
    valid: Data | ReplicateData | float | None,
    rows: Rows,
    dtype: torch.dtype,
    weighting: RowWeighting | None,
    folds: int,
) -> tuple[Rows, Rows | WeightedRows | None, TrainingRows]:
    """The training rows, the validation rows, and the former as they are learned from: with their
    weights, and in their folds.

    Args:
        valid: as given to `fit`: rows, a share of the training rows, or None.
        rows: all training rows.
        dtype: the floating type of what is learned.
        weighting: how often each row counts; None for once.
        folds: F; 1 for none.

    Raises:
        ValueError: a share of a loader or of one row, or one outside (0, 1).
    """
    if weighting is None:
        rows, held_out = _validation(valid, rows, dtype)
        return rows, held_out, rows if folds == 1 else folded(rows, folds)
    weighted, apart = _validation(valid, weighting.added(rows), dtype)
    settled = weighting.settled(weighted)
    learned = WeightedRows(settled if folds == 1 else folded(settled, folds))
    judged = weighting.held_out(apart, isinstance(valid, float | int))
    return without_weights(settled), judged, learned


def _validation(
    valid: Data | ReplicateData | float | None, rows: Rows, dtype: torch.dtype
) -> tuple[Rows, Rows | None]:
    if valid is None:
        return rows, None
    if not isinstance(valid, float | int):
        return rows, training_rows(valid, dtype, "valid")
    share = fraction("valid", valid, of="the rows")
    if isinstance(rows, LoadedRows):
        raise ValueError("a loader cannot be split: give validation rows as valid=, or valid=None")
    if len(rows) < 2:
        raise ValueError("one row cannot be split into training and validation rows")
    return rows.split(share)
