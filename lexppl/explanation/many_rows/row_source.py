"""Where rows come from that are explained chunk by chunk: files, Dask frames, iterables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.fingerprint import fingerprint

if TYPE_CHECKING:
    from lexppl.data import TableEncoding
    from lexppl.data.parquet import ParquetTable

Piece = Any
"""Some rows: a frame, x, a pair (x, y), or what gives them where it is worked on."""


class RowSource(Protocol):
    """Rows in order, cut into pieces of one size."""

    @property
    def total(self) -> int | None:
        """How many there are; None where only the end tells."""
        ...

    def pieces(self, size: int) -> Iterator[Piece]:
        """The rows, `size` at a time; the last piece may be smaller."""
        ...

    def first(self, size: int) -> Piece:
        """The first rows, which are still there after."""
        ...

    def identity(self) -> str | None:
        """What tells these rows from others without reading them, or None."""
        ...


@dataclass(frozen=True)
class ParquetPiece:
    """Rows of a Parquet table, read where they are worked on."""

    table: ParquetTable
    start: int
    stop: int

    def rows(self) -> pd.DataFrame:
        """The rows."""
        return self.table.read(self.start, self.stop)


@dataclass(frozen=True)
class ParquetSource:
    """A Parquet file or folder."""

    table: ParquetTable

    @property
    def total(self) -> int:
        """N."""
        return len(self.table)

    def pieces(self, size: int) -> Iterator[Piece]:
        """Places in the files; nothing is read here."""
        for start in range(0, self.total, size):
            yield ParquetPiece(self.table, start, min(start + size, self.total))

    def first(self, size: int) -> Piece:
        """The first rows."""
        return ParquetPiece(self.table, 0, min(size, self.total))

    def identity(self) -> str:
        """By files, sizes and times."""
        return fingerprint(self.table)


class DaskSource:
    """A Dask dataframe; its partitions are counted once, which may read them.

    Args:
        frame: the dataframe.
        columns: those that are read.
    """

    def __init__(self, frame: Any, columns: Sequence[str]) -> None:
        self._frame = frame[[name for name in columns if name in frame.columns]]
        lengths = self._frame.map_partitions(len).compute()
        self._ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
        self.total: int | None = int(self._ends[-1])

    def pieces(self, size: int) -> Iterator[Piece]:
        """Delayed frames."""
        from dask import delayed  # noqa: PLC0415 - of an extra

        parts, starts = self._frame.to_delayed(), np.concatenate([[0], self._ends[:-1]])
        joined = delayed(_joined)
        for start in range(0, self.total or 0, size):
            stop = min(start + size, self.total or 0)
            own = np.flatnonzero((starts < stop) & (self._ends > start))
            cuts = [(int(start - starts[one]), int(stop - starts[one])) for one in own]
            yield joined([parts[one] for one in own], cuts)

    def first(self, size: int) -> Piece:
        """The first rows."""
        return next(self.pieces(size))

    def identity(self) -> str:
        """By Dask's own name of the frame."""
        from dask.base import tokenize  # noqa: PLC0415 - of an extra

        return str(tokenize(self._frame))


def _joined(frames: Sequence[pd.DataFrame], cuts: Sequence[tuple[int, int]]) -> pd.DataFrame:
    parts = [f.iloc[max(low, 0) : high] for f, (low, high) in zip(frames, cuts, strict=True)]
    return pd.concat(parts, ignore_index=True)


class GivenRows:
    """Rows in memory, or chunks of them of any size, one after the other.

    Args:
        chunks: frames, arrays, tensors, or pairs of x and y.
        total: N where it is known.
    """

    def __init__(self, chunks: Iterable[Any], total: int | None = None) -> None:
        self.total = total
        self._chunks = iter(chunks)

    def pieces(self, size: int) -> Iterator[Piece]:
        """The chunks cut anew."""
        held: list[Any] = []
        count = 0
        for chunk in self._chunks:
            rows = rows_in(chunk)
            start = 0
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
        """The first rows; what was read for them is kept for :meth:`pieces`.

        Raises:
            ValueError: no rows.
        """
        read: list[Any] = []
        count = 0
        while count < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            read.append(chunk)
            count += rows_in(chunk)
        self._chunks = chain(read, self._chunks)
        if not count:
            raise ValueError("there are no rows to explain")
        whole = _together([chunk for chunk in read if rows_in(chunk)])
        return _cut(whole, 0, min(size, count))

    def identity(self) -> None:
        """They must be read to be told from others."""


def source_of(rows: Any, encoding: TableEncoding | None, with_y: bool) -> RowSource:
    """Where the rows come from.

    Args:
        rows: a path, a Dask dataframe, a frame, an array, a tensor, a pair of x and y, or an
            iterable of such chunks.
        encoding: of tables.
        with_y: whether y is read.

    Raises:
        TypeError: none of these, or tables without an encoding.
        ValueError, FileNotFoundError: files that cannot be read or lack a column.
    """
    is_path = isinstance(rows, str | Path)
    if encoding is None and (is_path or _is_dask(rows) or isinstance(rows, pd.DataFrame)):
        raise TypeError(
            "rows are of a table: give encoding=, as the explainer was fitted with, such as "
            "TableEncoding.load('encoding.json') or estimator.encoding_"
        )
    columns: list[str] = []
    if encoding is not None:
        columns = [*encoding.table_columns, *([encoding.target.name] if with_y else [])]
    if is_path:
        # Loaded with scikit-learn and pyarrow, for those whose rows are in files.
        from lexppl.data.parquet import ParquetTable  # noqa: PLC0415

        return ParquetSource(ParquetTable(rows, columns))
    if _is_dask(rows):
        return DaskSource(rows, columns)
    if isinstance(rows, pd.DataFrame | Tensor | np.ndarray) or _is_pair(rows):
        return GivenRows([rows], rows_in(rows))
    if isinstance(rows, Iterable) and not isinstance(rows, dict):
        return GivenRows(rows)
    raise TypeError(
        "rows must be a path of Parquet files, a Dask dataframe, a frame, an array or tensor, a "
        f"pair (x, y), or an iterable of chunks; it is {type(rows).__name__}"
    )


def encoded_piece(
    piece: Piece, encoding: TableEncoding | None, with_y: bool, like: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """x and y of a piece, where it is worked on.

    Args:
        piece: of a source.
        encoding: of tables, or None.
        with_y: whether y is read.
        like: a parameter of the model, for its type and device; None for torch's own.

    Raises:
        TypeError: a table without an encoding, or rows of another kind.
        ValueError: rows that the encoding refuses, no y.
    """
    if isinstance(piece, ParquetPiece):
        piece = piece.rows()
    elif hasattr(piece, "__dask_graph__"):
        piece = piece.compute(scheduler="synchronous")
    dtype = torch.get_default_dtype() if like is None else like.dtype
    if isinstance(piece, pd.DataFrame):
        if encoding is None:
            raise TypeError("rows are data frames: give encoding=, as the explainer was fitted to")
        frame = piece[[name for name in piece.columns if _is_read(name, encoding, with_y)]]
        x: Any = encoding.encode(frame, dtype)
        y: Any = None
        if with_y:
            if encoding.target.name not in piece:
                raise ValueError(
                    f"with_y=True reads the column {encoding.target.name!r}, and rows have none"
                )
            y = encoding.target.encode(piece[encoding.target.name], dtype)
    else:
        if encoding is not None:
            raise TypeError(
                f"encoding is of data frames, and rows are {type(piece).__name__}: leave it out "
                "where rows are encoded already"
            )
        x, y = piece if _is_pair(piece) else (piece, None)
        if (y is not None) != with_y:
            told = "pairs (x, y)" if y is not None else "x alone"
            raise ValueError(f"rows are {told} with with_y={with_y}; change one of the two")
    return _moved(x, like, dtype), None if y is None else _moved(y, like, dtype)


def _is_read(name: Any, encoding: TableEncoding, with_y: bool) -> bool:
    return not (str(name) == encoding.target.name and not with_y)


def _moved(values: Any, like: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Rows that come from no device stand where the model does."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"rows must be numbers; they are {array.dtype}")
    tensor = torch.as_tensor(np.ascontiguousarray(array))
    if tensor.is_floating_point():
        tensor = tensor.to(dtype)
    return tensor if like is None else tensor.to(like.device)


def _is_dask(rows: Any) -> bool:
    return hasattr(rows, "map_partitions") and hasattr(rows, "to_delayed")


def _is_pair(rows: Any) -> bool:
    return (
        isinstance(rows, tuple)
        and len(rows) == 2
        and all(isinstance(part, Tensor | np.ndarray) for part in rows)
    )


def rows_in(chunk: Any) -> int:
    """How many rows a chunk has.

    Raises:
        TypeError: what is no chunk of rows.
        ValueError: a pair of other lengths.
    """
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
