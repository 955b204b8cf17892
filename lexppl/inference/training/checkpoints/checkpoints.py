"""States of a fit in a folder, so that it goes on where it was stopped."""

import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.atomic_output import is_full_disk
from lexppl.inference.training.checkpoints.fit_identity import Identity, differences, versions
from lexppl.inference.training.checkpoints.state_files import read_state, write_state
from lexppl.sealed_files import UnreadableFileError
from lexppl.summary import counted

NAME = "state-"
"""How the folder of a state begins; its number follows."""
USUAL_MINUTES = 1.0
"""Between two states, where nobody says."""
KEPT = 2
"""States in the folder: the last, and the one before, for when the last is damaged."""


class CheckpointWarning(UserWarning):
    """A state that could not be written or read, where another stands for it."""


@dataclass(frozen=True)
class Checkpoints:
    """Where a fit keeps its state, and how often it is written: at the end of an epoch, and by time
    within one.

    A `fit` with the same arguments and the same folder goes on from the last state in it and gives
    the same bits as a fit that was never stopped, on the same machine. What is written: parameters
    and buffers of all replicates, the states of optimizer, scheduler and random generators, the
    best states so far, the history; and what tells this fit from others. A compiled fit goes on to
    float error alone, and says so. What a program or a data set of one's own draws elsewhere than
    from torch's default generators, as from NumPy's, is not put back.

    Args:
        folder: made if it is not there. A folder of one fit's own.
        every_epochs: N, a state after each N epochs; None for none by number.
        every_minutes: T, a state where the last is T minutes old, within an epoch too, and 0 for
            one at the end of each epoch; None for none by time, and where `every_epochs` is None
            too for one minute. Processes that share a fit write at the ends of epochs alone.

    Raises:
        ValueError, TypeError: numbers that are not positive.

    Example:
        >>> import tempfile, torch
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> def fitted(folder):
        ...     small = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
        ...     kept = Checkpoints(folder, every_epochs=1)
        ...     return fit(small, (x, (x[:, 0] > 0).long()), epochs=2, checkpoint=kept,
        ...         progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first, again = fitted(folder), fitted(folder)
        >>> bool((first.history.seconds == again.history.seconds).all())
        True
    """

    folder: str | Path
    every_epochs: int | None = None
    every_minutes: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | Path):
            raise TypeError(f"folder must be a path; it is {type(self.folder).__name__}")
        if self.every_epochs is not None:
            int_at_least("every_epochs", self.every_epochs)
        if self.every_minutes is not None:
            finite_float("every_minutes", self.every_minutes, least=0.0)

    def below(self, name: str) -> "Checkpoints":
        """As often, in a folder within this one: of one fit among several.

        Example:
            >>> Checkpoints("states", every_epochs=5).below("judge").folder.name
            'judge'
        """
        return replace(self, folder=Path(self.folder) / name)

    @classmethod
    def of(cls, asked: "str | Path | Checkpoints") -> "Checkpoints":
        """What is asked for, of a folder alone."""
        return asked if isinstance(asked, Checkpoints) else cls(asked)


def below(checkpoint: Checkpoints | None, name: str) -> Checkpoints | None:
    """:meth:`Checkpoints.below`, where there are any."""
    return None if checkpoint is None else checkpoint.below(name)


class KeptStates:
    """The states of one fit in its folder.

    Of several processes that share a fit each makes one: the first writes, all read, and each has
    its own random states back.

    Args:
        asked: where, and how often.
        identity: what tells the fit from others.
        rank: of this process; only that of rank 0 writes.
        gather: from a tensor of this process to those of all, by rank.

    Attributes:
        found: the last state that is whole; None where there is none yet.
        bytes: of the last state that was written.
        seconds: that it took.

    Raises:
        ValueError: a state of another fit, or all states damaged.

    Warns:
        CheckpointWarning: a damaged one, in whose place the one before is taken; a state that was
            written by other versions, or on another processor.
    """

    def __init__(
        self,
        asked: Checkpoints,
        identity: Identity,
        rank: int = 0,
        gather: Callable[[Tensor], list[Tensor]] | None = None,
    ) -> None:
        self.folder = Path(asked.folder).expanduser().resolve()
        self._asked, self._identity = asked, identity
        self.rank, self._gather = rank, gather
        self._written = time.monotonic()
        self._warned = False
        self._standing = ""
        self.bytes, self.seconds = 0, 0.0
        self.found = self._newest()

    def _newest(self) -> dict[str, Any] | None:
        damaged = []
        for place in reversed(self._places()):
            try:
                state = read_state(place)
                before, by, self._standing = state["fit"], state["versions"], _reached(state)
            except UnreadableFileError as error:
                damaged.append(str(error))
                continue
            except KeyError as error:
                damaged.append(str(UnreadableFileError(place, f"it has no {error}")))
                continue
            self._refuse_another(before)
            self._warn_of(damaged, self._standing, by)
            return state
        if damaged:
            raise ValueError(
                f"{damaged[0]}; no state there is whole: remove {self.folder} to begin anew"
            )
        return None

    def is_due(self, epochs: int) -> bool:
        """Whether a state is to be written, the same in all processes.

        Args:
            epochs: of the stage that are over.
        """
        by_number, minutes = self._asked.every_epochs, self._minutes
        if by_number is not None and epochs % by_number == 0:
            return True
        if minutes is None:
            return False
        due = self._age >= 60.0 * minutes
        if self._gather is None:
            return due
        return bool(self._gather(torch.tensor([due]))[0].item())

    def is_due_within(self) -> bool:
        """Whether a state is to be written between two steps of an epoch: by time, and not so often
        that writing takes more than a twentieth of it."""
        minutes = self._minutes
        if not minutes:
            return False
        return self._age >= max(60.0 * minutes, 20.0 * self.seconds)

    @property
    def _minutes(self) -> float | None:
        """Between two states; None where none are written by time."""
        minutes = self._asked.every_minutes
        return USUAL_MINUTES if minutes is None and self._asked.every_epochs is None else minutes

    @property
    def _age(self) -> float:
        """Seconds since the last state."""
        return time.monotonic() - self._written

    def from_all(self, own: Tensor) -> list[Tensor]:
        """What each process has, by rank; none goes on before all are here."""
        return [own] if self._gather is None else self._gather(own)

    def write(self, state: Mapping[str, Any], first: bool = False) -> None:
        """Write a state beside those that stand, and then remove what is older than the last two.

        Where it cannot be written, on a full disk say, those before stand, and the fit goes on: its
        result may still fit where the state did not, and the next state is tried in its turn.

        Args:
            state: with `epochs`, all that are over.
            first: whether nothing has been done yet that could be lost.

        Raises:
            OSError: the first state cannot be written.
            TypeError: what cannot be written.

        Warns:
            CheckpointWarning: any other that cannot, once.
        """
        if self.rank != 0:
            return
        begun = time.monotonic()
        places = self._places()
        number = 1 + (_number(places[-1]) if places else 0)
        told = {"fit": self._identity, "versions": versions(), **state}
        place = self.folder / f"{NAME}{number:06d}"
        try:
            try:
                self.bytes = write_state(place, told)
            except OSError as error:
                if len(places) < KEPT or not is_full_disk(error):
                    raise
                # There may be room for two, and the last is enough while the next is written.
                _remove(places[:-1])
                self.bytes = write_state(place, told)
        except OSError as error:
            if first:
                raise
            self._tell_of(error, _reached(state))
        else:
            self._standing, self._warned = _reached(state), False
            _remove(self._places()[:-KEPT])
        self._written = time.monotonic()
        self.seconds = self._written - begun

    def clear_remains(self) -> None:
        """Remove what a process that was killed while it wrote has left aside."""
        if self.rank == 0 and self.folder.is_dir():
            for remains in self.folder.glob(f".{NAME}*.partial"):
                shutil.rmtree(remains, ignore_errors=True)

    def tell_of_interruption(self) -> None:
        """Say where an interrupted fit can be continued from.

        Warns:
            CheckpointWarning: always.
        """
        warnings.warn(
            f"the fit was interrupted; {self.folder} holds its state after "
            f"{self._standing}, from which the same call goes on",
            CheckpointWarning,
            stacklevel=2,
        )

    def tell_of_compiling(self) -> None:
        """Say that a compiled fit goes on to float error.

        Warns:
            CheckpointWarning: always.
        """
        warnings.warn(
            f"{self.folder} has the state of a compiled fit: a few steps are run as they are until "
            "they are compiled anew, so that what follows is, to float error and not to the bit, "
            "that of a fit that was never stopped",
            CheckpointWarning,
            stacklevel=2,
        )

    def _tell_of(self, error: OSError, reached: str) -> None:
        if not self._warned:
            warnings.warn(
                f"the state after {reached} cannot be written: {error.strerror or error}; "
                f"{self.folder} holds that after {self._standing}, and the fit goes on without",
                CheckpointWarning,
                stacklevel=3,
            )
        self._warned = True

    def _places(self) -> list[Path]:
        """The folders of states, the last one last."""
        if not self.folder.is_dir():
            return []
        found = [p for p in self.folder.iterdir() if p.name.startswith(NAME) and _number(p) > 0]
        return sorted(found, key=_number)

    def _refuse_another(self, before: Mapping[str, Any]) -> None:
        found = differences(before, self._identity)
        if found:
            more = f", and {len(found) - 3} more" if len(found) > 3 else ""
            raise ValueError(
                f"{self.folder} holds the state of another fit: {'; '.join(found[:3])}{more}. Give "
                "what was given then, or another folder"
            )

    def _warn_of(self, damaged: list[str], reached: str, by: Mapping[str, Any]) -> None:
        for one in damaged:
            warnings.warn(
                f"{one}; the state before it is taken, after {reached}",
                CheckpointWarning,
                stacklevel=3,
            )
        others = differences(by, versions())
        if others:
            warnings.warn(
                f"{self.folder} was written otherwise, and what follows may differ in its last "
                f"bits from a fit that was never stopped: {'; '.join(others)}",
                CheckpointWarning,
                stacklevel=3,
            )


def _reached(state: Mapping[str, Any]) -> str:
    """How far a fit was in a state, in words."""
    epochs, within = counted(state["epochs"], "epoch"), state.get("within")
    if within is None:
        return epochs
    return f"{epochs} and {counted(within['place']['number'], 'step')} of the next"


def _remove(places: list[Path]) -> None:
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


def _number(place: Path) -> int:
    """The number of a state by its folder's name; 0 of a folder that has none."""
    digits = place.name.removeprefix(NAME)
    return int(digits) if digits.isascii() and digits.isdigit() else 0
