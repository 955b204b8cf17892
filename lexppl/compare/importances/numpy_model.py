"""A model as the libraries ask it: a function from arrays to arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.evaluation import FittedPredictor
from lexppl.models.black_box import BlackBox, black_box


def black_box_of(model: Any) -> BlackBox:
    """Whatever can be explained as a black box.

    Args:
        model: a :class:`~lexppl.models.black_box.BlackBox`, a full predictor
            (:func:`lexppl.evaluation.fit_predictor`), or what
            :func:`~lexppl.models.black_box.black_box` takes: a `Predictor`, an estimator of
            scikit-learn, a function such as `predict_proba`.

    Raises:
        TypeError, ValueError: as :func:`~lexppl.models.black_box.black_box`.

    Example:
        >>> black_box_of(lambda rows: np.full(len(rows), 0.5)).task
        'classification'
    """
    if isinstance(model, BlackBox):
        return model
    return black_box(model.predictor if isinstance(model, FittedPredictor) else model)


class NumpyModel:
    """A black box from arrays `(n, D)` to probabilities `(n, C)`, or responses `(n,)`, float64.

    Args:
        box: the black box.
        like: rows whose type and device the black box is asked in.

    Example:
        >>> box = black_box_of(lambda rows: np.full(len(rows), 0.25))
        >>> NumpyModel(box, like=torch.zeros(1, 3))(np.zeros((1, 3)))
        array([[0.75, 0.25]])
    """

    def __init__(self, box: BlackBox, like: Tensor) -> None:
        self.box = box
        self._like = like[:1]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        x = torch.as_tensor(np.ascontiguousarray(rows)).to(self._like)
        return self.box.targets(x).double().cpu().numpy()


def array_of(x: Tensor) -> np.ndarray:
    """Rows as a float64 array, as the libraries compute."""
    return x.detach().double().cpu().numpy()
