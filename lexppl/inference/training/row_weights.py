"""Weights of rows: how often each counts, in each replicate of a fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lexppl.inference.batches import LoadedRows, TensorRows
from lexppl.inference.replicates.replicate_rows import Rows, StackedRows
from lexppl.inference.stages import LossTerm
from lexppl.inference.training.folded_rows import FoldedRows

DIRICHLET = "dirichlet"
"""Weights drawn for each replicate, `N · Dirichlet(1, …, 1)`."""
GIVEN = "given"
"""Weights that the user gives."""


@dataclass(frozen=True)
class WeightedRows:
    """Rows that carry their weights with them.

    Args:
        rows: their last column is the weights: `(N, R)`, or `(R, N)` where each replicate has rows
            of its own.
    """

    rows: TensorRows | StackedRows | FoldedRows

    @property
    def by_replicate(self) -> bool:
        return self.rows.by_replicate

    @property
    def device(self) -> torch.device:
        return self.rows.device

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def total(self) -> Tensor:
        """`Σ_n w_{rn}` of each replicate, `(R,)`."""
        return self._weights(self.rows.columns[-1]).sum(1)

    def batches(self, size: int, shuffle: bool) -> Iterator[tuple[Tensor, ...]]:
        """Batches as a program is given them, without their weights."""
        for batch, _ in self.weighted_batches(size, shuffle):
            yield batch

    def weighted_batches(
        self, size: int, shuffle: bool
    ) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
        """Batches and the weights of their rows, `(R, B)`."""
        for batch in self.rows.batches(size, shuffle):
            yield batch[:-1], self._weights(batch[-1])

    def _weights(self, column: Tensor) -> Tensor:
        return column if self.by_replicate else column.mT


TrainingRows = Rows | FoldedRows | WeightedRows


def batches_with_weights(
    rows: TrainingRows, size: int, shuffle: bool
) -> Iterator[tuple[tuple[Tensor, ...], Tensor | None]]:
    """Batches and the weights of their rows, `(R, B)`; None where rows have none."""
    if isinstance(rows, WeightedRows):
        yield from rows.weighted_batches(size, shuffle)
        return
    for batch in rows.batches(size, shuffle):
        yield batch, None


@dataclass(frozen=True)
class RowWeighting:
    """What rows are to be weighted by.

    Args:
        weights: `(R, N)`, of all rows that are given to the fit.
        kind: :data:`DIRICHLET`, of which only the ratios count, or :data:`GIVEN`.
    """

    weights: Tensor
    kind: str

    @classmethod
    def of(cls, given: Any, rows: Rows, replicates: int, seed: int) -> RowWeighting:
        """The weighting that is asked for.

        Args:
            given: :data:`DIRICHLET`, or weights `(N,)` or `(R, N)`.
            rows: N of them.
            replicates: R.
            seed: of weights that are drawn.

        Raises:
            ValueError: another word; weights of another shape, below 0, not finite, or all zero; a
                loader, whose rows have no places.
            TypeError: no numbers.

        Example:
            >>> rows = TensorRows((torch.zeros(3, 2),))
            >>> RowWeighting.of([1, 0, 2], rows, 2, seed=0).weights
            tensor([[1., 0., 2.],
                    [1., 0., 2.]])
        """
        if isinstance(rows, LoadedRows):
            raise ValueError(
                "row_weights need rows that can be told apart, and a loader's cannot: give "
                "tensors, arrays or a data set, or leave row_weights out"
            )
        like, shape = rows.columns[0], (replicates, len(rows))
        dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
        if isinstance(given, str):
            if given != DIRICHLET:
                raise ValueError(
                    f"row_weights must be {DIRICHLET!r} or weights (N,) or (R, N); it is {given!r}"
                )
            # Draws of their own, so that those of the fit stay what they are without weights.
            generator = torch.Generator().manual_seed(seed + 2)
            drawn = torch.empty(shape, dtype=torch.float64).exponential_(generator=generator)
            return cls(drawn.to(like.device, dtype), DIRICHLET)
        weights = _checked(given, *shape)
        return cls(weights.to(like.device, dtype).expand(shape), GIVEN)

    def added(self, rows: Rows) -> TensorRows | StackedRows:
        """The rows with their weights as a last column."""
        if isinstance(rows, LoadedRows):
            raise ValueError("a loader has no columns")
        column = self.weights if rows.by_replicate else self.weights.mT
        return replace(rows, columns=(*rows.columns, column))

    def settled(self, rows: Rows) -> TensorRows | StackedRows:
        """Rows of :meth:`added` that are trained on, with the weights that they have there: drawn
        ones with a mean of 1 in each replicate.

        Raises:
            ValueError: no weight above 0 among these rows.
        """
        if isinstance(rows, LoadedRows):
            raise ValueError("a loader has no columns")
        dim = 1 if rows.by_replicate else 0
        weights = rows.columns[-1]
        total = weights.sum(dim, keepdim=True)
        if not bool((total > 0).all()):
            raise ValueError(
                "row_weights are zero for all rows that are left to train on; give validation rows "
                "of their own as valid=, or more rows a weight"
            )
        if self.kind == DIRICHLET:
            weights = weights * (len(rows) / total)
        return replace(rows, columns=(*rows.columns[:-1], weights))


def without_weights(rows: Rows) -> Rows:
    """Rows of :meth:`RowWeighting.added` as they were."""
    if isinstance(rows, LoadedRows):
        return rows
    return replace(rows, columns=rows.columns[:-1])


def refuse_unweighted(term: LossTerm, plate: str | None) -> None:
    """Refuse a term whose rows cannot be weighted.

    Args:
        term: of a fit with row weights.
        plate: its plate over rows, or None.

    Raises:
        ValueError: no such plate, or an objective that does not read a site's scale.
    """
    name = type(term.model).__name__
    if not term.objective.reads_scales:
        raise ValueError(
            f"row_weights scale the sites of each row, and {type(term.objective).__name__} does "
            "not say that it reads scales: set its reads_scales = True if it does, or leave "
            "row_weights out"
        )
    if plate is None:
        raise ValueError(
            f"row_weights need a plate over the rows of a batch at dim -1, and {name} has none; "
            'observe its rows in pyro.plate("data", len(x), dim=-1), or leave row_weights out'
        )


def weights_by_replicate(given: Any) -> int | None:
    """R, where weights are given for each replicate; None where they are the same for all."""
    if given is None or isinstance(given, str):
        return None
    weights = _numbers(given)
    return len(weights) if weights.dim() == 2 else None


def _numbers(given: Any) -> Tensor:
    try:
        return torch.as_tensor(given, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"row_weights must be {DIRICHLET!r} or numbers (N,) or (R, N); it is "
            f"{type(given).__name__}"
        ) from error


def _checked(given: Any, replicates: int, rows: int) -> Tensor:
    weights = _numbers(given)
    if tuple(weights.shape) not in ((rows,), (replicates, rows)):
        raise ValueError(
            f"row_weights must have shape {(rows,)}, a weight for each row of train, or "
            f"{(replicates, rows)}, for each replicate too; it is {tuple(weights.shape)}"
        )
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError("row_weights must be finite and at least 0")
    if not bool((weights.sum(-1) > 0).all()):
        raise ValueError("row_weights must not be all zero")
    return weights
