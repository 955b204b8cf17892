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
    """M copies of rows `(N, P)`, `(M·N, P)`, in which entries are hidden at random, as NaN: each
    copy of a row keeps each entry with probability `ρ ~ Uniform(0, 1)`, so that every number is as
    likely."""
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
    """Copies of rows with random masks, `(N, P)`, NaN where hidden, their targets and weights,
    `(N,)`."""

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
        """Of labels `(N,)` or probabilities `(N, C)`, and of how often each row counts; a row with
        all hidden of each label, of half a row's weight, leaves none without a probability."""
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
        """A copy of an estimator, fitted on these rows; a column that is hidden in all of them is
        put to 0."""
        seen = ~np.isnan(self.values) & (self.weights > 0.0)[:, None]
        values = np.where(seen.any(0), self.values, 0.0)
        from sklearn.base import clone  # noqa: PLC0415 - slow to import

        one = clone(estimator)
        one.fit(values, self.targets, sample_weight=self.weights)
        return one


def squared_residuals(
    estimator: Any, values: Array, y: Array, counts: Array, rows: Callable[..., MaskedRows]
) -> MaskedRows:
    """Copies whose targets are the squared residuals of a fit to the other half of the rows; `rows`
    makes :class:`MaskedRows` of values, responses and counts."""
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
