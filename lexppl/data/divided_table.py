"""A table divided into rows to fit on, to choose the best epoch on, and to judge."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from lexppl.argument_checks import quoted
from lexppl.choices.data_sets import synthetic_names
from lexppl.choices.files import ENCODING
from lexppl.data.cells import date_order, days_of, holds_dates
from lexppl.data.dataset import Dataset
from lexppl.data.encoding import TargetColumn
from lexppl.data.files import check_columns, named_cells
from lexppl.data.named_sets import load, shipped_frame
from lexppl.data.problems import refuse, table_problems
from lexppl.data.stratification import (
    fold_of_groups,
    fold_of_rows,
    fold_of_times,
    held_out_parts,
    part_counts,
    some_of_each,
)
from lexppl.data.tables import TableReading, dataset_from_frame
from lexppl.summary import Summarised, Summary, counted, short, some_of

MOST_ROWS_APART = 10_000
"""Most rows to choose the best epoch on, and most held-out rows: figures of as many are known to
within a hundredth of the rows' spread, and more take longer than the fit."""


@dataclass(frozen=True, eq=False, repr=False)
class DividedTable(Summarised):
    """A data set, its three parts, and the table that it was made from.

    Args:
        data: all rows, by the statistics of those to fit on; a response is standardised.
        table: the same rows as they were, without the target, with the columns that are left out.
        train_rows: places of the rows to fit on, from 0, after rows were dropped.
        valid_rows: of those to choose the best epoch on, or ``None``.
        test_rows: of those to judge; of folds all rows, which are those to fit on.
        fold: which fold each row is in, ``(N,)``, where the rows are in folds.
        unit: number of the group of each row, ``(N,)``, where rows of a group stay together.
        decisions: what was decided for the table, in words (`with_decisions`).
    """

    data: Dataset
    table: pd.DataFrame
    train_rows: NDArray[np.int64]
    valid_rows: NDArray[np.int64] | None
    test_rows: NDArray[np.int64]
    fold: NDArray[np.int64] | None = None
    unit: NDArray[np.int64] | None = None
    decisions: tuple[str, ...] = ()

    def summarised(self) -> Summary:
        """What is printed of a divided table: its data set, parts or folds, and columns."""
        of_data = self.data.summarised()
        valid = 0 if self.valid_rows is None else len(self.valid_rows)
        parts = part_counts(len(self.train_rows), valid, len(self.test_rows))
        if self.folds is not None:
            parts = f"{self.folds} folds, each judged by fits to the others"
        names = self.table.columns
        columns = f"{counted(len(names), 'column')}: {some_of(map(short, names))}"
        heading = of_data.heading.replace("Dataset", "DividedTable", 1)
        return Summary(heading, {"parts": parts, "table": columns, **of_data.lines})

    @cached_property
    def train(self) -> Dataset:
        """The rows to fit on."""
        return self.data.subset(torch.from_numpy(self.train_rows))

    @cached_property
    def valid(self) -> Dataset | None:
        """The rows to choose the best epoch on, or ``None``."""
        rows = self.valid_rows
        return None if rows is None else self.data.subset(torch.from_numpy(rows))

    @cached_property
    def test(self) -> Dataset:
        """The held-out rows, which judge the fit."""
        return self.data.subset(torch.from_numpy(self.test_rows))

    @property
    def folds(self) -> int | None:
        """How many folds the rows are in; ``None`` where rows are held out."""
        return None if self.fold is None else int(self.fold.max()) + 1

    @property
    def target(self) -> TargetColumn:
        """The column to predict; a set without an encoding has it in its own units."""
        encoding = self.data.encoding
        return TargetColumn(self.data.target_name, None) if encoding is None else encoding.target

    @property
    def target_scale(self) -> float:
        """What a unit of a standardised response is in the table's own units, or, of a heavy tail,
        on the curve by which it enters."""
        return self.target.scale

    def write_reading(self, folder: Path) -> None:
        """Write how its columns became features, where they did."""
        if self.data.encoding is not None:
            self.data.encoding.save(folder / ENCODING)

    def to(self, device: torch.device | str) -> DividedTable:
        """The same table with its data on ``device``."""
        return replace(self, data=self.data.to(device))


def divided_frame(
    frame: pd.DataFrame,
    target: str | None = None,
    *,
    valid_share: float | None = None,
    test_share: float | None = None,
    folds: int | None = None,
    group: str | None = None,
    time: str | None = None,
    seed: int,
    **reading: Any,
) -> DividedTable:
    """Divide a table at random, and encode it by the statistics of the rows to fit on.

    The rows to judge are held out first; the others are divided as the estimators of
    :mod:`lexppl.tabular` divide theirs. Classes keep their proportions.

    Args:
        frame: the table, with the target.
        target: the column to predict; the last one where ``None``.
        valid_share: share of all rows on which the best epoch is chosen, or ``None``.
        test_share: share of all rows to judge; of folds ``None``.
        folds: R, to fit on all rows and judge each by the fits that leave its fold out, at most one
            a row; ``None`` to hold rows out.
        group: of folds, a column by whose values rows stay together in one fold; it is no feature.
        time: of folds, a column of numbers or dates in whose order the folds follow each other; it
            is no feature.
        seed: of the division.
        reading: further arguments of :func:`lexppl.data.dataset_from_frame`, but for ``encoding``,
            ``standardise_target`` and ``statistics_rows``.

    Raises:
        ValueError: as :func:`lexppl.data.dataset_from_frame`; no rows to fit on or to judge, a
            class that has none to fit on; a group or a time without folds, or both; a column that
            the table does not have, with missing cells, of fewer groups than folds, or of no times.

    Example:
        >>> frame = pd.DataFrame({"dose": [1.0, 2.0, 4.0, 5.0, 9.0] * 4, "y": [0, 1, 1, 0, 1] * 4})
        >>> parts = divided_frame(frame, valid_share=0.2, test_share=0.2, seed=0)
        >>> len(parts.train), len(parts.valid), len(parts.test)
        (12, 4, 4)
    """
    column = group if time is None else time
    if column is not None:
        if folds is None or None not in (group, time):
            raise ValueError("rows stay together, or in time order, in folds: give one of the two")
        if column not in map(str, frame.columns):
            raise ValueError(f"there is no column {column!r}; columns: {quoted(frame.columns)}")
        reading["drop"] = [*reading.get("drop", ()), column]
    cells = named_cells(frame).reset_index(drop=True)
    check_columns(list(cells.columns))
    known = {f.name for f in fields(TableReading)}
    how = TableReading(**{name: value for name, value in reading.items() if name in known})
    used = how.read(cells, target)
    refuse(table_problems(used, how))
    labels = used.iloc[:, -1]
    column_of_target = TargetColumn.fit(labels, how.task)
    names = column_of_target.class_names
    strata = np.zeros(len(labels), np.int64)
    if names is not None:
        strata = column_of_target.encode(labels).numpy()
    rows = _divided(strata, names, valid_share, test_share, folds, seed)
    table = cells.loc[used.index].drop(columns=str(labels.name)).reset_index(drop=True)
    unit = None
    if column is not None and rows[3] is not None:
        values, count = table[column], int(rows[3].max()) + 1
        if gaps := int(values.isna().sum()):
            raise ValueError(f"column {column!r} has {gaps} missing cells: fill or drop them")
        if time is not None:
            fold = fold_of_times(_times_of(values, how.dates), count)
        else:
            unit = pd.factorize(values)[0].astype(np.int64)
            fold = fold_of_groups(strata, unit, count, seed)
        single = [part for part in range(count) if len(np.unique(strata[fold == part])) < 2]
        if single and names is not None:
            hint = "has one class at most: give fewer replicates"
            raise ValueError(f"fold {single[0] + 1} of {count} by column {column!r} {hint}")
        rows = (*rows[:3], fold)
    data = dataset_from_frame(
        frame, target, standardise_target=names is None, statistics_rows=rows[0], **reading
    )
    return DividedTable(data, table, *rows, unit)


def _times_of(cells: pd.Series, order: Any) -> NDArray[np.float64]:
    """Numbers in the order of a column of numbers, dates or times; refuses another column."""
    if holds_dates(cells):
        return days_of(cells, date_order(cells, order))
    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all():
        wrong = cells[~np.isfinite(numbers)].iloc[0]
        raise ValueError(f"column {cells.name!r} is no time: it has the cell {wrong!r}")
    return numbers


def divided_set(
    name: str,
    *,
    valid_share: float | None = None,
    test_share: float | None = None,
    folds: int | None = None,
    seed: int,
) -> DividedTable:
    """Divide a set of `shipped_names`; a synthetic one is not standardised.

    Args:
        valid_share, test_share, folds, seed: as in :func:`divided_frame`.

    Raises:
        ValueError: as :func:`divided_frame`; an unknown name.

    Example:
        >>> parts = divided_set("wine", valid_share=0.2, test_share=0.2, seed=0)
        >>> len(parts.train), len(parts.valid), len(parts.test)
        (107, 35, 36)
    """
    parts: Any = {"valid_share": valid_share, "test_share": test_share, "folds": folds}
    if name not in synthetic_names():
        options: Any = {"seed": seed, "drop_constant": True, "name": name}
        return divided_frame(shipped_frame(name), **parts, **options)
    data, exact = load(name), load(name, dtype=torch.float64)
    table = pd.DataFrame(exact.x.numpy(), columns=list(data.feature_names))
    rows = _divided(data.strata, data.class_names, seed=seed, **parts)
    return DividedTable(data, table, *rows)


Places = tuple[
    NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.int64], NDArray[np.int64] | None
]


def _divided(
    strata: NDArray[np.int64],
    names: tuple[str, ...] | None,
    valid_share: float | None,
    test_share: float | None,
    folds: int | None,
    seed: int,
) -> Places:
    """The rows to fit on, to choose the best epoch on and to judge, and the fold of each."""
    count = len(strata)
    if folds is not None:
        folds = min(folds, count)
        for name, rows in zip(names or (), np.bincount(strata).tolist(), strict=names is not None):
            if rows < folds:
                raise ValueError(
                    f"class {name!r} has {counted(rows, 'row')}, fewer than the {folds} folds (one "
                    "for each replicate): give fewer replicates, leave the class out, or give "
                    "task='regression' if classes are numbers"
                )
        if folds < 2:
            raise ValueError(f"folds need two rows or more; there are {count}")
        every = np.random.default_rng(seed).permutation(count)
        return every, None, every, fold_of_rows(strata, folds, seed)
    train, valid, test = held_out_parts(strata, valid_share, test_share or 0.0, seed)
    unseen = np.setdiff1d(strata, strata[train])
    if len(unseen) and names is not None:
        raise ValueError(
            f"class {names[unseen[0]]!r} has no row to fit on; give a lower "
            "valid_share and test_share"
        )
    return train, valid, test, None


def capped(source: DividedTable, seed: int, most: int = MOST_ROWS_APART) -> DividedTable:
    """The table with at most so many validation and held-out rows, at random."""
    y = source.data.y
    labels = y.cpu().numpy() if source.data.task == "classification" else np.zeros(len(y))
    valid = source.valid_rows
    if valid is not None:
        valid = _some(valid, labels, most, seed)
    return replace(source, valid_rows=valid, test_rows=_some(source.test_rows, labels, most, seed))


def _some(rows: NDArray[np.int64], labels: NDArray[Any], most: int, seed: int) -> NDArray[np.int64]:
    """At most so many rows, with each label at least once."""
    if len(rows) <= most:
        return rows
    generator = np.random.default_rng(seed)
    return generator.permutation(rows[some_of_each(labels[rows], most, generator)])
