"""What scikit-learn's histogram boosting has grown, read off its private parts in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Grown:
    """One output of an estimator.

    Args:
        baseline: where the sum starts.
        trees: in order; of each scikit-learn's nodes, a record a node and the root first, and the
            bit sets of the levels that go left.
        known: by column the levels that were seen, or None for a column of numbers.
        edges: by column the upper edges of its bins.
        raw: the sums themselves, `(N, P)` to `(N, 1)`.
    """

    baseline: float
    trees: list[tuple[Array, Array]]
    known: list[Array | None]
    edges: list[Array]
    raw: Callable[[Array], Array]

    def depth(self, tree: int) -> int:
        """Of a tree."""
        return int(self.trees[tree][0]["depth"].max())

    def nodes(
        self, tree: int, bins: Sequence[Array | None], width: int
    ) -> tuple[Array, Array, Array]:
        """The nodes of a tree as arrays.

        Args:
            tree: which.
            bins: by column the upper edges of all bins but that of gaps; None for one of levels.
            width: W, bins and that of gaps.

        Returns:
            the column that each node asks, `(M,)`; the node that follows it by bin, that of a gap
            last and a leaf its own, `(M, W)`; the leaves' values, `(M,)`.
        """
        nodes, left_levels = self.trees[tree]
        leaf = nodes["is_leaf"].astype(bool)
        child = np.tile(np.arange(len(nodes))[:, None], (1, width))
        for place in np.flatnonzero(~leaf):
            node = nodes[place]
            left = np.full(width, bool(node["missing_go_to_left"]))
            column = int(node["feature_idx"])
            known = self.known[column]
            if known is not None:
                bits = left_levels[node["bitset_idx"]]
                rank = np.arange(len(known))
                left[known.astype(int)] = (bits[rank >> 5] >> (rank & 31)) & 1
            else:
                edges = bins[column]
                if edges is None:
                    raise ValueError(
                        f"column {column} is one of levels, the estimator's of numbers"
                    )
                left[: len(edges)] = edges <= node["num_threshold"]
            child[place] = np.where(left, node["left"], node["right"])
        feature = np.where(leaf, 0, nodes["feature_idx"]).astype(int)
        return feature, child, np.where(leaf, nodes["value"], 0.0)


def grown(estimator: Any) -> list[Grown]:
    """What an estimator has grown, an output each.

    Raises:
        TypeError: another estimator than scikit-learn's `HistGradientBoosting…`.
    """
    from sklearn import ensemble  # noqa: PLC0415 - slow to import

    known = (ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor)
    if not isinstance(estimator, known):
        raise TypeError(
            "trees are taken from scikit-learn's HistGradientBoostingClassifier or …Regressor; "
            f"this is a {type(estimator).__name__}"
        )
    base = np.ravel(estimator._baseline_prediction)
    edges = [np.asarray(each, dtype=float) for each in estimator._bin_mapper.bin_thresholds_]
    return [
        Grown(
            float(base[output]),
            [
                (each[output].nodes, each[output].binned_left_cat_bitsets)
                for each in estimator._predictors
            ],
            _levels_seen(estimator),
            edges,
            partial(_raw, estimator, output=output),
        )
        for output in range(len(base))
    ]


def _levels_seen(estimator: Any) -> list[Array | None]:
    """By column the levels that were seen, which stand first; None for a column of numbers."""
    count = int(estimator.n_features_in_)
    if estimator._preprocessor is None:
        return [None] * count
    encoder = estimator._preprocessor.named_transformers_["encoder"]
    seen = [np.asarray(levels, dtype=float) for levels in encoder.categories_]
    known: list[Array | None] = [levels[~np.isnan(levels)] for levels in seen]
    return [*known, *[None] * (count - len(known))]


def _raw(estimator: Any, rows: Array, output: int) -> Array:
    if hasattr(estimator, "decision_function"):
        sums: Array = estimator.decision_function(rows).reshape(len(rows), -1)
        return sums[:, [output]]
    found: Array = estimator.predict(rows).reshape(-1, 1)
    return np.log(found) if estimator.loss == "gamma" else found
