"""Rows of Parquet files as `fit` takes them, batch by batch, in an order that is drawn anew."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import fraction, int_at_least
from lexppl.data.cells import numbers_of
from lexppl.data.encoding import TableEncoding
from lexppl.data.parquet.parquet_table import ParquetTable

OPEN_AT_ONCE = 8
"""Row groups that rows are taken from by turns, so that neighbours in a file are not all that a
batch has."""

SHARED_OUT = 2**16
"""Rows that are shared out between two parts at once, by a seed of their own."""


class ParquetRows:
    """Rows of a Parquet file or folder to learn from, never in memory all at once.

    `fit(model, ParquetRows("rows", encoding), valid=ParquetRows("others", encoding))` reads the
    files once an epoch. Shuffled rows come from up to eight row groups by turns, chosen at random
    anew in each epoch, into a buffer, which is shuffled and given away in batches: rows of a file
    that is sorted by label mix as far as the buffer and the eight row groups reach. Write files in
    many row groups (`frame.to_parquet(…, row_group_size=50_000)`), or shuffle them once. The order
    is drawn from torch's random state, which in a fit is that of its `seed`.

    Args:
        path: the file or folder (:class:`ParquetTable`).
        encoding: of a part of the rows that fits into memory, as `read_table(…).encoding` of one
            of the files: it standardises by that part and refuses levels that are not in it, unless
            it pools rare ones. None for columns of numbers, which are taken as they are.
        columns: those numbers' columns, without an encoding; all but the target where ``None``.
        target: y's column, without an encoding; ``None`` for x alone.
        buffer: rows that are shuffled together.
        dtype: of x, and of a response; torch's default where ``None``. A fit converts them to its
            model's.

    Raises:
        FileNotFoundError, ValueError: files that are not there, cannot be read or lack a column;
            columns or a target beside an encoding.

    Example:
        >>> import tempfile
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> drawn = np.random.default_rng(0)
        >>> frame = pd.DataFrame(drawn.normal(size=(300, 3)), columns=["a", "b", "c"])
        >>> frame["y"] = (frame["a"] > 0).astype(int)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     frame.to_parquet(f"{folder}/rows.parquet", row_group_size=100)
        ...     train, valid = ParquetRows(folder, target="y").split(0.2, seed=0)
        ...     small = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
        ...     result = fit(small, train, valid=valid, folds=1, epochs=2, progress=False)
        ...     len(train) + len(valid), result.feature_names
        (300, ('a', 'b', 'c'))
    """

    def __init__(
        self,
        path: str | Path,
        encoding: TableEncoding | None = None,
        *,
        columns: Sequence[str] | None = None,
        target: str | None = None,
        buffer: int = 100_000,
        dtype: torch.dtype | None = None,
    ) -> None:
        if encoding is not None and (columns is not None or target is not None):
            raise ValueError("an encoding has columns and a target of its own; leave them out")
        self.buffer = int_at_least("buffer", buffer)
        self.encoding = encoding
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        if encoding is not None:
            self.target: str | None = encoding.target.name
            self.columns = encoding.table_columns
        else:
            self.target = target
            named = ParquetTable(path).columns if columns is None else columns
            self.columns = tuple(name for name in named if name != target)
        own = [] if self.target is None else [self.target]
        self.table = ParquetTable(path, [*self.columns, *own])
        self._share: tuple[float, int, bool] | None = None
        self._rows = len(self.table)

    def __len__(self) -> int:
        """N, the number of rows."""
        return self._rows

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the D features."""
        return self.columns if self.encoding is None else self.encoding.feature_names

    @property
    def entry_names(self) -> tuple[str, ...]:
        """Names of the G mask entries, one a column."""
        return self.columns if self.encoding is None else self.encoding.entry_names

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the labels, where an encoding has them."""
        return None if self.encoding is None else self.encoding.target.class_names

    def split(self, share: float, *, seed: int) -> tuple[ParquetRows, ParquetRows]:
        """A random share of the rows apart: `(others, share)`. Which rows those are, the seed and
        their numbers say.

        Args:
            share: of the rows, which it is but for chance.
            seed: of the division.

        Raises:
            ValueError: no share in (0, 1), rows that are a part already, a part without rows.
        """
        share = fraction("share", share, of="the rows")
        int_at_least("seed", seed, 0)
        if self._share is not None:
            raise ValueError("these rows are a part of others; split those")
        parts = []
        for inside in (False, True):
            part = copy.copy(self)
            part._share = (share, seed, inside)
            part._rows = sum(
                int(part._mine(start, min(start + SHARED_OUT, len(self))).sum())
                for start in range(0, len(self), SHARED_OUT)
            )
            if not part._rows:
                raise ValueError(f"share={share} of {len(self)} rows leaves a part without rows")
            parts.append(part)
        return parts[0], parts[1]

    def identified_by(self) -> dict[str, Any]:
        """What makes these rows another source's: files, columns, part, and how they are mixed."""
        return {
            "files": self.table.identified_by(),
            "encoding": None if self.encoding is None else self.encoding.to_json(),
            "columns": [*self.columns, self.target],
            "part": self._share,
            "buffer": self.buffer,
            "dtype": str(self.dtype),
        }

    def batches(self, size: int, shuffle: bool) -> Iterator[tuple[Tensor, ...]]:
        """Batches `(x, y)` of `size` rows; the last may be smaller, and no row is dropped.

        Args:
            size: B.
            shuffle: whether in an order drawn from torch's random state, else in the files' own.

        Raises:
            ValueError: rows that the encoding refuses, or that are not finite numbers.
        """
        held: list[tuple[Tensor, ...]] = []
        count = 0
        full = max(size, self.buffer if shuffle else size)
        for frame in self._frames(shuffle):
            held.append(self._encoded(frame))
            count += len(frame)
            if count < full:
                continue
            *whole, rest = self._cut(held, size, shuffle)
            yield from whole
            held, count = [rest], len(rest[0])
            if count == size:
                yield rest
                held, count = [], 0
        if count:
            yield from self._cut(held, size, shuffle)

    def _cut(
        self, held: Sequence[tuple[Tensor, ...]], size: int, shuffle: bool
    ) -> list[tuple[Tensor, ...]]:
        """Batches of what is held."""
        columns = tuple(torch.cat(parts) for parts in zip(*held, strict=True))
        if shuffle:
            order = torch.randperm(len(columns[0]))
            columns = tuple(column[order] for column in columns)
        return list(zip(*(column.split(size) for column in columns), strict=True))

    def _frames(self, shuffle: bool) -> Iterator[pd.DataFrame]:
        """All rows, some at a time."""
        rows = max(1, min(self.buffer // OPEN_AT_ONCE, 2**16))
        groups = len(self.table.row_groups)
        if not shuffle:
            for place in range(groups):
                yield from self._of_group(place, rows)
            return
        waiting = iter(torch.randperm(groups).tolist())
        opened = [self._of_group(place, rows) for place in islice(waiting, OPEN_AT_ONCE)]
        while opened:
            turn = int(torch.randint(len(opened), ()))
            frame = next(opened[turn], None)
            if frame is not None:
                yield frame
                continue
            following = next(waiting, None)
            if following is None:
                opened.pop(turn)
            else:
                opened[turn] = self._of_group(following, rows)

    def _of_group(self, place: int, rows: int) -> Iterator[pd.DataFrame]:
        start = self.table.row_groups[place].start
        for frame in self.table.frames(place, rows):
            mine = self._mine(start, start + len(frame))
            start += len(frame)
            if mine.any():
                yield frame if mine.all() else frame[mine]

    def _mine(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which rows of a range are of this part."""
        if self._share is None:
            return np.ones(stop - start, dtype=bool)
        share, seed, inside = self._share
        first = start // SHARED_OUT
        drawn = [
            np.random.default_rng([seed, block]).random(SHARED_OUT) < share
            for block in range(first, (stop - 1) // SHARED_OUT + 1)
        ]
        apart = np.concatenate(drawn)[start - first * SHARED_OUT : stop - first * SHARED_OUT]
        return apart if inside else ~apart

    def _encoded(self, frame: pd.DataFrame) -> tuple[Tensor, ...]:
        if self.encoding is not None:
            y = self.encoding.target.encode(frame[self.encoding.target.name], self.dtype)
            return self.encoding.encode(frame, self.dtype), y
        values = np.stack([numbers_of(frame[name]) for name in self.columns], axis=1)
        x = torch.from_numpy(values).to(self.dtype)
        if self.target is None:
            return (x,)
        cells = frame[self.target]
        y = torch.from_numpy(numbers_of(cells))
        kinds = pd.api.types
        labels = kinds.is_integer_dtype(cells) or kinds.is_bool_dtype(cells)
        return x, y.long() if labels else y.to(self.dtype)
