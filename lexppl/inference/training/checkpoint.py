"""The state of a fit on disk at the end of an epoch, from which the same call goes on."""

from __future__ import annotations

import io
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from lexppl.argument_checks import finite_float
from lexppl.fingerprint import contents, digest, fingerprint
from lexppl.inference.batches import HasBatches, LoadedRows, Rows
from lexppl.inference.replicates import VMAP_FALLBACKS
from lexppl.inference.stages import TrainingModules
from lexppl.inference.training.step import TrainingStep
from lexppl.inference.training.watch import BestStates
from lexppl.sealed_files import (
    UnreadableFileError,
    checksum_of,
    refuse_changed,
    refused_by_name,
    write_whole,
)
from lexppl.summary import counted

if TYPE_CHECKING:
    from lexppl.inference.training.loop import TrainingLoop

STATE = "state.pt"
"""The file: the checksum of what follows, and what `torch.save` makes of the state."""
DIGITS = 64  # Of the checksum


class CheckpointWarning(UserWarning):
    """A state that cannot be written, or that a fit continues from to rounding alone."""


@dataclass(frozen=True)
class Checkpoints:
    """Where a fit keeps its state, and how often it is written: at the end of an epoch.

    A `fit` with the same arguments and folder goes on from the state in it with the same bits, on
    the same machine; a compiled fit goes on to rounding. Draws of other generators than torch's
    default ones are not put back.

    Args:
        folder: of one fit's own, made if it is not there.
        every_minutes: the least age of a state before the next is written; 0 for each epoch.

    Raises:
        ValueError, TypeError: no path, negative minutes.

    Example:
        >>> Checkpoints("states", every_minutes=0).below("judge").folder.name
        'judge'
    """

    folder: str | Path
    every_minutes: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | Path):
            raise TypeError(f"folder must be a path; it is {type(self.folder).__name__}")
        finite_float("every_minutes", self.every_minutes, least=0.0)

    def below(self, name: str) -> Checkpoints:
        """As often, in a folder within this one: of one fit among several."""
        return replace(self, folder=Path(self.folder) / name)


def below(checkpoint: Checkpoints | None, name: str) -> Checkpoints | None:
    return None if checkpoint is None else checkpoint.below(name)


class _State(dict[str, Any]):
    """Entries of a state; to read one that is not there, as in another version's, is an error."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(
            f"{STATE} has no {name!r}: it is another version's; use that, or remove it"
        )


class SavedState:
    """The file with a fit's state; `found` is the state that was there, or None."""

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
                state = _State(torch.load(io.BytesIO(content), weights_only=True))
                before, by, self.epochs = state["fit"], state["versions"], state["epochs"]
        except UnreadableFileError as error:
            raise ValueError(f"{error}; remove {path} to begin anew") from error
        if changed := differences(before, self._identity):
            more = f", and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise ValueError(
                f"{self.folder} holds the state of another fit: {'; '.join(changed[:3])}{more}. "
                "Give what was given then, or another folder"
            )
        if others := differences(by, versions()):
            self.warn(
                f"{self.folder} was written otherwise, and what follows may differ in its last "
                f"bits from a fit that was never stopped: {'; '.join(others)}"
            )
        return state

    @property
    def is_due(self) -> bool:
        """Whether the time since the last write is over, so that a state is to be written."""
        return time.monotonic() - self._written >= 60.0 * self._minutes

    def write(self, state: Mapping[str, Any], first: bool = False) -> None:
        """Write a state in place of the one before; where it cannot be written the fit goes on."""
        if not self._leads:
            return
        content = io.BytesIO()
        torch.save({"fit": self._identity, "versions": versions(), **state}, content)
        if first:
            _refuse_unreadable(content.getvalue())
        try:
            checksum = checksum_of(content.getbuffer()).encode()
            write_whole(self.folder / STATE, checksum + content.getvalue())
        except OSError as error:
            if first:
                raise
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
        warnings.warn(message, CheckpointWarning, stacklevel=3)


def _refuse_unreadable(content: bytes) -> None:
    try:
        torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:
        raise TypeError(
            "the state of the fit's optimizer or scheduler holds what a checkpoint cannot, which "
            f"holds numbers, words, tensors, and lists and mappings of them: {error}"
        ) from error


Identity = dict[str, str]  # What makes a fit the fit that it is, by path


def identity_of(
    settings: Mapping[str, Any],
    copies: Sequence[TrainingModules],
    learned: Rows | None,
    held_out: Rows | None,
) -> Identity:
    """The identity of a fit: the same for the same fit in any process, another for another."""
    identity: Identity = {}
    rows = {"train": _rows(learned), "valid": _rows(held_out)}
    model = {f"stage {number}": stage for number, stage in enumerate(copies[0].stages)}
    for name, value in {**settings, **rows, "replicates": len(copies), "model": model}.items():
        identity |= {path: digest(leaf) for path, leaf in contents(value, name).items()}
    for place, copied in enumerate(copies[1:], 1):
        digests = {path: digest(leaf) for path, leaf in contents(list(copied.stages), "").items()}
        identity[f"model.replicate {place}"] = fingerprint(digests)
    return identity


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs between two fits, in words: arguments alone, where arguments differ."""
    absent = "not there"
    every = dict.fromkeys([*now, *before])
    names = [name for name in every if before.get(name, absent) != now.get(name, absent)]
    arguments = [name for name in names if "." not in name]
    lines = []
    for name in arguments or names:
        # A hash of numbers or code stands last, after their type and shape.
        pair = [side.get(name, absent).rpartition(" ") for side in (before, now)]
        hashed = all(len(last.strip("'")) == 32 for _, _, last in pair)
        first, second = (head if hashed else f"{head}{gap}{last}" for head, gap, last in pair)
        same = hashed and first == second
        lines.append(f"{name} has other values" if same else f"{name} was {first} and is {second}")
    return lines


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


SAMPLERS = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers whose next order follows from a generator's state alone."""
BATCHES = (BatchSampler, type(None))


@dataclass
class StageProgress:
    """How far a stage is: epochs that are over, and those without improvement."""

    stage: int
    step: TrainingStep
    scheduler: Any
    best: BestStates
    epochs: int = 0
    waited: int = 0
    ended: bool = False


class LoopState:
    """The state of a training loop, taken at the end of an epoch and put back."""

    def __init__(self, loop: TrainingLoop, saved: SavedState) -> None:
        self._loop, self._saved = loop, saved
        runner, cuda = loop.runner, torch.cuda
        tensors = (*runner.parameters.values(), *runner.buffers.values())
        devices = {tensor.device for tensor in tensors} | {loop.rows.device}
        self._random_states: list[tuple[Callable[[], Tensor], Callable[[Tensor], Any]]] = [
            (torch.get_rng_state, torch.set_rng_state),
            *(
                (partial(cuda.get_rng_state, d), partial(cuda.set_rng_state, device=d))
                for d in sorted((d for d in devices if d.type == "cuda"), key=str)
            ),
            *((g.get_state, g.set_state) for g in _generators([loop.rows, loop.held_out])),
        ]
        self._state: dict[str, Any] | None = None

    def begin(self, stages: int) -> int:
        """Look for a state to go on from; the stage to begin with, past the last at the end."""
        loop = self._loop
        state, self._saved.found = self._saved.found, None
        self._state = state
        if state is None:
            return 0
        loop.records[:] = [
            (train.numpy(), valid.numpy(), stage, seconds)
            for train, valid, stage, seconds in state["records"]
        ]
        loop.best_epoch, loop.best_valid = state["best_epoch"].numpy(), state["best_valid"].numpy()
        loop.interrupted = state["interrupted"]
        loop.skipped.restore(state["skipped"])
        if state["finished"]:
            self._put_back(state)
            return stages
        # A graph that is not compiled has the program's own operations.
        if loop.settings.backend == "inductor":
            self._saved.warn(
                f"{self._saved.folder} has the state of a compiled fit: a few steps are run as "
                "they are until they are compiled anew, so that what follows is, to float error "
                "and not to the bit, that of a fit that was never stopped"
            )
        if state["stage"] > 0:
            # The first look at a stage is at what the one before has learned.
            self._put_back(state)
        return int(state["stage"])

    def enter(self, course: StageProgress) -> None:
        """Go on with a stage where it was; at the very beginning, write what there is."""
        state, self._state = self._state, None
        if state is None:
            if course.stage == 0:
                self._saved.write(self._taken(course), first=True)
            return
        self._put_back(state)
        course.epochs, course.waited = state["stage_epochs"], state["waited"]
        course.ended = state["ended"]
        course.best.restore(state["best_states"], state["best_losses"].numpy())
        course.step.optimizer.load_state_dict(state["optimizer"])
        if course.step.tuner is not None:
            course.step.tuner.load_state_dict(state["tuner"])
        if course.scheduler is not None:
            course.scheduler.load_state_dict(state["scheduler"])
        self._put_back_random(state["random"])

    def epoch_over(self, course: StageProgress) -> None:
        """Write the state at the end of an epoch, where it is due."""
        if self._saved.is_due:
            self._saved.write(self._taken(course))

    def finish(self) -> None:
        """Write what the fit has come to."""
        try:
            self._saved.write({**self._common(), "finished": True})
        except KeyboardInterrupt:
            # The fit is whole; its last epochs can be had again from the state before.
            self._loop.interrupted = True

    def warn_of_interruption(self) -> None:
        """Say where an interrupted fit can be continued from."""
        self._saved.warn(
            f"the fit was interrupted; {self._saved.folder} holds its state after "
            f"{counted(self._saved.epochs, 'epoch')}, from which the same call goes on"
        )

    def _common(self) -> dict[str, Any]:
        loop, template = self._loop, self._loop.runner.template
        stacked = loop.runner.buffers
        return {
            "epochs": len(loop.records),
            "interrupted": loop.interrupted,
            "records": [
                (torch.as_tensor(train), torch.as_tensor(valid), stage, seconds)
                for train, valid, stage, seconds in loop.records
            ],
            "best_epoch": torch.as_tensor(loop.best_epoch),
            "best_valid": torch.as_tensor(loop.best_valid),
            "skipped": loop.skipped.state(),
            "moved": loop.runner.snapshot(),
            "buffers": {n: b.detach() for n, b in template.named_buffers() if n not in stacked},
            "numbers": _numbers(template),
            **{name: getattr(loop.runner, name) for name in VMAP_FALLBACKS},
        }

    def _taken(self, course: StageProgress) -> dict[str, Any]:
        step, best, scheduler = course.step, course.best, course.scheduler
        return {
            **self._common(),
            "finished": False,
            "stage": course.stage,
            "stage_epochs": course.epochs,
            "waited": course.waited,
            "ended": course.ended,
            "best_states": best.states,
            "best_losses": torch.as_tensor(best.valid),
            "optimizer": step.optimizer.state_dict(),
            "tuner": None if step.tuner is None else step.tuner.state_dict(),
            "scheduler": None if scheduler is None else scheduler.state_dict(),
            "random": [state() for state, _ in self._random_states],
        }

    @torch.no_grad()
    def _put_back(self, state: dict[str, Any]) -> None:
        runner = self._loop.runner
        runner.load(state["moved"])
        for name in VMAP_FALLBACKS:
            setattr(runner, name, state[name])
        present = _numbers(runner.template)
        numbers = {n: v for n, v in state["numbers"].items() if present.get(n) != v}
        for name, value in {**numbers, **state["buffers"]}.items():
            path, _, attribute = name.rpartition(".")
            part = runner.template.get_submodule(path)
            held = getattr(part, attribute, None)
            if isinstance(held, Tensor) and held.shape == value.shape and held.dtype == value.dtype:
                held.copy_(value)
            else:
                setattr(part, attribute, value)

    def _put_back_random(self, states: Iterable[Tensor]) -> None:
        for (_, put_back), state in zip(self._random_states, states, strict=True):
            put_back(state.cpu())


def _numbers(module: nn.Module) -> dict[str, Any]:
    """The numbers and words that modules have, such as a count of calls."""
    return {
        f"{path}.{name}": value
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if type(value) in (bool, int, float, str) and name != "training"
    }


def _generators(rows: Iterable[Rows | None]) -> list[torch.Generator]:
    """The generators beside torch's default that batches follow from; others are refused."""
    generators: dict[int, torch.Generator] = {}
    for source in rows:
        # What has batches of its own draws them from torch's default generator.
        if not isinstance(source, LoadedRows) or isinstance(source.loader, HasBatches):
            continue
        loader, batches = source.loader, source.loader.batch_sampler
        sampler = getattr(batches, "sampler", loader.sampler)
        in_order = not loader.persistent_workers and getattr(loader, "in_order", True)
        if not in_order or type(sampler) not in SAMPLERS or type(batches) not in BATCHES:
            raise TypeError(
                "a checkpoint needs batches that can be drawn again, and the loader has samplers "
                "of its own, persistent workers or batches out of order: give "
                "DataLoader(data, batch_size, shuffle=True), tensors or arrays, or leave "
                "checkpoint out"
            )
        drawn = (getattr(part, "generator", None) for part in (loader, sampler))
        generators |= {id(generator): generator for generator in drawn if generator is not None}
    return list(generators.values())
