"""What estimators of tables share: X and later rows, seeds, and the selection of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_regressor
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from torch import Tensor

from lexppl.argument_checks import finite_float, quoted
from lexppl.data import TableEncoding
from lexppl.data.columns import IndicatorColumn, NumericColumn
from lexppl.tabular.encoded_rows import has_levels, refuse_missing_cells

LARGEST_SEED = 2**31 - 1


def seed_of(random_state: Any) -> int:
    """The seed of a `random_state`; NumPy's global state is neither read nor moved."""
    if random_state is None:
        return int(np.random.default_rng().integers(LARGEST_SEED))
    if random_state is np.random:
        raise ValueError("random_state must not be numpy's global one; give a number or None")
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(LARGEST_SEED))
    generator = check_random_state(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(generator.randint(LARGEST_SEED))
    return int(random_state)


class ReadsTables(BaseEstimator):
    """X as a frame with names, checked as scikit-learn's estimators check it."""

    hide_missing: bool
    encoding_: TableEncoding
    n_features_in_: int

    def _validated(self, X: Any, y: Any) -> tuple[Any, pd.DataFrame, NDArray[Any]]:
        """X as a given model sees it, X as a frame with names, and y."""
        numeric_y = is_regressor(self)
        self._refuse_missing(X)
        if not has_levels(X):
            array, y = validate_data(
                self,
                X,
                y,
                dtype=np.float64,
                y_numeric=numeric_y,
                ensure_min_samples=2,
                ensure_all_finite=self._finite,
            )
            return X if isinstance(X, pd.DataFrame) else array, self._named(array), y
        if y is not None:
            y = validate_data(self, y=y, y_numeric=numeric_y)
        validate_data(self, X, y, skip_check_array=True)
        check_consistent_length(X, y)
        if len(X) < 2:
            raise ValueError(f"Found array with {len(X)} sample(s); at least 2 are required")
        return X, self._named(X), y

    def _refuse_missing(self, X: Any) -> None:
        if isinstance(X, pd.DataFrame) and not self.hide_missing:
            refuse_missing_cells(X)

    @property
    def _finite(self) -> bool | str:
        return "allow-nan" if self.hide_missing else True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = bool(self.hide_missing)
        return tags

    def _named(self, rows: Any) -> pd.DataFrame:
        """Rows as a frame with the explanation's column names."""
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{place}" for place in range(self.n_features_in_)]
        if isinstance(rows, pd.DataFrame):
            return rows.set_axis(list(names), axis=1)
        return pd.DataFrame(rows, columns=list(names))

    def _column(self, X: Any, name: str) -> pd.Series:
        """A column of X by its name."""
        frame = self._named(X)
        if name not in frame:
            raise ValueError(f"X has no column {name!r}; its columns are {quoted(frame)}")
        return frame[name]

    def _encoded(self, X: Any, dtype: torch.dtype) -> Tensor:
        """Later rows as the explainer sees them."""
        self._refuse_missing(X)
        if all(isinstance(c, NumericColumn | IndicatorColumn) for c in self.encoding_.columns):
            array = validate_data(
                self, X, reset=False, dtype=np.float64, ensure_all_finite=self._finite
            )
            return self.encoding_.encode(self._named(array), dtype)
        if not isinstance(X, pd.DataFrame):
            raise TypeError(
                "X must be a data frame with the columns of fit, as some are of levels; it is a "
                f"{type(X).__name__}"
            )
        validate_data(self, X, reset=False, skip_check_array=True)
        return self.encoding_.encode(self._named(X), dtype)


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
        selected = kept_entries(self.feature_importances_, checked_threshold(self.threshold))
        return selected[self._column_entries]


def checked_threshold(threshold: Any) -> float | None:
    """The least importance as a finite number, or None."""
    return None if threshold is None else finite_float("threshold", threshold)


def kept_entries(sizes: NDArray[np.float64], threshold: float | None = None) -> NDArray[np.bool_]:
    """Which entries are kept by their importances, `(G,)`."""
    if threshold is not None:
        return sizes >= threshold
    squares = float((sizes**2).sum())
    count = 1 if squares == 0.0 else max(1, round(float(sizes.sum()) ** 2 / squares))
    selected = np.zeros(len(sizes), dtype=bool)
    selected[np.argsort(-sizes, kind="stable")[:count]] = True
    return selected
