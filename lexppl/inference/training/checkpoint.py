"""The state of a fit on disk at the end of an epoch, from which the same call goes on."""

from __future__ import annotations

import io
import os
import platform
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from lexppl.argument_checks import finite_float
from lexppl.fingerprint import contents, digest, fingerprint
from lexppl.inference.batches import HasBatches, LoadedRows
from lexppl.inference.replicates.replicate_rows import Rows
from lexppl.inference.stages import TrainingModules
from lexppl.sealed_files import (
    UnreadableFileError,
    checksum_of,
    refuse_changed,
    refused_by_name,
    sync_folder,
    write_through,
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


Identity = dict[str, str]
"""What makes a fit the fit that it is, by path."""


def identity_of(
    settings: Mapping[str, Any],
    copies: Sequence[TrainingModules],
    learned: Rows | None,
    held_out: Rows | None,
) -> Identity:
    """The identity of a fit: the same for the same fit in any process, another for another."""
    found: Identity = {}
    rows = {"train": _rows(learned), "valid": _rows(held_out)}
    model = {f"stage {number}": stage for number, stage in enumerate(copies[0].stages)}
    for name, value in {**settings, **rows, "replicates": len(copies), "model": model}.items():
        found |= {path: digest(leaf) for path, leaf in contents(value, name).items()}
    for place, one in enumerate(copies[1:], 1):
        own = {path: digest(leaf) for path, leaf in contents(list(one.stages), "").items()}
        found[f"model.replicate {place}"] = fingerprint(own)
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is another in one fit than in another, in words: where arguments are, those alone, as
    the rest follows from them.

    Example:
        >>> differences({"seed": "0", "train.x": "ab"}, {"seed": "1", "train.x": "cd"})
        ['seed was 0 and is 1']
    """
    absent = "not there"
    every = dict.fromkeys([*now, *before])
    names = [name for name in every if before.get(name, absent) != now.get(name, absent)]
    arguments = [name for name in names if "." not in name]
    found = []
    for name in arguments or names:
        # A hash of numbers or code stands last, after their type and shape.
        pair = [one.get(name, absent).rpartition(" ") for one in (before, now)]
        hashed = all(len(last.strip("'")) == 32 for _, _, last in pair)
        first, second = (head if hashed else f"{head}{gap}{last}" for head, gap, last in pair)
        same = hashed and first == second
        found.append(f"{name} has other values" if same else f"{name} was {first} and is {second}")
    return found


def versions() -> dict[str, str]:
    """What else the bits of a fit depend on: versions, the processor, the number of threads."""
    return {
        "lexppl": version("lexppl"),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "the processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "the number of threads": str(torch.get_num_threads()),
    }


def _rows(rows: Rows | None) -> Any:
    """What rows consist of, by name."""
    if rows is None:
        return None
    if isinstance(rows, LoadedRows):
        loader = rows.loader
        if isinstance(loader, HasBatches):
            return loader
        settings = ("batch_size", "drop_last", "num_workers", "collate_fn", "dataset")
        drawn = ("weights", "indices", "replacement", "num_samples")
        return {
            **{name: getattr(loader, name) for name in settings},
            "sampler": type(loader.sampler),
            **{f"sampler's {name}": getattr(loader.sampler, name, None) for name in drawn},
        }
    names = ("x", "y", *(f"column {place}" for place in range(2, len(rows.columns))))
    return dict(zip(names, rows.columns, strict=False))
