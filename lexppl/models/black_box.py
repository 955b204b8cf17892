"""A black box of any make as one thing: from rows to the probabilities or responses it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.models.likelihoods import Likelihood, distribution_targets
from lexppl.threads import evaluating

Task = Literal["classification", "regression"]
Output = Literal["logits", "probabilities", "response"]

SUM_TOLERANCE = 1e-4
"""How far from 1 the probabilities of a row may sum; they are divided by their sum."""
RANGE_TOLERANCE = 1e-6
"""How far outside [0, 1] rounding may put a probability; it is put back."""
BATCH_ROWS = 4096
"""Rows of a call."""


@dataclass(frozen=True, eq=False)
class BlackBox:
    """A fitted model as a function of rows, `p_m(y | x)`: see :func:`black_box`.

    Args:
        name: for errors.
        task: whether it gives probabilities of labels or responses.
        classes: C, or None where it is not known before a call, or for responses.
        outputs: from rows `(B, *event)` to `(B, C)`, or `(B,)`, float64, not yet checked.
    """

    name: str
    task: Task
    classes: int | None
    outputs: Callable[[Tensor], Tensor]

    def targets(self, x: Tensor) -> Tensor:
        """Its output for each row, without gradient, on the device and in the type of `x`.

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
        parts: list[Tensor] = []
        classes = self.classes
        with torch.no_grad():
            for rows in x.split(BATCH_ROWS):
                part = self._checked(self.outputs(rows), len(rows), classes)
                classes = part.shape[1] if self.task == "classification" else None
                parts.append(part.to(device=x.device, dtype=x.dtype))
        return torch.cat(parts)

    def __call__(self, x: Tensor) -> Tensor:
        """The same as :meth:`targets`."""
        return self.targets(x)

    def _checked(self, given: Tensor, rows: int, classes: int | None) -> Tensor:
        """Outputs that are finite, of so many rows and classes; probabilities divided by their
        sum."""
        regression = self.task == "regression"
        expected = f"({rows},)" if regression else f"({rows}, {classes or 'C'})"
        shape = (rows,) if regression else (rows, classes or given.shape[-1])
        if tuple(given.shape) != shape:
            raise ValueError(
                f"{self.name} must give {'responses' if regression else 'probabilities'} of shape "
                f"{expected}; it gave {tuple(given.shape)}"
            )
        broken = int((~given.isfinite()).sum())
        if broken:
            raise ValueError(
                f"{self.name} must give finite values; {broken} of its {given.numel()} values are "
                "NaN or infinite"
            )
        if regression:
            return given
        low, high = float(given.min()), float(given.max())
        if low < -RANGE_TOLERANCE or high > 1.0 + RANGE_TOLERANCE:
            raise ValueError(
                f"{self.name} must give probabilities in [0, 1]; it gave {low:.4g} to {high:.4g}. "
                "For logits give output='logits', for responses task='regression'"
            )
        total = given.sum(1)
        if float((total - 1.0).abs().max()) > SUM_TOLERANCE:
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
) -> BlackBox:
    """A fitted model of any make, wrapped so that an explainer can be fitted to its output.

    A model is one of

    - a :class:`lexppl.models.Predictor`: its distribution's probabilities, or its distribution's
      mean;
    - any other `nn.Module`, with `output` saying what it returns;
    - a classifier with `predict_proba` (scikit-learn's way), whose labels `classes_` are
      0 … C−1 or among those of `classes`; a label it never saw has probability 0;
    - a regressor with `predict`;
    - a function from an array `(B, *event)` to probabilities `(B, C)`, or `(B,)` for P(y = 1);
      with `task="regression"` to responses `(B,)`.

    A module is called in evaluation mode and put back as it was. An estimator that was fitted on a
    frame of named columns gets a frame with those names, in the order of the features of x.

    Args:
        model: the black box.
        classes: C, or the C labels themselves in the order 0 … C−1, such as `data.class_names`.
        task: "classification" or "regression"; needed only where the model does not say.
        output: what a module or function returns: "logits" (`(B, C)`, or `(B,)` or `(B, 1)` for
            the log-odds of y = 1), "probabilities" (the same shapes) or "response". A function
            gives probabilities if None.

    Raises:
        TypeError: not one of these.
        ValueError: a module without `output`, a classifier without `predict_proba` or with labels
            that `classes` does not have, arguments that contradict the model or each other.

    Source: Senetaire et al. 2023, § 2.5: the post-hoc regimes.

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
    for name, value, known in (("task", task, Task), ("output", output, Output)):
        if value is not None and value not in get_args(known):
            raise ValueError(f"{name} must be one of {get_args(known)}; it is {value!r}")
    count, labels = _class_count(classes)
    own_name = getattr(model, "__name__", type(model).__name__)
    likelihood = getattr(model, "likelihood", None)
    estimator = hasattr(model, "predict_proba") or hasattr(model, "predict")
    if output is not None and (isinstance(likelihood, Likelihood) or estimator):
        raise ValueError(
            f"{own_name} has a likelihood, or is called by predict_proba or predict, so that what "
            f"it returns is known; leave output={output!r} out"
        )
    if isinstance(model, nn.Module) and isinstance(likelihood, Likelihood):
        own: Task = "classification" if likelihood.discrete else "regression"
        box = BlackBox(own_name, own, count, lambda x: distribution_targets(_evaluated(model, x)))
    elif isinstance(model, nn.Module):
        if output is None and task != "regression":
            raise ValueError(
                f"say what {own_name} returns: output='logits', 'probabilities' or 'response'"
            )
        box = _of_outputs(own_name, lambda x: _evaluated(model, x), output or "response", count)
    elif estimator:
        box = _of_estimator(model, count, labels)
    elif callable(model):
        usual: Output = "response" if task == "regression" else "probabilities"
        box = _of_outputs(own_name, lambda x: model(x.cpu().numpy()), output or usual, count)
    else:
        raise TypeError(
            "a black box must be an nn.Module, a classifier with predict_proba, a regressor with "
            f"predict, or a function from arrays to probabilities; it is {own_name}"
        )
    if task is not None and task != box.task:
        reason = "" if output is None else f", as output={output!r} means"
        raise ValueError(f"{box.name} is for {box.task}{reason}, and task is {task!r}")
    if box.task == "regression" and count is not None:
        raise ValueError(f"{box.name} gives responses, which have no classes; classes is {count}")
    return box


def _evaluated(model: nn.Module, rows: Tensor) -> Any:
    """A module's output in evaluation mode; it is put back as it was."""
    with evaluating(model):
        return model(rows)


def _of_outputs(
    name: str, outputs: Callable[[Tensor], Any], output: Output, classes: int | None
) -> BlackBox:
    """A function of rows whose outputs have a meaning."""
    task: Task = "regression" if output == "response" else "classification"
    return BlackBox(
        name, task, classes, lambda rows: _meaning(_numbers(outputs(rows), name), output, name)
    )


def _of_estimator(model: Any, classes: int | None, labels: tuple[str, ...] | None) -> BlackBox:
    """A classifier by its `predict_proba`, a regressor by its `predict`."""
    from sklearn.base import BaseEstimator, is_classifier  # noqa: PLC0415 - slow to import

    name = type(model).__name__
    if not hasattr(model, "predict_proba"):
        if isinstance(model, BaseEstimator) and is_classifier(model):
            raise ValueError(
                f"{name} has no predict_proba, and an explainer needs probabilities; use one that "
                "has, or wrap it in sklearn.calibration.CalibratedClassifierCV"
            )
        return _of_outputs(name, lambda x: model.predict(_table(model, x)), "response", None)
    own_labels = getattr(model, "classes_", None)
    places = None if own_labels is None else _places(name, own_labels, classes, labels)
    count = len(places) if classes is None and places is not None else classes

    def targets(rows: Tensor) -> Tensor:
        given = _numbers(model.predict_proba(_table(model, rows)), name)
        if places is None or count is None:
            return given
        placed = given.new_zeros(len(given), count)
        placed[:, places] = given
        return placed

    return BlackBox(name, "classification", count, targets)


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
    whole = all(isinstance(label, int | float) and float(label).is_integer() for label in own)
    by_number = [int(label) for label in own] if whole else None
    if by_number is not None and not all(0 <= number < count for number in by_number):
        by_number = None
    by_name = None
    if labels is not None and all(str(label) in labels for label in own):
        by_name = [labels.index(str(label)) for label in own]
    if by_number is not None and by_name is not None and by_number != by_name:
        raise ValueError(
            f"{name} has the labels {own}, which are places 0 to {count - 1} as well as names in "
            f"classes={list(labels or ())}, and the two disagree; refit it on labels that are one "
            "of them, or give classes as a number"
        )
    places = by_number if by_name is None else by_name
    if places is None:
        expected = f"0 to {count - 1}" if labels is None else f"among {list(labels)}"
        raise ValueError(
            f"{name} must have labels {expected}; it has {own}. Give its labels in the order of "
            "0 … C−1 as classes=[…]"
        )
    return places


def _class_count(
    classes: int | Sequence[object] | None,
) -> tuple[int | None, tuple[str, ...] | None]:
    """C and the labels of `classes`, where it has them."""
    if classes is None:
        return None, None
    if isinstance(classes, int | np.integer):
        return int_at_least("classes", classes, 2), None
    labels = () if isinstance(classes, str) else tuple(str(label) for label in classes)
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise ValueError(
            f"classes must be a number, or two or more different labels; they are {classes!r}"
        )
    return len(labels), labels


def _numbers(given: Any, name: str) -> Tensor:
    """An array or tensor of numbers, as float64."""
    given = given.detach().cpu() if isinstance(given, Tensor) else given
    try:
        return torch.from_numpy(np.array(given, dtype=np.float64))
    except (TypeError, ValueError) as error:
        kind = type(given).__name__
        raise TypeError(f"{name} must give an array of numbers; it gave {kind}: {error}") from None


def _meaning(given: Tensor, output: Output, name: str) -> Tensor:
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
