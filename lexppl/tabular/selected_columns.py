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

    Of the G entries' importances s, those of `feature_importances_`, the m largest are kept,

        m = (Σ_g s_g)² / Σ_g s_g²,

    their effective number, to the nearest whole one and at least 1: G if all are alike, the number
    of entries that are kept at all if these are kept alike. With a `threshold` those with
    `s_g ≥ threshold` are. A column is kept if its entry is.

    `get_support`, `transform`, `inverse_transform` and `set_output` are
    `sklearn.feature_selection.SelectorMixin`'s.
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
    """The least importance, or None.

    Raises:
        ValueError, TypeError: no finite number.
    """
    return None if threshold is None else finite_float("threshold", threshold)


def kept_entries(sizes: NDArray[np.float64], threshold: float | None = None) -> NDArray[np.bool_]:
    """Which entries are kept by their importances, `(G,)`.

    Args:
        sizes: `(G,)`, at least 0.
        threshold: the least; None for as many as there are in effect.

    Example:
        >>> kept_entries(np.array([0.9, 0.0, 0.8, 0.1]))
        array([ True, False,  True, False])
        >>> kept_entries(np.array([0.9, 0.0, 0.8, 0.1]), threshold=0.1)
        array([ True, False,  True,  True])
    """
    if threshold is not None:
        return sizes >= threshold
    squares = float((sizes**2).sum())
    count = 1 if squares == 0.0 else max(1, round(float(sizes.sum()) ** 2 / squares))
    kept = np.zeros(len(sizes), dtype=bool)
    kept[np.argsort(-sizes, kind="stable")[:count]] = True
    return kept
