"""The state of a training loop: taken at the end of an epoch, and put back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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

from lexppl.inference.batches import HasBatches, LoadedRows
from lexppl.inference.replicates.replicate_rows import Rows
from lexppl.inference.training.checkpoint import SavedState
from lexppl.inference.training.step import TrainingStep
from lexppl.inference.training.watch import BestStates
from lexppl.summary import counted

if TYPE_CHECKING:
    from lexppl.inference.training.loop import TrainingLoop

SAMPLERS = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers whose next order follows from a generator's state alone."""
BATCHES = (BatchSampler, type(None))


@dataclass
class Course:
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
        self._generators = _generators([loop.rows, loop.held_out])
        runner = loop.runner
        held = (*runner.parameters.values(), *runner.buffers.values())
        devices = {tensor.device for tensor in held} | {loop.rows.device}
        self._devices = sorted((d for d in devices if d.type == "cuda"), key=str)
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

    def enter(self, course: Course) -> None:
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

    def epoch_over(self, course: Course) -> None:
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
        own = loop.runner.buffers
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
            "buffers": {n: b.detach() for n, b in template.named_buffers() if n not in own},
            "numbers": _numbers(template),
            "draws_in_place": loop.runner.draws_in_place,
        }

    def _taken(self, course: Course) -> dict[str, Any]:
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
            "random": self._random(),
        }

    @torch.no_grad()
    def _put_back(self, state: dict[str, Any]) -> None:
        runner = self._loop.runner
        runner.load(state["moved"])
        runner.draws_in_place = state["draws_in_place"]
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

    def _random(self) -> list[Tensor]:
        own = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self._devices)]
        return own + [generator.get_state() for generator in self._generators]

    def _put_back_random(self, states: Iterable[Tensor]) -> None:
        first, *others = (state.cpu() for state in states)
        torch.set_rng_state(first)
        for device, state in zip(self._devices, others, strict=False):
            torch.cuda.set_rng_state(state, device)
        own = others[len(self._devices) :]
        for generator, state in zip(self._generators, own, strict=True):
            generator.set_state(state)


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
    found: dict[int, torch.Generator] = {}
    for one in rows:
        # What has batches of its own draws them from torch's default generator.
        if not isinstance(one, LoadedRows) or isinstance(one.loader, HasBatches):
            continue
        loader, batches = one.loader, one.loader.batch_sampler
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
        found |= {id(generator): generator for generator in drawn if generator is not None}
    return list(found.values())
