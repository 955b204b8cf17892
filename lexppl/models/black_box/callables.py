"""A torch module, or a function of arrays, as a black box: both have to say what they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from lexppl.evaluation_mode import evaluating
from lexppl.models.black_box.box import BlackBox, Task
from lexppl.models.black_box.outputs import (
    Output,
    distribution_targets,
    meant_by,
    numbers_of,
    refuse_classes_of_responses,
)
from lexppl.models.likelihoods import Likelihood


def of_module(
    model: nn.Module,
    classes: int | None,
    task: Task | None,
    output: Output | None,
    batch_rows: int,
) -> BlackBox:
    """A module in evaluation mode, which is put back as it was."""
    name = type(model).__name__
    likelihood = getattr(model, "likelihood", None)
    if isinstance(likelihood, Likelihood):
        own: Task = "classification" if likelihood.discrete else "regression"
        if output is not None:
            raise ValueError(
                f"{name} has a likelihood, which says what it returns; leave output={output!r} out"
            )
        if task is not None and task != own:
            raise ValueError(f"{name} is for {own}, by its {type(likelihood).__name__}; {task}")
        refuse_classes_of_responses(name, own, classes)

        def ask_distribution(rows: Tensor) -> Tensor:
            with evaluating(model):
                return distribution_targets(model(rows)).double()

        return BlackBox(
            name,
            own,
            classes,
            batch_rows,
            ask_distribution,
            lambda x: _refuse_elsewhere(model, name, x),
        )
    settled, meaning = _settled_task(name, task, output, classes, default=None)

    def ask(rows: Tensor) -> Tensor:
        with evaluating(model):
            given = model(rows)
        return meant_by(numbers_of(given, name), meaning, name)

    return BlackBox(
        name, settled, classes, batch_rows, ask, lambda x: _refuse_elsewhere(model, name, x)
    )


def of_function(
    function: Callable[..., Any],
    classes: int | None,
    task: Task | None,
    output: Output | None,
    batch_rows: int,
) -> BlackBox:
    """A function from an array `(B, *event)`."""
    name = getattr(function, "__name__", type(function).__name__)
    settled, meaning = _settled_task(name, task, output, classes, default="probabilities")

    def ask(rows: Tensor) -> Tensor:
        return meant_by(numbers_of(function(rows.detach().cpu().numpy()), name), meaning, name)

    return BlackBox(name, settled, classes, batch_rows, ask, _any_input)


def _any_input(x: Tensor) -> None:
    """Whether a function takes the rows is for the function to say."""


def _settled_task(
    name: str, task: Task | None, output: Output | None, classes: int | None, default: Output | None
) -> tuple[Task, Output]:
    """The task and the meaning of the outputs, once what was said of them agrees."""
    if output is None:
        output = "response" if task == "regression" else default
    if output is None:
        raise ValueError(f"say what {name} returns: output='logits', 'probabilities' or 'response'")
    implied: Task = "regression" if output == "response" else "classification"
    if task is not None and task != implied:
        raise ValueError(f"{name}: output={output!r} means {implied}, and task is {task!r}")
    refuse_classes_of_responses(name, implied, classes)
    return implied, output


def _refuse_elsewhere(model: nn.Module, name: str, x: Tensor) -> None:
    """Refuse rows on another device or of another type than the module's."""
    held = next((p for p in model.parameters() if p.is_floating_point()), None)
    if held is None:
        return
    if held.device != x.device:
        raise ValueError(f"x is on {x.device} and {name} on {held.device}; move one to the other")
    if x.is_floating_point() and held.dtype != x.dtype:
        raise ValueError(
            f"x is {x.dtype} and {name} is {held.dtype}; convert one, as in x.to({held.dtype})"
        )
