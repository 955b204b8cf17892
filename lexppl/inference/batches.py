"""Rows of a fit: from tensors, arrays, data sets or loaders to batches, by replicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lexppl.argument_checks import refuse_not_finite


@runtime_checkable
class HasRows(Protocol):
    """Anything with rows `x` and labels `y`, such as a :class:`lexppl.data.Dataset`."""

    x: Any
    y: Any


@runtime_checkable
class HasBatches(Protocol):
    """Rows read in batches `(x, y)` of tensors, such as :class:`lexppl.data.ParquetRows`."""

    def __len__(self) -> int: ...

    def batches(self, size: int, shuffle: bool) -> Iterator[tuple[Any, ...]]: ...


Columns = tuple[Tensor, ...]  # Columns of tensors with rows in common: x, and y where there is one

WeightedBatch = tuple[Columns, Tensor | None]

Data = Any
"""A data set with `x` and `y`, a tuple of tensors or arrays `(x, y)`, a `DataLoader`, or rows that
are read batch by batch."""


@dataclass(frozen=True)
class TensorRows:
    """Columns with rows in common: `(N, …)`, or `(R, N, …)` by replicate. The last is how often
    each row counts in each replicate, `(N, R)` or `(R, N)`, where `is_weighted`. Where there are
    `sizes`, the rows stand fold after fold, and batches do so too."""

    columns: Columns
    by_replicate: bool = False
    is_weighted: bool = False
    sizes: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self.columns[0].shape[self.row_dim]

    @property
    def row_dim(self) -> int:
        return 1 if self.by_replicate else 0

    @property
    def device(self) -> torch.device:
        return self.columns[0].device

    @cached_property
    def total(self) -> float | Tensor:
        """N, or `Σ_n w_{rn}` of each replicate, `(R,)`."""
        return self._weights(self.columns[-1]).sum(1) if self.is_weighted else len(self)

    def weighted_batches(self, size: int, shuffle: bool) -> Iterator[WeightedBatch]:
        """Batches as a program takes them, and the weights of their rows `(R, B)`, or None."""
        for batch in self.batches(size, shuffle):
            yield (batch[:-1], self._weights(batch[-1])) if self.is_weighted else (batch, None)

    def _weights(self, column: Tensor) -> Tensor:
        return column if self.by_replicate else column.mT

    def batches(self, size: int, shuffle: bool) -> Iterator[Columns]:
        """Batches of at most `size` rows, none dropped; shuffled for each replicate by itself, but
        for one batch of all rows, in whose order a program may hold more of them. Of folds as many
        rows of each as can be, and so more than `size` by rounding up to the same number."""
        if self.sizes:
            of_each = -(-size // len(self.blocks))
            for folds in zip_longest(*(block.batches(of_each, shuffle) for block in self.blocks)):
                # A fold with a row fewer than others may have run out: those that follow have too.
                present = zip(*(part for part in folds if part is not None), strict=True)
                yield tuple(torch.cat(columns, self.row_dim) for columns in present)
            return
        order = self._order() if shuffle else None  # Of one batch too: what is next is drawn alike
        if order is not None and size < len(self):
            for places in order.split(size, -1):
                yield self.at(places).columns
        else:
            parts = (column.split(size, self.row_dim) for column in self.columns)
            yield from zip(*parts, strict=True)

    @cached_property
    def blocks(self) -> list[TensorRows]:
        """The rows of each fold."""
        parts = (column.split(self.sizes, self.row_dim) for column in self.columns)
        return [TensorRows(part, self.by_replicate) for part in zip(*parts, strict=True)]

    def split(self, share: float) -> tuple[TensorRows, TensorRows]:
        """A random share of the rows apart: `(others, share)`."""
        rows = len(self)
        apart = min(max(round(share * rows), 1), rows - 1)
        order = self._order()
        return self.at(order[..., apart:]), self.at(order[..., :apart])

    def at(self, places: Tensor) -> TensorRows:
        """Rows by their places `(n,)`, or `(R, n)` in each replicate."""
        index: Any = places
        if self.by_replicate:
            index = torch.arange(len(places), device=self.device).unsqueeze(1), places
        return replace(self, columns=tuple(c[index] for c in self.columns), sizes=())

    def _order(self) -> Tensor:
        if self.by_replicate:
            return torch.rand(self.columns[0].shape[:2], device=self.device).argsort(1)
        return torch.randperm(len(self), device=self.device)


@dataclass(frozen=True)
class LoadedRows:
    """The batches of a `DataLoader`, or of rows read in batches, whose floats become `dtype`;
    `take` gives y as programs take it, of a batch's x and y."""

    loader: Any
    dtype: torch.dtype
    take: Callable[[Tensor, Tensor], Tensor] | None = None
    by_replicate: ClassVar[bool] = False
    is_weighted: ClassVar[bool] = False
    row_dim: ClassVar[int] = 0
    sizes: ClassVar[tuple[int, ...]] = ()
    device: ClassVar[torch.device] = torch.device("cpu")

    def __len__(self) -> int:
        loader = self.loader
        return len(loader) if isinstance(loader, HasBatches) else len(loader.dataset)

    @property
    def total(self) -> float:
        return len(self)

    def weighted_batches(self, size: int, shuffle: bool) -> Iterator[WeightedBatch]:
        """Batches, and None, as they have no weights."""
        for batch in self.batches(size, shuffle):
            yield batch, None

    def batches(self, size: int, shuffle: bool) -> Iterator[Columns]:
        """The loader's batches; their size and order are the loader's, if it is a `DataLoader`."""
        batches = self.loader
        if isinstance(self.loader, HasBatches):
            batches = self.loader.batches(size, shuffle)
        for batch in batches:
            columns = tuple(batch) if isinstance(batch, list | tuple) else (batch,)
            if batches is not self.loader:
                columns = tuple(_in_type(column, self.dtype) for column in columns)
            if self.take is not None and len(columns) > 1:
                columns = (columns[0], self.take(*columns[:2]), *columns[2:])
            yield columns


def rows_of(
    data: Data, dtype: torch.dtype, name: str = "data", one_class: bool = False
) -> TensorRows | LoadedRows:
    """Check the data and put it into tensors."""
    if isinstance(data, DataLoader) and not hasattr(data.dataset, "__len__"):
        raise TypeError(
            f"{name}: the loader's data set has no length, which the bound needs: give "
            f"{type(data.dataset).__name__} a __len__ that returns the number of rows"
        )
    if isinstance(data, DataLoader | HasBatches):
        loaded = LoadedRows(data, dtype)
        if len(loaded) == 0:
            raise ValueError(f"{name} has no rows")
        return loaded
    data = x_and_y(data) if isinstance(data, HasRows) else data
    if isinstance(data, Tensor | np.ndarray):
        data = (data,)
    if not isinstance(data, tuple | list):
        raise TypeError(
            f"{name} must be a data set with x and y, a tuple (x, y) or a DataLoader; it is "
            f"{type(data).__name__}"
        )
    columns = tuple(tensor_of(c, name, dtype) for c in data if c is not None)
    if not columns or 0 in columns[0].shape[:1]:
        raise ValueError(f"{name} has no rows")
    if len(columns) > 2:
        raise ValueError(
            f"{name} has {len(columns)} arrays, and explain calls a program with x and y alone: "
            "put others, such as an exposure, into columns of x"
        )
    refuse_single_row(*columns[:2])
    lengths = [len(c) for c in columns]
    if len(set(lengths)) != 1:
        raise ValueError(f"{name}: x and y must have as many rows each; they have {lengths}")
    for place, column in zip(("x", "y"), columns, strict=False):
        refuse_not_finite(f"{place} of {name}", column, ": drop or impute them")
    if len(columns) > 1 and not one_class:
        refuse_one_class(columns[1], name)
    return TensorRows(columns)


def refuse_one_class(y: Tensor, name: str) -> None:
    """Refuse labels that are all the same."""
    if not y.is_floating_point() and len(torch.unique(y)) == 1:
        raise ValueError(f"y of {name} has one class only, {int(y[0])}; a predictor needs two")


def _in_type(column: Any, dtype: torch.dtype) -> Tensor:
    tensor = torch.as_tensor(column)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def writable(values: Any, dtype: Any = None) -> np.ndarray:
    """An array that torch takes without a warning: a copy where it must not be written to, as those
    of pandas."""
    return np.require(values, dtype, ("C", "W"))


def tensor_of(values: Any, name: str, dtype: torch.dtype) -> Tensor:
    """An array of numbers as a tensor, of int64 where they are whole; a tensor as it is."""
    if isinstance(values, Tensor):
        return values
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} has rows of different lengths: pad them to one, and let the program leave out "
            "what was added, as by poutine.mask"
        ) from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold numbers; it holds {array.dtype}")
    tensor = torch.from_numpy(writable(array))
    return tensor.to(dtype if tensor.is_floating_point() else torch.long)


def x_and_y(x: Any, y: Any = None) -> tuple[Any, Any]:
    """x and y of a data set, or of a pair `(x, y)`; of others as they are."""
    # A data frame of columns x and y is no data set.
    is_set = isinstance(x, HasRows) and not hasattr(x, "__array__")
    if not (is_set or isinstance(x, tuple)):
        return x, y
    pair = (x.x, x.y) if is_set else x
    if y is not None:
        raise ValueError("y is given twice: beside x, and by itself")
    if len(pair) != 2:
        raise ValueError(f"x must be rows, a data set or a pair (x, y); it is {len(pair)} of them")
    return pair


def refuse_single_row(x: Tensor, y: Tensor | None = None, *, row: tuple[int, ...] = ()) -> None:
    """Refuse a row without the dimension of rows, or y of it; `row` is the shape of a row."""
    if x.dim() < 2 or tuple(x.shape) == row:
        rows = "(B, D)" if x.dim() < 2 else f"(B, {', '.join(map(str, row))})"
        column = ", or x[:, None] of rows with one feature" if x.dim() == 1 else ""
        raise ValueError(f"x must have shape {rows}; it has {tuple(x.shape)}: give x[:1]{column}")
    if y is not None and y.dim() == 0:
        raise ValueError("y must have one value for each row, (B,); it is a number: give y[:1]")


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
        """Number of replicates, R."""
        return len(self.sets)

    def common(self, attribute: str) -> Any:
        """What the data sets agree on, such as their `feature_names`; None where they do not."""
        first, *others = (getattr(s, attribute, None) for s in self.sets)
        return first if all(other == first for other in others) else None


Rows = TensorRows | LoadedRows


def training_rows(
    data: Data | ReplicateData, dtype: torch.dtype, name: str = "data", one_class: bool = False
) -> Rows:
    """Check the data of one or of several replicates and put it into tensors."""
    if not isinstance(data, ReplicateData):
        return rows_of(data, dtype, name, one_class)
    every = [
        rows_of(rows, dtype, f"{name} {place}", one_class) for place, rows in enumerate(data.sets)
    ]
    loaded = [place for place, rows in enumerate(every) if isinstance(rows, LoadedRows)]
    if loaded:
        raise ValueError(f"{name} {loaded[0]} is a loader; rows by replicate take tensors")
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


def of_replicate(rows: Rows, batch: Columns, replicate: int) -> Columns:
    """A replicate's own part of a batch."""
    return tuple(c[replicate] for c in batch) if rows.by_replicate else batch
