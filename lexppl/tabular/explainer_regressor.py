"""An explainer of responses as a scikit-learn regressor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d

from lexppl.arviz_compatibility import Posterior
from lexppl.data import TargetColumn
from lexppl.tabular.response_units import in_response_units
from lexppl.tabular.table_explainer import TARGET, TableExplainer


class ExplainerRegressor(RegressorMixin, TableExplainer):
    """A regressor of tables that explains each prediction by the columns that it needs.

    :class:`ExplainerClassifier` for a real response, normal given the imputed row, with a learned
    scale. y is standardised for the fit; predictions and `explain` are in its own units, `result_`
    is not.

    Args:
        method: a name of :data:`lexppl.systems.METHODS` with a form for responses (not meed).
        k, penalty, imputer, groups, hidden, predictor_hidden, epochs, batch_size, learning_rate,
            replicates, validation_fraction, folds, predictor, hide_missing, missing_indicator,
            rare, prediction_masks, threshold, random_state, verbose: as in
            :class:`ExplainerClassifier`; the penalty's default is in nats of a standardised y.
        model: a fitted regressor, a torch module that returns the response, or a torch predictor
            with a normal distribution, of X in its own units, to be explained.

    Attributes:
        result_, penalty_, penalty_path_, predictor_kind_, feature_importances_, entry_names_,
            encoding_, n_features_in_, feature_names_in_: as in :class:`ExplainerClassifier`.

    Raises:
        ValueError, TypeError: in `fit`, as :class:`ExplainerClassifier`; a method of labels only.

    Example:
        >>> from sklearn.datasets import make_regression
        >>> X, y = make_regression(200, 4, n_informative=1, random_state=0)
        >>> explainer = ExplainerRegressor("lex", k=1, epochs=60, learning_rate=1e-2,
        ...     hidden=(16,), predictor_hidden=(16,), random_state=0).fit(X, y)
        >>> explainer.score(X, y) > 0.8, explainer.feature_importances_.round(1)
        (True, array([1., 0., 0., 0.]))
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ExplainerRegressor:
        """Fit the explainer to X `(n, n_features_in_)` and responses y `(n,)`, weighted as by
        :meth:`ExplainerClassifier.fit`."""
        self._fit(X, y, sample_weight)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The explainer's own mean response of each row, `(n,)`, in the units of y."""
        standardised = self._predictions(X)
        means: NDArray[np.float64] = self.encoding_.target.decode(standardised).numpy()
        return means

    def explain(
        self, X: Any, y: Any = None, *, draws: int = 100, penalty: float | None = None
    ) -> Posterior:
        """As :meth:`ExplainerClassifier.explain`, with the response in the units of y."""
        posterior = super().explain(X, y, draws=draws, penalty=penalty)
        return in_response_units(posterior, self.encoding_.target)

    def _told(self, y: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        return np.asarray(y, dtype=np.float64), np.zeros(len(y), dtype=np.int64)

    def _fitted_target(
        self, targets: NDArray[np.float64], weights: NDArray[np.float64] | None
    ) -> TargetColumn:
        return TargetColumn.standardised(TARGET, targets, weights)

    def _encoded_target(self, y: Any) -> NDArray[np.float64]:
        target = self.encoding_.target
        values = np.asarray(column_or_1d(y), dtype=np.float64)
        return (values - target.mean) / target.scale
