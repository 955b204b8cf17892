"""A Parquet file, or a folder of them, as one table of numbered rows that is read in parts."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lexppl.data.listing import listed

ENDINGS = (".parquet", ".pq")
AT_ONCE = 2**16
"""Rows that are decoded at once."""


@dataclass(frozen=True)
class RowGroup:
    """Some rows that stand together in a file.

    Args:
        file: where.
        place: which of the file's.
        start: the number of the first row in the table, from 0.
        rows: how many.
    """

    file: Path
    place: int
    start: int
    rows: int


class ParquetTable:
    """One table of a Parquet file or of all of a folder, its rows numbered from 0.

    Files are in the order of their names, numbers in them by value (`part.2` before `part.10`),
    those in folders below among them. Only what is asked for is read.

    Args:
        path: the file or the folder.
        columns: those to read; all where ``None``.

    Raises:
        FileNotFoundError: nothing there, or no Parquet file in the folder.
        ValueError: a file that cannot be read, or lacks a column; folders whose names tell a
            column; no rows.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for part in range(2):
        ...         pd.DataFrame({"a": [2 * part, 2 * part + 1]}).to_parquet(
        ...             f"{folder}/part.{part}.parquet")
        ...     table = ParquetTable(folder)
        ...     len(table), table.read(1, 3)["a"].tolist()
        (4, [1, 2])
    """

    def __init__(self, path: str | Path, columns: Sequence[str] | None = None) -> None:
        self.path = Path(path).expanduser()
        if isinstance(columns, str):
            raise ValueError(f"columns must be a list of names; it is {columns!r}")
        self.files = _files(self.path)
        self.row_groups: list[RowGroup] = []
        start = 0
        for file in self.files:
            opened = _opened(file)
            names = opened.schema_arrow.names
            self.columns = list(columns) if columns is not None else getattr(self, "columns", names)
            lacking = [name for name in self.columns if name not in names]
            if lacking:
                raise ValueError(
                    f"{file} lacks {listed(lacking)}; its columns are {listed(names, 20)}"
                )
            for place in range(opened.metadata.num_row_groups):
                rows = opened.metadata.row_group(place).num_rows
                if rows:
                    self.row_groups.append(RowGroup(file, place, start, rows))
                start += rows
        self._rows = start
        if not start:
            raise ValueError(f"{self.path} has no rows")

    def __len__(self) -> int:
        """The number of rows."""
        return self._rows

    def read(self, start: int, stop: int) -> pd.DataFrame:
        """Some rows, by their numbers.

        Args:
            start: the first.
            stop: the first that is not read.

        Raises:
            ValueError: a file that cannot be read.
        """
        first = bisect_right([group.start for group in self.row_groups], start) - 1
        parts: list[pa.Table] = []
        for group in self.row_groups[max(first, 0) :]:
            if group.start >= stop:
                break
            parts += _read(group, self.columns, start - group.start, stop - group.start)
        # Tables of one schema: a column that is empty in one file may have another type there.
        joined = pa.concat_tables(parts, promote_options="permissive")
        return joined.to_pandas(ignore_metadata=True)

    def frames(self, place: int, rows: int) -> Iterator[pd.DataFrame]:
        """The rows of one of the row groups, some at a time.

        Args:
            place: which, from 0.
            rows: how many at a time.

        Raises:
            ValueError: a file that cannot be read.
        """
        group = self.row_groups[place]
        for batch in _batches(group, self.columns, rows):
            yield batch.to_pandas()

    def identified_by(self) -> Any:
        """The files with their sizes and times, and the columns."""
        about = [(file, file.stat()) for file in self.files]
        return [(str(f.resolve()), s.st_size, s.st_mtime_ns) for f, s in about], self.columns


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}")
    found = [
        file
        for file in path.rglob("*")
        if file.suffix.lower() in ENDINGS
        and file.is_file()
        and not any(part[0] in "._" for part in file.relative_to(path).parts)
    ]
    if not found:
        raise FileNotFoundError(f"{str(path)!r} has no Parquet file ({listed(ENDINGS)})")
    told = sorted({p for file in found for p in file.relative_to(path).parts[:-1] if "=" in p})
    if told:
        raise ValueError(
            f"{str(path)!r} has folders that tell a column, {listed(told)}, which is not read: "
            "write the column into the files"
        )
    return sorted(found, key=lambda file: _by_value(file.relative_to(path).as_posix()))


def _by_value(name: str) -> list[tuple[int, int, str]]:
    """Numbers in a name by value, and its words by letters."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)
    ]


def _opened(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{str(file)!r} cannot be read as Parquet: {reason}") from error


def _read(group: RowGroup, columns: Sequence[str], start: int, stop: int) -> list[pa.Table]:
    """The rows of a group from `start` to `stop`, which may be beyond its ends."""
    parts, first = [], 0
    for batch in _batches(group, columns, AT_ONCE):
        low, high = max(start - first, 0), min(stop - first, len(batch))
        if low < high:
            parts.append(pa.Table.from_batches([batch.slice(low, high - low)]))
        first += len(batch)
        if first >= stop:
            break
    return parts


def _batches(group: RowGroup, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    opened = _opened(group.file)
    try:
        yield from opened.iter_batches(rows, row_groups=[group.place], columns=list(columns))
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{str(group.file)!r} cannot be read as Parquet: {reason}") from error
