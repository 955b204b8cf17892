"""The state of a fit on disk at the end of an epoch, from which the same call goes on."""

from __future__ import annotations

import io
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lexppl.argument_checks import finite_float
from lexppl.atomic_output import sync_folder, write_through
from lexppl.inference.training.identity import Identity, differences, versions
from lexppl.sealed_files import (
    UnreadableFileError,
    checksum_of,
    refuse_changed,
    refused_by_name,
)
from lexppl.summary import counted

STATE = "state.pt"
"""The file: the checksum of what follows, and what `torch.save` makes of the state."""
DIGITS = 64
"""Of the checksum."""


class CheckpointWarning(UserWarning):
    """A state that cannot be written, or that a fit continues from to rounding alone."""


@dataclass(frozen=True)
class Checkpoints:
    """Where a fit keeps its state, and how often it is written: at the end of an epoch.

    A `fit` with the same arguments and the same folder goes on from the state in it and gives the
    same bits as a fit that was never stopped, on the same machine. What is written: parameters and
    buffers of all replicates, the states of optimizer, scheduler and random generators, the best
    states so far, the history; and the identity of the fit. A compiled fit goes on to rounding
    alone. What a program or a data set of one's own draws elsewhere than from torch's default
    generators, as from NumPy's, is not put back.

    Args:
        folder: made if it is not there. A folder of one fit's own.
        every_minutes: the least age in minutes of a state at the end of an epoch, before the next
            is written; 0 for each epoch.

    Raises:
        ValueError, TypeError: no path, negative minutes.

    Example:
        >>> import tempfile, torch
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> def fitted(folder):
        ...     small = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
        ...     return fit(small, (x, (x[:, 0] > 0).long()), epochs=2, progress=False,
        ...         checkpoint=Checkpoints(folder, every_minutes=0))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first, again = fitted(folder), fitted(folder)
        >>> bool((first.history.seconds == again.history.seconds).all())
        True
    """

    folder: str | Path
    every_minutes: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | Path):
            raise TypeError(f"folder must be a path; it is {type(self.folder).__name__}")
        finite_float("every_minutes", self.every_minutes, least=0.0)

    def below(self, name: str) -> Checkpoints:
        """As often, in a folder within this one: of one fit among several.

        Example:
            >>> Checkpoints("states").below("judge").folder.name
            'judge'
        """
        return replace(self, folder=Path(self.folder) / name)


def below(checkpoint: Checkpoints | None, name: str) -> Checkpoints | None:
    """:meth:`Checkpoints.below`, where there are any."""
    return None if checkpoint is None else checkpoint.below(name)


class SavedState:
    """The file with a fit's state.

    Args:
        where: its folder, and how often it is written.
        identity: of the fit.
        leads: whether this process writes, of several that share the fit.

    Attributes:
        found: the state that was there; None where there was none.

    Raises:
        ValueError: a state of another fit, or one that is damaged.

    Warns:
        CheckpointWarning: one that was written by other versions, or on another processor.
    """

    def __init__(self, where: Checkpoints, identity: Identity, leads: bool = True) -> None:
        self.folder = Path(where.folder).expanduser().resolve()
        self._minutes, self._identity, self._leads = where.every_minutes, identity, leads
        self._written = time.monotonic()
        self._has_warned = False
        self.epochs = 0
        self.found = self._read()

    def _read(self) -> dict[str, Any] | None:
        path = self.folder / STATE
        if not path.exists():
            return None
        try:
            with refused_by_name(path):
                every = path.read_bytes()
                written, content = every[:DIGITS], every[DIGITS:]
                refuse_changed(path, checksum_of(content), written.decode())
                state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
                before, by, self.epochs = state["fit"], state["versions"], state["epochs"]
        except UnreadableFileError as error:
            raise ValueError(f"{error}; remove {path} to begin anew") from error
        if found := differences(before, self._identity):
            more = f", and {len(found) - 3} more" if len(found) > 3 else ""
            raise ValueError(
                f"{self.folder} holds the state of another fit: {'; '.join(found[:3])}{more}. Give "
                "what was given then, or another folder"
            )
        if others := differences(by, versions()):
            self.warn(
                f"{self.folder} was written otherwise, and what follows may differ in its last "
                f"bits from a fit that was never stopped: {'; '.join(others)}"
            )
        return state

    @property
    def is_due(self) -> bool:
        """Whether the state is old enough to be written again."""
        return time.monotonic() - self._written >= 60.0 * self._minutes

    def write(self, state: Mapping[str, Any], first: bool = False) -> None:
        """Write a state aside, and let it take the place of the one before.

        Where it cannot be written, on a full disk say, the one before stays, and the fit goes on.

        Args:
            state: mappings, lists, numbers, words and tensors, with `epochs`, all that are over.
            first: whether nothing has been done yet that could be lost.

        Raises:
            OSError: the first state cannot be written.
            TypeError: it holds what a file cannot.

        Warns:
            CheckpointWarning: any other that cannot, once.
        """
        if not self._leads:
            return
        content = io.BytesIO()
        torch.save({"fit": self._identity, "versions": versions(), **state}, content)
        if first:
            _refuse_unreadable(content.getvalue())
        aside = self.folder / f"{STATE}.partial"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            checksum = checksum_of(content.getbuffer()).encode()
            write_through(aside, checksum + content.getvalue())
            os.replace(aside, self.folder / STATE)
            sync_folder(self.folder)
        except OSError as error:
            if first:
                raise
            aside.unlink(missing_ok=True)
            if not self._has_warned:
                self.warn(
                    f"the state after {counted(state['epochs'], 'epoch')} cannot be written: "
                    f"{error.strerror or error}; {self.folder} holds that after "
                    f"{counted(self.epochs, 'epoch')}, and the fit goes on without"
                )
            self._has_warned = True
        else:
            self.epochs, self._has_warned = state["epochs"], False
        self._written = time.monotonic()

    def warn(self, message: str) -> None:
        """Warn of this state."""
        warnings.warn(message, CheckpointWarning, stacklevel=3)


def _refuse_unreadable(content: bytes) -> None:
    try:
        torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:
        raise TypeError(
            "the state of the fit's optimizer or scheduler holds what a checkpoint cannot, which "
            f"holds numbers, words, tensors, and lists and mappings of them: {error}"
        ) from error
