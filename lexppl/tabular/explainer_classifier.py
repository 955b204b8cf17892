"""An explainer of labels as a scikit-learn classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from lexppl.data import TargetColumn
from lexppl.tabular.sample_weights import with_class_weights
from lexppl.tabular.table_explainer import TARGET, TableExplainer


@dataclass(eq=False, repr=False, kw_only=True)
class ExplainerClassifier(ClassifierMixin, TableExplainer):
    """A classifier of tables that says which columns each of its predictions rests on.

    Each row has a latent mask z, an imputation x̃ of what it hides, and a prediction from the rest:

        p(y = c | x) = E[p(y = c | x̃)],    x̃ ~ p(x̃ | x, z),    z ~ p(z | x),

    averaged over `prediction_masks` masks and the replicates; a row's prediction does not depend
    on the rows beside it. Numbers are standardised by the rows that are fitted on, without those
    set apart for validation; a column of words, categories or booleans of a data frame has an
    indicator for each level, and one mask entry; one of dates, also as words such as 2026-11-22,
    has a trend and the waves of month, weekday and hour, and one entry
    (:class:`lexppl.data.DateColumn`).

    Args:
        method: a name of :data:`lexppl.systems.METHODS`.
        k: entries that a mask keeps, for methods with a given number (l2x, vibi, meed; lex may
            have one); if None a quarter of the G entries, rounded up.
        penalty: nats for each entry kept, for methods that choose the number themselves (lex,
            invase, real_x, base_x, rationale); "auto" to choose it from the data, for lex: one fit
            is of every λ from a sixteenth to four times the usual one
            (:class:`lexppl.models.PenaltyConditioned`), and of seven of them the usual one is kept,
            or the next to it that the rows set apart for validation allow
            (:func:`lexppl.evaluation.penalty_path`). None is "auto" of lex where rows are set
            apart, and else the method's own, which for lex is 0.02 nats times the entropy of the
            labels over that of a fair coin. The usual λ of the path is that one too, but where the
            labels fitted on say fewer than 730 bits (N rows times the entropy of the labels over
            that of a fair coin): √(730 / bits) times as much, as chance gains grow so; not where a
            `model` is explained. A λ of lex that is given is read off such a fit too.
        imputer: what hidden features are replaced with: a name of
            :data:`lexppl.choices.imputers.IMPUTERS`, fitted on the training rows, or a
            module that takes standardised rows. If None the method's own, which of lex draws them
            given the kept ones where columns depend (:class:`lexppl.models.CopulaImputer`).
        groups: for each column of X the name of its group, which is kept or hidden as one; None
            for an entry a column.
        hidden: widths of the selector's hidden layers; (64, 64) below 2000 rows (of lex with a
            penalty 20,000), else (200, 200).
        predictor_hidden: widths of the predictor's; (64, 64), or (200, 200, 200).
        epochs: of each of the method's stages; if None 200, or fewer so that there are 2000 steps
            (of lex with a penalty 350); of xtab twice as many, of Q-FIT four times.
        batch_size: rows of a step; if None a third of them, at most 500 (of lex with a penalty
            256). A batch has a row more where the last would else have one row only.
        learning_rate: of Adam at the start; it falls to a twentieth over the second half, of lex
            with a penalty to a hundredth over the last 30 %. If None 1e-3, of lex with a penalty
            3e-3, or what the method's own optimizer has (xtab).
        replicates: R fits from different seeds at once: the chains of `explain`, over which
            predictions and importances are averaged.
        class_weight: u of each label: "balanced" for `n / (C n_c)`, a mapping from labels to
            weights (1 for others), or None. They multiply `sample_weight` in `fit`, and all that
            is learned is of the law so reweighted, predictions among it:
            `predict_proba ∝ u_c p(c | x)`, whose share of a label on average is that of
            `u_c n_c`. Divide by u and by the sum for p(c | x).
        model: a fitted classifier (any with `predict_proba`), torch module or torch predictor
            (:class:`lexppl.models.Predictor`) of X in its own units, to be explained: the explainer
            is then fitted to its probabilities, and y only says which labels there are. A module
            gets the columns of X in their order, as numbers of its own type, a boolean as 0 or 1.
            A torch predictor is itself the model that q_fit and meed mask; a classifier, and a
            module that is none, is first imitated by a network that sees all of x. If None, the
            labels are explained, and methods that need a model get such a network fitted to the
            labels. `clone`, and with it a search or cross-validation, forgets the fit of a
            classifier: give it `sklearn.frozen.FrozenEstimator(classifier)`.
        model_output: what a torch module returns that is no predictor: "logits" `(n, C)` in the
            order of the labels, or log-odds of the second of two `(n,)`; or "probabilities".
        validation_fraction: share of the rows, in the proportions of the classes, on which the
            best epoch is chosen; None, or rows so few that it would have a single class, for the
            last epoch.
        folds: predictors of lex, each judging the rows that it has not learned from; 2 if None.
        predictor: what predicts from the features that lex keeps: "network" (None); "trees",
            boosted trees that read hidden features as missing, without an imputer; "auto" for a
            network, whose place trees of what is kept take where they predict the labels of the
            rows set apart for validation better by more than a standard error.
        hide_missing: let values of X be missing, as values that are hidden by nature: the imputer
            draws them, in `fit` and later, as what a mask hides, and no mask keeps them; a missing
            level too. For lex, base_x, real_x and rationale, with the imputers "marginal" (whose
            rows are filled by values of other rows), "gaussian" and "constant", and with trees.
            A column without missing values in `fit` has none later.
        missing_indicator: with `hide_missing`, a mask entry for each column with missing values,
            that says where it is missing, for where that predicts y.
        rare: levels of a column that fewer rows have, of those to learn from, are pooled into one,
            which stands for levels that `fit` did not see too (`handle_unknown` of scikit-learn's
            encoders: "infrequent_if_exist"); if None, and in columns without such levels, a level
            not seen in `fit` is refused ("error").
        prediction_masks: masks that a prediction is averaged over.
        threshold: least importance of a column that `transform` keeps; if None it keeps as many as
            matter in effect (:class:`lexppl.tabular.selected_columns.SelectsColumns`).
        random_state: a number, a numpy generator, or None for another fit each time. Global
            random state is never touched.
        verbose: show progress bars.

    Attributes:
        classes_: the C labels.
        result_: what :func:`lexppl.fit` returned; of its replicates each is a chain.
        penalty_: the penalty of the fit in nats, or None for a method without one.
        penalty_path_: where it was from the data, the path's table, one row a penalty; else None.
        predictor_kind_: "network" or "trees".
        feature_importances_: `(G,)`, the mean size of :meth:`importances` over the rows of `fit`.
        entry_names_: `(G,)`, the names of the mask entries: the columns', or their groups'.
        encoding_: how columns become features.
        n_features_in_: number of columns of X.
        feature_names_in_: their names, where X is a data frame.

    Raises:
        ValueError, TypeError: in `fit`, all that scikit-learn's estimators refuse; a method, size
            or model that does not fit; one class only. A level that `fit` did not see, later.

    Source:
        Senetaire et al., "Explainability as statistical inference", ICML 2023, eq. 4; each method
        names its own paper.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> wine = load_wine(as_frame=True)
        >>> explainer = ExplainerClassifier("l2x", k=3, epochs=20, learning_rate=1e-2,
        ...     hidden=(16,), predictor_hidden=(16,), random_state=0)
        >>> explainer = explainer.fit(wine.data, wine.target)
        >>> explainer.predict(wine.data[:2]), explainer.importances(wine.data[:2]).shape
        (array([0, 0]), (2, 13))
        >>> explainer.entry_names_[:3]
        array(['alcohol', 'malic_acid', 'ash'], dtype=object)
        >>> explainer.transform(wine.data).shape == (178, explainer.get_support().sum())
        True
    """

    class_weight: Any = None
    model_output: str | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ExplainerClassifier:
        r"""Fit the explainer.

        Args:
            X: `(n, n_features_in_)`, an array or a data frame.
            y: `(n,)` labels.
            sample_weight: how often each row counts, `(n,)`, at least 0; None for once. A row of
                weight 0 is left out, and whole weights are rows that stand there so often: in the
                objective, the validation loss, the means and scales, the imputer and the base
                rate's entropy. Of weights that are not all whole only the ratios count. Batches
                and epochs are by the rows that there are, so that a row of weight 2 is met once an
                epoch, with twice the gradient, where two rows are met twice.
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

    def _told(self, y: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only, {self.classes_[0]!r}; a classifier needs at least two"
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
