"""Explainers of tables as a scikit-learn classifier and a regressor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from lexppl.arviz_compatibility import Posterior, attrs_of, group_names, group_of, posterior_of
from lexppl.data import TargetColumn
from lexppl.tabular.encoded_rows import with_class_weights
from lexppl.tabular.table_explainer import TARGET, TableExplainer


@dataclass(eq=False, repr=False, kw_only=True)
class ExplainerClassifier(ClassifierMixin, TableExplainer):
    """A classifier of tables that explains each prediction by the columns that it needs.

    Each row has a latent mask z and an imputation x̃ of what it hides:

        p(y = c | x) = E[p(y = c | x̃)],    x̃ ~ p(x̃ | x, z),    z ~ p(z | x),

    averaged over `prediction_masks` masks and the replicates; a row's prediction does not depend on
    the rows beside it. Numbers are standardised by the training rows. A column of words, categories
    or booleans has an indicator for each level and one mask entry; a column of dates has a trend
    and waves of month, weekday and hour, and one entry (:class:`lexppl.data.DateColumn`).

    Args:
        method: a name of :data:`lexppl.systems.METHODS`.
        k: entries that a mask keeps (l2x, vibi, meed; lex may have one); None for a quarter of G,
            rounded up.
        penalty: λ, nats for each entry kept (lex, invase, real_x, base_x, rationale). "auto", for
            lex: chosen by validation rows among seven from a sixteenth to four times the usual one
            (:func:`lexppl.evaluation.penalty_path`). None is "auto" of lex with validation rows,
            else the method's own. The usual λ of lex is 0.02 nats times the entropy of the labels
            over that of a fair coin, times √(730 / bits) where the labels fitted on have fewer than
            730 bits and no `model` is explained.
        imputer: a name of :data:`lexppl.choices.imputers.IMPUTERS`, or a module of standardised
            rows. None for the method's own; that of lex draws hidden features given the kept ones
            where columns depend (:class:`lexppl.models.CopulaImputer`).
        groups: for each column of X the name of its group, which is kept or hidden as one; None for
            an entry a column.
        hidden: widths of the selector; (64, 64) below 2000 rows (lex with a penalty: 20,000), else
            (200, 200).
        predictor_hidden: widths of the predictor; (64, 64), or (200, 200, 200).
        epochs: of each stage; None for 200, or fewer so that there are 2000 steps (lex with a
            penalty 350; xtab twice, q_fit four times as many).
        batch_size: rows of a step; None for a third of them, at most 500 (lex with a penalty 256).
            One more where the last batch would have one row.
        learning_rate: of Adam at the start, falling to a twentieth over the second half (lex with a
            penalty: to a hundredth over the last 30 %). None for 1e-3 (3e-3), or the method's own.
        replicates: R fits from different seeds: the chains of `explain`.
        class_weight: u of each label: "balanced" for `n / (C n_c)`, a mapping from labels to
            weights (1 for others), or None. It multiplies `sample_weight`; then `predict_proba ∝
            u_c p(c | x)`: divide by u and by the sum for p(c | x).
        model: a fitted classifier with `predict_proba`, a torch module, or a torch predictor
            (:class:`lexppl.models.Predictor`) of X in its own units, to be explained: its
            probabilities are observed in place of y. q_fit and meed mask a torch predictor itself;
            for other models they mask a network fitted to the outputs (without `model`, to the
            labels). `clone` drops the fit of a classifier: give
            `sklearn.frozen.FrozenEstimator(classifier)` to a search or cross-validation.
        model_output: what a torch module without a likelihood returns: "logits" `(n, C)`, or
            log-odds of the second of two labels `(n,)`; or "probabilities".
        validation_fraction: share of the rows, stratified by class, on which the best epoch is
            chosen; None, or too few rows, for the last epoch.
        folds: cross-fitted predictors of lex; None for 2.
        predictor: "network" (None); "trees", boosted trees that read hidden features as missing,
            without an imputer; "auto", a network that trees replace where they predict validation
            labels better by more than a standard error.
        hide_missing: missing values are hidden by nature: the imputer draws them, and no mask keeps
            them. For lex, base_x, real_x and rationale, with trees or the imputers "marginal",
            "gaussian", "constant". A column without missing values in `fit` has none later.
        missing_indicator: with `hide_missing`, a mask entry for each column with missing values
            that says where they are missing.
        rare: levels with fewer training rows are pooled into one, which stands for unseen levels
            too; without it unseen levels are refused.
        prediction_masks: masks that a prediction is averaged over.
        threshold: least importance of a column that `transform` keeps; None for the effective
            number (:class:`lexppl.tabular.estimator_mixins.SelectsColumns`).
        random_state: a number, a numpy generator, or None for another fit each time; global random
            state is not used.
        verbose: show progress bars.

    Attributes:
        classes_: the C labels.
        result_: what :func:`lexppl.fit` returned.
        penalty_: λ of the fit in nats, or None.
        penalty_path_: the table of the penalty path, one row a penalty, or None.
        predictor_kind_: "network" or "trees".
        feature_importances_: `(G,)`, mean size of :meth:`importances` over the rows of `fit`.
        entry_names_: `(G,)`, names of the mask entries: the columns', or their groups'.
        encoding_: how columns become features.
        n_features_in_, feature_names_in_: as scikit-learn has them.

    Raises:
        ValueError, TypeError: in `fit`, what scikit-learn's estimators refuse; a method, size or
            model that does not fit; one class only. Later, a level that `fit` did not see.

    Source:
        Senetaire et al., "Explainability as statistical inference", ICML 2023, eq. 4.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> wine = load_wine(as_frame=True)
        >>> explainer = ExplainerClassifier("l2x", k=3, epochs=20, learning_rate=1e-2,
        ...     hidden=(16,), predictor_hidden=(16,), random_state=0)
        >>> explainer = explainer.fit(wine.data, wine.target)
        >>> explainer.predict(wine.data[:2]), explainer.importances(wine.data[:2]).shape
        (array([0, 0]), (2, 13))
    """

    class_weight: Any = None
    model_output: str | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ExplainerClassifier:
        """Fit the explainer to X `(n, n_features_in_)` and labels y `(n,)`.

        Args:
            sample_weight: how often each row counts, `(n,)`, at least 0; None for once. Whole
                weights are repetitions in the objective, validation, scaling, imputer and entropy;
                of others only the ratios count. Batches and epochs are by the rows that there are.
        """
        self._fit(X, y, sample_weight)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The explainer's own probabilities of the labels, `(n, C)` in the order of `classes_`."""
        probabilities: NDArray[np.float64] = self._predictions(X).numpy()
        return probabilities / probabilities.sum(1, keepdims=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest label of each row, `(n,)`."""
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]

    def _targets_and_strata(self, y: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only, {str(self.classes_[0])!r}; a classifier needs at least two"
            )
        targets = labels.astype(np.int64)
        return targets, targets

    def _reweighted(
        self, labels: NDArray[np.int64], weights: NDArray[np.float64] | None
    ) -> NDArray[np.float64] | None:
        return with_class_weights(self.class_weight, self.classes_, labels, weights)

    def _fitted_target(
        self, targets: NDArray[np.int64], weights: NDArray[np.float64] | None
    ) -> TargetColumn:
        return TargetColumn(TARGET, tuple(str(label) for label in self.classes_))

    def _encoded_target(self, y: Any) -> NDArray[np.int64]:
        values = column_or_1d(y)
        unseen = sorted(set(np.unique(values).tolist()) - set(self.classes_.tolist()))
        if unseen:
            raise ValueError(f"y has labels {unseen} that were not seen in fit")
        return np.searchsorted(self.classes_, values).astype(np.int64)


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

    def _targets_and_strata(self, y: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        return np.asarray(y, dtype=np.float64), np.zeros(len(y), dtype=np.int64)

    def _fitted_target(
        self, targets: NDArray[np.float64], weights: NDArray[np.float64] | None
    ) -> TargetColumn:
        return TargetColumn.standardised(TARGET, targets, weights)

    def _encoded_target(self, y: Any) -> NDArray[np.float64]:
        target = self.encoding_.target
        values = np.asarray(column_or_1d(y), dtype=np.float64)
        return (values - target.mean) / target.scale


def in_response_units(posterior: Posterior, target: TargetColumn) -> Posterior:
    """An explanation of y' = (y − m) / s in the units of y: values `m + s y'`, log-densities `− log
    s`.

    Example:
        >>> drawn = xr.Dataset({"y": ("row", [0.0, 1.0])})
        >>> given = posterior_of({"posterior_predictive": drawn}, {})
        >>> in_units = in_response_units(given, TargetColumn("y", None, 10.0, 2.0))
        >>> in_units["posterior_predictive"]["y"].values
        array([10., 12.])
    """
    groups = {name: group_of(posterior, name).copy() for name in group_names(posterior)}
    responses = ("predictions", "prior_predictive", "posterior_predictive", "observed_data")
    moved = {name: ("y", target.scale, target.mean) for name in responses}
    moved["log_likelihood"] = "y", 1.0, -math.log(target.scale)
    moved["sample_stats"] = "log_evidence", 1.0, -math.log(target.scale)
    with xr.set_options(keep_attrs=True):
        for name, (variable, scale, shift) in moved.items():
            if name in groups and variable in groups[name]:
                groups[name][variable] = groups[name][variable] * scale + shift
    return posterior_of(groups, attrs_of(posterior))
