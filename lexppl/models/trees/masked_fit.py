"""A predictor of every subset of the entries, fitted in one go on copies with random masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

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


LEAST_VARIANCE = 1e-6
"""Of a residual, as a share of the response's own variance."""


@dataclass(frozen=True)
class MaskedRows:
    """Copies of rows with random masks, and their targets.

    Args:
        values: `(N, P)`, NaN where hidden.
        targets: labels or responses, `(N,)`.
        weights: of the copies, `(N,)`.
    """

    values: Array
    targets: NDArray[Any]
    weights: Array

    @classmethod
    def of_labels(
        cls,
        values: Array,
        y: Tensor,
        counts: Array,
        classes: int,
        entries: Sequence[int],
        copies: int,
        seed: int,
    ) -> Self:
        """Of labels `(N,)`, or of probabilities `(N, C)`, by which each label weighs, and of how
        often each row counts, `(N,)`.

        A row in which all is hidden, of each label and half a row's weight, stands for those that
        were not there: no label has probability 0.
        """
        masked = masked_copies(values, entries, copies, seed)
        outcome = y.detach().cpu().numpy()
        if outcome.ndim == 1:
            rows, targets = masked, np.tile(outcome.astype(int), copies)
            weights = np.tile(counts, copies)
        else:
            share = np.tile(outcome.astype(float) * counts[:, None], (copies, 1))
            place, targets = np.nonzero(share > 0.0)
            rows, weights = masked[place], share[place, targets]
        return cls(
            np.concatenate([rows, np.full((classes, values.shape[1]), np.nan)]),
            np.concatenate([targets, np.arange(classes)]),
            np.concatenate([weights, np.full(classes, 0.5 * copies)]),
        )

    @classmethod
    def of_responses(
        cls,
        values: Array,
        y: Array,
        counts: Array,
        entries: Sequence[int],
        copies: int,
        seed: int,
    ) -> Self:
        """Of responses `(N,)`, and of how often each row counts, `(N,)`."""
        masked = masked_copies(values, entries, copies, seed)
        return cls(masked, np.tile(y, copies), np.tile(counts, copies))

    def fitted(self, estimator: Any) -> Any:
        """A copy of an estimator, fitted on these rows.

        A column that is hidden wherever a row counts says nothing; it is put to one number, for
        scikit-learn's boosting needs a value of each.
        """
        seen = ~np.isnan(self.values) & (self.weights > 0.0)[:, None]
        values = np.where(seen.any(0), self.values, 0.0)
        from sklearn.base import clone  # noqa: PLC0415 - slow to import

        one = clone(estimator)
        one.fit(values, self.targets, sample_weight=self.weights)
        return one


def squared_residuals(
    estimator: Any, values: Array, y: Array, counts: Array, rows: Callable[..., MaskedRows]
) -> MaskedRows:
    """Copies whose targets are the squared residuals of a fit to the other half of the rows: what a
    spread is to be measured on, as the residuals of rows learned from are too small.

    Args:
        estimator: a regressor, not fitted.
        values: columns, `(N, P)`.
        y: responses, `(N,)`.
        counts: how often each row counts, `(N,)`.
        rows: makes :class:`MaskedRows` of values, responses and counts.
    """
    order = np.random.default_rng(len(y)).permutation(len(y))
    halves = order[::2], order[1::2]
    least = LEAST_VARIANCE * max(float(y.var()), 1e-30)
    found = []
    for learned, judged in (halves, halves[::-1]):
        one = rows(values[learned], y[learned], counts[learned]).fitted(estimator)
        copies = rows(values[judged], y[judged], counts[judged])
        square = (copies.targets - one.predict(copies.values)) ** 2
        found.append((copies.values, np.maximum(square, least), copies.weights))
    return MaskedRows(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
