"""Data sets that need no file: of scikit-learn and survival libraries, and synthetic ones."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch

from lexppl.choices.data_sets import TARGETS, shipped_names, synthetic_names
from lexppl.data.checks import listed
from lexppl.data.dataset import Dataset
from lexppl.data.synthetic import synthetic
from lexppl.data.tables import dataset_from_frame
from lexppl.extras import extra_library


def load(name: str, *, dtype: torch.dtype | None = None, **reading: Any) -> Dataset:
    """Load a data set that needs no file.

    =============  ===========  ==========================================================
    name           rows × G     target
    =============  ===========  ==========================================================
    breast_cancer  569 × 30     diagnosis: malignant, benign
    wine           178 × 13     cultivar: class_0, class_1, class_2
    digits         1797 × 61    digit: 0 … 9; 3 of the 64 pixels are constant and left out
    diabetes       442 × 10     progression after one year (25 to 346, no unit): regression
    Syn1 … S3      10,000 × 11  see `synthetic_set`; drawn with seed 0
    =============  ===========  ==========================================================

    Survival times come with the extra ``survival``: rossi (432 × 7), gbsg2 (686 × 8), whas500
    (500 × 14) and veterans_lung_cancer (137 × 6).

    The features of the real sets are standardised as in :func:`lexppl.data.read_table`.

    Args:
        name: one of :func:`shipped_names`, or of the survival sets.
        dtype: of the features; torch's default where ``None``.
        reading: ``standardise_target`` and ``statistics_rows`` of
            :func:`lexppl.data.dataset_from_frame`, for the real sets of classes and responses.

    Raises:
        ValueError: an unknown name (the error lists the known ones); ``standardise_target`` for
            a target of classes or times; ``statistics_rows`` for a synthetic or survival set.
        ImportError: a survival set whose library is not installed.

    Example:
        >>> data = load("breast_cancer")
        >>> len(data), data.n_entries, data.class_names
        (569, 30, ('malignant', 'benign'))
    """
    if name in (*survival_names(), *synthetic_names()):
        if any(value not in (False, None) for value in reading.values()):
            raise ValueError(
                f"{', '.join(reading)} is for tables of classes or responses, and {name!r} is "
                "none: leave it out"
            )
        read = load_survival if name in survival_names() else synthetic
        return read(name, dtype=dtype)
    return dataset_from_frame(
        shipped_frame(name), drop_constant=True, name=name, dtype=dtype, **reading
    )


def shipped_frame(name: str) -> pd.DataFrame:
    """A real set as a table in its own units, the target last."""
    if name not in TARGETS:
        raise ValueError(
            f"there is no shipped data set {name!r}; there are "
            f"{listed((*shipped_names(), *survival_names()), most=20)}"
        )
    from sklearn import datasets  # noqa: PLC0415 - slow, and only for sets that come along

    options = {"scaled": False} if name == "diabetes" else {}
    bunch = getattr(datasets, f"load_{name}")(**options)
    frame = pd.DataFrame(bunch.data, columns=list(bunch.feature_names))
    target = bunch.target
    if name != "diabetes":
        target = pd.Categorical.from_codes(target, bunch.target_names, ordered=True)
    return frame.assign(**{TARGETS[name]: target})


def survival_names() -> tuple[str, ...]:
    """The survival sets that :func:`lexppl.data.load` knows."""
    return tuple(_LOADERS)


def load_survival(name: str, dtype: torch.dtype | None = None) -> Dataset:
    """A real set of survival times, with y `(N, 2)`: time and event (1), or censoring (0).

    ====================  ========  ==========================================  ===================
    name                  rows × G  time (unit), event                          comes with
    ====================  ========  ==========================================  ===================
    rossi                 432 × 7   rearrest after release (weeks): 114         lifelines
    gbsg2                 686 × 8   recurrence of breast cancer (days): 299     scikit-survival
    whas500               500 × 14  death after a heart attack (days): 215      scikit-survival
    veterans_lung_cancer  137 × 6   death of lung cancer (days): 128            scikit-survival
    ====================  ========  ==========================================  ===================
    """
    if name not in _LOADERS:
        raise ValueError(f"there is no survival set {name!r}; there are {listed(survival_names())}")
    features, time, event = _LOADERS[name]()
    frame = features.assign(time=np.array(time, dtype=float))
    data = dataset_from_frame(frame, "time", task="regression", name=name, dtype=dtype)
    times = torch.as_tensor(np.array(time, dtype=float), dtype=data.x.dtype)
    y = torch.stack([times, torch.as_tensor(np.array(event)).to(data.x.dtype)], 1)
    return replace(data, y=y)


def _rossi() -> tuple[pd.DataFrame, Any, Any]:
    frame = extra_library("lifelines.datasets", "survival").load_rossi()
    return frame.drop(columns=["week", "arrest"]), frame["week"], frame["arrest"]


def _sksurv(name: str) -> tuple[pd.DataFrame, Any, Any]:
    features, y = getattr(extra_library("sksurv.datasets", "survival"), f"load_{name}")()
    event, time = y.dtype.names
    whole = {c: features[c].astype(int) for c in features if set(features[c]) <= {"0", "1"}}
    return features.assign(**whole), y[time], y[event]


_LOADERS: Mapping[str, Callable[[], tuple[pd.DataFrame, Any, Any]]] = MappingProxyType(
    {"rossi": _rossi}
    | {name: partial(_sksurv, name) for name in ("gbsg2", "whas500", "veterans_lung_cancer")}
)
