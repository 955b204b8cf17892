"""Rows of a data set: checks of their labels, and parts of them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import refuse_repeated
from lexppl.data.stratification import at_most, stratified_parts
from lexppl.summary import short, some_of


class Divisible:
    """N rows with y, which are divided, or some taken, at random, in the proportions of strata."""

    by_row: ClassVar[tuple[str, ...]]  # Fields that hold a value for each row, or None
    y: Tensor
    class_names: Any
    target_name: str
    is_part: bool

    def __len__(self) -> int:
        """``N``, the number of rows."""
        return len(self.y)

    @property
    def strata(self) -> NDArray[np.int64]:
        """The stratum of each row, ``(N,)``: its class."""
        return np.asarray(self.y.cpu())

    def _check_tensors(self, names: Iterable[str], optional: Iterable[str] = ()) -> None:
        """Refuse attributes that are no tensors; the optional ones may be None."""
        for name in (*names, *(name for name in optional if getattr(self, name) is not None)):
            value = getattr(self, name)
            if not isinstance(value, Tensor):
                raise TypeError(f"{name} must be a torch.Tensor; it is a {type(value).__name__}")

    def _check_labels(self) -> None:
        """Refuse labels ``(N,)`` that are not ``0 … C-1``, and of a whole set a single class."""
        y, names, target = self.y, self.class_names, self.target_name
        refuse_repeated("class_names", names)
        if y.dtype != torch.long:
            raise TypeError(f"y must be torch.long for classification; it is {y.dtype}")
        if len(names) < 2:
            raise ValueError(f"target {target!r} needs at least two classes; there are {names}")
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= len(names):
            raise ValueError(
                f"y must hold labels 0 to {len(names) - 1}, one for each of class_names; "
                f"it holds {low} to {high}"
            )
        if low == high and not self.is_part:
            raise ValueError(f"target {target!r} has one class only: every row is {names[low]!r}")

    def _label_counts(self) -> str:
        """How many rows each class has, in words."""
        counts = torch.bincount(self.y, minlength=len(self.class_names)).tolist()
        pairs = zip(self.class_names, counts, strict=True)
        texts = some_of(f"{short(name)} ({count:,})" for name, count in pairs)
        return f"{self.target_name}, {len(counts)} classes: {texts}"

    def subset(self, index: Tensor | Sequence[int] | slice) -> Self:
        """The rows of ``index``, a part of a larger set: integers, a boolean mask ``(N,)`` or a
        slice.

        Raises:
            ValueError: no row is chosen.
            IndexError: a row that is not there.
        """
        rows = self.places(index)

        def chosen(values: Any) -> Any:
            if isinstance(values, Tensor):
                return values[rows.to(values.device)]
            return tuple(values[row] for row in rows.tolist())

        return self._changed(chosen, is_part=True)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Self:
        """The same rows on ``device``, floating tensors as ``dtype``."""

        def moved(values: Any) -> Any:
            if not isinstance(values, Tensor):
                return values
            return values.to(device=device, dtype=dtype if values.is_floating_point() else None)

        return self._changed(moved)

    def _changed(self, change: Callable[[Any], Any], **others: Any) -> Self:
        values = {name: getattr(self, name) for name in self.by_row}
        changed = {name: change(value) for name, value in values.items() if value is not None}
        return replace(self, **changed, **others)  # type: ignore[type-var]

    def places(self, index: Tensor | Sequence[int] | slice) -> Tensor:
        """The numbers of the rows of ``index``, as :meth:`subset` takes them."""
        chosen = index if isinstance(index, slice) else torch.as_tensor(index).cpu()
        if isinstance(chosen, Tensor) and chosen.numel() == 0:
            chosen = slice(0)
        rows = torch.arange(len(self))[chosen].flatten()
        if rows.numel() == 0:
            raise ValueError("index must choose at least one row; it chooses none")
        return rows

    def split(self, *fractions: float, seed: int) -> tuple[Self, ...]:
        """Divide the rows at random into parts of the given fractions.

        Each stratum is divided in these fractions up to one row, and its first row goes to the
        largest part. Rows keep their order within a part; no global random state is touched.

        Args:
            fractions: two or more positive numbers that sum to 1.
            seed: of the random division.

        Raises:
            ValueError: fractions that are not positive or do not sum to 1, a part without rows.

        Example:
            >>> from lexppl.data import load
            >>> [len(part) for part in load("wine").split(0.6, 0.2, 0.2, seed=0)]
            [107, 36, 35]
        """
        if len(fractions) < 2 or min(fractions) <= 0 or not math.isclose(sum(fractions), 1.0):
            raise ValueError(
                "fractions must be two or more positive numbers that sum to 1, "
                f"as in split(0.8, 0.2, seed=0); they are {fractions}"
            )
        parts = stratified_parts(self.strata, fractions, seed)
        sizes = [len(part) for part in parts]
        if min(sizes) == 0:
            raise ValueError(
                f"each part needs a row; fractions {fractions} of {len(self)} rows "
                f"give parts of {sizes} rows"
            )
        return tuple(self.subset(torch.from_numpy(part)) for part in parts)

    def take(self, rows: int, *, seed: int) -> Self:
        """At most so many rows, drawn at random, one of each stratum among them, in their order."""
        return self.subset(torch.from_numpy(at_most(self.strata, rows, seed)))
