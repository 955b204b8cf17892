"""Explainers of tables as a scikit-learn classifier and a regressor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
import xarray as xr
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d
from torch import Tensor, nn

from lexppl.argument_checks import fraction, int_at_least, int_between
from lexppl.arviz_compatibility import Posterior, group_names, group_of, like
from lexppl.choices.methods import DEFAULT_METHOD, METHODS
from lexppl.choices.settings import AUTO, SETTINGS, Regime, check_settings, chooses_penalty
from lexppl.data import TableEncoding
from lexppl.data.encoding import TargetColumn
from lexppl.data.stratification import training_and_validation
from lexppl.evaluation import (
    importance,
    interaction_table,
    revealed_predictions,
)
from lexppl.evaluation.effects import RowSteps
from lexppl.evaluation.importance import FDR
from lexppl.explanation import explain
from lexppl.explanation.reading.feature_values import decoded_values, with_values
from lexppl.inference import FitResult, entropy_unit
from lexppl.models.black_box import BlackBox
from lexppl.models.calls import Calls
from lexppl.systems.fit_plan import FitPlan, check_method, plan_for
from lexppl.tabular.encoded_rows import (
    Counts,
    EncodedRows,
    as_counts,
    checked_weights,
    encoded_data,
    entries_of_columns,
    grouping_of,
    judged_groups,
    markers_in,
    with_class_weights,
)
from lexppl.tabular.estimator_mixins import ReadsTables, SelectsColumns, checked_threshold, seed_of
from lexppl.tabular.given_model import (
    box_of_rows,
    has_likelihood,
    outputs_of,
    predictor_on_standardised_rows,
)
from lexppl.tabular.row_predictions import row_importances, row_predictions
from lexppl.tabular.table_fit import fit_table

TARGET = "y"


class _Fitted:
    """Attributes of a fitted explainer."""

    classes_: NDArray[Any]
    result_: FitResult
    penalty_: float | None
    penalty_path_: pd.DataFrame | None
    predictor_kind_: str
    entry_names_: NDArray[Any]
    feature_names_in_: NDArray[Any]
    calls_: Calls | None
    """What the explained model was sent."""
    _seed: int


@dataclass(eq=False, repr=False, kw_only=True)
class TableExplainer(_Fitted, SelectsColumns, ReadsTables, ABC):
    """Base of the two estimators, which define what y is."""

    method: str = field(default=DEFAULT_METHOD, kw_only=False)
    k: int | None = None
    penalty: float | Literal["auto"] | None = None
    imputer: str | nn.Module | None = None
    groups: Any = None
    hidden: Any = None
    predictor_hidden: Any = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    replicates: int = 1
    model: Any = None
    validation_fraction: float | None = 0.2
    folds: int | None = None
    predictor: str | None = None
    hide_missing: bool = False
    missing_indicator: bool = False
    rare: int | None = None
    prediction_masks: int = 50
    threshold: float | None = None
    random_state: Any = None
    verbose: bool = False

    @abstractmethod
    def _targets_and_strata(self, y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """y as labels 0 … C−1 or responses in their own units, and the stratum of each row."""

    @abstractmethod
    def _fitted_target(self, targets: NDArray[Any], weights: Counts | None) -> TargetColumn:
        """The target's encoding, from the training rows."""

    def _reweighted(self, labels: NDArray[np.int64], weights: Counts | None) -> Counts | None:
        """Row weights, given the labels."""
        return weights

    @abstractmethod
    def _encoded_target(self, y: Any) -> NDArray[Any]:
        """y of other rows, encoded as in the fit."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the explainer to X `(n, n_features_in_)` and y `(n,)`, labels or responses.

        Args:
            sample_weight: how often each row counts, `(n,)`, at least 0; None for once. Whole
                weights are repetitions in the objective, validation, scaling, imputer and entropy;
                of others only the ratios count. Batches and epochs are by the rows that there are.
        """
        share = self._checked_share()
        seed = seed_of(self.random_state)
        table, frame, y = self._validated(X, y)
        weights = checked_weights(sample_weight, len(frame))
        if weights is not None:
            table, frame, y, weights = _taken(weights > 0, table, frame, y, weights)
        targets, strata = self._targets_and_strata(y)
        box, self.calls_ = None, None
        if self.model is not None:
            labels, output = getattr(self, "classes_", None), getattr(self, "model_output", None)
            box, answers, places = box_of_rows(self.model, table, labels, output)
            self.calls_, answers = box.calls, answers[places]
            if len(places) < len(frame):
                bought = np.isin(np.arange(len(frame)), places)
                frame, targets, strata, weights = _taken(bought, frame, targets, strata, weights)
        weights = as_counts(self._reweighted(strata, weights))
        train, valid = training_and_validation(strata, share, seed)
        learned = None if weights is None else weights[train]
        observed = torch.tensor(targets) if box is None else outputs_of(box, answers)
        if box is not None and not is_classifier(self):
            targets = observed.numpy()  # Which its answers may be far from.
        target = self._fitted_target(targets[train], learned)
        classes = None if target.class_names is None else len(target.class_names)
        self.encoding_ = self._fitted_encoding(frame, target, train, learned)
        grouping = grouping_of(self.encoding_, self.groups)
        x = self.encoding_.encode(frame)
        if not bool(x.isfinite().all()):
            raise ValueError("X has values that are too far apart to be standardised; rescale it")
        y = self._observed(observed, x.dtype)
        of_rows = None if weights is None else torch.from_numpy(weights).to(x.dtype)
        counts, held_out = None, None if valid is None else (x[valid], y[valid])
        if of_rows is not None:
            counts = of_rows[train], None if valid is None else of_rows[valid]
        names = self.encoding_.feature_names, target.class_names
        encoded = (x[train], y[train]), held_out, grouping, *names, counts
        rows = EncodedRows(*encoded, markers_in(self.encoding_))
        unit = entropy_unit(rows.train[1], classes, None if counts is None else counts[0])
        plan = self._plan(len(train), grouping.entries, seed, unit, valid is not None)
        black_box = self._explained_module()
        fitted = fit_table(plan, rows, black_box=black_box, progress=bool(self.verbose))
        self.predictor_kind_ = fitted.plan.predictor_kind
        self.result_ = fitted.result
        self.entry_names_ = np.asarray(grouping.names, dtype=object)
        self._column_entries = entries_of_columns(self.encoding_, grouping)
        self.penalty_ = fitted.penalty
        self.penalty_path_ = None if fitted.path is None else fitted.path.table
        self._fitted_rows = (fitted, frame, x, y, train, valid) * (weights is None and box is None)
        self._seed = seed
        sizes = np.abs(self._importances_of(x.double()))
        self.feature_importances_ = np.average(sizes, axis=0, weights=weights)
        return self

    def explain(
        self, X: Any, y: Any = None, *, draws: int = 100, penalty: float | None = None
    ) -> Posterior:
        """Draw the posterior of the rows' masks: :func:`lexppl.explain`.

        Args:
            X: `(n, n_features_in_)`, as in `fit`; a data frame's index names the rows.
            y: observed, for masks from p(z | x, y) beside p(z | x) and the log-likelihood; or None.
            draws: masks a row and replicate.
            penalty: λ in nats, for lex with a penalty, from 1/64 of to four times the usual
                one (of G > 15 columns from (15 / G)² of that); None for that of the fit.

        Returns:
            ArviZ data by the entries' names, replicates as chains. `constant_data` has x as the
            explainer sees it and, where an entry is a column, `value`, the columns in their own
            units.

        Raises:
            ValueError, TypeError: as :func:`lexppl.explain`; rows unlike those of `fit`.
        """
        x, *observed = self.encode(X, y)
        posterior = explain(
            self.result_,
            x,
            *observed,
            draws=draws,
            seed=self._seed,
            coords=_row_names(X),
            penalty=penalty,
        )
        if self.groups is None:
            with_values(posterior, decoded_values(x, self.encoding_))
        return posterior

    def encode(self, X: Any, y: Any = None) -> tuple[Tensor, ...]:
        """Rows as the explainer's program sees them, for a program of a user's own.

        By `encoding_`: numbers standardised, levels as indicators; `result_.entry_names` and
        `result_.model.grouping` say which features a mask entry keeps.

        Args:
            X: `(n, n_features_in_)`, as in `fit`.
            y: labels or responses; None for none.

        Returns:
            `(x,)`, or `(x, y)` with labels 0 … C−1, or responses in standardised units: the columns
            of `fit(program, explainer.encode(X, y))` and `explain(program, *explainer.encode(X))`.

        Raises:
            ValueError, TypeError: rows unlike those of `fit`, labels that it did not see.

        Example:
            >>> X, y = np.arange(40.0).reshape(20, 2) ** 2, ["low", "high"] * 10
            >>> explainer = ExplainerClassifier("l2x", k=1, epochs=1, random_state=0).fit(X, y)
            >>> [tuple(column.shape) for column in explainer.encode(X[:3], y[:3])]
            [(3, 2), (3,)]
            >>> explainer.encode(X[:3], y[:3])[1]
            tensor([1, 0, 1])
        """
        check_is_fitted(self, "result_")
        if y is not None:
            check_consistent_length(X, y)
        x = self._encoded(X, torch.get_default_dtype())
        if y is None:
            return (x,)
        values = torch.from_numpy(self._encoded_target(y))
        return x, values.to(x.dtype) if values.is_floating_point() else values

    def gains(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        groups: Mapping[str, Sequence[str]] | None = None,
        fdr: float = FDR,
        by: Literal["group", "feature"] = "group",
        interaction: tuple[str, Any] | None = None,
    ) -> pd.DataFrame:
        """What groups of features are worth for the prediction of y, and which are found.

        It is of the table and not of this explainer: predictors of sets of columns learn from
        these rows in five folds, and judge each row by those that have not learned from it
        (:func:`lexppl.evaluation.importance`). No mask enters.

        Args:
            X, y: rows; those of the fit do as well as others.
            sample_weight: how often each row counts, as in `fit`; `class_weight` does not apply.
            groups: the mask entries of each group by its name; None for those that depend on each
                other (:meth:`lexppl.evaluation.FeatureGroups.dependent`).
            fdr: false discovery rate of what is found.
            by: a line for each group, or for each feature given the rest of its group.
            interaction: a feature or group, and a column of X or `(n,)` values: the gain of the
                first by strata of the second, in place of all gains.

        Returns:
            `group_table` or `feature_table` of :func:`lexppl.evaluation.importance`, or
            :func:`lexppl.evaluation.interaction_table`, in nats a row.

        Raises:
            ValueError: fewer rows than folds; y without variation.
        """
        if by not in ("group", "feature"):
            raise ValueError(f"by must be 'group' or 'feature'; it is {by!r}")
        (x, target), seed = self.encode(X, y), self._seed
        feature, values = interaction or (None, None)
        by_row = self._column(X, values) if isinstance(values, str) else values
        weights = checked_weights(sample_weight, len(x))
        if weights is not None:
            by_row = None if by_row is None else np.asarray(by_row)
            check_consistent_length(x, by_row)
            x, target, by_row, weights = _taken(weights > 0, x, target, by_row, weights)
        weights = as_counts(weights)
        weight = None if weights is None else torch.from_numpy(weights).to(x.dtype)
        data = encoded_data(self.encoding_, self.groups, x, target)
        gains = importance(data, groups=judged_groups(data, groups), weight=weight, seed=seed)
        if feature is not None:
            return interaction_table(gains, feature, by_row)
        return gains.group_table(fdr) if by == "group" else gains.feature_table(fdr)

    def explain_row(self, X: Any, row: int) -> RowSteps:
        """The prediction of row number `row` as a sum of steps, one a feature, the most kept first;
        of a response with a heavy tail in units of the curve by which it enters, in which they add.

        The steps have their spread over replicates; `lexppl.plots.plot_row` draws them.

        Raises:
            ValueError: no such row; masks that do not select.
        """
        (x,) = self.encode(X)
        place = int_between("row", row, 0, len(x) - 1, note="rows of X")
        row_x = x[place : place + 1]
        steps = revealed_predictions(self.result_, row_x, seed=self._seed).steps(0)
        target = self.encoding_.target
        return steps if target.class_names else steps.in_units(target.scale, target.level)

    def importances(self, X: Any, *, penalty: float | None = None) -> NDArray[np.float64]:
        """E[z | x] of each mask entry, `(n, G)`, over the replicates, at the penalty λ if one is
        given.

        Soft masks have their own values; fastshap and senn have signed attributions.

        Raises:
            ValueError, TypeError: rows unlike those of `fit`.
        """
        check_is_fitted(self, "result_")
        return self._importances_of(self._encoded(X, torch.float64), penalty)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {**super().__getstate__(), "_fitted_rows": ()}
        if "result_" in state:
            state["result_"] = replace(state["result_"], modules=[])
        return state

    def _fitted_encoding(
        self, frame: pd.DataFrame, target: TargetColumn, rows: Any, weights: Counts | None
    ) -> TableEncoding:
        """The encoding of a table, its numbers from some rows."""
        return TableEncoding.fit(
            frame,
            target,
            statistics_rows=rows,
            statistics_weights=weights,
            every_category=True,
            hide_missing=self.hide_missing,
            missing_indicator=self.missing_indicator,
            rare=None if self.rare is None else int_at_least("rare", self.rare),
        )

    def _checked_share(self) -> float | None:
        """The validation share, after a check of all settings."""
        check_method(self.method, is_classifier(self))
        check_settings(self.method, **self._settings())
        int_at_least("prediction_masks", self.prediction_masks)
        checked_threshold(self.threshold)
        if self.missing_indicator and not self.hide_missing:
            raise ValueError("missing_indicator=True is for hide_missing=True; give both")
        share = self.validation_fraction
        return None if share is None else fraction("validation_fraction", share, note="or None")

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SETTINGS if hasattr(self, name)}

    def _plan(self, rows: int, entries: int, seed: int, unit: float, has_valid: bool) -> FitPlan:
        settings = self._settings()
        if self.penalty is None and self.k is None and has_valid and chooses_penalty(self.method):
            settings["penalty"] = AUTO
        regime = Regime.FREE_IN_SITU if self.model is None else Regime.SURROGATE_POST_HOC
        return plan_for(rows, entries, self.method, regime=regime, unit=unit, seed=seed, **settings)

    def _predictions(self, X: Any) -> Tensor:
        """The distribution of y in each row, in the explainer's own units."""
        check_is_fitted(self, "result_")
        x = self._encoded(X, torch.float64)
        return row_predictions(self.result_, x, int(self.prediction_masks), self._seed)

    def _importances_of(self, x: Tensor, penalty: float | None = None) -> NDArray[np.float64]:
        result = self.result_ if penalty is None else self.result_.at(penalty)
        return row_importances(result, x, int(self.prediction_masks), self._seed).numpy()

    def _observed(self, observed: Tensor, dtype: torch.dtype) -> Tensor:
        """y, or what the given model says of the rows, as the explainer observes it."""
        target = self.encoding_.target
        if target.class_names is None:
            observed = torch.from_numpy(target.standardised(observed.double().numpy()))
        return observed.to(dtype) if observed.is_floating_point() else observed

    def _given_predictor(self) -> nn.Module | None:
        """The given torch predictor, where the method takes one."""
        model = self.model.model if isinstance(self.model, BlackBox) else self.model
        takes = METHODS[self.method].explains_model and isinstance(model, nn.Module)
        return model if takes and has_likelihood(model) else None

    def _explained_module(self) -> nn.Module | None:
        """The given torch predictor on encoded rows, where the method takes one."""
        model = self._given_predictor()
        return None if model is None else predictor_on_standardised_rows(model, self.encoding_)


def _taken(rows: NDArray[np.bool_], *parts: Any) -> tuple[Any, ...]:
    """Some rows of each part; None of a part that is None."""
    return tuple(None if part is None else part[rows] for part in parts)


def _row_names(X: Any) -> dict[str, list[Any]] | None:
    """The index of a data frame, where it is unique, as `coords` of `explain`."""
    if not isinstance(X, pd.DataFrame) or not X.index.map(str).is_unique:
        return None
    return {"row": list(X.index)}


@dataclass(eq=False, repr=False, kw_only=True)
class ExplainerClassifier(ClassifierMixin, TableExplainer):
    """A classifier of tables that explains each prediction by the columns that it needs.

    Use it where scikit-learn's classifiers are used, on a data frame or an array: to predict
    labels, to rank columns and to explain rows. With `model=` it explains a classifier that is
    already fitted.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> wine = load_wine(as_frame=True)
        >>> explainer = ExplainerClassifier("l2x", k=3, epochs=20, learning_rate=1e-2,
        ...     hidden=(16,), predictor_hidden=(16,), random_state=0)
        >>> explainer = explainer.fit(wine.data, wine.target)
        >>> explainer.predict(wine.data[:2]), explainer.importances(wine.data[:2]).shape
        (array([0, 0]), (2, 13))

    Each row has a latent mask z and an imputation x̃ of what it hides:

        p(y = c | x) = E[p(y = c | x̃)],    x̃ ~ p(x̃ | x, z),    z ~ p(z | x),

    averaged over `prediction_masks` masks and the replicates; a row's prediction does not depend on
    the rows beside it. Numbers are standardised by the training rows, of a heavy tail by a curve
    (`NumericColumn`). A column of words, categories or booleans has an indicator for each level and
    one mask entry; a column of dates has a trend and waves of month, weekday and hour, and one
    entry (`DateColumn`).

    Args:
        method: a name of :data:`lexppl.systems.METHODS`.
        k: entries that a mask keeps (l2x, vibi, meed; lex may have one); None for a quarter of G,
            rounded up.
        penalty: λ, nats for each entry kept (lex, invase, real_x, base_x, rationale). "auto", for
            lex: chosen by validation rows among eight from 1/64 of to four times the usual one, of
            G > 15 columns nine from (15 / G)² of that (:func:`lexppl.evaluation.penalty_path`).
            None is "auto" of lex with validation rows, else the method's own. The usual λ of lex is
            0.02 nats times the entropy of the labels over that of a fair coin, times √(730 / bits)
            where the labels fitted on have fewer than 730 bits and no `model` is explained.
        imputer: a name of :data:`lexppl.choices.imputers.IMPUTERS`, or a module of standardised
            rows. None for the method's own; that of lex draws hidden features given the kept ones
            where columns depend (:class:`lexppl.models.CopulaImputer`).
        groups: for each column of X the name of its group, which is kept or hidden as one; None for
            an entry a column.
        hidden: widths of the selector; (64, 64) below 2000 rows (lex with a penalty: 20,000), else
            (200, 200).
        predictor_hidden: widths of the predictor; (64, 64), or (200, 200, 200).
        epochs: of each stage; None for 200, or fewer so that there are 2000 steps (lex with a
            penalty 350, and more of over 1,100 rows or 30 columns; xtab twice, q_fit four times as
            many).
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
        hide_missing: missing values count as hidden: the imputer draws them, and no mask keeps
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

    Warns:
        BehindWarning: in `fit`, where validation rows are predicted worse than by a predictor of
            all features, with both scores (:func:`lexppl.evaluation.prediction.is_behind`). Of
            `penalty="auto"` a second fit, from that predictor, has been tried before.

    Source:
        Senetaire et al., "Explainability as statistical inference", ICML 2023, eq. 4.
    """

    class_weight: Any = None
    model_output: str | None = None

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The explainer's own probabilities of the labels, `(n, C)` in the order of `classes_`."""
        probabilities: NDArray[np.float64] = self._predictions(X).numpy()
        return probabilities / probabilities.sum(1, keepdims=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest label of each row, `(n,)`."""
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]

    def _targets_and_strata(self, y: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if pd.isna(y).any():
            raise ValueError("y has missing labels: leave their rows out")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {str(self.classes_[0])!r}; two are needed")
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

    Use it as :class:`ExplainerClassifier`, where y is a number in place of a label. With `model=`
    it explains a regressor that is already fitted.

    Example:
        >>> from sklearn.datasets import make_regression
        >>> X, y = make_regression(200, 4, n_informative=1, random_state=0)
        >>> explainer = ExplainerRegressor("lex", k=1, epochs=60, learning_rate=1e-2,
        ...     hidden=(16,), predictor_hidden=(16,), random_state=0).fit(X, y)
        >>> explainer.score(X, y) > 0.8, explainer.feature_importances_.round(1)
        (True, array([1., 0., 0., 0.]))

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
    """

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The explainer's own mean response of each row, `(n,)`, in the units of y; of a heavy tail
        the response of its mean on the curve by which y enters, near the median."""
        standardised = self._predictions(X)
        return self.encoding_.target.decode(standardised).numpy()

    def explain(
        self, X: Any, y: Any = None, *, draws: int = 100, penalty: float | None = None
    ) -> Posterior:
        """As :meth:`ExplainerClassifier.explain`, with the response in the units of y."""
        posterior = super().explain(X, y, draws=draws, penalty=penalty)
        return in_response_units(posterior, self.encoding_.target)

    def _targets_and_strata(self, y: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        if y.dtype.kind in "mM":
            raise ValueError("y has dates or durations: give numbers, as by .dt.total_seconds()")
        return np.asarray(y, dtype=np.float64), np.zeros(len(y), dtype=np.int64)

    def _fitted_target(
        self, targets: NDArray[np.float64], weights: NDArray[np.float64] | None
    ) -> TargetColumn:
        is_black_box = self._given_predictor() is not None
        return TargetColumn.of_responses(TARGET, targets, weights, straight=is_black_box)

    def _encoded_target(self, y: Any) -> NDArray[np.float64]:
        values = np.asarray(column_or_1d(y), dtype=np.float64)
        return self.encoding_.target.standardised(values)


def in_response_units(posterior: Posterior, target: TargetColumn) -> Posterior:
    """An explanation of y' = (y − m) / s in the units of y: values `m + s y'`, log-densities `− log
    s`; of a heavy tail those of the curve by which y enters, `− log dy / dy'` in each row.

    Example:
        >>> drawn = xr.Dataset({"y": ("row", [0.0, 1.0])})
        >>> given = xr.DataTree(children={"posterior_predictive": xr.DataTree(drawn)})
        >>> in_units = in_response_units(given, TargetColumn("y", None, 10.0, 2.0))
        >>> in_units["posterior_predictive"]["y"].values
        array([10., 12.])
    """
    groups = {name: group_of(posterior, name).copy() for name in group_names(posterior)}
    responses = ("predictions", "prior_predictive", "posterior_predictive", "observed_data")
    moved: dict[str, tuple[str, Any]] = {name: ("y", target.inverse) for name in responses}
    if "observed_data" in groups and "y" in groups["observed_data"]:
        slope = target.slope(groups["observed_data"]["y"].values.astype(np.float64))
        moved["log_likelihood"] = "y", lambda density: density - np.log(slope)
        moved["sample_stats"] = "log_evidence", lambda density: density - np.log(slope)
    with xr.set_options(keep_attrs=True):
        for name, (variable, change) in moved.items():
            if name in groups and variable in groups[name]:
                # In float64, as a large shift would round a float32 away.
                values = groups[name][variable].astype(np.float64)
                groups[name][variable] = values.copy(data=change(values.values))
    return like(posterior, groups)
