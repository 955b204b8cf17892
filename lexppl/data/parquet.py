"""Tables larger than memory in Parquet files: read in parts, and rows of them for `fit`."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pandas.api import types
from torch import Tensor

from lexppl.argument_checks import fraction, int_at_least, quoted
from lexppl.data.cells import numbers_of
from lexppl.data.encoding import TableEncoding

ENDINGS = (".parquet", ".pq")
AT_ONCE = 2**16  # Rows that are decoded at once
# Row groups that rows are taken from by turns, so that neighbours in a file are not all that a
# batch has.
OPEN_AT_ONCE = 8


class RowGroup(NamedTuple):
    """Rows that stand together in a file: its place there, and its first row's number in the
    table."""

    file: Path
    place: int
    start: int
    rows: int


class ParquetTable:
    """One table of a Parquet file or of all of a folder, its rows numbered from 0.

    Files are in the order of their names, numbers in them by value (`part.2` before `part.10`).

    Args:
        path: the file or the folder.
        columns: those to read; all where ``None``.

    Raises:
        FileNotFoundError: nothing there, or no Parquet file in the folder.
        ValueError: a file that cannot be read, or lacks a column; folders with a column in their
            names, such as `year=2026`; no rows.
    """

    def __init__(self, path: str | Path, columns: Sequence[str] | None = None) -> None:
        if isinstance(columns, str):
            raise ValueError(f"columns must be a list of names; it is {columns!r}")
        self.files = _files(Path(path).expanduser())
        self.row_groups: list[RowGroup] = []
        self._rows = 0
        for file in self.files:
            with _named(file):
                opened = pq.ParquetFile(file)
            names = opened.schema_arrow.names
            self.columns = list(columns) if columns is not None else getattr(self, "columns", names)
            lacking = [name for name in self.columns if name not in names]
            if lacking:
                raise ValueError(f"{file} lacks {quoted(lacking)}; it has {quoted(names, 20)}")
            for place in range(opened.num_row_groups):
                rows = opened.metadata.row_group(place).num_rows
                if rows:
                    self.row_groups.append(RowGroup(file, place, self._rows, rows))
                self._rows += rows
        if not self._rows:
            raise ValueError(f"{str(path)!r} has no rows")

    def __len__(self) -> int:
        """The number of rows."""
        return self._rows

    def read(self, start: int, stop: int) -> pd.DataFrame:
        """The rows with numbers from `start` to before `stop`."""
        parts = []
        for group in self.row_groups:
            low, high = max(start - group.start, 0), min(stop - group.start, group.rows)
            if low < high:
                with _named(group.file):
                    whole = pq.ParquetFile(group.file).read_row_group(group.place, self.columns)
                parts.append(whole.slice(low, high - low))
        # A column that is empty in one file may have another type there.
        return pa.concat_tables(parts, promote_options="permissive").to_pandas(ignore_metadata=True)

    def batches(self, group: RowGroup, rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of a row group, `rows` at a time."""
        with _named(group.file):
            opened = pq.ParquetFile(group.file)
            yield from opened.iter_batches(rows, row_groups=[group.place], columns=self.columns)

    def identified_by(self) -> tuple[list[tuple[str, int, int]], list[str]]:
        """The files with their sizes and times, and the columns: the table's identity."""
        about = [(file, file.stat()) for file in self.files]
        return [(str(f.resolve()), s.st_size, s.st_mtime_ns) for f, s in about], self.columns


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}")
    within = {file: file.relative_to(path) for file in path.rglob("*") if file.is_file()}
    names = {
        file: name
        for file, name in within.items()
        if file.suffix.lower() in ENDINGS and not any(part[0] in "._" for part in name.parts)
    }
    if not names:
        raise FileNotFoundError(f"{str(path)!r} has no Parquet file ({quoted(ENDINGS)})")
    columns = sorted({p for name in names.values() for p in name.parts[:-1] if "=" in p})
    if columns:
        raise ValueError(
            f"{str(path)!r} has folders that hold a column, {quoted(columns)}, which is not read: "
            "write the column into the files"
        )

    def by_value(file: Path) -> list[Any]:
        parts = re.split(r"(\d+)", names[file].as_posix())
        return [int(part) if place % 2 else part for place, part in enumerate(parts)]

    return sorted(names, key=by_value)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{str(file)!r} cannot be read as Parquet: {reason}") from error


class ParquetRows:
    """Rows of a Parquet file or folder to learn from, never in memory all at once.

    `fit(model, ParquetRows("rows", encoding), valid=ParquetRows("others", encoding))` reads the
    files once an epoch. Shuffled rows come from up to eight row groups by turns, chosen at random
    in each epoch, into a buffer, which is shuffled: rows of a file that is sorted by label mix as
    far as these reach. Write files in many row groups (`frame.to_parquet(…,
    row_group_size=50_000)`), or shuffle them once. The order is drawn from torch's random state.

    Args:
        path: the file or folder (:class:`ParquetTable`).
        encoding: of a part of the rows that fits into memory, as `read_table(…).encoding`: it
            refuses levels that are not in it, unless it pools rare ones. None for columns of
            numbers, which are taken as they are.
        columns: those numbers' columns, without an encoding; all but the target where ``None``.
        target: y's column, without an encoding; ``None`` for x alone.
        buffer: rows that are shuffled together.
        dtype: of x, and of a response; torch's default where ``None``.

    Raises:
        FileNotFoundError, ValueError: files that are not there, cannot be read or lack a column;
            columns or a target beside an encoding.

    Example:
        >>> import tempfile
        >>> frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": [0, 1, 1]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     frame.to_parquet(f"{folder}/rows.parquet")
        ...     rows = ParquetRows(folder, target="y")
        ...     [y.tolist() for x, y in rows.batches(2, shuffle=False)]
        [[0, 1], [1]]
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
        self.target = target if encoding is None else encoding.target.name
        if encoding is not None:
            columns = encoding.table_columns
        named = ParquetTable(path).columns if columns is None else columns
        self.columns = tuple(name for name in named if name != self.target)
        labels = [] if self.target is None else [self.target]
        self.table = ParquetTable(path, [*self.columns, *labels])
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
        """A random share of the rows apart, by their places in row groups and the seed: `(others,
        share)`.

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
            part._rows = sum(int(part._mine(group).sum()) for group in self.table.row_groups)
            if not part._rows:
                raise ValueError(f"share={share} of {len(self)} rows leaves a part without rows")
            parts.append(part)
        return parts[0], parts[1]

    def identified_by(self) -> dict[str, Any]:
        """The identity of the rows: files, columns, part, and how they are mixed."""
        return {
            "files": self.table.identified_by(),
            "encoding": None if self.encoding is None else self.encoding.to_json(),
            "columns": [*self.columns, self.target],
            "part": self._share,
            "buffer": self.buffer,
            "dtype": str(self.dtype),
        }

    def batches(self, size: int, shuffle: bool) -> Iterator[tuple[Tensor, ...]]:
        """Batches `(x, y)` of `size` rows, the last may be smaller; `shuffle` by torch's random
        state.

        Raises:
            ValueError: rows that the encoding refuses, or that are not finite numbers.
        """
        parts: list[tuple[Tensor, ...]] = []
        full = max(size, self.buffer) if shuffle else size
        for frame in self._frames(shuffle):
            parts.append(self._encoded(frame))
            if sum(len(part[0]) for part in parts) >= full:
                *whole, rest = _cut(parts, size, shuffle)
                yield from whole
                parts = [rest]
        if parts:
            yield from _cut(parts, size, shuffle)

    def _frames(self, shuffle: bool) -> Iterator[pd.DataFrame]:
        """All rows, some at a time: of row groups in their order, or of several by turns."""
        rows = max(1, min(self.buffer // OPEN_AT_ONCE, AT_ONCE))
        groups = self.table.row_groups
        if shuffle:
            groups = [groups[place] for place in torch.randperm(len(groups)).tolist()]
        waiting = (self._of_group(group, rows) for group in groups)
        opened = list(islice(waiting, OPEN_AT_ONCE if shuffle else 1))
        while opened:
            turn = int(torch.randint(len(opened), ())) if shuffle else 0
            if (frame := next(opened[turn], None)) is not None:
                yield frame
            else:
                opened[turn : turn + 1] = islice(waiting, 1)

    def _of_group(self, group: RowGroup, rows: int) -> Iterator[pd.DataFrame]:
        mine, first = self._mine(group), 0
        for batch in self.table.batches(group, rows):
            part = mine[first : first + len(batch)]
            first += len(batch)
            if part.any():
                yield batch.to_pandas()[part]

    def _mine(self, group: RowGroup) -> np.ndarray:
        """Which rows of a row group are of this part."""
        if self._share is None:
            return np.ones(group.rows, dtype=bool)
        share, seed, inside = self._share
        return (np.random.default_rng([seed, group.start]).random(group.rows) < share) == inside

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
        labels = types.is_integer_dtype(cells) or types.is_bool_dtype(cells)
        return x, y.long() if labels else y.to(self.dtype)


def _cut(rows: Sequence[tuple[Tensor, ...]], size: int, shuffle: bool) -> list[tuple[Tensor, ...]]:
    """Batches of what is held."""
    columns = tuple(torch.cat(parts) for parts in zip(*rows, strict=True))
    if shuffle:
        order = torch.randperm(len(columns[0]))
        columns = tuple(column[order] for column in columns)
    return list(zip(*(column.split(size) for column in columns), strict=True))
