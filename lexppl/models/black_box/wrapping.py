"""A fitted model of any make as a black box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from torch import nn

from lexppl.argument_checks import int_at_least
from lexppl.models.black_box.box import BlackBox, Task
from lexppl.models.black_box.callables import of_function, of_module
from lexppl.models.black_box.estimators import of_estimator
from lexppl.models.black_box.outputs import Output


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
