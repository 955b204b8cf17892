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
from lexppl.inference.training.rows.folded_rows import FoldedRows

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
        samples: `(N,)`, how often each of these rows stands in the sample, held-out ones among
            them; None for once.
        valid: `(M,)`, the same of validation rows that are given by themselves.
    """

    weights: Tensor
    kind: str
    samples: Tensor | None = None
    valid: Tensor | None = None

    @classmethod
    def of(
        cls,
        given: Any,
        rows: Rows,
        replicates: int,
        seed: int,
        sample_weight: Any = None,
    ) -> RowWeighting:
        """The weighting that is asked for.

        Args:
            given: :data:`DIRICHLET`, or weights `(N,)` or `(R, N)`; None for once.
            rows: N of them.
            replicates: R.
            seed: of weights that are drawn.
            sample_weight: `(N,)`, which multiply the others; or a pair, of these rows and of the
                validation rows.

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
        samples, valid = _of_samples(sample_weight, len(rows))
        times = 1.0 if samples is None else samples
        kept = {
            "samples": None if samples is None else samples.to(like.device, dtype),
            "valid": None if valid is None else valid.to(like.device, dtype),
        }
        if isinstance(given, str):
            if given != DIRICHLET:
                raise ValueError(
                    f"row_weights must be {DIRICHLET!r} or weights (N,) or (R, N); it is {given!r}"
                )
            # Draws of their own, so that those of the fit stay what they are without weights.
            generator = torch.Generator().manual_seed(seed + 2)
            drawn = torch.empty(shape, dtype=torch.float64).exponential_(generator=generator)
            return cls((drawn * times).to(like.device, dtype), DIRICHLET, **kept)
        weights = torch.ones(shape[1:]) if given is None else _checked(given, *shape)
        return cls((weights * times).to(like.device, dtype).expand(shape), GIVEN, **kept)

    def added(self, rows: Rows) -> TensorRows | StackedRows:
        """The rows with two more columns, their weights and how often they stand in the sample."""
        if isinstance(rows, LoadedRows):
            raise ValueError("a loader has no columns")
        samples = torch.ones_like(self.weights) if self.samples is None else self.samples
        pair = self.weights, samples.expand_as(self.weights)
        columns = pair if rows.by_replicate else tuple(column.mT for column in pair)
        return replace(rows, columns=(*rows.columns, *columns))

    def settled(self, rows: Rows) -> TensorRows | StackedRows:
        """Rows of :meth:`added` that are trained on, with the weights that they have there as a
        last column: drawn ones have the sum of the sample's in each replicate, that is N.

        Raises:
            ValueError: no weight above 0 among these rows.
        """
        if isinstance(rows, LoadedRows):
            raise ValueError("a loader has no columns")
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
        return replace(rows, columns=(*columns, weights))

    def held_out(self, rows: Rows | None, apart: bool) -> Rows | WeightedRows | None:
        """Validation rows, with how often each stands in the sample.

        Args:
            rows: of :meth:`added` if they were set apart, else as they were given.
            apart: whether they were set apart from the rows to train on.

        Raises:
            ValueError: rows of their own whose weights are not given; a sum of 0.
        """
        if rows is None or isinstance(rows, LoadedRows):
            if self.valid is not None:
                raise ValueError(
                    "sample_weight has weights of validation rows, and there are none that can be "
                    "told apart: give weights (N,) of train alone, or rows as valid="
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
            columns, count = list(rows.columns), len(self.weights)
            samples = self.valid.expand(count, -1)
            samples = samples if rows.by_replicate else samples.mT
        plain = replace(rows, columns=tuple(columns))
        if self.samples is None:
            return plain
        weighted = WeightedRows(replace(rows, columns=(*columns, samples)))
        if not bool((weighted.total > 0).all()):
            raise ValueError("sample_weight is zero for all validation rows: give some a weight")
        return weighted


def without_weights(rows: TensorRows | StackedRows) -> TensorRows | StackedRows:
    """Rows of :meth:`RowWeighting.settled` as they were."""
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


def _of_samples(given: Any, rows: int) -> tuple[Tensor | None, Tensor | None]:
    """The sample's weights of rows to train on, and of validation rows."""
    if given is None:
        return None, None
    pair = given if isinstance(given, tuple) else (given, None)
    if len(pair) != 2:
        raise ValueError(
            "sample_weight must be weights (N,) of train, or a pair, of train and of valid; it is "
            f"{len(pair)} of them"
        )
    found = []
    for each, count in zip(pair, (rows, None), strict=True):
        weights = None if each is None else _numbers(each, "sample_weight", "numbers (N,)")
        if weights is not None:
            if weights.dim() != 1 or (count is not None and len(weights) != count):
                expected = "(M,)" if count is None else str((count,))
                raise ValueError(
                    f"sample_weight must have shape {expected}, a weight for each row; it is "
                    f"{tuple(weights.shape)}"
                )
            _check_values(weights, "sample_weight")
        found.append(weights)
    if found[0] is None:
        raise ValueError("sample_weight has weights of valid and none of train")
    return found[0], found[1]


def _numbers(
    given: Any,
    name: str = "row_weights",
    wanted: str = f"{DIRICHLET!r} or numbers (N,) or (R, N)",
) -> Tensor:
    try:
        return torch.as_tensor(given, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be {wanted}; it is {type(given).__name__}") from error


def _checked(given: Any, replicates: int, rows: int) -> Tensor:
    weights = _numbers(given)
    if tuple(weights.shape) not in ((rows,), (replicates, rows)):
        raise ValueError(
            f"row_weights must have shape {(rows,)}, a weight for each row of train, or "
            f"{(replicates, rows)}, for each replicate too; it is {tuple(weights.shape)}"
        )
    _check_values(weights, "row_weights")
    return weights


def _check_values(weights: Tensor, name: str) -> None:
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError(f"{name} must be finite and at least 0")
    if not bool((weights.sum(-1) > 0).all()):
        raise ValueError(f"{name} must not be all zero")
