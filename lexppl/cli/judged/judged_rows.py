"""What is asked of rows to judge an explainer of them, be they of tables, images or texts."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


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
