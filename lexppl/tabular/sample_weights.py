"""How often each row of a table counts: what the user says, and what its class adds."""

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
    """A weight for each row, as scikit-learn's estimators take them.

    Args:
        sample_weight: `(N,)`, or None.
        rows: N.

    Raises:
        ValueError: another shape, values that are not numbers, not finite or below 0, or fewer than
            two above 0.

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
    r"""Each row's weight times that of its class,

        v_n = w_n u_{y_n},    "balanced": u_c = Σ_n w_n / (C Σ_{n: y_n = c} w_n).

    Args:
        class_weight: "balanced", a mapping from labels to weights (1 for others), or None.
        classes: the C labels.
        labels: of the rows among them, `(N,)`, each of the C there.
        weights: `(N,)`, or None for 1.

    Raises:
        ValueError: another word; weights of labels that are not there, not finite or below 0.
        TypeError: neither.

    Example:
        >>> with_class_weights("balanced", np.array(["no", "yes"]), np.array([0, 0, 0, 1]), None)
        array([0.66666667, 0.66666667, 0.66666667, 2.        ])
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
    """Weights as numbers of rows: whole ones as they are, of others only the ratios, with a mean of
    1. None where each row counts once.

    Example:
        >>> as_counts(np.array([2.0, 1.0])), as_counts(np.array([0.25, 0.75]))
        (array([2., 1.]), array([0.5, 1.5]))
    """
    if weights is None or bool((weights == 1.0).all()):
        return None
    return weights if _whole(weights) else weights / weights.mean()


def repeated_rows(x: Tensor, weights: Tensor, seed: int) -> Tensor:
    """Rows as often as they count, for what is fitted to rows without weights, such as an imputer.

    Whole weights are repetitions. Others draw 5000 rows, or N where N is more, each
    `M w_n / Σ w` times, up to one (systematic resampling).

    Args:
        x: `(N, D)`.
        weights: `(N,)`.
        seed: of what rounding is left to.

    Returns:
        `(M, D)`.

    Example:
        >>> repeated_rows(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 2.0]), seed=0)
        tensor([[1.],
                [2.],
                [2.]])
    """
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
