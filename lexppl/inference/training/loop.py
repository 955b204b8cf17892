"""Epochs over batches: gradients, steps, validation, the best state."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lexppl.inference.contexts import MiniBatch, program_settings, rows_plate, seeded
from lexppl.inference.plain_calls import PlainCalls
from lexppl.inference.pyro_parameters import refuse_unheld
from lexppl.inference.replicates.replicate_rows import Rows, batch_rows, of_replicate
from lexppl.inference.replicates.replicates import Replicates, weighing
from lexppl.inference.runs_together import RunsTogether
from lexppl.inference.schedules import Schedule
from lexppl.inference.stages import LossTerm, OptimizerFactory, Stage, TrainingModules
from lexppl.inference.training.alike_together import alike_together
from lexppl.inference.training.checkpoints.checkpoints import KeptStates
from lexppl.inference.training.checkpoints.loop_state import Course, LoopStates
from lexppl.inference.training.compiled.compiled_terms import CompiledTerms
from lexppl.inference.training.distributed.distributed import Processes
from lexppl.inference.training.distributed.distributed_rows import Dealt, refuse_unshared
from lexppl.inference.training.distributed.distributed_step import OwnDraws, shared_step
from lexppl.inference.training.first_look import FirstLook, runs_alike_plainly
from lexppl.inference.training.mixed_precision import (
    Precision,
    products_of,
    refuse_rounded_away,
)
from lexppl.inference.training.rows.row_weights import (
    TrainingRows,
    WeightedRows,
    batches_with_weights,
    refuse_unweighted,
)
from lexppl.inference.training.stage_rates import CONTROL_RATE, rate_of
from lexppl.inference.training.step import MovedTerm, TrainingStep, shifted
from lexppl.inference.training.watched.best_states import BestStates
from lexppl.inference.training.watched.epoch_loss import EpochLoss
from lexppl.inference.training.watched.progress import Progress, epochs_shown
from lexppl.inference.training.watched.skipped_steps import SkippedSteps
from lexppl.inference.training.weight_decay import (
    PartDecay,
    parameters_with_a_prior,
    spare_from_decay,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Epoch:
    """What a callback sees after each epoch; losses by replicate, in nats a row, a function that
    gives copies of all that training moves, by name `(R, …)`, by replicate the steps so far that
    were skipped, as they were not finite, and a function that gives each replicate's modules as
    they are, in evaluation mode."""

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


@dataclass
class TrainingLoop:
    """The state of one fit as it goes."""

    runner: Replicates
    rows: TrainingRows
    held_out: Rows | WeightedRows | None
    batch_size: int
    clip_norm: float | None
    patience: int | None
    seed: int
    callbacks: tuple[Callback, ...] = ()
    make_scheduler: Callable[[Optimizer], LRScheduler] | None = None
    learning_rate: float | Schedule | None = None
    """Of the fit's own optimizer; None where the user brings one."""
    rate_is_default: bool = False
    """Whether that is the fit's own, which gives way to a stage's."""
    decay_is_default: bool = True
    """Whether the weight decay is the fit's own; of one asked for, what it spares is told."""
    decays: Mapping[str, tuple[float, ...]] | None = None
    """The weight decay by parameter and replicate, where it is not the optimizer's."""
    kept: KeptStates | None = None
    """Where the fit's state is written; None for nowhere."""
    compiled: CompiledTerms | None = None
    """Finds gradients by graphs; None where the programs themselves are run."""
    processes: Processes | None = None
    """Those that share the rows of each batch; None for one by itself."""
    precision: Precision | None = None
    """Of the steps' products; None for the model's own."""
    interrupted: bool = False
    records: list[tuple[np.ndarray, np.ndarray, int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.best_valid = np.full(self.runner.count, np.nan)
        self.best_epoch = np.zeros(self.runner.count, dtype=int)
        self._rows_plates: dict[int, str | None] = {}
        self._plain_calls, self._together = PlainCalls(()), RunsTogether(())
        self.skipped = SkippedSteps(self.runner.count)

    def run(self, plan: list[tuple[Stage, int, OptimizerFactory]], progress: Progress) -> None:
        """Minimise each stage's terms for its epochs, and put its best state back."""
        total = sum(epochs for _, epochs, _ in plan)
        self._states = None if self.kept is None else LoopStates(self, self.kept)
        begin = 0
        if (states := self._states) is not None:
            begin = self._each(lambda: states.begin(plan))
        cut_short = False
        leads = self.processes is None or self.processes.leads
        with epochs_shown(progress if leads else False, total, len(self.records)) as bar:
            for number, (stage, epochs, optimizer) in list(enumerate(plan))[begin:]:
                cut_short = self._stage(number, stage, epochs, optimizer, bar)
                if self.interrupted or self.skipped.ended is not None:
                    break
        if self._states is not None and begin < len(plan):
            if cut_short:
                self._states.tell_of_interruption()
            else:
                self._states.finish()

    def _stage(
        self, number: int, stage: Stage, epochs: int, make_optimizer: OptimizerFactory, bar: Any
    ) -> bool:
        """Run a stage; whether Ctrl-C has ended it."""
        step = self._step(stage, make_optimizer)
        scheduler = None
        if self.make_scheduler is not None:
            scheduler = self.make_scheduler(step.optimizer)
        best = BestStates(self.runner, unseen=self.held_out is None or stage.keeps_last)
        settled = max(term.objective.settled for term in stage.terms)
        course = Course(number, step, scheduler, best)
        if (states := self._states) is not None:
            self._each(lambda: states.enter(course))
        first, start = len(self.records) - course.epochs, time.perf_counter()
        self._seen = EpochLoss((), 1.0)
        cut_short = False
        try:
            for epoch in range(course.epochs, course.epochs if course.ended else epochs):
                start = time.perf_counter()
                train = self._epoch(course, epoch, epochs)
                if scheduler is not None:
                    scheduler.step()
                valid = self._validate(stage.terms[0])
                seconds = course.spent + time.perf_counter() - start
                at = len(self.records)
                self.skipped.end_where_stuck(at)
                self.records.append((train, valid, number, seconds))
                improved = best.take(train, valid)
                self.best_epoch = np.where(improved, at, self.best_epoch)
                reached = (epoch + 1) / epochs
                waits = not improved.any() and reached >= settled
                course.waited = course.waited + 1 if waits else 0
                bar.set_postfix(train=f"{train.mean():.4f}", valid=f"{valid.mean():.4f}")
                bar.update()
                skipped = self.skipped.count.tolist()
                copies = self.runner.snapshot, skipped, self.runner.separated
                seen = Epoch(at, number, reached, train, valid, *copies)
                self.interrupted = self._is_to_end(seen)
                lost_patience = self.patience is not None and course.waited >= self.patience
                ends = self.interrupted or lost_patience or self.skipped.ended is not None
                course.epochs, course.ended = epoch + 1, ends
                if states is not None:
                    self._each(partial(states.epoch_over, course))
                if course.ended:
                    break
        except KeyboardInterrupt:
            self.interrupted = cut_short = True
            if len(self.records) == first:
                self._take_short(step, best, number, time.perf_counter() - start)
        self.best_valid = best.put_back()
        return cut_short

    def _step(self, stage: Stage, make_optimizer: OptimizerFactory) -> TrainingStep:
        """What a stage does with each batch, after a first look at its programs."""
        runner = self.runner
        learned = [runner.template.learned_by(term) for term in stage.terms]
        for term, names in zip(stage.terms, learned, strict=True):
            if not names:
                raise ValueError(
                    f"the term of {type(term.model).__name__} learns nothing: none of its modules "
                    "has a parameter that requires a gradient"
                )
        names = sorted(set().union(*learned))
        spared = self._each(lambda: self._first_step(stage))
        optimizer = make_optimizer([runner.parameters[name] for name in names])
        spare_from_decay(
            optimizer,
            {name: runner.parameters[name] for name in names if name in spared},
            warns=not (self.decay_is_default and stage.optimizer is None),
        )
        part_decay = None
        if self.decays is not None and stage.optimizer is None:
            moved = {name: runner.parameters[name] for name in names}
            part_decay = PartDecay(moved, self.decays, spared)
        controls = [runner.template.controls_of(term) for term in stage.terms]
        tuned = [runner.parameters[name] for name in sorted(set().union(*controls))]
        rows = len(self.rows)
        return TrainingStep(
            runner=runner,
            terms=[
                MovedTerm(term, of_term, of_controls, self._rows_plates[id(term)])
                for term, of_term, of_controls in zip(stage.terms, learned, controls, strict=True)
            ],
            optimizer=optimizer,
            tuner=torch.optim.Adam(tuned, lr=CONTROL_RATE) if tuned else None,
            rows=rows,
            total=self.rows.total if isinstance(self.rows, WeightedRows) else rows,
            by_replicate=self.rows.by_replicate,
            plain_calls=self._plain_calls,
            together=self._together,
            rate=rate_of(stage, self.learning_rate, self.rate_is_default),
            clip_norm=self.clip_norm,
            part_decay=part_decay,
            compiled=self.compiled,
            shared=shared_step(
                self.processes,
                runner,
                self.rows,
                [*(runner.parameters[name] for name in names), *tuned],
                terms=len(stage.terms),
                seed=self.seed,
            ),
            products=products_of(self.precision, runner.template, names),
        )

    def _each(self, work: Callable[[], T]) -> T:
        """What is done here; where processes share the fit, once all have done it."""
        return work() if self.processes is None else self.processes.each(work)

    def _is_to_end(self, seen: Epoch) -> bool:
        """Whether a callback says so, in any process."""

        def ask() -> bool:
            return any([call(seen) is True for call in self.callbacks])

        return ask() if self.processes is None else self.processes.any(ask)

    def _loss_of(self, step: TrainingStep) -> np.ndarray:
        """The mean loss of an epoch's steps so far by replicate; those that were skipped are
        counted and left out."""
        seen = self._seen
        made = step.guard.epoch_over(len(seen))
        self.skipped.add(made, None if made.all() else seen.steps().cpu().numpy())
        return seen.mean(made)

    def _take_short(self, step: TrainingStep, best: BestStates, stage: int, seconds: float) -> None:
        """Of a first epoch that was cut short, which is not validated, keep what it has learned."""
        train = self._loss_of(step)
        if np.isfinite(train).any():
            best.take_as_is(train)
            self.best_epoch[:] = len(self.records)
            unknown = np.full(self.runner.count, np.nan)
            self.records.append((train, unknown, stage, seconds))

    def _first_step(self, stage: Stage) -> set[str]:
        """Run each term once with every check on, and keep nothing of it but the names of the
        parameters that no weight decay may move."""
        first = batches_with_weights(self.rows, self.batch_size, shuffle=False)
        if self.processes is None:
            batch, weights = next(first)
        else:
            # The first one's share in each process: all see the same, and it is never empty.
            dealt = Dealt.among(self.rows, 0, self.processes.count)
            batch, weights, _ = dealt.of(*next(first))
        template = self.runner.template
        buffers = {n: (b, b.clone()) for n, b in template.named_buffers()}
        spared: set[str] = set()
        plain: list[Any] = [part for t in stage.terms for part in (t.model, t.guide)]
        together: list[Any] = [term.model for term in stage.terms]
        alike = not (self.runner.differ or self.rows.by_replicate)
        for replicate in range(1 if alike else self.runner.count):
            with self.runner.replicate(replicate) as template:
                rows = of_replicate(self.rows, batch, replicate)
                of_rows = None if weights is None else weights[replicate]
                if self.precision is not None:
                    refuse_rounded_away(rows[0], template)
                spared |= self._check(template, stage, rows, of_rows)
                with seeded(self.seed, self.rows.device):
                    plain = [program for program in plain if runs_alike_plainly(program, rows)]
                together = alike_together(template, stage.terms, together, rows, self.seed)
        self._plain_calls, self._together = PlainCalls(plain), RunsTogether(together)
        with torch.no_grad():
            for name, buffer in self.runner.template.named_buffers():
                before, values = buffers[name]
                # What stays as it was given is in no checkpoint. Its version would not tell: batch
                # norm moves its statistics and leaves that as it is.
                if buffer is not before or not torch.equal(buffer, values):
                    buffer.copy_(values)
        return spared

    def _check(
        self,
        template: TrainingModules,
        stage: Stage,
        batch: tuple[Tensor, ...],
        weights: Tensor | None,
    ) -> set[str]:
        names = {id(value): name for name, value in template.named_parameters()}
        spared: set[str] = set()
        for term in stage.terms:
            with seeded(self.seed, self.rows.device), program_settings(validate=True):
                look = FirstLook.at(term.model, term.guide, batch)
                nodes = (*look.model.values(), *look.guide.values())
                plate = rows_plate(nodes, len(batch[0]))
                self._rows_plates[id(term)] = plate
                if weights is not None:
                    refuse_unweighted(term, plate)
                if self.processes is not None:
                    refuse_unshared(term, look, plate, batch)
                term.objective.refuse_uncovered(look.model, look.guide)
                held = parameters_with_a_prior(term, look.model)
                spared |= {names[id(parameter)] for parameter in held if id(parameter) in names}
                with (
                    MiniBatch(len(self.rows), len(batch[0]), plate),
                    shifted(term),
                    weighing(weights, plate),
                ):
                    loss = template(term, term.objective, batch)
            parts = (template, *term.objective.modules)
            refuse_unheld(loss, (p for part in parts for p in part.parameters()))
            if not bool(torch.isfinite(loss.detach())):
                raise FloatingPointError(
                    f"the loss of the first batch is {float(loss.detach())}; look for labels or "
                    "features that the model gives probability zero"
                )
        return spared

    def _epoch(self, course: Course, epoch: int, epochs: int) -> np.ndarray:
        """One pass over the rows; the mean loss by replicate."""
        step = course.step
        self.runner.template.train()
        steps = max(1, math.ceil(len(self.rows) / self.batch_size))
        self._seen = seen = EpochLoss([moved.term for moved in step.terms], step.total)
        batches = batches_with_weights(self.rows, self.batch_size, shuffle=True)
        if step.shared is not None:
            step.shared.draws.begin(len(self.records))
        numbered: Iterable[Any] = enumerate(batches)
        if self._states is not None:
            numbered = self._states.within(course, batches, seen)
        for number, (batch, weights) in numbered:
            at = (epoch + min(number / steps, 1.0)) / epochs
            size = batch_rows(self.rows, batch)
            seen.add(step.run(batch, weights, size, at), size)
        return self._loss_of(step)

    @torch.no_grad()
    def _validate(self, term: LossTerm) -> np.ndarray:
        """Loss of the validation rows under the final objective, with the same draws each time; by
        weight where they have weights."""
        if (held_out := self.held_out) is None:
            return np.full(self.runner.count, np.nan)
        if self.processes is None:
            return self._held_out_loss(term, held_out, None, self.seed).cpu().numpy()
        rank, count = self.processes.rank, self.processes.count
        dealt = Dealt.among(held_out, rank, count)
        seed = OwnDraws(self.seed, rank, held_out.device).seed_of(None)
        total = self.processes.sum_of(
            lambda: self._held_out_loss(term, held_out, dealt, seed), self._no_losses
        )
        return total.cpu().numpy()

    def _no_losses(self) -> Tensor:
        return next(iter(self.runner.parameters.values())).new_zeros(self.runner.count)

    def _held_out_loss(
        self, term: LossTerm, held_out: Rows | WeightedRows, dealt: Dealt | None, seed: int
    ) -> Tensor:
        """The validation loss, or this process's part in it, `(R,)`."""
        runner = self.runner
        objective = term.objective.at(1.0)
        runner.template.eval()
        total = self._no_losses()
        rows, own = len(held_out), held_out.by_replicate
        weight = held_out.total if isinstance(held_out, WeightedRows) else None
        plate = self._rows_plates[id(term)]
        at_once = max(self.batch_size, 1000)
        with seeded(seed, held_out.device):
            for batch, weights in batches_with_weights(held_out, at_once, shuffle=False):
                if dealt is not None:
                    batch, weights, _ = dealt.of(batch, weights)
                size = batch_rows(held_out, batch)
                if not size:
                    continue
                with self._plain_calls, MiniBatch(rows, size, plate):
                    loss = runner.losses(term, objective, batch, own, weights, plate)
                share = size / rows**2 if weight is None else size / rows / weight
                total = total + loss * share
        return total
