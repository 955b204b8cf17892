"""Boosted trees on a table's columns, as tensors: run where a network is, and saved as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pyro.infer.util import is_validation_enabled
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least, shaped
from lexppl.configured import Configured
from lexppl.models.grouping import Grouping, are_indicators

Columns = Sequence[Sequence[int]]
"""For each column its features: one for a number, several for the indicators of its levels."""

MOST_LEVELS = 10
"""That trees part at will. Of more, only neighbours in their order stay together: parted at will,
66 levels that say nothing cost .07 nats a held-out row of 1,200, and so .002."""


def column_kind(features: Sequence[int]) -> int:
    """0 for a column of levels, 1 for one of more levels than trees part at will, 2 for a
    number."""
    return 2 if len(features) == 1 else int(len(features) > MOST_LEVELS)


def table_columns(x: Tensor, grouping: Grouping | None = None) -> tuple[Columns, list[int]]:
    """The columns of encoded rows `(N, D)`, those of levels first, and the mask entry of each. The
    features of an entry are one column's indicators where one of them is 1 and the others 0 in each
    row but those with NaN; else each is a number."""
    groups = range(x.shape[1]) if grouping is None else grouping.groups
    by_entry: dict[int, list[int]] = {}
    for feature, entry in enumerate(groups):
        by_entry.setdefault(entry, []).append(feature)
    columns = []
    for entry, features in by_entry.items():
        if len(features) > 1 and are_indicators(x[:, features]):
            columns.append((features, entry))
        else:
            columns += [([feature], entry) for feature in features]
    ordered = sorted(columns, key=lambda column: column_kind(column[0]))
    return [features for features, _ in ordered], [entry for _, entry in ordered]


def column_values(x: Tensor, columns: Columns) -> Tensor:
    """The value of each column, `(N, P)`: a number, or the place of its level; NaN where it is
    hidden."""
    # A gap in any of the indicators is one of the column: NaN takes part in the sum.
    of_levels = [
        _part(x, features) @ torch.arange(len(features), device=x.device, dtype=x.dtype)
        for features in columns
        if len(features) > 1
    ]
    numbers = _part(x, [features[0] for features in columns if len(features) == 1])
    return torch.cat([*(codes.unsqueeze(1) for codes in of_levels), numbers], 1)


def _part(x: Tensor, features: Sequence[int]) -> Tensor:
    """Some features; neighbours without a copy."""
    first = features[0] if features else 0
    if list(features) == list(range(first, first + len(features))):
        return x[:, first : first + len(features)]
    return x[:, list(features)]


Array = NDArray[Any]


@dataclass(frozen=True)
class Grown:
    """One output of a fitted estimator of scikit-learn: its trees, root first, with the bit sets of
    the levels that go left; by column the levels that were seen, None for numbers, and the bins'
    edges."""

    baseline: float
    trees: list[tuple[Array, Array]]
    known: list[Array | None]
    edges: list[Array]

    def nodes(
        self, tree: int, bins: Sequence[Array | None], width: int
    ) -> tuple[Array, Array, Array]:
        """The column that each node of a tree reads, `(M,)`; the node that follows by bin, that of
        a gap last and a leaf its own, `(M, W)`; the leaves' values, `(M,)`."""
        nodes, left_levels = self.trees[tree]
        leaf = nodes["is_leaf"].astype(bool)
        child = np.tile(np.arange(len(nodes))[:, None], (1, width))
        for place in np.flatnonzero(~leaf):
            node = nodes[place]
            left = np.full(width, bool(node["missing_go_to_left"]))
            column = int(node["feature_idx"])
            known, edges = self.known[column], bins[column]
            if known is not None:
                bits = left_levels[node["bitset_idx"]]
                rank = np.arange(len(known))
                left[known.astype(int)] = (bits[rank >> 5] >> (rank & 31)) & 1
            elif edges is not None:
                left[: len(edges)] = edges <= node["num_threshold"]
            else:
                raise ValueError(f"column {column} is one of levels, the estimator's of numbers")
            child[place] = np.where(left, node["left"], node["right"])
        feature = np.where(leaf, 0, nodes["feature_idx"]).astype(int)
        return feature, child, np.where(leaf, nodes["value"], 0.0)


def grown(estimator: Any) -> list[Grown]:
    """What an estimator has grown, an output each."""
    from sklearn import ensemble  # noqa: PLC0415 - slow to import

    kinds = (ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor)
    if not isinstance(estimator, kinds):
        raise TypeError(
            "trees are taken from scikit-learn's HistGradientBoostingClassifier or …Regressor; "
            f"this is a {type(estimator).__name__}"
        )
    known: list[Array | None] = []
    if estimator._preprocessor is not None:
        # Columns of levels stand first.
        encoder = estimator._preprocessor.named_transformers_["encoder"]
        categories = [np.asarray(levels, dtype=float) for levels in encoder.categories_]
        known = [levels[~np.isnan(levels)] for levels in categories]
    known += [None] * (int(estimator.n_features_in_) - len(known))
    edges = [np.asarray(bounds, dtype=float) for bounds in estimator._bin_mapper.bin_thresholds_]
    outputs = []
    for output, baseline in enumerate(np.ravel(estimator._baseline_prediction)):
        of_output = [trees[output] for trees in estimator._predictors]
        trees = [(tree.nodes, tree.binned_left_cat_bitsets) for tree in of_output]
        outputs.append(Grown(float(baseline), trees, known, edges))
    return outputs


def raw_sums(estimator: Any, rows: Array) -> Array:
    """The estimator's own sums of leaves, `(N, P)` to `(N, outputs)`."""
    if hasattr(estimator, "decision_function"):
        return estimator.decision_function(rows).reshape(len(rows), -1)
    predicted: Array = estimator.predict(rows).reshape(-1, 1)
    return np.log(predicted) if estimator.loss == "gamma" else predicted


ROWS_AT_ONCE = 1024  # Rows whose way through the trees is held in memory


class BoostedTrees(Configured, nn.Module):
    """`f_o(x) = b_o + Σ_t v_{o,t}(leaf of x in tree t)`, `(N, D)` to `(N, outputs)`; NaN is
    missing.

    The trees of scikit-learn's `HistGradientBoosting…`, put by :meth:`take` into tensors of a size
    that the settings alone say. They have no gradient in x.
    """

    thresholds: Tensor
    feature: Tensor
    child: Tensor
    value: Tensor
    baseline: Tensor
    roots: Tensor

    def __init__(
        self,
        columns: Columns,
        outputs: int,
        trees: int,
        leaves: int = 8,
        depth: int = 6,
        bins: int = 64,
    ) -> None:
        super().__init__()
        for name, count in (("outputs", outputs), ("trees", trees), ("depth", depth)):
            int_at_least(name, count)
        int_at_least("leaves", leaves, 2)
        int_at_least("bins", bins, 2)
        self.columns = [list(features) for features in columns]
        sizes = [len(features) for features in self.columns]
        kinds = [column_kind(features) for features in self.columns]
        if not kinds or sorted(kinds) != kinds:
            raise ValueError(
                "columns must be one or more in the order of table_columns, those of levels first; "
                f"they have {sizes} features each"
            )
        self.outputs, self.trees, self.leaves = outputs, trees, leaves
        self.depth, self.bins = depth, bins
        of_levels = [size for size, kind in zip(sizes, kinds, strict=True) if kind == 0]
        if max(of_levels, default=0) > bins:
            raise ValueError(f"a column of {max(of_levels)} levels needs as many bins; {bins}")
        self._codes = len(of_levels)
        self._width, self._nodes = bins + 1, 2 * leaves - 1
        count = outputs * trees
        numbers = len(sizes) - self._codes
        nodes = count * self._nodes
        self.register_buffer("thresholds", torch.full((numbers, bins - 1), torch.nan))
        self.register_buffer("feature", torch.zeros(nodes, dtype=torch.long))
        self.register_buffer("child", torch.zeros(nodes, self._width, dtype=torch.int32))
        self.register_buffer("value", torch.zeros(nodes))
        self.register_buffer("baseline", torch.full((outputs,), torch.nan))
        self.register_buffer("roots", torch.arange(0, nodes, self._nodes), persistent=False)

    @property
    def of_levels(self) -> list[int]:
        """The places of the columns of levels, which stand first."""
        return list(range(self._codes))

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad and is_validation_enabled():
            raise ValueError(
                "trees have no gradient in x, and the objective's estimator differentiates the "
                "predictor in the masks or in what is imputed: use one of the score, such as "
                "LeaveOneOut() or DisARM(), with hard masks and an imputer that is not learned; or "
                "a network as predictor"
            )
        return self._outputs(column_values(x, self.columns))

    def _outputs(self, values: Tensor) -> Tensor:
        return torch.cat([self._sums(rows) for rows in values.split(ROWS_AT_ONCE)])

    def _sums(self, values: Tensor) -> Tensor:
        bins = self._bins(values)
        rows, columns = bins.shape
        first = (torch.arange(rows, device=values.device) * columns).repeat_interleave(
            len(self.roots)
        )
        node, bins = self.roots.repeat(rows), bins.flatten()
        child = self.child.flatten().long()
        # Looked up in flat tables: an index of one dimension is the fastest, in vmap too.
        for _ in range(self.depth):
            place = bins.gather(0, first + self.feature.gather(0, node))
            node = child.gather(0, node * self._width + place)
        leaves = self.value.gather(0, node).reshape(rows, self.outputs, self.trees)
        return leaves.sum(-1) + self.baseline

    def _bins(self, values: Tensor) -> Tensor:
        """The bin of each column, `(N, P)`: of levels their place; that of a gap is the last."""
        codes = values[:, : self._codes].nan_to_num(0.0).long()
        numbers = values[:, self._codes :].T.contiguous()
        # How many thresholds are below: none of those that are infinite.
        if len(values) == 1:
            # Of single rows under vmap, for which searchsorted would go through them in Python.
            above = (self.thresholds < numbers).sum(1, keepdim=True).T
        else:
            above = torch.searchsorted(self.thresholds.contiguous(), numbers).T
        return torch.where(values.isnan(), self.bins, torch.cat([codes, above], 1))

    def take(self, estimators: Sequence[Any], values: NDArray[np.float64]) -> None:
        """Take the trees of fitted estimators, one output or several each; on rows of columns `(N,
        P)`, gaps among them, both must say the same."""
        outputs = [part for estimator in estimators for part in grown(estimator)]
        shaped("the trees of the estimators", outputs, (self.outputs,))
        with torch.no_grad():
            edges = self._take_edges(outputs)
            for output, part in enumerate(outputs):
                self._take_trees(output, part, edges)
            # Rows are of the type that x will be of.
            rows = torch.from_numpy(values).to(self.thresholds)
            sums = self._outputs(rows).double().cpu().numpy()
        exact = rows.double().cpu().numpy()
        raw = np.concatenate([raw_sums(estimator, exact) for estimator in estimators], 1)
        off = np.abs(sums - raw).max(initial=0.0)
        if not off <= 1e-3 * (1.0 + np.abs(raw).max(initial=0.0)):
            raise ValueError(
                f"the trees as tensors differ from the estimator's by {off:g}: this version of "
                "scikit-learn writes its trees in another way; use a network as predictor"
            )

    def _take_edges(self, outputs: Sequence[Grown]) -> list[NDArray[np.float64] | None]:
        """The edges of the bins of all outputs together."""
        edges_of: list[NDArray[np.float64] | None] = [None] * self._codes
        for row in range(len(self.thresholds)):
            column = row + self._codes
            edges = np.unique(np.concatenate([part.edges[column] for part in outputs]))
            if len(edges) > self.bins - 1:
                raise ValueError(f"there are {self.bins} bins; the estimator has {len(edges) + 1}")
            padded = np.full(self.bins, np.inf)
            padded[: len(edges)] = edges
            self.thresholds[row] = _rounded_down(torch.from_numpy(padded[:-1]), self.thresholds)
            edges_of.append(padded)
        return edges_of

    def _take_trees(
        self, output: int, part: Grown, edges: Sequence[NDArray[np.float64] | None]
    ) -> None:
        if len(part.trees) > self.trees:
            raise ValueError(f"there are {self.trees} trees; the estimator has {len(part.trees)}")
        self.baseline[output] = part.baseline
        for number in range(self.trees):
            root = (output * self.trees + number) * self._nodes
            nodes = slice(root, root + self._nodes)
            self.feature[nodes], self.value[nodes], self.child[nodes] = 0, 0.0, root
            if number >= len(part.trees):
                continue
            feature, child, value = part.nodes(number, edges, self._width)
            count, deepest = len(value), int(part.trees[number][0]["depth"].max())
            if count > self._nodes or deepest > self.depth:
                raise ValueError(
                    f"trees have {self.leaves} leaves and depth {self.depth} at most; the "
                    f"estimator has one of {(count + 1) // 2} and {deepest}"
                )
            self.feature[root : root + count] = torch.from_numpy(feature)
            self.child[root : root + count] = torch.from_numpy(child + root).int()
            self.value[root : root + count] = torch.from_numpy(value)


def _rounded_down(exact: Tensor, like: Tensor) -> Tensor:
    """In another type, so that `v ≤ t` is for every v of that type what it was."""
    rounded = exact.to(like)
    up = rounded.double().cpu() > exact
    below = torch.nextafter(rounded, torch.full_like(rounded, -torch.inf))
    return torch.where(up.to(like.device), below, rounded)
