"""How far a fit is: a bar on a terminal, or a line for each epoch."""

import sys
import time
from contextlib import AbstractContextManager
from typing import Any, Literal, Self

from tqdm.auto import tqdm

Progress = bool | Literal["lines"]
"""A bar on a terminal or in a notebook and nothing elsewhere; nothing; or a line for each epoch."""
LINES = "lines"


class EpochLines(AbstractContextManager[Any]):
    """A line for each epoch on standard error, for runs whose output goes to a file.

    Args:
        total: epochs.
        initial: those that were over before.

    Example:
        >>> import contextlib
        >>> with contextlib.redirect_stderr(sys.stdout), EpochLines(3, 1) as lines:
        ...     lines.set_postfix(train="0.5123", valid="0.4987")
        ...     lines.update()
        epoch 2 of 3: train 0.5123, valid 0.4987, ... s
    """

    def __init__(self, total: int, initial: int) -> None:
        self._total, self._over = total, initial
        self._told = ""
        self._start = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Leave errors as they are."""

    def set_postfix(self, **losses: str) -> None:
        """Take what the next line tells."""
        self._told = ", ".join(f"{name} {loss}" for name, loss in losses.items())

    def update(self) -> None:
        """Write the line of an epoch that is over, at once."""
        self._over += 1
        seconds, self._start = time.perf_counter() - self._start, time.perf_counter()
        at = f"epoch {self._over:,} of {self._total:,}"
        sys.stderr.write(f"{at}: {self._told}, {seconds:.1f} s\n")
        sys.stderr.flush()


def epochs_shown(progress: Progress, total: int, initial: int) -> Any:
    """What shows the epochs of a fit: with `set_postfix` and `update`, within a `with`.

    Args:
        progress: how.
        total: epochs.
        initial: those that were over before.
    """
    if progress == LINES:
        return EpochLines(total, initial)
    # None: silent where standard error is no terminal; a notebook has a bar of its own.
    disable = None if progress else True
    return tqdm(total=total, initial=initial, disable=disable, unit="epoch")


def check_progress(progress: object) -> None:
    """Refuse what `progress` cannot be.

    Raises:
        ValueError: neither True, False nor "lines".
    """
    if progress not in (True, False, LINES):
        raise ValueError(
            f'progress must be True, False or "lines", a line for each epoch; it is {progress!r}'
        )
