"""A training loop's state: taken at the end of an epoch or within one, put back to go on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from lexppl.inference.stages import OptimizerFactory, Stage
from lexppl.inference.training.checkpoints.checkpoints import KeptStates
from lexppl.inference.training.checkpoints.fit_identity import digest_of_fitted
from lexppl.inference.training.checkpoints.restorable import (
    generators_of,
    refuse_unrestorable,
    restore_optimizer,
)
from lexppl.inference.training.checkpoints.within_epoch import Batch, EpochBatches
from lexppl.inference.training.step import TrainingStep
from lexppl.inference.training.watched.best_states import BestStates
from lexppl.inference.training.watched.epoch_loss import EpochLoss

if TYPE_CHECKING:
    from lexppl.inference.training.loop import TrainingLoop

Plan = Sequence[tuple[Stage, int, OptimizerFactory]]


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
        spent: seconds of the present epoch before the fit was stopped within it.
    """

    stage: int
    step: TrainingStep
    scheduler: LRScheduler | None
    best: BestStates
    epochs: int = 0
    waited: int = 0
    ended: bool = False
    spent: float = 0.0


class LoopStates:
    """What is written of a loop, and how it goes on from there.

    Args:
        loop: as it is before its first step.
        kept: the folder.

    Raises:
        TypeError: a loader whose batches cannot be drawn again.
    """

    def __init__(self, loop: TrainingLoop, kept: KeptStates) -> None:
        self._loop, self._kept = loop, kept
        self._generators = generators_of([loop.rows, loop.held_out])
        runner = loop.runner
        held = (*runner.parameters.values(), *runner.buffers.values())
        devices = {tensor.device for tensor in (*held, torch.empty(0, device=loop.rows.device))}
        self._devices = sorted((d for d in devices if d.type == "cuda"), key=str)
        own = {id(tensor) for tensor in held} if runner.count == 1 else set()
        names = {*runner.parameters, *runner.buffers}
        self._others = {
            name: (tensor, _version(tensor))
            for name, tensor in _tensors(runner.template).items()
            if id(tensor) not in own and name not in names
        }
        self._numbers = _numbers(runner.template)
        self._found: dict[str, Any] | None = None
        self._within: dict[str, Any] | None = None

    def begin(self, plan: Plan) -> int:
        """Look for a state to go on from.

        Args:
            plan: all stages.

        Returns:
            The stage to begin with; their number where the fit had come to its end.

        Raises:
            TypeError: an optimizer or a scheduler whose state cannot be put back.
            ValueError: what was fitted to rows before the first step is another than it was.
        """
        loop, runner = self._loop, self._loop.runner
        for one, _, make_optimizer in plan:
            names = sorted({n for term in one.terms for n in runner.template.learned_by(term)})
            if names:
                moved = [runner.parameters[name] for name in names]
                refuse_unrestorable(moved, make_optimizer, loop.make_scheduler)
        self._found = state = self._kept.found
        self._kept.found = None
        self._kept.from_all(torch.zeros(1))
        self._kept.clear_remains()
        self._fitted = digest_of_fitted(runner)
        if state is None:
            return 0
        if state["fitted"] != self._fitted:
            raise ValueError(
                f"{self._kept.folder} holds the state of a fit whose trees are others than those "
                "that the same rows and seed give here; remove it to begin anew"
            )
        records = state["records"]
        loop.records[:] = list(
            zip(
                records["train"],
                records["valid"],
                map(int, records["stage"]),
                map(float, records["seconds"]),
                strict=True,
            )
        )
        loop.best_epoch, loop.best_valid = state["best_epoch"], state["best_valid"]
        loop.interrupted = bool(state["interrupted"])
        vars(loop.skipped).update(state["skipped"])
        if state["finished"]:
            self._put_back(state)
            return len(plan)
        # A graph that is not compiled has the program's own operations.
        if loop.compiled is not None and loop.compiled.backend == "inductor":
            self._kept.tell_of_compiling()
        stage = int(state["stage"])
        if stage > 0:
            # The first look at a stage is at what the one before has learned.
            self._put_back(state)
        return stage

    def enter(self, course: Course) -> None:
        """Go on with a stage where it was; at the very beginning, write what there is.

        Args:
            course: of the stage, as it begins.
        """
        state, self._found = self._found, None
        if state is None:
            if course.stage == 0:
                self._kept.write(self._taken(course), first=True)
            return
        self._put_back(state)
        course.epochs, course.waited = int(state["stage_epochs"]), int(state["waited"])
        course.ended = bool(state["ended"])
        course.best.restore(state["best_states"], state["best_losses"])
        restore_optimizer(course.step.optimizer, state["optimizer"])
        if course.step.tuner is not None:
            restore_optimizer(course.step.tuner, state["tuner"])
        if course.scheduler is not None:
            course.scheduler.load_state_dict(state["scheduler"])
        self._within = state.get("within")
        # There may be more processes than there were.
        self._put_back_random(state["random"][min(self._kept.rank, len(state["random"]) - 1)])

    def within(
        self, course: Course, batches: Iterator[Batch], seen: EpochLoss
    ) -> Iterator[tuple[int, Batch]]:
        """An epoch's batches by number, from where it was left; between two of them the state is
        written, where it is time to.

        Args:
            course: of the stage.
            batches: of the epoch, from its beginning.
            seen: what the epoch's steps put their losses down in.
        """
        before, self._within = self._within, None
        course.spent, guard = 0.0, course.step.guard
        drawn = EpochBatches(batches, self._own_random, self._put_back_random)
        if before is not None:
            drawn.go_to(before["place"])
            seen.restore(before["losses"])
            guard.restore(before["guard"])
            course.spent = before["spent"]
        begun, alone = time.perf_counter() - course.spent, self._loop.processes is None
        for batch in drawn:
            yield drawn.number - 1, batch
            if alone and drawn.can_be_left and self._kept.is_due_within():
                place = {
                    "place": drawn.place(),
                    "losses": seen.state(),
                    "guard": guard.state(),
                    "spent": time.perf_counter() - begun,
                }
                self._kept.write({**self._taken(course), "within": place})

    def epoch_over(self, course: Course) -> None:
        """Write the state, where it is time to.

        Args:
            course: of the stage, at the end of an epoch and of what it decides.
        """
        if self._kept.is_due(course.epochs):
            self._kept.write(self._taken(course))

    def tell_of_interruption(self) -> None:
        """Tell where the fit can be continued from."""
        self._kept.tell_of_interruption()

    def finish(self) -> None:
        """Write what the fit has come to."""
        try:
            self._kept.write({**self._common(), "finished": True})
        except KeyboardInterrupt:
            # The fit is whole; its last epochs can be had again from the state before.
            self._loop.interrupted = True

    def _common(self) -> dict[str, Any]:
        loop = self._loop
        template = loop.runner.template
        train, valid, stage, seconds = zip(*loop.records, strict=True) if loop.records else [()] * 4
        return {
            "epochs": len(loop.records),
            "fitted": self._fitted,
            "interrupted": loop.interrupted,
            "records": {
                "train": np.array(train),
                "valid": np.array(valid),
                "stage": np.array(stage, dtype=int),
                "seconds": np.array(seconds),
            },
            "best_epoch": loop.best_epoch,
            "best_valid": loop.best_valid,
            "skipped": vars(loop.skipped),
            "moved": loop.runner.snapshot(),
            "numbers": {
                name: number
                for name, number in _numbers(template).items()
                if self._numbers.get(name) != number
            },
            "drawn in place": [loop.runner.draws.seen(which) for which in self._programs()],
            "others": {
                name: tensor
                for name, tensor in _tensors(template).items()
                if name in self._others and self._has_moved(name, tensor)
            },
        }

    def _taken(self, course: Course) -> dict[str, Any]:
        step, best = course.step, course.best
        return {
            **self._common(),
            "finished": False,
            "stage": course.stage,
            "stage_epochs": course.epochs,
            "waited": course.waited,
            "ended": course.ended,
            "best_states": best.states,
            "best_losses": best.valid,
            "optimizer": step.optimizer.state_dict(),
            "tuner": None if step.tuner is None else step.tuner.state_dict(),
            "scheduler": None if course.scheduler is None else course.scheduler.state_dict(),
            "random": self._random(),
            "within": None,
        }

    def _programs(self) -> list[tuple[int, bool]]:
        """What the replicates' draws are told apart by: each term, when judged and when trained."""
        stages = self._loop.runner.template.stages
        terms = [term for stage in stages for term in stage.terms]
        return [(id(term), training) for term in terms for training in (False, True)]

    def _has_moved(self, name: str, tensor: Tensor) -> bool:
        before, version = self._others[name]
        return tensor is not before or _version(tensor) != version

    def _put_back(self, state: dict[str, Any]) -> None:
        runner = self._loop.runner
        present = runner.snapshot()
        shapes = {name: tensor.shape for name, tensor in present.items()}
        if shapes != {name: tensor.shape for name, tensor in state["moved"].items()}:
            raise ValueError(
                f"{self._kept.folder} holds parameters of other names or shapes; remove it to "
                "begin anew"
            )
        runner.load(state["moved"])
        for which, seen in zip(self._programs(), state["drawn in place"], strict=True):
            if seen is not None:
                runner.draws.take_as_seen(which, seen)
        for name, number in state["numbers"].items():
            path, _, attribute = name.rpartition(".")
            setattr(runner.template.get_submodule(path), attribute, number)
        tensors = _tensors(runner.template)
        for name, value in state["others"].items():
            _put(runner.template, name, tensors.get(name), value)

    def _random(self) -> list[list[Tensor]]:
        """The random states of each process."""
        each = [self._kept.from_all(one) for one in self._own_random()]
        return [list(of_rank) for of_rank in zip(*each, strict=True)]

    def _own_random(self) -> list[Tensor]:
        own = [torch.get_rng_state()]
        own += [torch.cuda.get_rng_state(device) for device in self._devices]
        return own + [generator.get_state() for generator in self._generators]

    def _put_back_random(self, states: Sequence[Tensor]) -> None:
        first, *others = (state.cpu() for state in states)
        torch.set_rng_state(first)
        for device, state in zip(self._devices, others, strict=False):
            torch.cuda.set_rng_state(state, device)
        own = others[len(self._devices) :]
        for generator, state in zip(self._generators, own, strict=True):
            generator.set_state(state)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _numbers(module: nn.Module) -> dict[str, Any]:
    """The numbers and words that modules have, as what counts its calls does."""
    return {
        f"{path}.{name}": value
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, bool | int | float | str) and name != "training"
    }


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place."""
    return 0 if tensor.is_inference() else tensor._version


def _put(module: nn.Module, name: str, present: Tensor | None, value: Tensor) -> None:
    """Let a module's tensor be what it was, of whatever shape that is."""
    if present is not None and (present.shape, present.dtype) == (value.shape, value.dtype):
        with torch.no_grad():
            present.copy_(value)
        return
    path, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(path), attribute, value)
