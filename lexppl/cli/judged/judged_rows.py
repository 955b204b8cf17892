"""What is asked of rows to judge an explainer of them, be they of tables, images or texts."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.data import DividedTable
from lexppl.evaluation.folds import Folds


class JudgedPart(Protocol):
    """Rows `(N, *event)` and their labels or responses `(N,)`."""

    @property
    def x(self) -> Tensor: ...

    @property
    def y(self) -> Tensor: ...


class Described(Protocol):
    """What the rows are of."""

    @property
    def task(self) -> str: ...

    @property
    def class_names(self) -> Sequence[str] | None: ...

    @property
    def n_entries(self) -> int: ...


class JudgedRows(Protocol):
    """Rows to fit on and rows that are held out."""

    @property
    def data(self) -> Described: ...

    @property
    def train(self) -> JudgedPart: ...

    @property
    def test(self) -> JudgedPart: ...

    @property
    def target_scale(self) -> float: ...


def folds_at(source: DividedTable, rows: NDArray[np.int64]) -> Folds | None:
    """The folds of some rows of a table, by their places; None where rows are held out from all
    replicates."""
    if source.fold is None or source.folds is None:
        return None
    return Folds(torch.from_numpy(source.fold[rows]).to(source.data.x.device), source.folds)


def test_folds(source: JudgedRows) -> Folds | None:
    """The folds of the rows that are judged, where they are in folds."""
    if not isinstance(source, DividedTable):
        return None
    return folds_at(source, source.test_rows)
