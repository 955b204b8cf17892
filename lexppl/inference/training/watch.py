"""What a fit watches as it goes on: losses, best states, skipped steps, progress."""

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

from lexppl.extras import extra_library
from lexppl.inference.replicates import Replicates
from lexppl.inference.stages import LossTerm, TrainingModules
from lexppl.summary import counted

Progress = bool | Literal["lines"]
"""A bar on a terminal or in a notebook and nothing elsewhere; nothing; or a line for each epoch."""
LINES = "lines"
MOST_IN_A_ROW = 20
"""Steps in a row, over epochs, that are finite in no replicate: then the fit ends."""


@dataclass(frozen=True)
class Epoch:
    """What a callback sees after each epoch: losses `(R,)` in nats a row; by replicate the steps
    skipped so far; `snapshot()`, copies of all that training moves `(R, …)`; and `models()`, each
    replicate's modules in evaluation mode."""

    number: int
    stage: int
    progress: float
    train: np.ndarray
    valid: np.ndarray
    snapshot: Callable[[], dict[str, Tensor]] = dict
    skipped: Sequence[int] = ()
    models: Callable[[], list[TrainingModules]] = list


Callback = Callable[[Epoch], bool | None]
"""Called after each epoch; True ends the fit with the best state so far."""


class EpochLoss:
    """The mean over an epoch's rows of its steps' losses, `Σ_t weight_t · loss_t / N`."""

    def __init__(self, terms: Sequence[LossTerm], rows: float | Tensor) -> None:
        self._weights = [term.weight for term in terms]
        self._rows = rows
        self._steps: list[tuple[Sequence[Tensor], int]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, losses: Sequence[Tensor], size: int) -> None:
        """Keep the losses `(R,)` by term of a step of `size` rows."""
        self._steps.append((losses, size))

    def steps(self) -> NDArray[np.floating]:
        """The loss of each step, `(T, R)`, in nats a row."""
        losses = torch.stack([torch.stack(list(of_terms)) for of_terms, _ in self._steps])
        weights = losses.new_tensor(self._weights).unsqueeze(-1)
        return ((losses * weights).sum(1) / self._rows).cpu().numpy()

    def mean(self, made: NDArray[np.bool_]) -> NDArray[np.floating]:
        """By replicate `(R,)`, of steps `made` `(T, R)`; NaN without any, empty without steps."""
        if not self._steps:
            return np.zeros(0)
        losses = self.steps()
        share = np.array([size for _, size in self._steps])[:, None] * made
        share = share / np.where(made.any(0), share.sum(0), np.nan)
        mean = (np.where(made, losses, 0.0) * share).sum(0)
        return np.asarray(mean, dtype=losses.dtype)


class BestStates:
    """The state of least validation loss by replicate; where `unseen`, the last."""

    def __init__(self, runner: Replicates, unseen: bool) -> None:
        self._runner, self._unseen = runner, unseen
        self.states = runner.snapshot()
        self.valid = np.full(runner.count, np.inf)

    def restore(self, states: dict[str, Tensor], valid: np.ndarray) -> None:
        """Go on from other best states, with their validation losses `(R,)`."""
        self.states, self.valid = states, valid

    def take(self, train: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Look at the losses `(R,)` of an epoch that has just ended; which replicates improved."""
        improved: np.ndarray = np.isfinite(train) if self._unseen else valid < self.valid
        self._merge(improved)
        self.valid = np.where(improved, valid, self.valid)
        return improved

    def take_as_is(self, train: np.ndarray) -> None:
        """Take the present state, without validation, of replicates with a finite loss `(R,)`."""
        self._merge(np.isfinite(train))

    def _merge(self, improved: np.ndarray) -> None:
        if improved.any():
            device = next(iter(self._runner.parameters.values())).device
            where = torch.as_tensor(improved, device=device)
            self.states = self._runner.merged(self.states, where)

    def put_back(self) -> np.ndarray:
        """Give each replicate its best state; the validation losses there, NaN where unknown."""
        self._runner.load(self.states)
        return np.where(np.isfinite(self.valid), self.valid, np.nan)


class SkippedStepsWarning(UserWarning):
    """Some steps of a fit were skipped, as their loss or gradient was not finite."""


class SkippedSteps:
    """The skipped steps of a fit, by replicate."""

    def __init__(self, replicates: int) -> None:
        self.count = np.zeros(replicates, dtype=int)
        self.in_a_row = np.zeros(replicates, dtype=int)
        self.has_moved = False
        self.cause = ""
        self.ended: str | None = None

    def state(self) -> dict[str, Any]:
        counts = {"count": self.count.tolist(), "in_a_row": self.in_a_row.tolist()}
        return {**vars(self), **counts}

    def restore(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self.count, self.in_a_row = np.array(self.count), np.array(self.in_a_row)

    def add(self, made: NDArray[np.bool_], losses: Callable[[], NDArray[np.floating]]) -> None:
        """Count an epoch's, by the steps `made` `(T, R)`."""
        self.has_moved = self.has_moved or bool(made.any()) or not len(made)
        if made.all():
            self.in_a_row[:] = 0
            return
        self.count += (~made).sum(0)
        since = np.argmax(made[::-1], 0)
        self.in_a_row = np.where(~made.any(0), self.in_a_row + len(made), since)
        self.cause = _cause(losses()[~made])

    def end_where_stuck(self, epoch: int) -> None:
        """End the fit where no replicate has moved in so many steps."""
        if not self.has_moved:
            raise FloatingPointError(f"no step of the first epoch was finite: {self.cause}")
        if (self.in_a_row >= MOST_IN_A_ROW).all():
            steps = counted(int(self.in_a_row.min()), "step")
            self.ended = (
                f"ended at epoch {epoch + 1}, after {steps} in a row that were not finite: "
                f"{self.cause}"
            )

    def report(self) -> None:
        """Warn of steps that were skipped."""
        count = self.count.tolist()
        where = f" in replicates {[r for r, n in enumerate(count) if n]}" if len(count) > 1 else ""
        text = (
            f"{counted(sum(count), 'step')}{where} had a loss or gradient that is not finite, and "
            "moved nothing (FitResult.skipped_steps); try a lower learning rate or clip_norm=1.0, "
            "and look for labels or features that the model gives probability zero"
        )
        if self.ended is not None:
            text = f"the fit {self.ended}; the result has the best state before"
        if self.ended is not None or any(count):
            warnings.warn(text, SkippedStepsWarning, stacklevel=3)


def _cause(losses: NDArray[np.floating]) -> str:
    """Why steps were skipped, by their losses."""
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


class EpochLines(AbstractContextManager[Any]):
    """A line for each epoch on standard error, for runs whose output goes to a file."""

    def __init__(self, total: int, initial: int) -> None:
        self._total, self._over = total, initial
        self._losses = ""
        self._start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        """Leave errors as they are."""

    def set_postfix(self, **losses: str) -> None:
        self._losses = ", ".join(f"{name} {loss}" for name, loss in losses.items())

    def update(self) -> None:
        self._over += 1
        seconds, self._start = time.perf_counter() - self._start, time.perf_counter()
        at = f"epoch {self._over:,} of {self._total:,}"
        sys.stderr.write(f"{at}: {self._losses}, {seconds:.1f} s\n")
        sys.stderr.flush()


def epochs_shown(progress: Progress, total: int, initial: int) -> Any:
    """A context that shows the epochs of a fit, with `set_postfix` and `update`."""
    if progress == LINES:
        return EpochLines(total, initial)
    # None: silent where standard error is no terminal; a notebook has a bar of its own.
    disable = None if progress else True
    return tqdm(total=total, initial=initial, disable=disable, unit="epoch")


def check_progress(progress: object) -> None:
    """Refuse what `progress` cannot be."""
    if progress not in (True, False, LINES):
        raise ValueError(f'progress must be True, False or "lines"; it is {progress!r}')


class TensorBoardLog:
    """A callback that writes each epoch's losses where `tensorboard --logdir FOLDER` reads them.

    The scalars are `loss/train` and `loss/valid` in nats a row, and `steps/skipped`, so far; of
    several replicates one of each, `loss/train/0` and so on, by epoch over all stages. NaN is left
    out. A fit that goes on from a checkpoint goes on in the same folder.

    Args:
        folder: made with the first epoch.

    Raises:
        ImportError: the extra `tensorboard` is not installed.

    Example:
        >>> TensorBoardLog("runs").folder.name
        'runs'
    """

    def __init__(self, folder: str | Path) -> None:
        extra_library("tensorboard", "tensorboard")
        self.folder = Path(folder)
        self._writer: Any = None

    def __call__(self, epoch: Epoch) -> None:
        """Write an epoch; of processes that share a fit, the first writes."""
        group = torch.distributed
        if group.is_available() and group.is_initialized() and group.get_rank() > 0:
            return
        if self._writer is None:
            library = extra_library("torch.utils.tensorboard", "tensorboard")
            self._writer = library.SummaryWriter(str(self.folder))
        skipped = np.asarray(epoch.skipped, dtype=float)
        for name, values in (
            ("loss/train", epoch.train),
            ("loss/valid", epoch.valid),
            ("steps/skipped", skipped),
        ):
            for replicate, value in enumerate(values):
                tag = name if len(values) == 1 else f"{name}/{replicate}"
                if np.isfinite(value):
                    self._writer.add_scalar(tag, float(value), epoch.number)
        self._writer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a further epoch begins another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
