"""One step of a stage: losses and gradients on a batch, and what the optimizers make of them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lexppl.effects import FoldShift
from lexppl.inference.contexts import MiniBatch
from lexppl.inference.objective.objective import Objective
from lexppl.inference.plain_calls import PlainCalls
from lexppl.inference.replicates.replicates import Replicates
from lexppl.inference.runs_together import RunsTogether
from lexppl.inference.schedules import Schedule
from lexppl.inference.schedules import at as at_progress
from lexppl.inference.stages import LossTerm
from lexppl.inference.training.distributed.distributed_step import SharedStep
from lexppl.inference.training.rows.step_rows import StepRows
from lexppl.inference.training.step_guard import StepGuard, laid_out_as
from lexppl.inference.training.weight_decay import PartDecay


@dataclass(frozen=True)
class MovedTerm:
    """A term of a stage and the names of what it moves.

    Args:
        term: the term.
        learned: names of the parameters that its gradient moves.
        controls: names of those that are tuned on that gradient's variance.
        plate: over the rows of a batch; None where none was found.
    """

    term: LossTerm
    learned: Sequence[str]
    controls: Sequence[str]
    plate: str | None


@dataclass(frozen=True)
class TermGradients:
    """What a term gives a step.

    Args:
        loss: `(R,)`, an estimate of the whole data set's.
        learned: the gradient of what the term moves, in that order; None where there is none.
        controls: the same of what is tuned.
    """

    loss: Tensor
    learned: Sequence[Tensor | None]
    controls: Sequence[Tensor | None] = ()


@dataclass
class TrainingStep:
    """What a stage does with each batch.

    Args:
        runner: the replicates.
        terms: of the stage.
        optimizer: of what is learned.
        tuner: of the estimators' control parameters, where there are some.
        rows: N, of the data set.
        total: N, or `(R,)` the sum of each replicate's row weights.
        by_replicate: whether replicates have rows of their own.
        plain_calls: the modules that run as well without Pyro's attribute look-ups.
        together: the programs of which an estimator's runs can be made as one.
        rate: the learning rate over the stage; None where the optimizer has its own.
        clip_norm: largest norm of a replicate's gradient.
        part_decay: the weight decay by part, where it is not the optimizer's.
        compiled: finds a term's gradients by graphs, given the step, the term and the rows; None
            for the program itself.
        shared: what adds the processes' shares of a batch up; None for one process.
        products: entered while a program is run, for the precision of its layers' products.
    """

    runner: Replicates
    terms: Sequence[MovedTerm]
    optimizer: Optimizer
    tuner: Optimizer | None
    rows: int
    total: float | Tensor
    by_replicate: bool
    plain_calls: PlainCalls
    together: RunsTogether
    rate: float | Schedule | None = None
    clip_norm: float | None = None
    part_decay: PartDecay | None = None
    compiled: Callable[["TrainingStep", MovedTerm, StepRows], TermGradients] | None = None
    shared: SharedStep | None = None
    products: AbstractContextManager[Any] = field(default_factory=nullcontext)

    def __post_init__(self) -> None:
        tuners = [] if self.tuner is None else [self.tuner]
        self.guard = StepGuard(self.runner.count, [self.optimizer, *tuners])

    def run(
        self, batch: tuple[Tensor, ...], weights: Tensor | None, size: int, at: float
    ) -> list[Tensor]:
        """Move the parameters once, but for those of replicates whose loss or gradient is not
        finite (:class:`StepGuard`).

        Args:
            batch: the columns of a batch.
            weights: of its rows, `(R, B)`, or None.
            size: B.
            at: how far the stage is, in [0, 1].

        Returns:
            The loss of each term, `(R,)`, an estimate of the whole data set's.
        """
        self.optimizer.zero_grad(set_to_none=True)
        if self.tuner is not None:
            self.tuner.zero_grad(set_to_none=True)
        if self.rate is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = at_progress(self.rate, at)
        rows = StepRows(batch, weights, size, at)
        if self.shared is None:
            losses = self._differentiate_all(rows)
        else:
            joints = sum(bool(moved.controls) for moved in self.terms)
            losses = self.shared.losses(self._differentiate_all, rows, joints)
        if self.clip_norm is not None:
            held = [p for group in self.optimizer.param_groups for p in group["params"]]
            _clip(held, self.clip_norm, self.runner.count)
        if self.part_decay is not None:
            self.part_decay.add()
        self.guard.step(losses)
        return losses

    def _differentiate_all(self, rows: StepRows) -> list[Tensor]:
        """Leave the terms' gradients with the parameters; the losses, `(R,)` of each."""
        return [self._differentiate(moved, rows) for moved in self.terms]

    def _differentiate(self, moved: MovedTerm, rows: StepRows) -> Tensor:
        """Add a term's gradients to what its parameters have; its loss, `(R,)`."""
        if self.compiled is None:
            found = self.evaluate(moved, rows, moved.term.objective.at(rows.at))
        else:
            found = self.compiled(self, moved, rows)
        _add([self.runner.parameters[name] for name in moved.controls], found.controls)
        _add([self.runner.parameters[name] for name in moved.learned], found.learned)
        return found.loss

    def evaluate(self, moved: MovedTerm, rows: StepRows, objective: Objective) -> TermGradients:
        """A term's loss and gradients by running its program.

        Args:
            moved: the term.
            rows: of the step.
            objective: the term's, as it stands.
        """
        term, runner = moved.term, self.runner
        with (
            runner.moving_only({*moved.learned, *moved.controls}),
            self.plain_calls,
            self.together if self.together else nullcontext(),
            self.products,
            MiniBatch(self.rows, rows.size, moved.plate),
            shifted(term),
        ):
            loss = runner.losses(
                term, objective, rows.batch, self.by_replicate, rows.weights, moved.plate
            )
        parameters = [runner.parameters[name] for name in moved.learned]
        controls = [runner.parameters[name] for name in moved.controls]
        gradients = _gradients(
            loss, parameters, term.weight, self.total, create_graph=bool(controls)
        )
        of_controls: tuple[Tensor | None, ...] = ()
        if controls:
            whole = None if self.shared is None else self.shared.joint(parameters, gradients)
            of_controls = gradient_of_square(gradients, controls, whole)
        return TermGradients(loss.detach(), gradients, of_controls)


def shifted(term: LossTerm) -> AbstractContextManager[Any]:
    """The predictors that a term runs with on training rows.

    Args:
        term: of a stage.
    """
    return nullcontext() if term.fold_shift is None else FoldShift(term.fold_shift)


def _gradients(
    losses: Tensor, moved: list[Tensor], weight: float, total: float | Tensor, create_graph: bool
) -> tuple[Tensor | None, ...]:
    """Gradients of a term's share of the step, `Σ_r weight · loss_r / N`."""
    if not losses.requires_grad:
        return (None,) * len(moved)
    # Given as the losses' own gradient, the share costs no node of the graph.
    share = torch.ones_like(losses) / total
    found: tuple[Tensor | None, ...] = torch.autograd.grad(
        losses,
        moved,
        grad_outputs=share if weight == 1.0 else share * weight,
        allow_unused=True,
        create_graph=create_graph,
    )
    return found


def _add(parameters: list[Tensor], gradients: Sequence[Tensor | None]) -> None:
    """Add gradients to those that the parameters have."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        gradient = laid_out_as(parameter, gradient.detach())
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def gradient_of_square(
    gradients: Sequence[Tensor | None],
    controls: list[Tensor],
    whole: Sequence[Tensor | None] | None = None,
) -> tuple[Tensor | None, ...]:
    """Gradient of the squared gradient in what does not move its mean: that of its variance.

    Args:
        gradients: of the loss.
        controls: what does not move its mean.
        whole: the gradients of which those are a part; None where they are all. `2 Σ G · g` has
            the part's share of the derivative of `Σ G²`.
    """
    if whole is None:
        squares = [g.square().sum() for g in gradients if g is not None and g.requires_grad]
    else:
        pairs = zip(gradients, whole, strict=True)
        squares = [
            2.0 * (g * all_of.detach()).sum()
            for g, all_of in pairs
            if g is not None and all_of is not None and g.requires_grad
        ]
    if not squares:
        return (None,) * len(controls)
    found: tuple[Tensor | None, ...] = torch.autograd.grad(
        torch.stack(squares).sum(), controls, allow_unused=True
    )
    return found


def _clip(parameters: list[Tensor], norm: float, replicates: int) -> None:
    """Shorten each replicate's gradient to the given norm."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if replicates == 1:
        torch.nn.utils.clip_grad_norm_(parameters, norm)
        return
    squares = [g.flatten(1).square().sum(1) for g in gradients]
    factor = (norm / (torch.stack(squares).sum(0).sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.reshape(-1, *[1] * (gradient.dim() - 1)))
