"""Steps that were skipped as they were not finite: how many, and what ends a fit."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lexppl.summary import counted

MOST_IN_A_ROW = 20
"""Steps in a row, over epochs, that are finite in no replicate: then the fit ends."""


class SkippedStepsWarning(UserWarning):
    """Some steps of a fit were skipped, as their loss or gradient was not finite."""


class SkippedSteps:
    """The skipped steps of a fit, by replicate.

    Args:
        replicates: R.

    Example:
        >>> skipped = SkippedSteps(2)
        >>> skipped.add(np.array([[True, False], [True, True]]), np.full((2, 2), np.inf))
        >>> skipped.count.tolist(), skipped.cause
        ([0, 1], 'the model gives some labels or responses probability zero')
    """

    def __init__(self, replicates: int) -> None:
        self.count = np.zeros(replicates, dtype=int)
        self.in_a_row = np.zeros(replicates, dtype=int)
        self.has_moved = False
        self.cause = ""
        self.ended: str | None = None

    def add(self, made: NDArray[np.bool_], losses: NDArray[np.floating] | None) -> None:
        """Count an epoch's.

        Args:
            made: which steps were made, `(T, R)`.
            losses: of each step, `(T, R)`; None where all were made.
        """
        self.has_moved = self.has_moved or bool(made.any()) or not len(made)
        if losses is None or made.all():
            self.in_a_row[:] = 0
            return
        self.count += (~made).sum(0)
        since = np.argmax(made[::-1], 0)
        all_of = ~made.any(0)
        self.in_a_row = np.where(all_of, self.in_a_row + len(made), since)
        self.cause = _cause(losses[~made])

    def end_where_stuck(self, epoch: int) -> None:
        """Put down that the fit is to end, where no replicate has moved in so many steps.

        Args:
            epoch: which is over, from 0.

        Raises:
            FloatingPointError: no step has been made since the beginning, so that there is no good
                state.
        """
        if not self.has_moved:
            raise FloatingPointError(
                f"no step of the first epoch had a finite loss and gradient: {self.cause}"
            )
        if (self.in_a_row >= MOST_IN_A_ROW).all():
            steps = counted(int(self.in_a_row.min()), "step")
            self.ended = (
                f"ended at epoch {epoch + 1}, after {steps} in a row that were not finite: "
                f"{self.cause}"
            )


def report_skipped(skipped: Sequence[int], ended: str | None) -> None:
    """Warn of steps that were skipped.

    Args:
        skipped: by replicate.
        ended: why the fit has ended by them, or None.
    """
    if ended is not None:
        warnings.warn(
            f"the fit {ended}; the result has the best state before",
            SkippedStepsWarning,
            stacklevel=3,
        )
    elif any(skipped):
        of = f" in replicates {[r for r, n in enumerate(skipped) if n]}" if len(skipped) > 1 else ""
        warnings.warn(
            f"{counted(int(sum(skipped)), 'step')}{of} had a loss or gradient that is not finite, "
            "and moved nothing (FitResult.skipped_steps); try a lower learning rate or "
            "clip_norm=1.0, and look for labels or features that the model gives probability zero",
            SkippedStepsWarning,
            stacklevel=3,
        )


def _cause(losses: NDArray[np.floating]) -> str:
    """What losses of skipped steps tell."""
    if np.isposinf(losses).any():
        return "the model gives some labels or responses probability zero"
    if np.isnan(losses).any():
        return (
            "the loss is NaN, as after a learning rate that is too high; try a lower one, or "
            "clip_norm=1.0, and look for features of extreme size"
        )
    if np.isfinite(losses).all():
        return (
            "the gradient is not finite where the loss is; try clip_norm=1.0 and a lower learning "
            "rate, and look for a root or logarithm of zero in the program"
        )
    return "the bound is infinite, as of a density that is infinite in a point"
