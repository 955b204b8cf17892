"""Weights of rows, how often each counts in each replicate, and the division of rows by a fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lexppl.argument_checks import fraction
from lexppl.inference.batches import Data, LoadedRows, TensorRows
from lexppl.inference.replicates.replicate_rows import ReplicateData, Rows, training_rows
from lexppl.inference.stages import LossTerm
from lexppl.inference.training.rows.rows import folded

DIRICHLET = "dirichlet"
"""Weights drawn for each replicate, `N · Dirichlet(1, …, 1)`."""
GIVEN = "given"
"""Weights that the user gives."""


@dataclass(frozen=True)
class RowWeighting:
    """The weights of a fit's rows: `(R, N)`, drawn or given; `samples` `(N,)` and `valid` `(M,)`,
    how often rows to divide and validation rows stand in the sample."""

    weights: Tensor
    kind: str
    samples: Tensor | None = None
    valid: Tensor | None = None

    @classmethod
    def of(
        cls, given: Any, rows: Rows, replicates: int, seed: int, sample_weight: Any = None
    ) -> RowWeighting:
        """The weighting by `row_weights` and `sample_weight` of N rows and R replicates."""
        if isinstance(rows, LoadedRows):
            raise ValueError(
                "row_weights need rows with places of their own, and a loader's have none: give "
                "tensors, arrays or a data set, or leave row_weights out"
            )
        like, shape = rows.columns[0], (replicates, len(rows))
        dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
        samples, valid = _of_samples(sample_weight, len(rows))
        if isinstance(given, str):
            if given != DIRICHLET:
                raise ValueError(
                    f"row_weights must be {DIRICHLET!r} or weights (N,) or (R, N); it is {given!r}"
                )
            # Draws of their own, so that those of the fit stay what they are without weights.
            generator = torch.Generator().manual_seed(seed + 2)
            weights = torch.empty(shape, dtype=torch.float64).exponential_(generator=generator)
        elif given is None:
            weights = torch.ones(shape, dtype=torch.float64)
        else:
            weights = _weights("row_weights", given, shape[1:], shape).expand(shape)
        if samples is not None:
            weights = weights * samples
        return cls(
            weights.to(like.device, dtype),
            DIRICHLET if isinstance(given, str) else GIVEN,
            None if samples is None else samples.to(like.device, dtype),
            None if valid is None else valid.to(like.device, dtype),
        )

    def added(self, rows: TensorRows) -> TensorRows:
        """The rows with two more columns, their weights and how often they stand in the sample."""
        samples = torch.ones_like(self.weights) if self.samples is None else self.samples
        pair = self.weights, samples.expand_as(self.weights)
        columns = pair if rows.by_replicate else tuple(column.mT for column in pair)
        return replace(rows, columns=(*rows.columns, *columns))

    def settled(self, rows: TensorRows) -> TensorRows:
        """Rows of :meth:`added` that are trained on, drawn weights scaled to sum to N."""
        dim = 1 if rows.by_replicate else 0
        *columns, weights, samples = rows.columns
        total = weights.sum(dim, keepdim=True)
        if not bool((total > 0).all()):
            raise ValueError(
                "row_weights are zero for all rows that are left to train on; give validation rows "
                "of their own as valid=, or more rows a weight"
            )
        if self.kind == DIRICHLET:
            weights = weights * (samples.sum(dim, keepdim=True) / total)
        return replace(rows, columns=(*columns, weights), is_weighted=True)

    def held_out(self, rows: Rows | None, apart: bool) -> Rows | None:
        """Validation rows, with how often each stands in the sample."""
        if rows is None or isinstance(rows, LoadedRows):
            if self.valid is not None:
                raise ValueError(
                    "sample_weight has weights of validation rows, and there are none that "
                    "have places of their own: give weights (N,) of train alone, or rows as valid="
                )
            return rows
        if apart:
            *columns, _, samples = rows.columns
        elif self.samples is None:
            return rows
        elif self.valid is None or len(self.valid) != len(rows):
            found = "none" if self.valid is None else str(len(self.valid))
            raise ValueError(
                f"sample_weight must be a pair, of train and of valid, with a weight for each of "
                f"the {len(rows)} validation rows; there are {found}"
            )
        else:
            columns, samples = list(rows.columns), self.valid.expand(len(self.weights), -1)
            samples = samples if rows.by_replicate else samples.mT
        if self.samples is None:
            return replace(rows, columns=tuple(columns))
        weighted = replace(rows, columns=(*columns, samples), is_weighted=True)
        if not bool((torch.as_tensor(weighted.total) > 0).all()):
            raise ValueError("sample_weight is zero for all validation rows: give some a weight")
        return weighted


def divided_rows(
    valid: Data | ReplicateData | float | None,
    rows: Rows,
    dtype: torch.dtype,
    weighting: RowWeighting | None,
    folds: int,
) -> tuple[Rows, Rows | None, Rows]:
    """Training rows, validation rows, and the former as learned from: weighted and in folds."""
    if weighting is None or isinstance(rows, LoadedRows):
        rows, held_out = _validation(valid, rows, dtype)
        return rows, held_out, rows if folds == 1 else folded(rows, folds)
    weighted, apart = _validation(valid, weighting.added(rows), dtype)
    assert not isinstance(weighted, LoadedRows)
    settled = weighting.settled(weighted)
    learned = settled if folds == 1 else folded(settled, folds)
    judged = weighting.held_out(apart, isinstance(valid, float | int))
    return replace(settled, columns=settled.columns[:-1], is_weighted=False), judged, learned


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


def refuse_unweighted(term: LossTerm, plate: str | None, why: str, instead: str) -> None:
    """Refuse a term whose rows cannot be scaled one by one."""
    name, objective = type(term.model).__name__, type(term.objective).__name__
    if not term.objective.reads_scales:
        raise ValueError(
            f"{why} scale the sites of each row, and {objective} does not say that it reads "
            f"scales: set its reads_scales = True if it does, or {instead}"
        )
    if plate is None:
        raise ValueError(
            f"{why} need a plate over the rows of a batch at dim -1, and {name} has none; observe "
            f'its rows in pyro.plate("data", len(x), dim=-1), or {instead}'
        )


def weights_by_replicate(given: Any) -> int | None:
    """R, where weights are given for each replicate; None where they are the same for all."""
    if given is None or isinstance(given, str):
        return None
    weights = _weights("row_weights", given)
    return len(weights) if weights.dim() == 2 else None


def _of_samples(given: Any, rows: int) -> tuple[Tensor | None, Tensor | None]:
    if given is None:
        return None, None
    train, *others = given if isinstance(given, tuple) else (given, None)
    if len(others) != 1:
        raise ValueError(
            "sample_weight must be weights (N,) of train, or a pair, of train and of valid; it is "
            f"{1 + len(others)} of them"
        )
    if train is None:
        raise ValueError("sample_weight has weights of valid and none of train")
    valid = None if others[0] is None else _weights("sample_weight", others[0])
    if valid is not None and valid.dim() != 1:
        raise ValueError(f"sample_weight of valid must be (M,); it is {tuple(valid.shape)}")
    return _weights("sample_weight", train, (rows,)), valid


def _weights(name: str, given: Any, *shapes: tuple[int, ...]) -> Tensor:
    """Weights as numbers, one for each row, finite, at least 0 and not all 0."""
    try:
        weights = torch.as_tensor(given, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        word = f"{DIRICHLET!r} or " if name == "row_weights" else ""
        raise TypeError(
            f"{name} must be {word}numbers (N,) or (R, N); it is {type(given).__name__}"
        ) from error
    if shapes and tuple(weights.shape) not in shapes:
        expected = ", or for each replicate too ".join(map(str, shapes))
        raise ValueError(
            f"{name} must have shape {expected}, a weight for each row; it is "
            f"{tuple(weights.shape)}"
        )
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError(f"{name} must be finite and at least 0")
    if not bool((weights.sum(-1) > 0).all()):
        raise ValueError(f"{name} must not be all zero")
    return weights
