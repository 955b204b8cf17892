"""A data set for each replicate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from lexppl.inference.batches import Data, LoadedRows, TensorRows, rows_of


class ReplicateData:
    """One data set for each replicate of a fit, R of them, with as many rows each.

    Args:
        sets: R data sets with `x` and `y`, or tuples `(x, y)` of tensors or arrays, alike in all
            but their values.

    Raises:
        ValueError: no data sets.
        TypeError: one data set alone, not in a list.

    Example:
        >>> len(ReplicateData([(torch.randn(60, 3), torch.arange(60) % 2) for _ in range(2)]))
        2
    """

    def __init__(self, sets: Sequence[Data]) -> None:
        if not isinstance(sets, list | tuple) or any(isinstance(s, Tensor) for s in sets):
            raise TypeError(
                "ReplicateData takes a list of data sets, each with x and y or a tuple (x, y); it "
                f"is given {'tensors' if isinstance(sets, list | tuple) else type(sets).__name__}"
            )
        if not sets:
            raise ValueError("ReplicateData needs at least one data set; it is given none")
        self.sets = list(sets)

    def __len__(self) -> int:
        """R."""
        return len(self.sets)

    def common(self, attribute: str) -> Any:
        """What the data sets agree on, such as their `feature_names`; None where they do not."""
        first, *others = (getattr(s, attribute, None) for s in self.sets)
        return first if all(other == first for other in others) else None


Rows = TensorRows | LoadedRows


class HasReplicates(Protocol):
    """Rows that are all replicates', or `(R, N, …)` of their own."""

    @property
    def by_replicate(self) -> bool: ...


def training_rows(
    data: Data | ReplicateData, dtype: torch.dtype, name: str = "data", one_class: bool = False
) -> Rows:
    """Check the data of one or of several replicates and put it into tensors."""
    if not isinstance(data, ReplicateData):
        return rows_of(data, dtype, name, one_class)
    every = [
        rows_of(one, dtype, f"{name} {place}", one_class) for place, one in enumerate(data.sets)
    ]
    loaded = [place for place, rows in enumerate(every) if isinstance(rows, LoadedRows)]
    if loaded:
        raise ValueError(
            f"{name} {loaded[0]} is a loader; replicates with rows of their own take "
            "tensors, arrays or data sets"
        )
    held = [rows.columns for rows in every if isinstance(rows, TensorRows)]
    if len({len(columns) for columns in held}) > 1:
        raise ValueError(
            f"{name}: the replicates' data sets must have the same columns; they have "
            f"{[len(columns) for columns in held]} of them"
        )
    columns = list(zip(*held, strict=True))
    for of_column in zip(("x", "y"), columns, strict=False):
        kinds = {(tuple(c.shape), c.dtype, c.device) for c in of_column[1]}
        if len(kinds) > 1:
            shapes = [tuple(c.shape) for c in of_column[1]]
            raise ValueError(
                f"{name}: the replicates' {of_column[0]} must be alike in shape, type and device; "
                f"their shapes are {shapes}, their types {[str(c.dtype) for c in of_column[1]]}"
            )
    return TensorRows(tuple(torch.stack(c) for c in columns), by_replicate=True)


def of_replicate(
    rows: HasReplicates, batch: tuple[Tensor, ...], replicate: int
) -> tuple[Tensor, ...]:
    """A replicate's own part of a batch."""
    return tuple(c[replicate] for c in batch) if rows.by_replicate else batch


def batch_rows(rows: HasReplicates, batch: tuple[Tensor, ...]) -> int:
    """Rows of a batch that a replicate sees."""
    return batch[0].shape[1] if rows.by_replicate else len(batch[0])
