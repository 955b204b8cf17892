"""Data sets that come with an installation: real ones of scikit-learn and the synthetic ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from numpy.typing import NDArray

from lexppl.choices.data_sets import TARGETS, shipped_names, synthetic_names
from lexppl.data.dataset import Dataset
from lexppl.data.listing import listed
from lexppl.data.survival import load_survival, survival_names
from lexppl.data.synthetic import synthetic
from lexppl.data.tables import dataset_from_frame


def load(
    name: str,
    *,
    standardise_target: bool = False,
    statistics_rows: Sequence[int] | NDArray[Any] | None = None,
    dtype: torch.dtype | None = None,
) -> Dataset:
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

    Survival times, which come with the extra ``survival``, are in
    :func:`lexppl.data.load_survival`'s table: rossi, gbsg2, whas500, veterans_lung_cancer.

    The features of the real sets are standardised as in :func:`lexppl.data.read_table`;
    ``dataset.encoding`` has the statistics.

    Args:
        name: one of :func:`shipped_names` or of :func:`survival_names`.
        standardise_target: standardise a regression target too (diabetes).
        statistics_rows: rows that means and standard deviations are of; all where ``None``.
        dtype: of the features; torch's default where ``None``.

    Raises:
        ValueError: an unknown name (the error lists the known ones); ``standardise_target`` for
            a target of classes or times; ``statistics_rows`` for a synthetic or survival set.
        ImportError: a survival set whose library is not installed.

    Example:
        >>> data = load("breast_cancer")
        >>> len(data), data.n_entries, data.class_names
        (569, 30, ('malignant', 'benign'))
    """
    if name in survival_names():
        if standardise_target or statistics_rows is not None:
            raise ValueError(
                f"{name!r} is of survival times, whose features are standardised over all rows "
                "and whose times keep their unit: leave standardise_target and statistics_rows out"
            )
        return load_survival(name, dtype)
    if name in synthetic_names():
        if standardise_target:
            raise ValueError(f"standardise_target is for regression; {name!r} is of classes")
        if statistics_rows is not None:
            raise ValueError(f"statistics_rows is for tables; {name!r} is not standardised")
        return synthetic(name, dtype=dtype)
    return dataset_from_frame(
        shipped_frame(name),
        drop_constant=True,
        standardise_target=standardise_target,
        statistics_rows=statistics_rows,
        name=name,
        dtype=dtype,
    )


def shipped_frame(name: str) -> pd.DataFrame:
    """Return a real set as a table in its own units, the target last.

    Args:
        name: one of :func:`shipped_names` that is not synthetic.

    Raises:
        ValueError: another name.

    >>> shipped_frame("wine").columns[-1]
    'cultivar'
    """
    if name not in TARGETS:
        raise ValueError(
            f"there is no shipped data set {name!r}; there are "
            f"{listed((*shipped_names(), *survival_names()), most=20)}"
        )
    from sklearn import datasets  # noqa: PLC0415 - slow, and only for sets that come along

    loaders: Mapping[str, Callable[..., Any]] = {
        "breast_cancer": datasets.load_breast_cancer,
        "wine": datasets.load_wine,
        "digits": datasets.load_digits,
        "diabetes": datasets.load_diabetes,
    }
    options = {"scaled": False} if name == "diabetes" else {}
    bunch = loaders[name](**options)
    frame = pd.DataFrame(bunch.data, columns=list(bunch.feature_names))
    target = TARGETS[name]
    frame[target] = (
        bunch.target
        if name == "diabetes"
        else pd.Categorical.from_codes(bunch.target, bunch.target_names, ordered=True)
    )
    return frame
