"""Data sets that come with an installation: real ones of scikit-learn and the synthetic ones."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from lexppl.choices.data_sets import TARGETS, shipped_names, synthetic_names
from lexppl.data.checks import listed
from lexppl.data.dataset import Dataset
from lexppl.data.survival import load_survival, survival_names
from lexppl.data.synthetic import synthetic
from lexppl.data.tables import dataset_from_frame


def load(name: str, *, dtype: torch.dtype | None = None, **reading: Any) -> Dataset:
    """Load a data set that needs no file.

    =============  ===========  ==========================================================
    name           rows × G     target
    =============  ===========  ==========================================================
    breast_cancer  569 × 30     diagnosis: malignant, benign
    wine           178 × 13     cultivar: class_0, class_1, class_2
    digits         1797 × 61    digit: 0 … 9; 3 of the 64 pixels are constant and left out
    diabetes       442 × 10     progression after one year (25 to 346, no unit): regression
    Syn1 … S3      10,000 × 11  see :func:`lexppl.data.synthetic_set`; drawn with seed 0
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
    classes = name != "diabetes"
    frame[TARGETS[name]] = (
        pd.Categorical.from_codes(bunch.target, bunch.target_names, ordered=True)
        if classes
        else bunch.target
    )
    return frame
