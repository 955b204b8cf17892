"""Rows with labels: their checks, and random divisions in the proportions of their strata."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import int_at_least, refuse_repeated
from lexppl.summary import short, some_of


def stratified_parts(
    strata: NDArray[np.int64], fractions: Sequence[float], seed: int
) -> list[NDArray[np.int64]]:
    """The row indices of each part, ascending, of strata ``(N,)`` and fractions that sum to 1.

    A stratum of ``n`` rows gives each part ``floor(n · fraction)`` rows; each row left over goes
    to the part that lacks most, counted over the strata so far. Rare strata come first, and the
    first row of each goes to the largest part.
    """
    generator = np.random.default_rng(seed)
    share = np.asarray(fractions, dtype=np.float64)
    largest = int(share.argmax())
    owed = np.zeros(len(share))
    dealt: list[list[NDArray[np.int64]]] = [[] for _ in share]
    values, counts = np.unique(strata, return_counts=True)
    for stratum in values[np.argsort(counts, kind="stable")]:
        rows = generator.permutation(np.flatnonzero(strata == stratum))
        wanted = len(rows) * share
        # A sum such as 0.7 + 0.2 + 0.1 must not cost a row its whole part by rounding down.
        taken = np.floor(wanted + 1e-9).astype(np.int64)
        taken[largest] = max(taken[largest], 1)
        owed += wanted - taken
        for _ in range(len(rows) - int(taken.sum())):
            neediest = int(owed.argmax())
            taken[neediest] += 1
            owed[neediest] -= 1
        for part, chosen in zip(dealt, np.split(rows, np.cumsum(taken)[:-1]), strict=True):
            part.append(chosen)
    return [np.sort(np.concatenate(part)) for part in dealt]


def fold_of_rows(strata: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """Which of ``count`` equal parts each row is in, ``(N,)``, as :func:`stratified_parts` deals
    them."""
    fold = np.empty(len(strata), np.int64)
    for number, rows in enumerate(stratified_parts(strata, (1.0 / count,) * count, seed)):
        fold[rows] = number
    return fold


def fold_of_groups(
    strata: NDArray[np.int64], groups: NDArray[np.int64], count: int, seed: int
) -> NDArray[np.int64]:
    """A fold of each row, ``(N,)``, rows of one group together, strata spread evenly.

    >>> fold = fold_of_groups(np.arange(8) % 2, np.arange(8) // 2, 2, seed=0)
    >>> bool((fold[::2] == fold[1::2]).all()), np.bincount(fold).tolist()
    (True, [4, 4])
    """
    if (there := len(np.unique(groups))) < count:
        raise ValueError(f"{count} folds need as many groups of rows; there are {there}")
    from sklearn.model_selection import StratifiedGroupKFold  # noqa: PLC0415 - slow, rarely needed

    dealt = StratifiedGroupKFold(count, shuffle=True, random_state=seed)
    fold = np.empty(len(strata), np.int64)
    with warnings.catch_warnings():
        # A stratum of fewer rows than folds is warned of: it cannot be in all of them.
        warnings.simplefilter("ignore", UserWarning)
        for number, (_, rows) in enumerate(dealt.split(strata, strata, groups)):
            fold[rows] = number
    return fold


def fold_of_times(times: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """A fold of each row, ``(N,)``, rows of one time together, that follow each other in time and
    are as equal in size as their times allow.

    >>> fold_of_times(np.array([3.0, 1.0, 2.0, 4.0]), 2).tolist()
    [1, 0, 0, 1]
    """
    _, place, rows = np.unique(times, return_inverse=True, return_counts=True)
    if len(rows) < count:
        raise ValueError(
            f"{count} folds that follow each other need as many times that differ; there are "
            f"{len(rows)}: give fewer replicates"
        )
    middle = np.cumsum(rows) - (rows + 1) / 2
    fold: list[int] = []
    for number, wanted in enumerate((middle * count // len(times)).astype(np.int64).tolist()):
        # A fold has a time at least.
        most = fold[-1] + 1 if fold else 0
        fold.append(min(most, max(wanted, count - len(rows) + number)))
    return np.array(fold, np.int64)[place]


def check_tensors(data: object, names: Iterable[str], optional: Iterable[str] = ()) -> None:
    """Refuse attributes that are no tensors; the optional ones may be None."""
    for name in (*names, *(name for name in optional if getattr(data, name) is not None)):
        value = getattr(data, name)
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor; it is a {type(value).__name__}")


def check_labels(y: Tensor, class_names: tuple[str, ...], target: str, is_part: bool) -> None:
    """Refuse labels ``(N,)`` that are not ``0 … C-1``, and, unless ``is_part``, a single class."""
    refuse_repeated("class_names", class_names)
    if y.dtype != torch.long:
        raise TypeError(f"y must be torch.long for classification; it is {y.dtype}")
    if len(class_names) < 2:
        raise ValueError(
            f"target {target!r} needs at least two classes; class_names is {class_names}"
        )
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= len(class_names):
        raise ValueError(
            f"y must hold labels 0 to {len(class_names) - 1}, one for each of class_names; "
            f"it holds {low} to {high}"
        )
    if low == high and not is_part:
        raise ValueError(
            f"target {target!r} has one class only: every row is {class_names[low]!r}; "
            "at least two are needed"
        )


def label_counts(y: Tensor, class_names: tuple[str, ...], target: str) -> str:
    """How many rows each class has, in words."""
    counts = torch.bincount(y, minlength=len(class_names)).tolist()
    each = some_of(f"{short(n)} ({c:,})" for n, c in zip(class_names, counts, strict=True))
    return f"{target}, {len(counts)} classes: {each}"


def part_counts(train: int, valid: int, test: int) -> str:
    """How many rows each part has, in words."""
    return f"{train:,} to fit on, {valid:,} to choose the best epoch on, {test:,} to judge"


class Divisible:
    """N rows that are divided, or some of them taken, at random, in the proportions of strata."""

    by_row: ClassVar[tuple[str, ...]]  # Fields that hold a value for each row, or None
    y: Tensor

    def __len__(self) -> int:
        """``N``, the number of rows."""
        return len(self.y)

    @property
    def strata(self) -> NDArray[np.int64]:
        """The stratum of each row, ``(N,)``: its class."""
        return np.asarray(self.y.cpu())

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
        held = {name: getattr(self, name) for name in self.by_row}
        changed = {name: change(value) for name, value in held.items() if value is not None}
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


def at_most(strata: NDArray[Any], rows: int | None, seed: int) -> NDArray[np.int64]:
    """Places of at most so many rows, ascending, one of each stratum among them; of all if None."""
    if rows is None or int_at_least("rows", rows) >= len(strata):
        return np.arange(len(strata))
    return np.sort(some_of_each(strata, rows, np.random.default_rng(seed)))


def some_of_each(
    strata: NDArray[Any], most: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Places of at most so many rows drawn from strata ``(N,)``, one of each stratum first."""
    order = generator.permutation(len(strata))
    _, firsts = np.unique(strata[order], return_index=True)
    return np.concatenate([order[firsts], np.delete(order, firsts)])[:most]


def training_and_validation(
    strata: NDArray[np.int64], share: float | None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Places of the training rows and of a share for validation, in the proportions of the strata.

    There are none for validation where the share is ``None``, too small for a row, or so that they
    would hold one class only, or the training rows not every class.
    """
    if share is None:
        return np.arange(len(strata)), None
    train, valid = stratified_parts(strata, (1.0 - share, share), seed)
    classes = len(np.unique(strata))
    known, judged = len(np.unique(strata[train])), len(np.unique(strata[valid]))
    if known < classes or judged < min(2, classes):
        return np.arange(len(strata)), None
    return train, valid


def held_out_parts(
    strata: NDArray[np.int64], valid_share: float | None, test_share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.int64]]:
    """Places of the rows to fit on, to choose the best epoch on (``None`` without a share) and to
    judge, by shares of all rows; ``ValueError`` for no row to fit on or to judge."""
    rest, test = stratified_parts(strata, (1.0 - test_share, test_share), seed)
    if min(len(rest), len(test)) == 0:
        raise ValueError(
            f"each part needs a row; {len(strata)} rows give {len(rest)} to fit on and {len(test)} "
            "to judge: give more rows, or another test_share"
        )
    share = None if valid_share is None else valid_share / (1.0 - test_share)
    train, valid = training_and_validation(strata[rest], share, seed)
    return rest[train], None if valid is None else rest[valid], test
