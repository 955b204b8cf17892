"""Copies of rows with random masks: what a predictor of every subset of the entries learns from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

COPIES = 16
"""Of each row, each with its own rate of keeping."""


def masked_copies(values: Array, entries: Sequence[int], copies: int, seed: int) -> Array:
    """Copies of rows in which entries are hidden at random, as NaN.

    Each copy of a row has its own rate of keeping, `ρ ~ Uniform(0, 1)`, and keeps each entry with
    probability ρ: every number of entries from none to all is as likely.

    Args:
        values: columns, `(N, P)`.
        entries: of each column; those of one entry are hidden together.
        copies: M.
        seed: of the masks.

    Returns:
        `(M·N, P)`, all rows of a copy after those of the one before.

    Example:
        >>> masked_copies(np.ones((1, 3)), [0, 0, 1], copies=4, seed=1)
        array([[ 1.,  1., nan],
               [nan, nan, nan],
               [ 1.,  1.,  1.],
               [nan, nan,  1.]])
    """
    draw = np.random.default_rng(seed)
    place = np.asarray(entries)
    count = int(place.max()) + 1
    rows = len(values) * copies
    kept = draw.random((rows, count)) < draw.random((rows, 1))
    return np.where(kept[:, place], np.tile(values, (copies, 1)), np.nan)
