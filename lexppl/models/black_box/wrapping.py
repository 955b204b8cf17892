"""A fitted model of any make as a black box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
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


def of_estimator(
    model: Any,
    classes: int | None,
    labels: tuple[str, ...] | None,
    task: Task | None,
    output: Output | None,
    batch_rows: int,
) -> BlackBox:
    """A classifier by its `predict_proba`, a regressor by its `predict`."""
    name = type(model).__name__
    own = _task_of(model, name, task, output)
    refuse_classes_of_responses(name, own, classes)

    def check_input(x: Tensor) -> None:
        _refuse_other_tables(model, name, x)

    if own == "regression":

        def ask_response(rows: Tensor) -> Tensor:
            return meant_by(numbers_of(model.predict(_table(model, rows)), name), "response", name)

        return BlackBox(name, own, None, batch_rows, ask_response, check_input)

    own_labels = getattr(model, "classes_", None)
    places = None if own_labels is None else _places(name, own_labels, classes, labels)
    if places is not None and classes is None:
        classes = len(places)

    def ask_probabilities(rows: Tensor) -> Tensor:
        given = numbers_of(model.predict_proba(_table(model, rows)), name)
        if given.dim() != 2:
            raise ValueError(
                f"{name}.predict_proba must give shape (N, C); it gave {tuple(given.shape)}"
            )
        if places is None or classes is None:
            return given
        if given.shape[1] != len(places):
            raise ValueError(
                f"{name}.predict_proba must give a column for each of its {len(places)} labels; "
                f"it gave {given.shape[1]}"
            )
        placed = given.new_zeros(len(given), classes)
        placed[:, places] = given
        return placed

    return BlackBox(name, own, classes, batch_rows, ask_probabilities, check_input)


def _task_of(model: Any, name: str, task: Task | None, output: Output | None) -> Task:
    """What the estimator is for, once what was said of it agrees and it is fitted."""
    if output is not None:
        raise ValueError(
            f"{name} is asked by predict_proba or predict, whose outputs are known; leave "
            f"output={output!r} out"
        )
    from sklearn.base import BaseEstimator, is_classifier  # noqa: PLC0415 - slow to import
    from sklearn.utils.validation import check_is_fitted  # noqa: PLC0415 - slow to import

    known = isinstance(model, BaseEstimator)
    if known:
        check_is_fitted(model)
    of_labels = hasattr(model, "predict_proba")
    own: Task = "classification" if of_labels or (known and is_classifier(model)) else "regression"
    if task is not None and task != own:
        raise ValueError(f"{name} is for {own}, and task is {task!r}")
    if own == "classification" and not of_labels:
        raise ValueError(
            f"{name} has no predict_proba, and an explainer needs probabilities; use one that has, "
            "or wrap it in sklearn.calibration.CalibratedClassifierCV"
        )
    return own


def _refuse_other_tables(model: Any, name: str, x: Tensor) -> None:
    """Refuse rows that are no table of as many features as the estimator was fitted on."""
    if x.dim() != 2:
        raise ValueError(f"{name} takes tables (N, D); x has shape {tuple(x.shape)}")
    expected = getattr(model, "n_features_in_", None)
    if expected is not None and x.shape[1] != expected:
        raise ValueError(f"{name} was fitted on {expected} features; x has {x.shape[1]}")


def _table(model: Any, rows: Tensor) -> Any:
    """Rows as an array, or as a frame for an estimator that was fitted on one."""
    array = rows.detach().cpu().numpy()
    columns = getattr(model, "feature_names_in_", None)
    if columns is None:
        return array
    import pandas as pd  # noqa: PLC0415 - slow to import

    return pd.DataFrame(array, columns=columns)


def _places(
    name: str, own_labels: Any, classes: int | None, labels: tuple[str, ...] | None
) -> list[int]:
    """The label 0 … C−1 that each column of `predict_proba` stands for."""
    own = [label.item() if isinstance(label, np.generic) else label for label in own_labels]
    count = len(own) if classes is None else classes
    by_number = None
    if all(isinstance(label, int | float) and float(label).is_integer() for label in own):
        numbers = [int(label) for label in own]
        by_number = numbers if all(0 <= number < count for number in numbers) else None
    by_name = None
    if labels is not None and all(str(label) in labels for label in own):
        by_name = [labels.index(str(label)) for label in own]
    if by_number is not None and by_name is not None and by_number != by_name:
        raise ValueError(
            f"{name} has the labels {own}, which are places 0 to {count - 1} as well as names in "
            f"classes={list(labels or ())}, and the two disagree; refit it on labels that are one "
            "of them, or give classes as a number"
        )
    places = by_name if by_name is not None else by_number
    if places is None:
        expected = f"0 to {count - 1}" if labels is None else f"among {list(labels)}"
        raise ValueError(
            f"{name} must have labels {expected}; it has {own}. Give its labels in the order of "
            "0 … C−1 as classes=[…]"
        )
    return places


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


def black_box(
    model: Any,
    *,
    classes: int | Sequence[object] | None = None,
    task: Task | None = None,
    output: Output | None = None,
    batch_rows: int = 4096,
) -> BlackBox:
    """Wrap a fitted model so that an explainer can be fitted to what it says.

    A model is one of

    - a :class:`lexppl.models.Predictor`: its distribution's probabilities, or its distribution's
      mean;
    - any other `nn.Module`, with `output` saying what it returns;
    - a classifier with `predict_proba` (scikit-learn's way), whose labels `classes_` are
      0 … C−1 or among those of `classes`; a label it never saw has probability 0;
    - a regressor with `predict`;
    - a function from an array `(B, *event)` to probabilities `(B, C)`, or `(B,)` for P(y = 1);
      with `task="regression"` to responses `(B,)`.

    A module is asked in evaluation mode and put back as it was. An estimator that was fitted on a
    frame of named columns gets a frame with those names, in the order of the features of x.

    Args:
        model: the black box.
        classes: C, or the C labels themselves in the order 0 … C−1, such as `data.class_names`.
        task: "classification" or "regression"; needed only where the model does not tell.
        output: what a module or function returns: "logits" (`(B, C)`, or `(B,)` or `(B, 1)` for
            the log-odds of y = 1), "probabilities" (the same shapes) or "response". A function
            gives probabilities unless told otherwise.
        batch_rows: rows that are asked for at once.

    Raises:
        TypeError: not one of these.
        ValueError: a module without `output`, a classifier without `predict_proba` or with labels
            that `classes` does not have, arguments that contradict the model or each other; an
            estimator that was not fitted (scikit-learn's `NotFittedError`).

    Source:
        Senetaire et al. 2023, § 2.5: the post-hoc regimes.

    Example:
        >>> import torch
        >>> from sklearn.linear_model import LogisticRegression
        >>> fitted = LogisticRegression().fit([[-1.0], [1.0]], [0, 1])
        >>> black_box(fitted).targets(torch.zeros(2, 1))
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
        >>> steep = black_box(nn.Linear(1, 3), output="logits")
        >>> steep.task, steep.targets(torch.zeros(2, 1)).shape
        ('classification', torch.Size([2, 3]))
    """
    if task is not None and task not in get_args(Task):
        raise ValueError(f"task must be one of {get_args(Task)}; it is {task!r}")
    if output is not None and output not in get_args(Output):
        raise ValueError(f"output must be one of {get_args(Output)}; it is {output!r}")
    batch_rows = int_at_least("batch_rows", batch_rows)
    count, labels = _class_count(classes)
    if isinstance(model, nn.Module):
        return of_module(model, count, task, output, batch_rows)
    if hasattr(model, "predict_proba") or hasattr(model, "predict"):
        return of_estimator(model, count, labels, task, output, batch_rows)
    if callable(model):
        return of_function(model, count, task, output, batch_rows)
    raise TypeError(
        "a black box must be an nn.Module, a classifier with predict_proba, a regressor with "
        f"predict, or a function from arrays to probabilities; it is {type(model).__name__}"
    )


def _class_count(
    classes: int | Sequence[object] | None,
) -> tuple[int | None, tuple[str, ...] | None]:
    if classes is None:
        return None, None
    if isinstance(classes, int | np.integer):
        return int_at_least("classes", classes, 2), None
    if isinstance(classes, str):
        raise ValueError(f"classes must be a number or the list of labels; it is {classes!r}")
    labels = tuple(str(label) for label in classes)
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise ValueError(f"classes must be two or more different labels; they are {labels}")
    return len(labels), labels
