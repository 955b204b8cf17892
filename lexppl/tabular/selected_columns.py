"""An explainer of a table as a selector of its columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from lexppl.argument_checks import finite_float


class SelectsColumns(SelectorMixin):
    """`transform` keeps the columns of X that the explainer's predictions rest on.

    Of the importances s of the G entries, with a `threshold` those of at least it are kept, else
    the m largest, `m = (Σ_g s_g)² / Σ_g s_g²`, rounded, at least 1. A column is kept if its entry
    is.
    """

    threshold: float | None
    feature_importances_: NDArray[np.float64]
    _column_entries: NDArray[np.int64]

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self, "result_")
        kept = kept_entries(self.feature_importances_, checked_threshold(self.threshold))
        support: NDArray[np.bool_] = kept[self._column_entries]
        return support


def checked_threshold(threshold: Any) -> float | None:
    """The least importance as a finite number, or None."""
    return None if threshold is None else finite_float("threshold", threshold)


def kept_entries(sizes: NDArray[np.float64], threshold: float | None = None) -> NDArray[np.bool_]:
    """Which entries are kept by their importances, `(G,)`."""
    if threshold is not None:
        return sizes >= threshold
    squares = float((sizes**2).sum())
    count = 1 if squares == 0.0 else max(1, round(float(sizes.sum()) ** 2 / squares))
    kept = np.zeros(len(sizes), dtype=bool)
    kept[np.argsort(-sizes, kind="stable")[:count]] = True
    return kept
