"""The state of a training loop: taken at the end of an epoch, and put back."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
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
from lexppl.inference.contexts import seeded
from lexppl.inference.stages import OptimizerFactory, Stage
from lexppl.inference.training.checkpoint import SavedState
from lexppl.inference.training.rows.rows import TrainingRows
from lexppl.inference.training.step import TrainingStep
from lexppl.inference.training.watch import BestStates
from lexppl.summary import counted

if TYPE_CHECKING:
    from lexppl.inference.training.loop import TrainingLoop

Plan = Sequence[tuple[Stage, int, OptimizerFactory]]

SAMPLERS = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers whose next order follows from a generator's state alone."""


@dataclass
class Course:
    """How far a stage is.

    Args:
        stage: its number.
        step: what it does with each batch.
        scheduler: of its optimizer.
        best: the best states so far.
        epochs: that are over.
        waited: those since the last improvement.
        ended: whether no more are to come.
    """

    stage: int
    step: TrainingStep
    scheduler: Any
    best: BestStates
    epochs: int = 0
    waited: int = 0
    ended: bool = False


class LoopState:
    """The state of a training loop, taken at the end of an epoch and put back.

    Args:
        loop: as it is before its first step.
        saved: the file.

    Raises:
        TypeError: a loader whose batches cannot be drawn again.
    """

    def __init__(self, loop: TrainingLoop, saved: SavedState) -> None:
        self._loop, self._saved = loop, saved
        self._generators = _generators([loop.rows, loop.held_out])
        runner = loop.runner
        held = (*runner.parameters.values(), *runner.buffers.values())
        devices = {tensor.device for tensor in held} | {loop.rows.device}
        self._devices = sorted((d for d in devices if d.type == "cuda"), key=str)
        # Versions tell which of the tensors that training does not move a program has changed.
        self._versions = {n: (b, _version(b)) for n, b in runner.template.named_buffers()}
        self._state: dict[str, Any] | None = None

    def begin(self, plan: Plan) -> int:
        """Look for a state to go on from; the number of the stage to begin with, which is the
        number of stages where the fit had come to its end.

        Args:
            plan: all stages.

        Raises:
            TypeError: an optimizer or a scheduler whose state cannot be put back.
        """
        loop, runner = self._loop, self._loop.runner
        for stage, _, make_optimizer in plan:
            names = sorted({n for term in stage.terms for n in runner.template.learned_by(term)})
            moved = [runner.parameters[name] for name in names]
            if moved:
                _refuse_unrestorable(moved, make_optimizer, loop.settings.scheduler)
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
            return len(plan)
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
        moved = {
            name: buffer.detach()
            for name, buffer in template.named_buffers()
            if name not in own and self._has_moved(name, buffer)
        }
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
            "buffers": moved,
            "numbers": _numbers(template),
            "drawn in place": [loop.runner.draws.seen(which) for which in self._programs()],
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

    def _programs(self) -> list[tuple[int, bool]]:
        """What the replicates' draws are known by: each term, when judged and when trained."""
        stages = self._loop.runner.template.stages
        terms = [term for stage in stages for term in stage.terms]
        return [(id(term), training) for term in terms for training in (False, True)]

    def _has_moved(self, name: str, buffer: Tensor) -> bool:
        before, number = self._versions.get(name, (None, 0))
        return buffer is not before or _version(buffer) != number

    @torch.no_grad()
    def _put_back(self, state: dict[str, Any]) -> None:
        runner = self._loop.runner
        runner.load(state["moved"])
        for which, seen in zip(self._programs(), state["drawn in place"], strict=True):
            if seen is not None:
                runner.draws.take_as_seen(which, seen)
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

    def _put_back_random(self, states: Sequence[Tensor]) -> None:
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


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place."""
    return 0 if tensor.is_inference() else tensor._version


def _refuse_unrestorable(
    parameters: Iterable[Tensor], make_optimizer: OptimizerFactory, make_scheduler: Any
) -> None:
    """Try an optimizer on copies, and refuse one that goes another way once its state has been put
    back from a file, or whose state no file can hold."""
    device = next(iter(parameters)).device

    def begin(values: Iterable[Tensor]) -> tuple[list[Tensor], list[Any]]:
        held = [value.detach().clone().requires_grad_() for value in values]
        optimizer = make_optimizer(held)
        return held, [optimizer, *([make_scheduler(optimizer)] if make_scheduler else [])]

    def step(held: list[Tensor], movers: list[Any]) -> None:
        for number in (1, 2):
            for value in held:
                value.grad = torch.full_like(value, 0.5**number) + value.detach()
            for mover in movers:
                mover.step()

    with seeded(0, device):
        first, movers = begin(parameters)
        step(first, movers)
        again, copies = begin(first)
    for mover, copy in zip(movers, copies, strict=True):
        copy.load_state_dict(_from_file(mover))
    for held, both in ((first, movers), (again, copies)):
        with seeded(1, device):
            step(held, both)
    if not all(map(torch.equal, first, again)):
        names = ", or ".join(type(mover).__name__ for mover in movers)
        raise TypeError(
            f"{names} goes another way once its state_dict() has been put back: it holds what is "
            "not in there, so that a fit cannot be continued; leave checkpoint out, or put it into "
            "the state"
        )


def _from_file(mover: Any) -> Any:
    content = io.BytesIO()
    try:
        torch.save(mover.state_dict(), content)
        content.seek(0)
        return torch.load(content, weights_only=True)
    except Exception as error:
        raise TypeError(
            f"the state of {type(mover).__name__} holds what a checkpoint cannot, which holds "
            f"numbers, words, tensors, and lists and mappings of them: {error}"
        ) from error


def _generators(rows: Iterable[TrainingRows | None]) -> list[torch.Generator]:
    """The generators, besides torch's default ones, that the next batches of loaders follow from;
    a loader whose batches follow from something else too is refused."""
    found: dict[int, torch.Generator] = {}
    for one in rows:
        # What has batches of its own draws them from torch's default generator.
        if not isinstance(one, LoadedRows) or isinstance(one.loader, HasBatches):
            continue
        loader, batches = one.loader, one.loader.batch_sampler
        sampler = getattr(batches, "sampler", loader.sampler)
        reason = None
        if loader.persistent_workers:
            reason = "has persistent workers, whose random states go on from epoch to epoch"
        elif not getattr(loader, "in_order", True):
            reason = "gives batches in the order in which workers are done"
        elif type(sampler) not in SAMPLERS:
            reason = f"has a {type(sampler).__name__}"
        elif batches is not None and type(batches) is not BatchSampler:
            reason = f"has a {type(batches).__name__}"
        if reason is not None:
            raise TypeError(
                f"a checkpoint needs batches that can be drawn again, and the loader {reason}: "
                "give DataLoader(data, batch_size, shuffle=True), tensors or arrays, or leave "
                "checkpoint out"
            )
        drawn = (getattr(part, "generator", None) for part in (loader, sampler))
        found |= {id(generator): generator for generator in drawn if generator is not None}
    return list(found.values())
