"""A predictor of every subset of a table's columns by any estimator that reads missing values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.models.grouping import Grouping
from lexppl.models.likelihoods import CategoricalLikelihood, HeteroscedasticLikelihood
from lexppl.models.predictor import Predictor
from lexppl.models.table_parts import check_classes
from lexppl.models.trees.columns import Columns, column_values, table_columns
from lexppl.models.trees.masked_copies import COPIES
from lexppl.models.trees.masked_fit import MaskedRows
from lexppl.models.trees.no_gradient import refuse_gradient
from lexppl.models.trees.tree_predictor import (
    check_rows,
    fitted_to_responses,
    in_units_of_rows,
    row_counts,
)

LEAST_PROBABILITY = 1e-7
"""Of a label, where an estimator says 0."""


class EstimatorNetwork(nn.Module):
    """What fitted estimators say, as a network's outputs: `(N, D)` to log-probabilities `(N, C)`,
    or to a mean and a log-variance `(N, 2)`. It asks outside torch: no gradient, no `vmap`."""

    vectorised: ClassVar[bool] = False
    """Replicates are run one after another."""

    replicate_objects: ClassVar[tuple[str, ...]] = ("fitted",)
    """What each replicate has of its own, besides tensors."""

    cannot_be_saved: ClassVar[str] = (
        "an EstimatorPredictor holds an estimator that only pickle could write, and loading such a "
        "file runs the code in it: fit with TreePredictor, whose trees are saved as weights"
    )

    def __init__(self, columns: Columns, classes: int | None) -> None:
        super().__init__()
        self.columns, self.classes = [list(features) for features in columns], classes
        self.fitted: tuple[Any, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        refuse_gradient(x, "an estimator has")
        if not self.fitted:
            raise ValueError("the estimator is not fitted: fit_rows does so, and so does fit")
        values = column_values(x.detach().cpu().double(), self.columns).numpy()
        if self.classes is None:
            mean, spread = self.fitted
            said = np.stack([mean.predict(values), np.log(spread.predict(values))], 1)
        else:
            (one,) = self.fitted
            said = np.log(np.clip(one.predict_proba(values), LEAST_PROBABILITY, 1.0))
        return torch.from_numpy(np.ascontiguousarray(said)).to(x)


class EstimatorPredictor(Predictor):
    """`p(y | x_S)` for every subset S of the entries, by an estimator that reads NaN as missing:
    LightGBM's or XGBoost's through their scikit-learn faces, a pipeline with an imputer.

    As :class:`lexppl.models.TreePredictor`, but asked outside torch: replicates are run one after
    another, and it cannot be saved. A response's variance is that of scikit-learn's boosting there
    too.

    Args:
        estimator: with `fit(X, y, sample_weight=…)` and `predict_proba`, or `predict` for a
            response; copies of it are fitted. It gets a column of numbers a table's column, that of
            levels as their places 0 ….
        columns: of :func:`table_columns`.
        entries: the mask entry of each column.
        classes: C, or None for a response.
        copies: of each row.

    Raises:
        ValueError: no copies, another number of entries than columns.
        TypeError: an estimator without what is needed.

    Example:
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> x = torch.linspace(-1.0, 1.0, 100)[:, None]
        >>> one = estimator_predictor(DecisionTreeClassifier(max_depth=2), x, classes=2)
        >>> one.fit_rows(x, (x[:, 0] > 0).long())
        >>> one(torch.tensor([[0.9]])).probs[0, 1] > 0.8
        tensor(True)
    """

    network: EstimatorNetwork
    reads_gaps: ClassVar[bool] = True
    """Whether hidden features must come as NaN."""

    def __init__(
        self,
        estimator: Any,
        columns: Columns,
        entries: Sequence[int],
        classes: int | None,
        copies: int = COPIES,
    ) -> None:
        from sklearn.base import clone  # noqa: PLC0415 - slow to import

        check_classes(classes)
        needed = "predict" if classes is None else "predict_proba"
        lacking = [name for name in ("fit", needed) if not hasattr(estimator, name)]
        if lacking:
            raise TypeError(
                f"an estimator must have fit and {needed}; {type(estimator).__name__} has no "
                f"{' and no '.join(lacking)}"
            )
        if len(entries) != len(columns):
            raise ValueError(f"there are {len(columns)} columns and {len(entries)} entries")
        likelihood = HeteroscedasticLikelihood() if classes is None else CategoricalLikelihood()
        super().__init__(EstimatorNetwork(columns, classes), likelihood)
        self.estimator = clone(estimator)
        self.columns, self.entries = self.network.columns, [int(entry) for entry in entries]
        self.classes, self.copies = classes, int_at_least("copies", copies)

    def config(self) -> dict[str, Any]:
        raise TypeError(self.network.cannot_be_saved)

    def fit_rows(self, x: Tensor, y: Tensor, seed: int = 0, weights: Tensor | None = None) -> None:
        """Fit copies of the estimator to rows: as :meth:`lexppl.models.TreePredictor.fit_rows`."""
        check_rows(x, y, self.columns, self.classes)
        values = column_values(x.detach().cpu().double(), self.columns).numpy()
        counts = row_counts(weights, len(x))
        if self.classes is None:
            means, squares = fitted_to_responses(
                self.estimator, values, y, counts, self.entries, self.copies, seed
            )
            from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: PLC0415 - slow to import

            settings = in_units_of_rows(self.copies, [], seed)
            spread = HistGradientBoostingRegressor(loss="gamma", **settings)
            self.network.fitted = (*means, squares.fitted(spread))
            return
        told = MaskedRows.of_labels(
            values, y, counts, self.classes, self.entries, self.copies, seed
        )
        self.network.fitted = (told.fitted(self.estimator),)


def estimator_predictor(
    estimator: Any,
    x: Tensor,
    classes: int | None,
    grouping: Grouping | None = None,
    copies: int = COPIES,
) -> EstimatorPredictor:
    """An :class:`EstimatorPredictor` of the columns that encoded rows have, not yet fitted.

    Args:
        estimator, classes, copies: of :class:`EstimatorPredictor`.
        x: rows, `(N, D)`, of which nothing is read but which entries are indicators of levels.
        grouping: which features an entry keeps; one entry a feature if None.
    """
    columns, entries = table_columns(x, grouping)
    return EstimatorPredictor(estimator, columns, entries, classes, copies)
