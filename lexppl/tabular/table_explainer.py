"""What the classifier and the regressor have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Tensor, nn

from lexppl.argument_checks import fraction, int_at_least, int_between
from lexppl.arviz_compatibility import Posterior
from lexppl.choices.methods import DEFAULT_METHOD, METHODS
from lexppl.choices.regimes import Regime
from lexppl.choices.settings import AUTO, SETTINGS, check_settings, chooses_penalty
from lexppl.data import TableEncoding
from lexppl.data.encoding import TargetColumn
from lexppl.data.stratification import training_and_validation
from lexppl.evaluation import (
    FeatureGroups,
    Folds,
    feature_gains,
    gain_table,
    group_table,
    interaction_table,
    revealed_predictions,
)
from lexppl.evaluation.effects import RowSteps
from lexppl.evaluation.gains import FDR
from lexppl.explanation import explain
from lexppl.explanation.reading.feature_values import decoded_values, with_values
from lexppl.explanation.reading.masks import drawn_masks
from lexppl.inference import FitResult, entropy_unit
from lexppl.models.black_box import BlackBox
from lexppl.models.calls import Calls
from lexppl.tabular.encoded_rows import Counts, EncodedRows, as_counts, checked_weights
from lexppl.tabular.estimator_mixins import ReadsTables, SelectsColumns, checked_threshold, seed_of
from lexppl.tabular.fit_plan import FitPlan, check_method, plan_for
from lexppl.tabular.given_model import (
    box_of_rows,
    has_likelihood,
    outputs_of,
    predictor_on_standardised_rows,
)
from lexppl.tabular.predictors import fit_judge
from lexppl.tabular.row_predictions import row_importances, row_predictions
from lexppl.tabular.table_columns import entries_of_columns, grouping_of, markers_in
from lexppl.tabular.table_fit import fit_table

JUDGE_FOLDS, JUDGE_MASKS = 5, 20

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

    def explain(
        self, X: Any, y: Any = None, *, draws: int = 100, penalty: float | None = None
    ) -> Posterior:
        """Draw the posterior of the rows' masks: :func:`lexppl.explain`.

        Args:
            X: `(n, n_features_in_)`, as in `fit`; a data frame's index names the rows.
            y: observed, for masks from p(z | x, y) beside p(z | x) and the log-likelihood; or None.
            draws: masks a row and replicate.
            penalty: λ in nats, for lex with a penalty, from a sixteenth to four times the usual
                one; None for that of the fit.

        Returns:
            ArviZ data by the entries' names, replicates as chains. `constant_data` has x as the
            explainer sees it and, where an entry is a column, `value`, the columns in their own
            units.

        Raises:
            ValueError, TypeError: as :func:`lexppl.explain`; rows unlike those of `fit`.
        """
        check_is_fitted(self, "result_")
        x = self._encoded(X, torch.get_default_dtype())
        observed = None
        if y is not None:
            check_consistent_length(X, y)
            observed = self._target_of(y, x.dtype)
        posterior = explain(
            self.result_,
            x,
            observed,
            draws=draws,
            seed=self._seed,
            row_names=_row_names(X),
            penalty=penalty,
        )
        if self.groups is None:
            with_values(posterior, decoded_values(x, self.encoding_))
        return posterior

    def gains(
        self,
        X: Any,
        y: Any,
        *,
        groups: Mapping[str, Sequence[str]] | None = None,
        fdr: float = FDR,
        by: Literal["group", "feature"] = "group",
        interaction: tuple[str, Any] | None = None,
    ) -> pd.DataFrame:
        """What groups of features are worth for the prediction of y, and which are found.

        EVAL-X is fitted to the rows in five folds; each row is judged by the fit without it, with
        the masks of this explainer (:func:`lexppl.evaluation.feature_gains`).

        Args:
            X, y: rows that were not fitted on.
            groups: the mask entries of each group by its name; None for those that depend on each
                other (:meth:`lexppl.evaluation.FeatureGroups.dependent`).
            fdr: false discovery rate of what is found.
            by: a line for each group, or for each feature given the rest of its group.
            interaction: a feature or group, and a column of X or `(n,)` values: the gain of the
                first by strata of the second, in place of all gains.

        Returns:
            :func:`lexppl.evaluation.group_table`, `gain_table` or `interaction_table`, in nats a
            row.

        Raises:
            ValueError: fewer rows than folds; masks that do not select.
        """
        if by not in ("group", "feature"):
            raise ValueError(f"by must be 'group' or 'feature'; it is {by!r}")
        check_is_fitted(self, "result_")
        check_consistent_length(X, y)
        x, seed = self._encoded(X, torch.get_default_dtype()), self._seed
        target = self._target_of(y, x.dtype)
        grouping = grouping_of(self.encoding_, self.groups)
        class_names = self.encoding_.target.class_names
        folds = Folds.of(target, JUDGE_FOLDS, seed)
        rows = EncodedRows(
            (x, target), None, grouping, self.encoding_.feature_names, class_names, folds=folds
        )
        unit = entropy_unit(target, None if class_names is None else len(class_names))
        judge = fit_judge(self._plan(len(x), grouping.entries, seed, unit, True), rows)
        names = grouping.names
        judged = (
            FeatureGroups.dependent(
                x, grouping.index.tolist(), names, markers=markers_in(self.encoding_)
            )
            if groups is None
            else FeatureGroups.named(groups, names)
        )
        masks = drawn_masks(explain(self.result_, x, draws=JUDGE_MASKS, seed=seed))
        found = feature_gains(judge, x, target, masks.to(x), groups=judged, folds=folds, seed=seed)
        if interaction is not None:
            feature, values = interaction
            by_row = self._named(X)[values] if isinstance(values, str) else values
            return interaction_table(found, feature, by_row)
        return (group_table if by == "group" else gain_table)(found, fdr)

    def explain_row(self, X: Any, row: int) -> RowSteps:
        """The prediction of row number `row` as a sum of steps, one a feature, the most kept first.

        The steps have their spread over replicates; `lexppl.plots.plot_row` draws them.

        Raises:
            ValueError: no such row; masks that do not select.
        """
        check_is_fitted(self, "result_")
        x = self._encoded(X, torch.get_default_dtype())
        place = int_between("row", row, 0, len(x) - 1, note="rows of X")
        own = x[place : place + 1]
        steps = revealed_predictions(self.result_, own, seed=self._seed).steps(0)
        target = self.encoding_.target
        return steps if target.class_names else steps.in_units(target.scale, target.mean)

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
        state: dict[str, Any] = dict(super().__getstate__())
        if "result_" in state:
            state["result_"] = replace(state["result_"], modules=[])
        return state

    def _fit(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        share = self._checked_share()
        seed = seed_of(self.random_state)
        table, frame, y = self._validated(X, y)
        weights = checked_weights(sample_weight, len(frame))
        if weights is not None:
            counted = weights > 0
            table, frame, y = table[counted], frame[counted], y[counted]
            weights = weights[counted]
        targets, strata = self._targets_and_strata(y)
        box, self.calls_ = None, None
        if self.model is not None:
            labels, output = getattr(self, "classes_", None), getattr(self, "model_output", None)
            box, given, places = box_of_rows(self.model, table, labels, output)
            self.calls_, given = box.calls, given[places]
            if len(places) < len(frame):
                bought = np.isin(np.arange(len(frame)), places)
                table, frame = table[bought], frame[bought]
                targets, strata = targets[bought], strata[bought]
                weights = None if weights is None else weights[bought]
        weights = as_counts(self._reweighted(strata, weights))
        train, valid = training_and_validation(strata, share, seed)
        learned = None if weights is None else weights[train]
        target = self._fitted_target(targets[train], learned)
        classes = None if target.class_names is None else len(target.class_names)
        self.encoding_ = TableEncoding.fit(
            frame,
            target,
            statistics_rows=train,
            statistics_weights=learned,
            every_category=True,
            hide_missing=self.hide_missing,
            missing_indicator=self.missing_indicator,
            rare=None if self.rare is None else int_at_least("rare", self.rare),
        )
        grouping = grouping_of(self.encoding_, self.groups)
        x = self.encoding_.encode(frame)
        if not bool(x.isfinite().all()):
            raise ValueError("X has values that are too far apart to be standardised; rescale it")
        observed = torch.tensor(targets) if box is None else outputs_of(box, given)
        y = self._observed(observed, x.dtype)
        of_rows = None if weights is None else torch.from_numpy(weights).to(x.dtype)
        rows = EncodedRows(
            (x[train], y[train]),
            None if valid is None else (x[valid], y[valid]),
            grouping,
            self.encoding_.feature_names,
            target.class_names,
            None
            if of_rows is None
            else (of_rows[train], None if valid is None else of_rows[valid]),
            markers_in(self.encoding_),
        )
        unit = entropy_unit(rows.train[1], classes, None if of_rows is None else of_rows[train])
        plan = self._plan(len(train), grouping.entries, seed, unit, valid is not None)
        black_box = self._explained_module()
        fitted = fit_table(plan, rows, black_box=black_box, progress=bool(self.verbose))
        self.predictor_kind_ = fitted.plan.predictor_kind
        self.result_ = fitted.result
        self.entry_names_ = np.asarray(grouping.names, dtype=object)
        self._column_entries = entries_of_columns(self.encoding_, grouping)
        self.penalty_ = fitted.penalty
        self.penalty_path_ = None if fitted.path is None else fitted.path.table
        self._seed = seed
        sizes = np.abs(self._importances_of(x.double()))
        self.feature_importances_ = np.average(sizes, axis=0, weights=weights)

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

    def _target_of(self, y: Any, dtype: torch.dtype) -> Tensor:
        values = torch.from_numpy(self._encoded_target(y))
        return values.to(dtype) if values.is_floating_point() else values

    def _predictions(self, X: Any) -> Tensor:
        """The distribution of y in each row, in the explainer's own units."""
        check_is_fitted(self, "result_")
        x = self._encoded(X, torch.float64)
        return row_predictions(self.result_, x, int(self.prediction_masks), self._seed)

    def _importances_of(self, x: Tensor, penalty: float | None = None) -> NDArray[np.float64]:
        result = self.result_ if penalty is None else self.result_.at(penalty)
        kept = row_importances(result, x, int(self.prediction_masks), self._seed)
        importances: NDArray[np.float64] = kept.numpy()
        return importances

    def _observed(self, observed: Tensor, dtype: torch.dtype) -> Tensor:
        """y, or what the given model says of the rows, as the explainer observes it."""
        target = self.encoding_.target
        if target.class_names is None:
            observed = (observed - target.mean) / target.scale
        return observed.to(dtype) if observed.is_floating_point() else observed

    def _explained_module(self) -> nn.Module | None:
        """The given torch predictor, where the method takes one."""
        model = self.model.model if isinstance(self.model, BlackBox) else self.model
        if not METHODS[self.method].explains_model or not isinstance(model, nn.Module):
            return None
        if not has_likelihood(model):
            return None
        return predictor_on_standardised_rows(model, self.encoding_)


def _row_names(X: Any) -> list[Any] | None:
    """The index of a data frame, where it is unique."""
    if not isinstance(X, pd.DataFrame) or not X.index.map(str).is_unique:
        return None
    return list(X.index)
