"""How often each row of a table counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

BALANCED = "balanced"

Counts = NDArray[np.float64]

MOST_COPIES = 20
"""Of a row on average, for which whole weights are repetitions; above, rows are drawn in
proportion."""
DRAWN_ROWS = 5000
"""Rows that others are drawn to, where they are not more already."""


def checked_weights(sample_weight: Any, rows: int) -> Counts | None:
    """`sample_weight` as `(N,)` numbers of at least 0, two of them above 0; or None.

    Example:
        >>> checked_weights([1, 0, 2], 3)
        array([1., 0., 2.])
    """
    if sample_weight is None:
        return None
    weights: Counts = _check_sample_weight(
        sample_weight, np.empty(rows), dtype=np.float64, ensure_non_negative=True
    )
    if int((weights > 0).sum()) < 2:
        above = int((weights > 0).sum())
        raise ValueError(f"sample_weight must be above 0 for two rows at least; {above} are")
    return weights


def with_class_weights(
    class_weight: Any, classes: NDArray[Any], labels: NDArray[np.int64], weights: Counts | None
) -> Counts | None:
    """Row weights times class weights, `v_n = w_n u_{y_n}`.

    "balanced" is `u_c = Σ_n w_n / (C Σ_{n: y_n = c} w_n)`.
    """
    if class_weight is None:
        return weights
    times = np.ones(len(labels)) if weights is None else weights
    if isinstance(class_weight, str):
        if class_weight != BALANCED:
            raise ValueError(
                f"class_weight must be {BALANCED!r}, a mapping from labels to weights, or None; it "
                f"is {class_weight!r}"
            )
        each = times.sum() / (len(classes) * np.bincount(labels, times, minlength=len(classes)))
    elif isinstance(class_weight, Mapping):
        each = compute_class_weight(dict(class_weight), classes=classes, y=classes[labels])
    else:
        raise TypeError(
            f"class_weight must be {BALANCED!r}, a mapping from labels to weights, or None; it is "
            f"{type(class_weight).__name__}"
        )
    if not bool((np.isfinite(each) & (each >= 0)).all()) or int((each > 0).sum()) < 2:
        raise ValueError(
            "class_weight must be finite and at least 0, and above 0 for two labels or more; it is "
            f"{class_weight!r}"
        )
    found: Counts = times * each[labels]
    return found


def as_counts(weights: Counts | None) -> Counts | None:
    """Whole weights as they are, others divided by their mean; None where each row counts once."""
    if weights is None or bool((weights == 1.0).all()):
        return None
    return weights if _whole(weights) else weights / weights.mean()


def repeated_rows(x: Tensor, weights: Tensor, seed: int) -> Tensor:
    """Rows as often as they count, `(M, D)`: whole weights repeat, others draw 5000 or N
    systematically."""
    counts = weights.detach().cpu().double().numpy()
    if _whole(counts) and counts.sum() <= MOST_COPIES * len(counts):
        times = counts.astype(np.int64)
    else:
        total = max(len(counts), DRAWN_ROWS)
        sums = counts.cumsum()
        reached = np.concatenate([[0.0], sums / sums[-1]]) * total
        start = np.random.default_rng(seed).random()
        times = np.diff(np.ceil(reached - start)).astype(np.int64)
    return x.repeat_interleave(torch.as_tensor(times, device=x.device), 0)


def _whole(weights: Counts) -> bool:
    return bool((weights == np.round(weights)).all())
