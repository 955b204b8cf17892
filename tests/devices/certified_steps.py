"""A fit's training step on tensors that have a device and no values."""

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from lexppl.inference import fit
from lexppl.inference.contexts import program_settings
from lexppl.inference.predictive import FittedProgram
from lexppl.inference.training import step as steps
from lexppl.inference.training.compiled import graph_inputs
from lexppl.inference.training.loop import TrainingLoop
from lexppl.inference.training.rows import StepRows
from tests.devices.value_free import ValueFree
from tests.devices.watched_operations import watched

DRAWN_ROWS, DRAWS = 5, 3
MIDWAY = 0.5
"""Of a stage, where the entropy has not faded yet and the penalty has begun."""


@dataclass
class Certificate:
    """What was certified.

    Args:
        stages: of the fit, each with a step and a validation.
        operations: of torch that were seen.
    """

    stages: int = 0
    operations: int = 0


class _DoneError(Exception):
    """Leaves a fit whose steps are certified."""


def certify_steps(kind: str, model: Any, train: Any, **options: Any) -> Certificate:
    """Prepare a fit on the CPU, as `fit` does it, and run a step and a validation of each of its
    stages without values.

    Each is run twice, and the second is watched: at the first, a program may put down what it
    keeps. On fake CUDA, where torch's engine asks for a driver, the gradients are zeros.

    Args:
        kind: of :class:`ValueFree`.
        model, train, options: as `fit` takes them.

    Raises:
        ElsewhereError: something is made on another device, or is copied from the host.
        RuntimeError: something needs a number; as torch has it.
    """
    certificate = Certificate()

    def run(loop: TrainingLoop) -> None:
        for stage in loop.runner.template.stages:
            make_optimizer = loop.settings.optimizer_of(stage)
            _certify(loop, stage, make_optimizer, ValueFree(kind), certificate)
        raise _DoneError

    with patch.object(TrainingLoop, "run", run):
        try:
            fit(model, train, **{"valid": None, "progress": False, **options})
        except _DoneError:
            return certificate
    raise AssertionError("no training step was reached")


def _certify(
    loop: TrainingLoop, stage: Any, make_optimizer: Any, like: ValueFree, certificate: Certificate
) -> None:
    step, runner = loop._step(stage, make_optimizer), loop.runner
    rows = _rows(loop.rows, like)
    names = sorted({name for moved in step.terms for name in moved.learned})
    controls = sorted({name for moved in step.terms for name in moved.controls})
    with ExitStack() as scope:
        hold = (runner.template, runner.parameters, runner.buffers, runner._settings)
        scope.enter_context(like.held_by(*hold))
        scope.enter_context(like.running())
        if like.mode is not None:
            scope.enter_context(patch.object(steps, "_gradients", _zeros))
        else:
            # Torch's fused Adam is for devices that have one.
            make_optimizer = partial(torch.optim.SGD, lr=0.1)
        tuned = [runner.parameters[name] for name in controls]
        step = replace(
            step,
            optimizer=make_optimizer([runner.parameters[name] for name in names]),
            tuner=torch.optim.SGD(tuned, lr=0.1) if tuned else None,
            total=rows.total if isinstance(step.total, Tensor) else step.total,
        )
        runner.template.train()
        _run(step, rows, loop.settings.batch_size)
        with watched(like.device) as operations:
            _run(step, rows, loop.settings.batch_size)
            _give_graphs(step, rows, loop.settings.batch_size)
        runner.template.eval()
        with torch.no_grad():
            _validate(step, rows, loop.settings.batch_size)
            with watched(like.device) as validating:
                _validate(step, rows, loop.settings.batch_size)
        drawing = 0
        if runner.count == 1:
            drawing = _draw(stage.terms[0], rows, like)
    certificate.stages += 1
    certificate.operations += operations.count + validating.count + drawing


def _run(step: steps.TrainingStep, rows: Any, size: int) -> None:
    batch, weights = next(rows.weighted_batches(size, shuffle=True))
    step.run(StepRows(batch, weights, batch[0].shape[rows.row_dim], MIDWAY))


def _give_graphs(step: steps.TrainingStep, rows: Any, size: int) -> None:
    """What each step hands to the graphs of `TrainingOptions(compile=True)`."""
    batch, weights = next(rows.weighted_batches(size, shuffle=False))
    given = StepRows(batch, weights, batch[0].shape[rows.row_dim], MIDWAY)
    for moved in step.terms:
        moving = moved.term.objective.at(MIDWAY).moving
        for one in graph_inputs(step, given, {} if moving is None else moving.numbers):
            assert one.device.type == batch[0].device.type


def _validate(step: steps.TrainingStep, rows: Any, size: int) -> None:
    moved = step.terms[0]
    batch, weights = next(rows.weighted_batches(size, shuffle=False))
    objective = moved.term.objective.at(1.0)
    with step.plain_calls:
        step.runner.losses(moved.term, objective, batch, rows.by_replicate, weights, moved.plate)


def _draw(term: Any, rows: Any, like: ValueFree) -> int:
    """What `explain` and a predictive draw: masks, imputations and responses of a few rows."""
    batch, _ = next(rows.weighted_batches(DRAWN_ROWS, shuffle=False))
    x = batch[0][0] if rows.by_replicate else batch[0]
    with program_settings(validate=False), torch.no_grad():
        for watches in (nullcontext(), watched(like.device)):
            program = FittedProgram(term.model, term.guide, (x[:1],), draws=DRAWS)
            with watches as operations:
                for run, _ in program.runs((x,), imputations=2):
                    for site in run.sites.values():
                        assert site.value is None or site.value.device.type == like.device.type
    return operations.count if operations is not None else 0


def _rows(rows: Any, like: ValueFree) -> Any:
    """The rows of a fit on the device."""
    return replace(rows, columns=tuple(like(column) for column in rows.columns))


def _zeros(
    losses: Tensor, moved: list[Tensor], weight: float, total: Any, create_graph: bool
) -> tuple[Tensor, ...]:
    return tuple(torch.zeros_like(parameter) for parameter in moved)
