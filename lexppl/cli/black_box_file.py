"""A black box in a joblib or pickle file, and what it says of the rows of a table."""

import argparse
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from lexppl.cli.errors import UsageError, one_line
from lexppl.data import DividedTable
from lexppl.data.listing import listed
from lexppl.models.black_box import black_box

ROWS_AT_ONCE = 4096


class AskedByRow:
    """An estimator that is asked by the numbers of a table's rows.

    A black box was fitted on the table's own columns, words among them, which no tensor holds.

    Args:
        estimator: with `predict_proba` (then the numbers of labels are `classes_`) or `predict`.
        table: what it was fitted on the like of.
    """

    def __init__(self, estimator: Any, table: pd.DataFrame) -> None:
        if isinstance(estimator, BaseEstimator):
            check_is_fitted(estimator)
        if not hasattr(estimator, "predict_proba") and is_classifier(estimator):
            raise ValueError(
                f"the black box {type(estimator).__name__} has no predict_proba, and an explainer "
                "needs probabilities; wrap it in sklearn.calibration.CalibratedClassifierCV"
            )
        self._estimator = estimator
        self._cells = _cells_for(estimator, table)
        if hasattr(estimator, "classes_"):
            self.classes_ = estimator.classes_
        if hasattr(estimator, "predict_proba"):
            self.predict_proba = self._probabilities

    def predict(self, rows: np.ndarray) -> Any:
        """What the estimator predicts of rows by number, `(B, 1)`."""
        return self._estimator.predict(self._chosen(rows))

    def _probabilities(self, rows: np.ndarray) -> Any:
        return self._estimator.predict_proba(self._chosen(rows))

    def _chosen(self, rows: np.ndarray) -> Any:
        places = rows[:, 0].astype(np.int64)
        cells = self._cells
        return cells.iloc[places] if isinstance(cells, pd.DataFrame) else cells[places]


def load_black_box(options: argparse.Namespace) -> Any:
    """Load the model in the file that `--black-box` names, which runs the code in it.

    Raises:
        UsageError: without `--trust-black-box`.
        FileNotFoundError: no such file.
        ValueError: a file that cannot be loaded.
    """
    path = Path(options.black_box).expanduser()
    if not options.trust_black_box:
        raise UsageError(
            f"--black-box {path}: loading a joblib or pickle file runs the code in it; give "
            "--trust-black-box too if you trust where it comes from"
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no black box file {str(path)!r}")
    try:
        if path.suffix in (".pt", ".pth"):
            return torch.load(path, map_location="cpu", weights_only=False)
        return joblib.load(path)
    except (
        pickle.UnpicklingError,
        AttributeError,
        EOFError,
        ImportError,
        IndexError,
        KeyError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(
            f"the black box {str(path)!r} cannot be loaded as joblib or pickle: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from error


def black_box_targets(model: Any, source: DividedTable, options: argparse.Namespace) -> Tensor:
    """What a black box says of every row: probabilities `(N, C)`, or standardised responses.

    Raises:
        ValueError, TypeError: a model that is no black box, was fitted on other columns, or fails.
    """
    data = source.data
    classes = list(data.class_names) if data.class_names is not None else None
    told = {"classes": classes, "output": options.black_box_output}
    x = data.x
    asked = model
    if options.black_box_input == "table":
        if isinstance(model, nn.Module):
            x = torch.tensor(_numbers(source.table)).to(data.x.device, data.x.dtype)
        elif hasattr(model, "predict_proba") or hasattr(model, "predict"):
            # Errors call a black box by its class.
            named = type(type(model).__name__, (AskedByRow,), {})
            asked = named(model, source.table)
            x = torch.arange(len(source.table), dtype=torch.float64)[:, None]
    if isinstance(model, nn.Module):
        asked = model.to(data.x.device, data.x.dtype)
    box = black_box(asked, batch_rows=ROWS_AT_ONCE, **told)
    if box.task != data.task:
        raise ValueError(
            f"the black box is for {box.task}, and the target {data.target_name!r} is for "
            f"{data.task}; give --task {box.task} if the target is"
        )
    try:
        targets = box.targets(x).to(data.x.device, data.x.dtype)
    except Exception as error:
        raise ValueError(
            f"the black box {type(model).__name__} fails on the rows: {one_line(error)}"
        ) from error
    if data.task == "regression":
        return (targets - source.target_mean) / source.target_scale
    if targets.shape[1] != data.n_classes:
        raise ValueError(
            f"the black box gives probabilities of {targets.shape[1]} classes; the target "
            f"{data.target_name!r} has {data.n_classes}"
        )
    return targets


def _cells_for(estimator: Any, table: pd.DataFrame) -> pd.DataFrame | np.ndarray:
    """The columns that an estimator was fitted on, by name where it knows names."""
    name = type(estimator).__name__
    known = getattr(estimator, "feature_names_in_", None)
    if known is not None:
        lacking = [column for column in known if column not in table.columns]
        if lacking:
            raise ValueError(
                f"the black box {name} was fitted on columns that the table lacks: "
                f"{listed(lacking)}; it has {listed(table.columns)}"
            )
        return table[list(known)]
    expected = getattr(estimator, "n_features_in_", None)
    if expected is not None and expected != table.shape[1]:
        raise ValueError(
            f"the black box {name} was fitted on {expected} features; the table has "
            f"{table.shape[1]} columns beside the target (if it was fitted on the features of "
            "lexppl.data, give --black-box-input encoded)"
        )
    numeric = all(pd.api.types.is_numeric_dtype(table[column]) for column in table.columns)
    return table.to_numpy() if numeric else table


def _numbers(table: pd.DataFrame) -> np.ndarray:
    words = [c for c in table.columns if not pd.api.types.is_numeric_dtype(table[c])]
    if words:
        raise ValueError(
            f"a torch module takes numbers, and the table's columns {listed(words)} hold others; "
            "give --black-box-input encoded if it was fitted on the features of lexppl.data"
        )
    return table.to_numpy(dtype=np.float64)
