"""Epochs over batches: gradients, steps, validation, the best state."""

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.inference.batches import Rows
from lexppl.inference.contexts import MiniBatch, seeded
from lexppl.inference.mixed_precision import MixedPrecision
from lexppl.inference.replicates import Replicates
from lexppl.inference.stages import LossTerm, OptimizerFactory, Stage
from lexppl.inference.training.checkpoint import LoopState, SavedState, StageProgress
from lexppl.inference.training.compiled import CompiledTerms
from lexppl.inference.training.distributed import Dealt, OneProcess, Processes, SharedStep, own_seed
from lexppl.inference.training.first_look import FirstLook, spare_from_decay
from lexppl.inference.training.rows import StepRows
from lexppl.inference.training.settings import FitSettings
from lexppl.inference.training.step import MovedTerm, TrainingStep, nan_losses
from lexppl.inference.training.watch import BestStates, Epoch, EpochLoss, SkippedSteps, epochs_shown

CONTROL_RATE = 1e-2  # Adam's rate for what is tuned on the gradient's variance


@dataclass
class TrainingLoop:
    """The state of one fit as it goes; `records` are losses `(R,)`, stage and seconds by epoch."""

    runner: Replicates
    rows: Rows
    held_out: Rows | None
    settings: FitSettings
    saved: SavedState | None = None
    processes: OneProcess = field(default_factory=OneProcess)
    interrupted: bool = False
    records: list[tuple[np.ndarray, np.ndarray, int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.best_valid = np.full(self.runner.count, np.nan)
        self.best_epoch = np.zeros(self.runner.count, dtype=int)
        self.skipped = SkippedSteps(self.runner.count)
        self.compiled = None
        if self.settings.backend is not None:
            rounded = None if self.settings.precision is None else torch.bfloat16
            self.compiled = CompiledTerms(self.settings.backend, rounded)

    def run(self) -> None:
        """Minimise each stage's terms for its epochs, and put its best state back."""
        stages = self.runner.template.stages
        epochs = [self.settings.epochs_of(stage, len(self.rows)) for stage in stages]
        self._state = state = None if self.saved is None else LoopState(self, self.saved)
        begin = 0 if state is None else self.processes.each(lambda: state.begin(len(stages)))
        cut_short = False
        shown = self.settings.progress if self.processes.leads else False
        with epochs_shown(shown, sum(epochs), len(self.records)) as bar:
            for number in range(begin, len(stages)):
                cut_short = self._stage(number, stages[number], epochs[number], bar)
                if self.interrupted or self.skipped.ended is not None:
                    break
        if state is not None and begin < len(stages):
            if cut_short:
                state.warn_of_interruption()
            else:
                state.finish()

    def _stage(self, number: int, stage: Stage, epochs: int, bar: Any) -> bool:
        """Run a stage; whether Ctrl-C has ended it."""
        step = self._step(stage, self.settings.optimizer_of(stage))
        make_scheduler = self.settings.scheduler
        scheduler = None if make_scheduler is None else make_scheduler(step.optimizer)
        best = BestStates(self.runner, unseen=self.held_out is None or stage.keeps_last)
        course = StageProgress(number, step, scheduler, best)
        if (state := self._state) is not None:
            self.processes.each(lambda: state.enter(course))
        first, start = len(self.records) - course.epochs, time.perf_counter()
        self._seen = EpochLoss((), 1.0)
        cut_short = False
        try:
            for epoch in range(course.epochs, course.epochs if course.ended else epochs):
                start = time.perf_counter()
                train = self._epoch(course, epoch, epochs)
                if scheduler is not None:
                    scheduler.step()
                valid = self._validate(stage.terms[0], self.held_out)
                bar.set_postfix(train=f"{train.mean():.4f}", valid=f"{valid.mean():.4f}")
                bar.update()
                self._end_epoch(course, stage, train, valid, (epoch + 1) / epochs, start)
                if state is not None:
                    self.processes.each(partial(state.epoch_over, course))
                if course.ended:
                    break
        except KeyboardInterrupt:
            self.interrupted = cut_short = True
            if len(self.records) == first:
                self._take_short(step, best, number, time.perf_counter() - start)
        self.best_valid = best.put_back()
        self._refuse_lost(stage)
        return cut_short

    def _refuse_lost(self, stage: Stage) -> None:
        """Refuse a stage whose state has a finite loss in no replicate."""
        is_watched = self.held_out is not None and not stage.keeps_last
        if self.interrupted or not (is_watched or self.skipped.in_a_row.all()):
            return
        losses = self.best_valid if is_watched else self._validate(stage.terms[0], self.rows)
        if not np.isfinite(losses).any():
            cause = self.skipped.cause or "try a lower learning rate, or clip_norm=1.0"
            raise FloatingPointError(
                f"no weights that the fit could end with have a finite loss: {cause}"
            )

    def _end_epoch(
        self,
        course: StageProgress,
        stage: Stage,
        train: np.ndarray,
        valid: np.ndarray,
        reached: float,
        start: float,
    ) -> None:
        """Record an epoch, and find whether it is the stage's last."""
        at = len(self.records)
        self.skipped.end_where_stuck(at)
        self.records.append((train, valid, course.stage, time.perf_counter() - start))
        improved = course.best.take(train, valid)
        self.best_epoch = np.where(improved, at, self.best_epoch)
        settled = max(term.objective.settled for term in stage.terms)
        waits = not improved.any() and reached >= settled
        course.waited = course.waited + 1 if waits else 0
        course.epochs += 1
        skipped = self.skipped.count.tolist()
        copies = self.runner.snapshot, skipped, self.runner.separated
        seen = Epoch(at, course.stage, reached, train, valid, *copies)
        callbacks = self.settings.callbacks
        self.interrupted = self.processes.any(
            lambda: any([callback(seen) is True for callback in callbacks])
        )
        patience = self.settings.patience
        lost_patience = patience is not None and course.waited >= patience
        course.ended = self.interrupted or lost_patience or self.skipped.ended is not None

    def _step(self, stage: Stage, make_optimizer: OptimizerFactory) -> TrainingStep:
        """What a stage does with each batch, after a first look at its programs."""
        runner, settings = self.runner, self.settings
        learned = [runner.template.learned_by(term) for term in stage.terms]
        for term, names in zip(stage.terms, learned, strict=True):
            if not names:
                raise ValueError(
                    f"the term of {type(term.model).__name__} learns nothing: none of its modules "
                    "has a parameter that requires a gradient"
                )
        moved = {name: runner.parameters[name] for name in sorted(set().union(*learned))}
        self._look = look = self.processes.each(
            lambda: FirstLook.at(stage, runner, self.rows, settings, self.processes)
        )
        optimizer = make_optimizer(list(moved.values()))
        spared = {name: value for name, value in moved.items() if name in look.spared}
        spare_from_decay(optimizer, spared, warns=settings.states_decay(stage))
        controls = [runner.template.controls_of(term) for term in stage.terms]
        tuned = [runner.parameters[name] for name in sorted(set().union(*controls))]
        shared = None
        if isinstance(self.processes, Processes):
            every, terms = [*moved.values(), *tuned], len(stage.terms)
            shared = SharedStep(self.processes, runner, self.rows, every, terms, settings.seed)
        products = nullcontext() if settings.precision is None else None
        return TrainingStep(
            runner=runner,
            terms=[
                MovedTerm(term, of_term, of_controls, look.plates[id(term)])
                for term, of_term, of_controls in zip(stage.terms, learned, controls, strict=True)
            ],
            optimizer=optimizer,
            tuner=torch.optim.Adam(tuned, lr=CONTROL_RATE) if tuned else None,
            rows=len(self.rows),
            total=self.rows.total,
            by_replicate=self.rows.by_replicate,
            plain_calls=look.plain_calls,
            rate=settings.rate_of(stage),
            clip_norm=settings.clip_norm,
            compiled=self.compiled,
            shared=shared,
            products=products or MixedPrecision(runner.template, list(moved)),
        )

    def _loss_of(self, step: TrainingStep) -> np.ndarray:
        """The mean loss of an epoch's steps by replicate, without skipped ones."""
        seen = self._seen
        made = step.guard.epoch_over(len(seen))
        self.skipped.add(made, seen.steps)
        return seen.mean(made)

    def _take_short(self, step: TrainingStep, best: BestStates, stage: int, seconds: float) -> None:
        """Keep what a first epoch that was cut short has learned; it is not validated."""
        train = self._loss_of(step)
        if np.isfinite(train).any():
            best.take_as_is(train)
            self.best_epoch[:] = len(self.records)
            unknown = np.full(self.runner.count, np.nan)
            self.records.append((train, unknown, stage, seconds))

    def _epoch(self, course: StageProgress, epoch: int, epochs: int) -> np.ndarray:
        """One pass over the rows; the mean loss by replicate."""
        step, size = course.step, self.settings.batch_size
        self.runner.template.train()
        steps = max(1, math.ceil(len(self.rows) / size))
        self._seen = seen = EpochLoss([moved.term for moved in step.terms], step.total)
        batches = self.rows.weighted_batches(size, shuffle=True)
        for number, (batch, weights) in enumerate(batches):
            at = (epoch + min(number / steps, 1.0)) / epochs
            count = batch[0].shape[self.rows.row_dim]
            rows = StepRows(batch, weights, count, at, len(self.records) * steps + number)
            seen.add(step.run(rows), count)
        return self._loss_of(step)

    @torch.no_grad()
    def _validate(self, term: LossTerm, held_out: Rows | None) -> np.ndarray:
        """Loss of held-out rows under the final objective, with the same draws each time."""
        if held_out is None:
            return np.full(self.runner.count, np.nan)
        none = next(iter(self.runner.parameters.values())).new_zeros(self.runner.count)
        total = self.processes.sum_of(lambda: none + self._held_out_loss(term, held_out), none)
        return total.cpu().numpy()

    def _held_out_loss(self, term: LossTerm, held_out: Rows) -> Tensor | float:
        """The validation loss, or this process's part in it, `(R,)`."""
        runner, look, processes = self.runner, self._look, self.processes
        dealt = Dealt(held_out, processes.rank, processes.count)
        seed = self.settings.seed
        seed = own_seed(seed, -1, processes.rank) if processes.count > 1 else seed
        objective = term.objective.at(1.0)
        runner.template.eval()
        total: Tensor | float = 0.0
        rows, by_replicate = len(held_out), held_out.by_replicate
        weight = held_out.total if held_out.is_weighted else None
        plate = look.plates[id(term)]
        at_once = max(self.settings.batch_size, 1000)
        with seeded(seed, held_out.device):
            for batch, weights in held_out.weighted_batches(at_once, shuffle=False):
                batch, weights, size = dealt.of(batch, weights)
                if not size:
                    continue
                with look.plain_calls, MiniBatch(rows, size, plate):
                    try:
                        loss = runner.losses(term, objective, batch, by_replicate, weights, plate)
                    except RuntimeError as error:
                        loss = nan_losses(error, runner)
                share = size / rows**2 if weight is None else size / rows / weight
                total = total + loss * share
        return total
