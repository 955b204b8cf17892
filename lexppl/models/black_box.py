"""A black box of any make as one thing: from rows to the probabilities or responses it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.models.evaluation_mode import evaluating
from lexppl.models.likelihoods import Likelihood

Task = Literal["classification", "regression"]
Output = Literal["logits", "probabilities", "response"]

SUM_TOLERANCE = 1e-4
"""How far from 1 the probabilities of a row may sum; they are divided by their sum."""
RANGE_TOLERANCE = 1e-6
"""How far outside [0, 1] rounding may put a probability; it is put back."""


@dataclass(frozen=True, eq=False)
class BlackBox:
    """A model that can be asked and not looked into, `p_m(y | x)`: see :func:`black_box`.

    Args:
        name: what errors call it.
        task: whether it gives probabilities of labels or responses.
        classes: C, or None where it is not known before it is asked, or for responses.
        batch_rows: rows that are asked for at once.
        ask: from rows `(B, *event)` to `(B, C)`, or `(B,)`, float64, not yet checked.
        check_input: refuses rows that the model cannot take, before any work.
    """

    name: str
    task: Task
    classes: int | None
    batch_rows: int
    ask: Callable[[Tensor], Tensor]
    check_input: Callable[[Tensor], None]

    def targets(self, x: Tensor) -> Tensor:
        """What the black box says of each row, without gradient, on the device and in the type of
        `x`.

        Args:
            x: rows, shape `(N, *event)`.

        Returns:
            probabilities of the labels, `(N, C)`, each row divided by its sum; or responses `(N,)`.

        Raises:
            TypeError: `x` is no tensor, or the black box gives no numbers.
            ValueError: no rows; values that are not finite; another number of rows or classes;
                probabilities outside [0, 1] or whose sum is off 1 by more than 1e-4.
        """
        if not isinstance(x, Tensor):
            raise TypeError(f"x must be a torch.Tensor; it is a {type(x).__name__}")
        if x.dim() < 2 or len(x) == 0:
            raise ValueError(f"x must have shape (N, *event), N >= 1; it has {tuple(x.shape)}")
        if not bool(x.isfinite().all()):
            raise ValueError("x must be finite; it has NaN or infinite values")
        self.check_input(x)
        parts: list[Tensor] = []
        classes = self.classes
        with torch.no_grad():
            for rows in x.split(self.batch_rows):
                part = self._checked(self.ask(rows), len(rows), classes)
                classes = part.shape[1] if self.task == "classification" else None
                parts.append(part.to(device=x.device, dtype=x.dtype))
        return torch.cat(parts)

    def __call__(self, x: Tensor) -> Tensor:
        """The same as :meth:`targets`."""
        return self.targets(x)

    def _checked(self, given: Tensor, rows: int, classes: int | None) -> Tensor:
        expected = f"({rows},)" if self.task == "regression" else f"({rows}, {classes or 'C'})"
        if given.dim() == 0 or len(given) != rows:
            raise ValueError(
                f"{self.name} must give one row for each of the {rows} rows of x, shape "
                f"{expected}; it gave shape {tuple(given.shape)}"
            )
        broken = int((~given.isfinite()).sum())
        if broken:
            raise ValueError(
                f"{self.name} must give finite values; {broken} of its {given.numel()} values are "
                "NaN or infinite"
            )
        if self.task == "regression":
            return given
        if classes is not None and given.shape[1] != classes:
            raise ValueError(
                f"{self.name} must give probabilities of {classes} classes; it gave "
                f"{given.shape[1]}"
            )
        low, high = float(given.min()), float(given.max())
        if low < -RANGE_TOLERANCE or high > 1.0 + RANGE_TOLERANCE:
            raise ValueError(
                f"{self.name} must give probabilities in [0, 1]; it gave {low:.4g} to {high:.4g}. "
                "For logits say output='logits', for responses task='regression'"
            )
        total = given.sum(1)
        off = float((total - 1.0).abs().max())
        if off > SUM_TOLERANCE:
            raise ValueError(
                f"{self.name} must give probabilities that sum to 1 in each row; they sum to "
                f"{float(total.min()):.4g} to {float(total.max()):.4g}"
            )
        given = given.clamp(0.0, 1.0)
        return given / given.sum(1, keepdim=True)


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

    - a :class:`lexppl.models.Predictor`: its law's probabilities, or its law's mean;
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
        return _of_module(model, count, task, output, batch_rows)
    if hasattr(model, "predict_proba") or hasattr(model, "predict"):
        return _of_estimator(model, count, labels, task, output, batch_rows)
    if callable(model):
        return _of_function(model, count, task, output, batch_rows)
    raise TypeError(
        "a black box must be an nn.Module, a classifier with predict_proba, a regressor with "
        f"predict, or a function from arrays to probabilities; it is {type(model).__name__}"
    )


def law_targets(law: Any) -> Tensor:
    """Probabilities of a law of labels, `(…, C)`, or the mean of another law, `(…)`.

    Example:
        >>> import pyro.distributions as dist
        >>> law_targets(dist.Bernoulli(torch.tensor([0.25])))
        tensor([[0.7500, 0.2500]])
        >>> law_targets(dist.Normal(torch.tensor([3.0]), 1.0))
        tensor([3.])
    """
    if not law.has_enumerate_support:
        mean: Tensor = law.mean
        return mean
    labels = law.enumerate_support(expand=False)
    return torch.as_tensor(law.log_prob(labels)).exp().movedim(0, -1)


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
    _refuse_classes_of_responses(name, implied, classes)
    return implied, output


def _refuse_classes_of_responses(name: str, task: Task, classes: int | None) -> None:
    if task == "regression" and classes is not None:
        raise ValueError(f"{name} gives responses, which have no classes; classes is {classes}")


def _of_module(
    model: nn.Module,
    classes: int | None,
    task: Task | None,
    output: Output | None,
    batch_rows: int,
) -> BlackBox:
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
        _refuse_classes_of_responses(name, own, classes)

        def ask_law(rows: Tensor) -> Tensor:
            with evaluating(model):
                return law_targets(model(rows)).double()

        return BlackBox(
            name, own, classes, batch_rows, ask_law, lambda x: _refuse_elsewhere(model, name, x)
        )
    settled, meaning = _settled_task(name, task, output, classes, default=None)

    def ask(rows: Tensor) -> Tensor:
        with evaluating(model):
            given = model(rows)
        return _meant(_numbers(given, name), meaning, name)

    return BlackBox(
        name, settled, classes, batch_rows, ask, lambda x: _refuse_elsewhere(model, name, x)
    )


def _of_function(
    function: Callable[..., Any],
    classes: int | None,
    task: Task | None,
    output: Output | None,
    batch_rows: int,
) -> BlackBox:
    name = getattr(function, "__name__", type(function).__name__)
    settled, meaning = _settled_task(name, task, output, classes, default="probabilities")

    def ask(rows: Tensor) -> Tensor:
        return _meant(_numbers(function(rows.detach().cpu().numpy()), name), meaning, name)

    return BlackBox(name, settled, classes, batch_rows, ask, _any_input)


def _of_estimator(
    model: Any,
    classes: int | None,
    labels: tuple[str, ...] | None,
    task: Task | None,
    output: Output | None,
    batch_rows: int,
) -> BlackBox:
    name = type(model).__name__
    if output is not None:
        raise ValueError(
            f"{name} is asked by predict_proba or predict, whose outputs are known; leave "
            f"output={output!r} out"
        )
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
    _refuse_classes_of_responses(name, own, classes)

    def check_input(x: Tensor) -> None:
        if x.dim() != 2:
            raise ValueError(f"{name} takes tables (N, D); x has shape {tuple(x.shape)}")
        expected = getattr(model, "n_features_in_", None)
        if expected is not None and x.shape[1] != expected:
            raise ValueError(f"{name} was fitted on {expected} features; x has {x.shape[1]}")

    def table(rows: Tensor) -> Any:
        array = rows.detach().cpu().numpy()
        columns = getattr(model, "feature_names_in_", None)
        return array if columns is None else pd.DataFrame(array, columns=columns)

    if own == "regression":

        def ask_response(rows: Tensor) -> Tensor:
            return _meant(_numbers(model.predict(table(rows)), name), "response", name)

        return BlackBox(name, own, None, batch_rows, ask_response, check_input)

    own_labels = getattr(model, "classes_", None)
    places = None if own_labels is None else _places(name, own_labels, classes, labels)
    if places is not None and classes is None:
        classes = len(places)

    def ask_probabilities(rows: Tensor) -> Tensor:
        given = _numbers(model.predict_proba(table(rows)), name)
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


def _any_input(x: Tensor) -> None:
    """Whether a function takes the rows is for the function to say."""


def _refuse_elsewhere(model: nn.Module, name: str, x: Tensor) -> None:
    held = next((p for p in model.parameters() if p.is_floating_point()), None)
    if held is None:
        return
    if held.device != x.device:
        raise ValueError(f"x is on {x.device} and {name} on {held.device}; move one to the other")
    if x.is_floating_point() and held.dtype != x.dtype:
        raise ValueError(
            f"x is {x.dtype} and {name} is {held.dtype}; convert one, as in x.to({held.dtype})"
        )


def _numbers(given: Any, name: str) -> Tensor:
    """Whatever came back, as float64."""
    if isinstance(given, Tensor):
        if given.is_complex():
            raise TypeError(f"{name} must give real numbers; it gave {given.dtype}")
        return given.detach().double()
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise TypeError(f"{name} must give an array of numbers; {error}") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} must give an array of numbers; it gave {type(given).__name__} of {array.dtype}"
        )
    return torch.from_numpy(np.array(array, dtype=np.float64))


def _meant(given: Tensor, output: Output, name: str) -> Tensor:
    """Outputs as probabilities `(B, C)` or responses `(B,)`."""
    if given.dim() == 2 and given.shape[1] == 1:
        given = given.squeeze(1)
    most = 1 if output == "response" else 2
    if not 1 <= given.dim() <= most:
        raise ValueError(
            f"{name} must give {output} of shape {'(N,)' if most == 1 else '(N, C) or (N,)'}; it "
            f"gave {tuple(given.shape)}"
        )
    if output == "response":
        return given
    if output == "logits":
        if given.dim() == 2:
            return given.softmax(1)
        return torch.stack([torch.sigmoid(-given), torch.sigmoid(given)], 1)
    return given if given.dim() == 2 else torch.stack([1.0 - given, given], 1)
