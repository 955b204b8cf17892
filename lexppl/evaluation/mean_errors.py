"""Standard errors of means whose values may weigh differently, and what lies above its own."""

from __future__ import annotations

import math

import numpy as np


def mean_errors(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Standard errors of the means over the last axis, of N values that are as many as there are
    whatever they weigh; NaN of one value.

    With `m = Σ w v / Σ w` it is `√(N / (N − 1) · Σ w² (v − m)²) / Σ w`.

    Args:
        values: `(P, N)`.
        weights: how often each counts, `(N,)`; None for once.

    Example:
        >>> values = np.array([[1.0, 2.0, 3.0, 4.0]])
        >>> round(float(mean_errors(values)[0]), 3), mean_errors(values[:, :1])
        (0.645, array([nan]))
    """
    count = values.shape[1]
    if count < 2:
        return np.full(len(values), math.nan)
    if weights is None:
        error: np.ndarray = values.std(1, ddof=1) / math.sqrt(count)
        return error
    far = values - np.average(values, axis=1, weights=weights)[:, None]
    weighted: np.ndarray = np.sqrt(((weights * far) ** 2).sum(1) * count / (count - 1))
    return weighted / weights.sum()


def more_by_an_error(more: np.ndarray, weights: np.ndarray | None = None) -> bool:
    """Whether the mean of differences in pairs is above one standard error of it.

    Args:
        more: of each row, `(N,)`.
        weights: how often each counts, `(N,)`; None for once.

    Example:
        >>> more_by_an_error(np.array([1.0, 2.0, 3.0])), more_by_an_error(np.array([-1.0, 1.5]))
        (True, False)
    """
    return float(np.average(more, weights=weights)) > float(mean_errors(more[None], weights)[0])
