"""The rows that a command is about: read, checked, and put into parts."""

import argparse
import difflib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.cli.errors import UsageError
from lexppl.data import (
    CategoricalColumn,
    Dataset,
    TableEncoding,
    dataset_from_frame,
    load,
    read_frame,
    shipped_names,
    synthetic_names,
)
from lexppl.data.listing import listed
from lexppl.data.stratification import stratified_parts

TABLE_OPTIONS = (
    "target",
    "task",
    "categorical",
    "missing",
    "drop_missing",
    "drop_constant",
    "separator",
    "column_names",
)


@dataclass(frozen=True, eq=False)
class LoadedTable:
    """A data set and the table that it was made from.

    Args:
        data: the rows as the explainer sees them; a response is standardised.
        table: the same rows as they were, without the target, as a black box sees them.
        given: how the data set was named.
    """

    data: Dataset
    table: pd.DataFrame
    given: str

    @property
    def target_scale(self) -> float:
        """What a unit of a standardised response is in the table's own units."""
        encoding = self.data.encoding
        return 1.0 if encoding is None else encoding.target.scale

    @property
    def target_mean(self) -> float:
        """What a standardised response of 0 is in the table's own units."""
        encoding = self.data.encoding
        return 0.0 if encoding is None else encoding.target.mean


@dataclass(frozen=True, eq=False)
class Splits:
    """Rows to fit on, to choose the best epoch on, and to judge; with their numbers in the table
    (from 0, after rows with missing values were dropped)."""

    train: Dataset
    valid: Dataset
    test: Dataset
    train_rows: Tensor
    valid_rows: Tensor
    test_rows: Tensor


def read_source(options: argparse.Namespace, device: torch.device) -> LoadedTable:
    """Read what DATA names: a data set that comes along, or a table in a file.

    Raises:
        UsageError: neither; or options for tables with a set that comes along.
        ValueError, OSError: what :func:`lexppl.data.read_table` refuses.
    """
    name = options.data
    if name in shipped_names():
        _refuse_table_options(options)
        data = load(name)
        if data.task == "regression":
            data = load(name, standardise_target=True)
        return LoadedTable(data.to(device), _table_of(name, data.encoding), name)
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError(_unknown(name, path))
    frame = read_frame(
        path,
        missing=options.missing,
        separator=_separator(options.separator),
        column_names=options.column_names,
    )
    settings = {
        "task": options.task,
        "categorical": options.categorical,
        "drop_missing": options.drop_missing,
        "drop_constant": options.drop_constant,
        "name": _stem(path),
    }
    data = dataset_from_frame(frame, options.target, **settings)
    if data.task == "regression":
        data = dataset_from_frame(frame, options.target, standardise_target=True, **settings)
    cells = frame.set_axis([str(column) for column in frame.columns], axis=1)
    complete = cells.dropna() if options.drop_missing else cells
    table = complete.drop(columns=data.target_name).reset_index(drop=True)
    return LoadedTable(data.to(device), table, name)


def divide(data: Dataset, valid: float, test: float, seed: int) -> Splits:
    """Divide rows at random into those to fit on, to choose the best epoch on, and to judge.

    The same parts as :meth:`lexppl.data.Dataset.split` makes, with the numbers of their rows.

    Raises:
        ValueError: a part without rows, or a class that only other parts than the first have.

    Example:
        >>> from lexppl.data import load
        >>> parts = divide(load("wine"), valid=0.2, test=0.2, seed=0)
        >>> len(parts.train), len(parts.valid), len(parts.test)
        (107, 36, 35)
    """
    labels = data.y.cpu().numpy() if data.class_names is not None else np.zeros(len(data), int)
    shares = (1.0 - valid - test, valid, test)
    places = stratified_parts(labels, shares, seed)
    sizes = [len(part) for part in places]
    if min(sizes) == 0:
        raise ValueError(
            f"each part needs a row; {len(data)} rows give {sizes[0]} to fit on, {sizes[1]} to "
            f"choose the best epoch on and {sizes[2]} to judge: give more rows, or other "
            "--valid-share and --test-share"
        )
    train, valid_rows, test_rows = (torch.from_numpy(part) for part in places)
    if data.class_names is not None:
        unseen = sorted(set(labels.tolist()) - set(labels[places[0]].tolist()))
        if unseen:
            raise ValueError(
                f"class {data.class_names[unseen[0]]!r} has no row to fit on; give a lower "
                "--valid-share and --test-share"
            )
    return Splits(
        data.subset(train),
        data.subset(valid_rows),
        data.subset(test_rows),
        train,
        valid_rows,
        test_rows,
    )


def _refuse_table_options(options: argparse.Namespace) -> None:
    given = ["--" + name.replace("_", "-") for name in TABLE_OPTIONS if getattr(options, name)]
    if given:
        raise UsageError(
            f"{options.data} is a data set that comes along, and {given[0]} is for tables in "
            f"files; for a file of that name give ./{options.data}"
        )


def _unknown(name: str, path: Path) -> str:
    close = difflib.get_close_matches(name, shipped_names(), n=1, cutoff=0.6)
    if path.suffix or len(path.parts) > 1:
        return f"there is no file {name!r}"
    if close:
        return f"there is no data set or file {name!r}; did you mean {close[0]!r}?"
    real = [known for known in shipped_names() if known not in synthetic_names()]
    return (
        f"there is no data set or file {name!r}; the sets that come along are {listed(real)} and "
        f"{listed(synthetic_names(), most=9)}"
    )


def _separator(given: str | None) -> str | None:
    return {"\\t": "\t", "tab": "\t", "space": r"\s+"}.get(given, given) if given else given


def _stem(path: Path) -> str:
    stem = path.stem
    return Path(stem).stem if path.suffix in (".gz", ".bz2", ".xz", ".zst") else stem


def _table_of(name: str, encoding: TableEncoding | None) -> pd.DataFrame:
    """The columns of a set that comes along in their own units."""
    exact = load(name, dtype=torch.float64)
    values = exact.x.numpy()
    if encoding is None:
        return pd.DataFrame(values, columns=list(exact.feature_names))
    columns = {}
    for place, column in enumerate(encoding.columns):
        if isinstance(column, CategoricalColumn) or math.isnan(column.scale):
            raise ValueError(f"column {column.name!r} of {name} is not one of numbers")
        columns[column.name] = values[:, place] * column.scale + column.mean
    return pd.DataFrame(columns)
