"""One step of a stage: losses and gradients on a batch, and what the optimizers make of them."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from lexppl.argument_checks import finite_float
from lexppl.inference.contexts import MiniBatch
from lexppl.inference.objective.objective import Objective, Schedule
from lexppl.inference.objective.objective import at as at_progress
from lexppl.inference.objective.program import PlainCalls
from lexppl.inference.replicates import Replicates
from lexppl.inference.stages import LossTerm, shifted
from lexppl.inference.training.distributed import SharedStep
from lexppl.inference.training.rows import StepRows

DRAWS_FROM_NAN = (
    "Expected p_in >= 0",
    "probability tensor contains either",
    "elements of std >= 0",
)
"""Of torch's errors of Bernoulli, categorical and normal draws."""


@dataclass(frozen=True)
class MovedTerm:
    """A term, names of what it moves and of what it tunes, and its plate over rows."""

    term: LossTerm
    learned: Sequence[str]
    controls: Sequence[str]
    plate: str | None


@dataclass(frozen=True)
class TermGradients:
    """A term's loss `(R,)`, of the whole data set, and gradients of what is learned and tuned."""

    loss: Tensor
    learned: Sequence[Tensor | None]
    controls: Sequence[Tensor | None] = ()


@dataclass
class TrainingStep:
    """What a stage does with each batch of its N rows."""

    runner: Replicates
    terms: Sequence[MovedTerm]
    optimizer: Optimizer
    tuner: Optimizer | None
    rows: int
    total: float | Tensor
    by_replicate: bool
    plain_calls: PlainCalls
    rate: float | Schedule | None = None
    clip_norm: float | None = None
    compiled: Callable[["TrainingStep", MovedTerm, StepRows], TermGradients] | None = None
    shared: SharedStep | None = None
    products: AbstractContextManager[Any] = field(default_factory=nullcontext)

    def __post_init__(self) -> None:
        tuners = [] if self.tuner is None else [self.tuner]
        self.guard = StepGuard(self.runner.count, [self.optimizer, *tuners])

    def run(self, rows: StepRows) -> list[Tensor]:
        """Move the parameters of replicates with finite gradients; the losses `(R,)` by term."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.tuner is not None:
            self.tuner.zero_grad(set_to_none=True)
        if self.rate is not None:
            rate = finite_float("learning_rate", at_progress(self.rate, rows.at), least=0.0)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        if self.shared is None:
            losses = self._differentiate_all(rows)
        else:
            losses = self.shared.losses(self._differentiate_all, rows)
        if self.clip_norm is not None:
            held = [p for group in self.optimizer.param_groups for p in group["params"]]
            _clip(held, self.clip_norm, self.runner.count)
        self.guard.step(losses)
        return losses

    def _differentiate_all(self, rows: StepRows) -> list[Tensor]:
        """Leave the terms' gradients with the parameters; the losses, `(R,)` of each."""
        losses = []
        for moved in self.terms:
            try:
                if self.compiled is None:
                    of_term = self.evaluate(moved, rows, moved.term.objective.at(rows.at))
                else:
                    of_term = self.compiled(self, moved, rows)
            except RuntimeError as error:
                lost = nan_losses(error, self.runner)
                of_term = TermGradients(
                    lost, [None] * len(moved.learned), [None] * len(moved.controls)
                )
            gradients = (*of_term.controls, *of_term.learned)
            for name, gradient in zip((*moved.controls, *moved.learned), gradients, strict=True):
                if gradient is not None:
                    _add(self.runner.parameters[name], gradient)
            losses.append(of_term.loss)
        return losses

    def evaluate(self, moved: MovedTerm, rows: StepRows, objective: Objective) -> TermGradients:
        """A term's loss and gradients by running its program."""
        term, runner = moved.term, self.runner
        with (
            runner.moving_only({*moved.learned, *moved.controls}),
            self.plain_calls,
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
        of_controls = gradient_of_square(gradients, controls, rows.share) if controls else ()
        return TermGradients(loss.detach(), gradients, of_controls)


def nan_losses(error: RuntimeError, runner: Replicates) -> Tensor:
    """The losses `(R,)` of a program that draws from probabilities that are NaN; another error is
    raised again."""
    if not any(words in str(error) for words in DRAWS_FROM_NAN):
        raise error
    return next(iter(runner.parameters.values())).new_full((runner.count,), math.nan)


class StepGuard:
    """Steps of optimizers, but for replicates whose loss or gradient is NaN or infinite.

    Elsewhere than on a CPU nothing waits for a number: what was there before the step is put back
    by a flag, and flags are read after the epoch.
    """

    def __init__(self, replicates: int, optimizers: Sequence[Optimizer]) -> None:
        self._replicates, self._optimizers = replicates, optimizers
        self._flags: list[tuple[int, Tensor]] = []
        self._steps = 0

    def step(self, losses: Sequence[Tensor]) -> None:
        """Move what has finite gradients, given losses `(R,)` by term."""
        groups = (group for optimizer in self._optimizers for group in optimizer.param_groups)
        gradients = [p.grad for group in groups for p in group["params"] if p.grad is not None]
        place, self._steps = self._steps, self._steps + 1
        device = losses[0].device.type
        if device == "cpu" and not bool(_not_finite([*gradients, torch.cat(list(losses))])):
            for optimizer in self._optimizers:
                optimizer.step()
            return
        rows = [t.reshape(self._replicates, -1) for t in (*gradients, *losses)]
        good = torch.cat(rows, 1).isfinite().all(1)
        self._flags.append((place, good))
        if device != "cpu" or bool(good.any()):
            self._step_of(gradients, good)

    def epoch_over(self, steps: int) -> NDArray[np.bool_]:
        """Which of an epoch's steps were made, `(T, R)`; the next epoch begins."""
        # Ctrl-C may come between a step and its loss.
        made = np.ones((max(steps, self._steps), self._replicates), dtype=bool)
        if self._flags:
            places, flags = zip(*self._flags, strict=True)
            made[list(places)] = torch.stack(flags).cpu().numpy()
        self._flags, self._steps = [], 0
        return made[:steps]

    @torch.no_grad()
    def _step_of(self, gradients: Sequence[Tensor], good: Tensor) -> None:
        """A step of some of the replicates; the others' parameters and moments are put back."""
        for gradient in gradients:
            # Zeros, so that what an optimizer has not made yet begins finite.
            gradient.copy_(torch.where(self._wide(good, gradient), gradient, 0.0))
        before = {id(tensor): tensor.clone() for tensor, _ in self._moved()}
        for optimizer in self._optimizers:
            optimizer.step()
        for tensor, by_replicate in self._moved():
            moves = self._wide(good, tensor) if by_replicate else good.any()
            # What was made in this step begins with zeros.
            was = before.get(id(tensor), torch.zeros_like(tensor))
            tensor.copy_(torch.where(moves, tensor, was))

    def _moved(self) -> list[tuple[Tensor, bool]]:
        """Parameters and optimizers' tensors, and whether each replicate has its own."""
        return [
            (tensor, tensor.shape == parameter.shape)
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
            for tensor in (parameter, *optimizer.state.get(parameter, {}).values())
            if isinstance(tensor, Tensor) and tensor.device == parameter.device
        ]

    def _wide(self, good: Tensor, tensor: Tensor) -> Tensor:
        """Whether a step is good, `(R, 1, …)`; a scalar of one replicate."""
        return good.any() if self._replicates == 1 else good.reshape(-1, *[1] * (tensor.dim() - 1))


def _not_finite(tensors: list[Tensor]) -> Tensor:
    """1 where a number of any is not finite, else 0, as automatic mixed precision finds it."""
    flag = torch.zeros((), dtype=torch.float32, device=tensors[0].device)
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, flag, torch.ones_like(flag))
    return flag


def _add(parameter: Tensor, gradient: Tensor) -> None:
    """Add a gradient to that which a parameter has."""
    gradient = gradient.detach()
    if gradient.stride() != parameter.stride():
        # Fused Adam pairs the two by place in memory.
        gradient = torch.empty_like(parameter).copy_(gradient)
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def _gradients(
    losses: Tensor, moved: list[Tensor], weight: float, total: float | Tensor, create_graph: bool
) -> tuple[Tensor | None, ...]:
    """Gradients of a term's share of the step, `Σ_r weight · loss_r / N`."""
    if not losses.requires_grad:
        return (None,) * len(moved)
    share = torch.ones_like(losses) / total * weight
    # A sum, since `grad_outputs` makes torch import sympy.
    return torch.autograd.grad(
        (losses * share).sum(), moved, allow_unused=True, create_graph=create_graph
    )


def gradient_of_square(
    gradients: Sequence[Tensor | None], controls: list[Tensor], share: float = 1.0
) -> tuple[Tensor | None, ...]:
    """Gradient of the squared gradient in what does not move its mean: that of its variance."""
    squares = [g.square().sum() for g in gradients if g is not None and g.requires_grad]
    if not squares:
        return (None,) * len(controls)
    return torch.autograd.grad(share * torch.stack(squares).sum(), controls, allow_unused=True)


def _clip(parameters: list[Tensor], norm: float, replicates: int) -> None:
    """Shorten each replicate's gradient to a norm."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if replicates == 1:
        torch.nn.utils.clip_grad_norm_(parameters, norm)
        return
    squares = [g.flatten(1).square().sum(1) for g in gradients]
    factor = (norm / (torch.stack(squares).sum(0).sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.reshape(-1, *[1] * (gradient.dim() - 1)))
