"""Rows to be explained, cut into pieces of one size, as tensors."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from lexppl.fingerprint import fingerprint
from lexppl.inference.batches import tensor_of
from lexppl.inference.training.result import FitResult
from lexppl.inference.training.rows import as_read

if TYPE_CHECKING:
    from lexppl.data import TableEncoding
    from lexppl.data.parquet import ParquetTable

Piece = Any  # Some rows: a frame, x, a pair (x, y), or their place in files


class ParquetPiece(NamedTuple):
    """Rows of a Parquet table, read where they are worked on."""

    table: ParquetTable
    start: int
    stop: int


class RowSource:
    """Rows of :func:`lexppl.explanation.explain_to_zarr` in order, cut into pieces of one size."""

    def __init__(self, rows: Any, encoding: TableEncoding | None, with_y: bool) -> None:
        self.total: int | None = None  # How many there are; None where only the end shows it
        self.table: ParquetTable | None = None
        self._chunks: Iterator[Any] = iter(())
        is_dask = hasattr(rows, "map_partitions") and hasattr(rows, "partitions")
        if isinstance(rows, str | Path) or is_dask:
            if encoding is None:
                raise TypeError("rows are a table: give encoding=, as the explainer was fitted to")
            names = [*encoding.table_columns, *([encoding.target.name] if with_y else [])]
        if isinstance(rows, str | Path):
            from lexppl.data.parquet import ParquetTable  # noqa: PLC0415 - slow, for files alone

            self.table = ParquetTable(rows, names)
            self.total = len(self.table)
        elif is_dask:
            frame = rows[[name for name in names if name in rows.columns]]
            self._chunks = (part.compute() for part in frame.partitions)
        elif isinstance(rows, pd.DataFrame | Tensor | np.ndarray) or _is_pair(rows):
            self.total, self._chunks = rows_in(rows), iter([rows])
        elif isinstance(rows, Iterable) and not isinstance(rows, dict):
            self._chunks = iter(rows)
        else:
            raise TypeError(
                "rows must be a path of Parquet files, a Dask dataframe, a frame, an array or "
                "tensor, a pair (x, y), or an iterable of chunks; it is "
                f"{type(rows).__name__}"
            )

    def identity(self) -> str | None:
        """Of files by their names, sizes and times; None of rows that must be read first."""
        return None if self.table is None else fingerprint(self.table)

    def identity_of(self, piece: Piece) -> str | None:
        """A hash of rows that must be read."""
        return fingerprint(piece) if self.table is None else None

    def pieces(self, size: int) -> Iterator[Piece]:
        """The rows, `size` at a time; the last piece may be smaller."""
        if self.table is not None:
            total = len(self.table)
            for start in range(0, total, size):
                yield ParquetPiece(self.table, start, min(start + size, total))
            return
        held: list[Any] = []
        count = 0
        for chunk in self._chunks:
            start, rows = 0, rows_in(chunk)
            while start < rows:
                taken = min(size - count, rows - start)
                held.append(_cut(chunk, start, start + taken))
                start, count = start + taken, count + taken
                if count == size:
                    yield _together(held)
                    held, count = [], 0
        if held:
            yield _together(held)

    def first(self, size: int) -> Piece:
        """The first rows, which are still there after."""
        ahead = copy.copy(self)
        self._chunks, ahead._chunks = tee(self._chunks)
        for piece in ahead.pieces(size):
            return piece
        raise ValueError("there are no rows to explain")


def encoded_piece(
    piece: Piece, encoding: TableEncoding | None, with_y: bool, result: FitResult
) -> tuple[Tensor, Tensor | None]:
    """x and y of a piece, of the type and on the device of a fit's parameters."""
    if isinstance(piece, ParquetPiece):
        piece = piece.table.read(piece.start, piece.stop)
    like = _parameter(result)
    dtype = torch.get_default_dtype() if like is None else like.dtype
    if isinstance(piece, pd.DataFrame):
        if encoding is None:
            raise TypeError("rows are data frames: give encoding=, as the explainer was fitted to")
        target = encoding.target.name
        if with_y and target not in piece:
            raise ValueError(f"with_y=True reads the column {target!r}, and rows have none")
        x: Any = encoding.encode(piece, dtype)
        y: Any = encoding.target.encode(piece[target], dtype) if with_y else None
    else:
        if encoding is not None:
            raise TypeError(
                f"encoding is of data frames, and rows are {type(piece).__name__}: leave it out "
                "where rows are encoded already"
            )
        x, y = piece if _is_pair(piece) else (piece, None)
        if (y is not None) != with_y:
            form = "pairs (x, y)" if y is not None else "x alone"
            raise ValueError(f"rows are {form} with with_y={with_y}; change one of the two")
    device = None if like is None else like.device
    # Rows that come from no device stand where the model does.
    if not isinstance(x, Tensor):
        x = as_read(result.model, tensor_of(x, "x", dtype).to(device=device), dtype)
    if y is not None and not isinstance(y, Tensor):
        y = tensor_of(y, "y", dtype).to(device=device)
    return x, y


def _is_pair(rows: Any) -> bool:
    is_two = isinstance(rows, tuple) and len(rows) == 2
    return is_two and all(isinstance(part, Tensor | np.ndarray) for part in rows)


def rows_in(chunk: Any) -> int:
    """How many rows a chunk has; refuses what is no chunk."""
    if _is_pair(chunk):
        if len(chunk[0]) != len(chunk[1]):
            raise ValueError(f"x has {len(chunk[0])} rows and y has {len(chunk[1])}")
        return len(chunk[0])
    if not isinstance(chunk, pd.DataFrame | Tensor | np.ndarray):
        raise TypeError(
            "a chunk of rows must be a frame, an array, a tensor or a pair (x, y) of them; one is "
            f"{type(chunk).__name__}"
        )
    return len(chunk)


def _cut(chunk: Any, start: int, stop: int) -> Any:
    if _is_pair(chunk):
        return chunk[0][start:stop], chunk[1][start:stop]
    return chunk.iloc[start:stop] if isinstance(chunk, pd.DataFrame) else chunk[start:stop]


def _together(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if len(parts) == 1:
        return first
    if _is_pair(first):
        return tuple(_together(column) for column in zip(*parts, strict=True))
    if isinstance(first, pd.DataFrame):
        return pd.concat(parts, ignore_index=True)
    return torch.cat(list(parts)) if isinstance(first, Tensor) else np.concatenate(parts)


def _parameter(result: FitResult) -> Tensor | None:
    """A parameter of the model, for its type and device."""
    held = result.model.parameters() if isinstance(result.model, nn.Module) else ()
    return next((p for p in held if p.is_floating_point()), None)
