"""Predictors that are fitted to rows in one go, before the first step: no gradient moves them."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lexppl.inference.batches import LoadedRows
from lexppl.inference.replicates.replicate_rows import Rows
from lexppl.inference.stages import TrainingModules
from lexppl.inference.training.cross_fitting import PREDICTOR, CrossFitted
from lexppl.inference.training.rows.folded_rows import FoldedRows
from lexppl.inference.training.rows.row_weights import TrainingRows, WeightedRows


@runtime_checkable
class FitsRows(Protocol):
    """A part that learns from rows by itself, such as :class:`lexppl.models.TreePredictor`."""

    def fit_rows(self, x: Tensor, y: Tensor, seed: int = 0, weights: Tensor | None = None) -> None:
        """Fit to rows, in place of what was fitted before.

        Args:
            x: `(N, *event)`.
            y: labels or responses `(N,)`, or probabilities `(N, C)`.
            seed: of what is drawn.
            weights: how often each row counts, `(N,)`; None for once.
        """


def fit_to_rows(copies: Sequence[TrainingModules], rows: TrainingRows, seed: int) -> None:
    """Fit the predictors of each replicate that learn from rows by themselves.

    A cross-fitted one of fold f is fitted to the rows of all folds but f, so that it has not
    learned from the rows on which it is to judge; any other to all rows.

    Args:
        copies: the replicates' modules.
        rows: those that the fit learns from, in folds where predictors are cross-fitted.
        seed: of the first replicate.

    Raises:
        ValueError: a loader, whose rows are not all at hand; rows without y.
    """
    for replicate, modules in enumerate(copies):
        for fold, predictor in _waiting(modules):
            if isinstance(rows, LoadedRows):
                raise ValueError(
                    f"{type(predictor).__name__} learns from all rows at once, and a loader gives "
                    "them in batches: give tensors, arrays or a data set"
                )
            weights = None
            if isinstance(rows, WeightedRows):
                *columns, weights = _of_replicate(rows.rows, fold, replicate)
                weights = weights if rows.by_replicate else weights[:, replicate]
            else:
                columns = list(_of_replicate(rows, fold, replicate))
            if len(columns) < 2:
                raise ValueError(f"{type(predictor).__name__} learns to predict y; give (x, y)")
            predictor.fit_rows(columns[0], columns[1], seed + replicate, weights)


def _waiting(modules: TrainingModules) -> Iterator[tuple[int | None, FitsRows]]:
    """The parts to be fitted, each once, with the fold that they are kept from."""
    seen: set[int] = set()
    programs = (term.model for stage in modules.stages for term in stage.terms)
    for program in programs:
        predictor = getattr(program, PREDICTOR, None)
        if not isinstance(predictor, nn.Module) or id(predictor) in seen:
            continue
        seen.add(id(predictor))
        if isinstance(predictor, CrossFitted):
            yield from (
                (fold, one)
                for fold, one in enumerate(predictor.predictors)
                if isinstance(one, FitsRows)
            )
        elif isinstance(predictor, FitsRows):
            yield None, predictor


def _of_replicate(rows: Rows | FoldedRows, fold: int | None, replicate: int) -> tuple[Tensor, ...]:
    """All rows of a replicate, but for those of a fold."""
    if fold is None or not isinstance(rows, FoldedRows):
        columns = rows.columns  # type: ignore[union-attr]
    else:
        others = [block.columns for place, block in enumerate(rows.blocks) if place != fold]
        dim = 1 if rows.by_replicate else 0
        columns = tuple(torch.cat(parts, dim) for parts in zip(*others, strict=True))
    return tuple(column[replicate] for column in columns) if rows.by_replicate else columns
