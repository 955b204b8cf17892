"""An estimator that predicts in scikit-learn's way as a black box."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from lexppl.models.black_box.box import BlackBox, Task
from lexppl.models.black_box.outputs import (
    Output,
    meant_by,
    numbers_of,
    refuse_classes_of_responses,
)


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
