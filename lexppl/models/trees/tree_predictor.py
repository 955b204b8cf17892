"""A predictor of every subset of a table's columns by boosted trees, fitted in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pyro.distributions import TorchDistribution
from torch import Tensor

from lexppl.argument_checks import int_at_least, shaped
from lexppl.models.grouping import Grouping
from lexppl.models.likelihoods import CategoricalLikelihood, HeteroscedasticLikelihood
from lexppl.models.predictor import Predictor, check_classes
from lexppl.models.trees.boosted_trees import BoostedTrees, Columns, column_values
from lexppl.models.trees.boosted_trees import table_columns as columns_of

Array = NDArray[np.float64]

COPIES = 16  # Of each row, each with its own rate of keeping


def masked_copies(values: Array, entries: Sequence[int], copies: int, seed: int) -> Array:
    """M copies of rows `(N, P)`, `(M·N, P)`, in which entries are hidden at random, as NaN: each
    copy of a row keeps each entry with probability `ρ ~ Uniform(0, 1)`, so that every number is as
    likely."""
    draw = np.random.default_rng(seed)
    place = np.asarray(entries)
    count = int(place.max()) + 1
    rows = len(values) * copies
    keep = draw.random((rows, count)) < draw.random((rows, 1))
    return np.where(keep[:, place], np.tile(values, (copies, 1)), np.nan)


LEAST_VARIANCE = 1e-6  # Of a residual, as a share of the response's own variance


@dataclass(frozen=True)
class MaskedRows:
    """Copies of rows with random masks, `(N, P)`, NaN where hidden, their targets and weights,
    `(N,)`."""

    values: Array
    targets: NDArray[Any]
    weights: Array

    @classmethod
    def of(
        cls, values: Array, y: Array, counts: Array, entries: Sequence[int], copies: int, seed: int
    ) -> Self:
        """Of labels or responses `(N,)`, or labels by their probabilities `(N, C)`, and of how
        often each row counts, `(N,)`."""
        masked = masked_copies(values, entries, copies, seed)
        if y.ndim == 1:
            return cls(masked, np.tile(y, copies), np.tile(counts, copies))
        share = np.tile(y * counts[:, None], (copies, 1))
        place, targets = np.nonzero(share > 0.0)
        return cls(masked[place], targets, share[place, targets])

    def with_hidden(self, classes: int, copies: int) -> Self:
        """With a row of each label in which all is hidden, of half a row's weight, so that none is
        without a probability."""
        none = np.full((classes, self.values.shape[1]), np.nan)
        return type(self)(
            np.concatenate([self.values, none]),
            np.concatenate([self.targets, np.arange(classes)]),
            np.concatenate([self.weights, np.full(classes, 0.5 * copies)]),
        )

    def fitted(self, estimator: Any) -> Any:
        """A copy of an estimator, fitted on these rows; a column that is hidden in all of them is
        put to 0."""
        seen = ~np.isnan(self.values) & (self.weights > 0.0)[:, None]
        values = np.where(seen.any(0), self.values, 0.0)
        from sklearn.base import clone  # noqa: PLC0415 - slow to import

        fitted = clone(estimator)
        # With weights scikit-learn takes seconds for the bins.
        even = bool((self.weights == 1.0).all())
        fitted.fit(values, self.targets, sample_weight=None if even else self.weights)
        return fitted


def squared_residuals(
    estimator: Any, values: Array, y: Array, counts: Array, rows: Callable[..., MaskedRows]
) -> MaskedRows:
    """Copies whose targets are the squared residuals of a fit to the other half of the rows; `rows`
    makes :class:`MaskedRows` of values, responses and counts."""
    order = np.random.default_rng(len(y)).permutation(len(y))
    halves = order[::2], order[1::2]
    least = LEAST_VARIANCE * max(float(y.var()), 1e-30)
    parts_of_halves = []
    for learned, judged in (halves, halves[::-1]):
        fitted = rows(values[learned], y[learned], counts[learned]).fitted(estimator)
        copies = rows(values[judged], y[judged], counts[judged])
        square = (copies.targets - fitted.predict(copies.values)) ** 2
        parts_of_halves.append((copies.values, np.maximum(square, least), copies.weights))
    return MaskedRows(*(np.concatenate(parts) for parts in zip(*parts_of_halves, strict=True)))


LEAF_ROWS, RIDGE_ROWS = 5, 2
"""Rows that a leaf has at least, and that its value is shrunk by; each has its copies."""

BINS = 64  # Of a column

CHECKED = 1000  # Copies on which the trees as tensors must say what the estimator says


class TreePredictor(Predictor):
    """`p(y | x_S)` for every subset S of the entries, by gradient boosting; a gap is missing.

    Trees need no gradient: :meth:`fit_rows` fits them in one go to copies of the rows in which
    entries are hidden at random. :func:`lexppl.inference.fit` calls it before the first step, once
    for each fold; the selector then learns by a score-function estimator, such as leave-one-out,
    and from :class:`lexppl.models.GapImputer`.

    Labels are categorical by the trees' log-odds. A response is normal; its mean is that of trees,
    and its variance that of trees fitted, by `log v + r²/v`, to the squared residuals r² of rows
    that the mean was not fitted on.

    Args:
        columns: of :func:`table_columns`.
        entries: the mask entry of each column.
        classes: C, or None for a response.
        trees: of each output.
        leaves: of a tree at most.
        depth: of a tree at most.
        copies: of each row.
        rate: of learning.
        bins: of a column at most, and so levels, 64 if None; where most rows have one value, few
            leave little to tell the others apart by.

    Raises:
        ValueError: counts below 1; another number of entries than columns.

    Example:
        >>> x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
        >>> predictor = tree_predictor(x, classes=2)
        >>> predictor.fit_rows(x, (x[:, 0] > 0).long())
        >>> rows = torch.tensor([[1.0, 0.0], [torch.nan, 0.0]])
        >>> [round(p, 1) for p in predictor(rows).probs[:, 1].tolist()]
        [1.0, 0.5]
    """

    network: BoostedTrees
    reads_gaps: ClassVar[bool] = True  # Whether hidden features must come as NaN

    def __init__(
        self,
        columns: Columns,
        entries: Sequence[int],
        classes: int | None,
        trees: int = 60,
        leaves: int = 15,
        depth: int = 6,
        copies: int = COPIES,
        rate: float = 0.1,
        bins: int | None = None,
    ) -> None:
        check_classes(classes)
        shaped("entries", entries, (len(columns),))
        outputs = 2 if classes is None else 1 if classes == 2 else classes
        most = BINS if bins is None else int_at_least("bins", bins, 2)
        # The edges of two estimators, of the mean and of the variance.
        edges = 2 * most if classes is None else most
        likelihood = HeteroscedasticLikelihood() if classes is None else CategoricalLikelihood()
        network = BoostedTrees(columns, outputs, trees, leaves, depth, edges)
        super().__init__(network, likelihood)
        self.columns, self.entries = network.columns, [int(entry) for entry in entries]
        self.classes, self.trees, self.leaves, self.depth = classes, trees, leaves, depth
        self.copies, self.rate = int_at_least("copies", copies), float(rate)
        self.bins = bins

    def forward(self, x: Tensor) -> TorchDistribution:
        split = x.dim() - self.event_dim
        outputs = self.network(x.reshape(-1, x.shape[-1]))
        if self.classes == 2:
            # One log-odds of two labels.
            outputs = torch.cat([torch.zeros_like(outputs), outputs], -1)
        return self.likelihood(outputs.reshape(*x.shape[:split], -1))

    def fit_rows(self, x: Tensor, y: Tensor, seed: int = 0, weights: Tensor | None = None) -> None:
        """Fit the trees to rows, in place of those that there are.

        Args:
            x: `(N, D)`, encoded, finite.
            y: labels or responses `(N,)`, or probabilities of the labels `(N, C)`.
            seed: of the masks.
            weights: how often each row counts, `(N,)`; None for once.

        Raises:
            ValueError: rows of other features, or a y that is not of this predictor's kind.
        """
        from sklearn import ensemble  # noqa: PLC0415 - slow to import

        values, counts = self._rows(x, y, weights, "N")
        rows = partial(MaskedRows.of, entries=self.entries, copies=self.copies, seed=seed)
        settings = self._settings(self.copies, seed)
        if self.classes is None:
            response = y.detach().cpu().double().numpy()
            mean = ensemble.HistGradientBoostingRegressor(**settings)
            spread = ensemble.HistGradientBoostingRegressor(**settings, loss="gamma")
            masked = squared_residuals(mean, values, response, counts, rows)
            estimators = [rows(values, response, counts).fitted(mean), masked.fitted(spread)]
        else:
            labels = y.detach().cpu().to(torch.long if y.dim() == 1 else torch.double).numpy()
            masked = rows(values, labels, counts).with_hidden(self.classes, self.copies)
            estimators = [masked.fitted(ensemble.HistGradientBoostingClassifier(**settings))]
        self._take(estimators, masked, seed)

    def fit_copies(
        self, x: Tensor, y: Tensor, seed: int = 0, weights: Tensor | None = None
    ) -> None:
        """Fit the trees to copies of rows that have their gaps, those of an explainer's masks; as
        many copies with random masks are added.

        Args:
            x: `(M, N, D)`, encoded, NaN where hidden.
            y: labels `(N,)`.
            seed, weights: as :meth:`fit_rows`.

        Raises:
            ValueError: responses, whose spread needs rows that the mean was not fitted on; as
                :meth:`fit_rows`.
        """
        if self.classes is None or y.dim() != 1:
            raise ValueError("copies with gaps teach labels (N,); fit_rows takes others")
        from sklearn import ensemble  # noqa: PLC0415 - slow to import

        values, counts = self._rows(x, y, weights, "MN")
        hidden = masked_copies(values, self.entries, 1, seed)
        copies = 2 * len(x)
        masked = MaskedRows(
            np.concatenate([values, hidden]),
            np.tile(y.cpu().numpy(), copies),
            np.tile(counts, copies),
        ).with_hidden(self.classes, copies)
        settings = self._settings(copies, seed)
        estimator = ensemble.HistGradientBoostingClassifier(**settings)
        self._take([masked.fitted(estimator)], masked, seed)

    def _rows(self, x: Tensor, y: Tensor, weights: Tensor | None, rows: str) -> tuple[Array, Array]:
        """The columns of rows `(…, N, D)`, one copy after the other, and how often each counts."""
        features = sum(map(len, self.columns))
        shaped("x", x, (*rows, features))
        of_labels = y.dim() == 2 or not y.is_floating_point()
        classes = self.classes
        if of_labels != (classes is not None) or (y.dim() == 2 and y.shape[1] != classes):
            kind = "responses (N,)" if classes is None else f"labels (N,), or (N, {classes})"
            raise ValueError(f"y must hold {kind}; it is {y.dtype} of shape {tuple(y.shape)}")
        flat = x.detach().cpu().double().reshape(-1, features)
        counts = torch.ones(len(y)) if weights is None else weights.detach().cpu()
        return column_values(flat, self.columns).numpy(), counts.double().numpy()

    def _settings(self, copies: int, seed: int) -> dict[str, Any]:
        return {
            "min_samples_leaf": LEAF_ROWS * copies,
            "l2_regularization": float(RIDGE_ROWS * copies),
            "categorical_features": self.network.of_levels or None,
            # A share of copies set apart would have the rows that the others have.
            "early_stopping": False,
            "random_state": seed,
            "learning_rate": self.rate,
            "max_iter": self.trees,
            "max_leaf_nodes": self.leaves,
            "max_depth": self.depth,
            "max_bins": BINS if self.bins is None else self.bins,
        }

    def _take(self, estimators: Sequence[Any], masked: MaskedRows, seed: int) -> None:
        checked = np.random.default_rng(seed).permutation(len(masked.values))[:CHECKED]
        self.network.take(estimators, masked.values[checked])


def tree_predictor(
    x: Tensor, classes: int | None, grouping: Grouping | None = None, **settings: Any
) -> TreePredictor:
    """A :class:`TreePredictor` of the columns that encoded rows have, not yet fitted.

    Args:
        x: rows, `(N, D)`, of which nothing is read but which entries are indicators of levels.
        classes: C, or None for a response.
        grouping: which features an entry keeps; one entry a feature if None.
        settings: of :class:`TreePredictor`.
    """
    columns, entries = columns_of(x, grouping)
    return TreePredictor(columns, entries, classes, **settings)
