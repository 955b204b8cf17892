"""Random divisions of rows, in the proportions of their strata."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexppl.argument_checks import int_at_least


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


def part_counts(train: int, valid: int, test: int) -> str:
    """How many rows each part has, in words."""
    return f"{train:,} to fit on, {valid:,} to choose the best epoch on, {test:,} to judge"


def at_most(strata: NDArray[Any], rows: int | None, seed: int) -> NDArray[np.int64]:
    """Places of at most so many rows, ascending, one of each stratum among them; of all if None."""
    if rows is None or int_at_least("rows", rows) >= len(strata):
        return np.arange(len(strata))
    return np.sort(some_of_each(strata, rows, np.random.default_rng(seed)))


def evenly(total: int, most: int) -> NDArray[np.int64]:
    """An even choice of at most so many places of a total: rows may be sorted, by label or date."""
    return np.unique(np.linspace(0, total - 1, min(most, total)).round()).astype(np.int64)


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
