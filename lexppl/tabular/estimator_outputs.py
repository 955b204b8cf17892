"""A given model of the rows of a table in their own units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from lexppl.data.checks import listed
from lexppl.models.adapters import Adapted, adapted, name_of
from lexppl.models.black_box import BlackBox, Output, Task, black_box
from lexppl.models.calls import table_keys


class EstimatorByRow:
    """An estimator that is called by row numbers `(B, 1)`, since tensors hold no words."""

    def __init__(self, estimator: Any, table: Any, labels: Sequence[str] | None = None) -> None:
        known = isinstance(estimator, BaseEstimator)
        if known:
            _refuse_unfitted(estimator)
        if known and not hasattr(estimator, "predict_proba") and is_classifier(estimator):
            raise ValueError(
                f"the black box {type(estimator).__name__} has no predict_proba, and an explainer "
                "needs probabilities; wrap it in sklearn.calibration.CalibratedClassifierCV"
            )
        self._estimator = estimator
        self._cells = _cells_for(estimator, table)
        if labels is not None or hasattr(estimator, "classes_"):
            self.classes_ = estimator.classes_ if labels is None else list(labels)
        if hasattr(estimator, "predict_proba"):
            self.predict_proba = self._probabilities

    def keys(self, x: Tensor, context: str) -> list[bytes]:
        """A hash of the cells of rows by number, `(B, 1)`."""
        return table_keys(self._chosen(x.numpy()), context)

    def identified_by(self) -> Any:
        """The estimator."""
        return self._estimator

    def predict(self, rows: NDArray[Any]) -> Any:
        """The estimator's predictions of rows by number."""
        return self._estimator.predict(self._chosen(rows))

    def _probabilities(self, rows: NDArray[Any]) -> Any:
        return self._estimator.predict_proba(self._chosen(rows))

    def _chosen(self, rows: NDArray[Any]) -> Any:
        places = rows[:, 0].astype(np.int64)
        cells = self._cells
        frame = isinstance(cells, pd.DataFrame)
        return cells.iloc[places].reset_index(drop=True) if frame else cells[places]


def _refuse_unfitted(estimator: Any) -> None:
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise NotFittedError(
            f"the model {type(estimator).__name__} is not fitted. A clone of an explainer clones "
            "its model, which is then not fitted any more: give "
            "model=sklearn.frozen.FrozenEstimator(fitted) to a search or a cross-validation"
        ) from error


def box_of_table(
    model: Any,
    table: Any,
    *,
    classes: Sequence[object] | None,
    labels: Sequence[str] | None = None,
    output: Output | None = None,
    **limits: Any,
) -> tuple[BlackBox, Tensor]:
    """A model as a black box, and rows `x` such that `box.targets(x)` are its outputs of the table.

    A table with other columns than those fitted on, or words for a module of numbers, is refused.
    """
    shared = model if isinstance(model, BlackBox) else None
    if shared is not None:
        model, output = shared.model, output or shared.options.get("output")
    columns = None if shared is None else shared.options.get("columns")
    meant = "response" if classes is None else output
    model = adapted(model, output=meant, columns=columns)
    if hasattr(model, "predict") or hasattr(model, "predict_proba"):
        # Errors call a black box by its class.
        by_row = type(name_of(model), (EstimatorByRow,), {})(model, table, labels)
        x = torch.arange(len(table), dtype=torch.float64)[:, None]
        known = None if isinstance(model, Adapted) else output
        box = replace(black_box(by_row, classes=classes, output=known, **limits), keys=by_row.keys)
    else:
        function = classes is None and not isinstance(model, nn.Module)
        task: Task | None = "regression" if function else None
        box = black_box(model, classes=classes, task=task, output=output, **limits)
        x = as_it_takes(model, torch.as_tensor(_numbers(table)))
    return (box if shared is None else box.with_calls_of(shared)), x


def as_it_takes(model: Any, x: Tensor) -> Tensor:
    """Rows on the device and in the type of a module's parameters.

    Example:
        >>> as_it_takes(nn.Linear(2, 1), torch.zeros(3, 2, dtype=torch.float64)).dtype
        torch.float32
    """
    held = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return x if held is None else x.to(held)


def _cells_for(estimator: Any, table: Any) -> pd.DataFrame | NDArray[Any]:
    """The columns that an estimator was fitted on, by name where it has names."""
    if not isinstance(table, pd.DataFrame):
        return np.asarray(table)
    name = name_of(estimator)
    known = [str(column) for column in getattr(estimator, "feature_names_in_", ())]
    # LightGBM names the columns of an array so.
    if known and known != [f"Column_{place}" for place in range(len(known))]:
        given = {str(column): column for column in table.columns}
        if lacking := [column for column in known if column not in given]:
            raise ValueError(
                f"the black box {name} was fitted on columns that the table lacks: "
                f"{listed(lacking)}; it has {listed(table.columns)}"
            )
        return table[[given[column] for column in known]].set_axis(known, axis=1)
    expected = getattr(estimator, "n_features_in_", None)
    if expected is not None and expected != table.shape[1]:
        raise ValueError(
            f"the black box {name} was fitted on {expected} features; the table has "
            f"{table.shape[1]} columns beside the target (was it fitted on the features of "
            "lexppl.data?)"
        )
    numeric = all(pd.api.types.is_numeric_dtype(table[column]) for column in table.columns)
    return table.to_numpy() if numeric else table


def same_of_all(outputs: Tensor, classes: Sequence[object] | None) -> str | None:
    """A note that a model's outputs, `(N, C)` or `(N,)`, are one label or one value; None if they
    are not."""
    if bool(((outputs - outputs[:1]).abs() < SAME).all()):
        return "the black box says the same of every row: there is nothing to explain"
    if classes is None or outputs.dim() < 2:
        return None
    likeliest = outputs.argmax(-1)
    if bool((likeliest != likeliest[0]).any()):
        return None
    label = str(list(classes)[int(likeliest[0])])
    return f"the black box gives every row the label {label!r}; what is explained is how sure it is"


SAME = 1e-6
"""Probabilities, or responses in standard deviations of y, that differ by less are the same."""


def _numbers(table: Any) -> NDArray[np.float64]:
    if isinstance(table, pd.DataFrame):
        words = [c for c in table.columns if not pd.api.types.is_numeric_dtype(table[c])]
        if words:
            raise ValueError(
                f"a torch module takes numbers, and the table's columns {listed(words)} hold "
                "others: give the table as the module takes it, such as pandas.get_dummies(table) "
                "(was it fitted on the features of lexppl.data?)"
            )
    return np.asarray(table, dtype=np.float64)
