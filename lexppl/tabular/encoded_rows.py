"""Rows and mask entries of a table, as a fit takes them, and how often each row counts."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor, nn

from lexppl.argument_checks import quoted_counts
from lexppl.data import Dataset, TableEncoding
from lexppl.data.cells import kind_of, level_of, missing_in
from lexppl.data.columns import IndicatorColumn
from lexppl.data.stratification import some_of_each
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import Folds
from lexppl.models import Grouping, Likelihood, StudentTLikelihood, regime_targets
from lexppl.models.likelihoods import response_likelihood


def has_levels(table: Any) -> bool:
    """Whether a table is a data frame with words, categories or booleans."""
    return isinstance(table, pd.DataFrame) and not all(
        kind_of(table.iloc[:, place]) == "number" for place in range(table.shape[1])
    )


def refuse_missing_cells(frame: pd.DataFrame) -> None:
    """Refuse a table with missing values, by columns and counts."""
    missing = missing_in(frame)
    if missing:
        raise ValueError(
            f"Input X contains NaN: missing values in {quoted_counts(missing)}; fill them in, as "
            "with sklearn.impute.SimpleImputer, drop the rows, or give hide_missing=True"
        )


def markers_in(encoding: TableEncoding | None) -> tuple[int, ...]:
    """The markers of an encoding's features; () where no value may be missing."""
    markers = () if encoding is None else encoding.markers
    return markers if any(place >= 0 for place in markers) else ()


def grouping_of_values(
    groups: Sequence[int], names: Sequence[str], markers: Sequence[int]
) -> Grouping:
    """The grouping of the features that are values; some of the F features may be markers."""
    if not markers:
        return Grouping(groups, names)
    values = [group for place, group in enumerate(groups) if markers[place] != place]
    return Grouping(values, names)


def grouping_of(encoding: TableEncoding, groups: Sequence[Any] | None) -> Grouping:
    """The features of each mask entry: of one column, or of all columns of one group.

    Example:
        >>> from lexppl.data.encoding import TargetColumn
        >>> frame = pd.DataFrame({"a": [0.0, 1.0], "b": [2.0, 1.0]})
        >>> encoding = TableEncoding.fit(frame, TargetColumn("y", None))
        >>> grouping_of(encoding, ["size", "size"]).names
        ('size',)
    """
    return grouping_of_values(*feature_entries(encoding, groups), markers_in(encoding))


def feature_entries(
    encoding: TableEncoding, groups: Sequence[Any] | None
) -> tuple[Sequence[int], Sequence[str]]:
    """The mask entry of each feature, of markers too, and the names of the entries."""
    if groups is None:
        return encoding.groups, encoding.entry_names
    known = encoding.table_columns
    columns = len(known)
    if isinstance(groups, str) or not hasattr(groups, "__len__") or len(groups) != columns:
        raise ValueError(
            f"groups must give each of the {columns} columns of X a group's name; it is {groups!r}"
        )
    group_of = dict(zip(known, map(level_of, groups), strict=True))
    # An indicator of what is missing is an entry of its own.
    names = [group_of.get(column.name, column.name) for column in encoding.columns]
    entries = list(dict.fromkeys(names))
    place = [entries.index(name) for name in names]
    return [place[column] for column in encoding.groups], entries


def encoded_data(
    encoding: TableEncoding, groups: Sequence[Any] | None, x: Tensor, y: Tensor, name: str = "data"
) -> Dataset:
    """Encoded rows of a table as a data set, with `groups` as :func:`grouping_of` takes them."""
    entries, names = feature_entries(encoding, groups)
    target, classes = encoding.target.label, encoding.target.class_names
    columns = encoding.feature_names, tuple(entries), tuple(names), target, classes
    return Dataset(x, y, *columns, name=name, encoding=encoding, is_part=True)


def judged_groups(data: Dataset, named: Mapping[str, Sequence[str]] | None = None) -> FeatureGroups:
    """The groups of features that gains are of: those named, or those that depend on each other."""
    if named is not None:
        return FeatureGroups.named(named, data.entry_names)
    markers = markers_in(data.encoding)
    return FeatureGroups.dependent(data.x, data.groups, data.entry_names, markers=markers)


def entries_of_columns(encoding: TableEncoding, grouping: Grouping) -> NDArray[np.int64]:
    """The mask entry of each column, `(columns,)`."""
    values = [place for place, marker in enumerate(encoding.markers) if marker != place]
    columns, first = np.unique(np.asarray(encoding.groups)[values], return_index=True)
    read = [not isinstance(encoding.columns[column], IndicatorColumn) for column in columns]
    return grouping.index.cpu().numpy()[first[read]]


MOST_JUDGED = 10_000
"""Most rows by which a fit is judged: a loss to within a hundredth of its spread over rows."""


@dataclass(frozen=True)
class EncodedRows:
    """Rows for training and validation: x `(N, D)` with labels or responses `(N,)` or probabilities
    `(N, C)`.

    `weights`: how often each row counts, or None; `markers`:
    :attr:`lexppl.data.TableEncoding.markers` where values may be missing; `folds`: of the training
    rows, one left out by each replicate.
    """

    train: tuple[Tensor, Tensor]
    valid: tuple[Tensor, Tensor] | None
    grouping: Grouping
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...] | None
    weights: tuple[Tensor, Tensor | None] | None = None
    markers: tuple[int, ...] = ()
    folds: Folds | None = None

    @property
    def likelihood(self) -> Likelihood | None:
        """A new likelihood of a response whose tail stays heavy (:func:`response_likelihood`); None
        for the usual one."""
        return copy.deepcopy(self._likelihood)

    @cached_property
    def _likelihood(self) -> Likelihood | None:
        y = self.train[1]
        if self.class_names is not None or y.dim() != 1:
            return None
        likelihood = response_likelihood(y)[0]
        return likelihood if isinstance(likelihood, StudentTLikelihood) else None

    @classmethod
    def of(
        cls,
        data: Dataset,
        train: Any,
        valid: Any,
        observed: Tensor | None = None,
        folds: Folds | None = None,
    ) -> Self:
        """The rows of a data set at places `train` and `valid`; `observed` replaces y."""
        y = data.y if observed is None else observed
        markers = markers_in(data.encoding)
        return cls(
            (data.x[train], y[train]),
            None if valid is None else (data.x[valid], y[valid]),
            grouping_of_values(data.groups, data.entry_names, markers),
            data.feature_names,
            data.class_names,
            markers=markers,
            folds=folds,
        )

    @property
    def has_judged(self) -> bool:
        """Whether there are rows to judge a fit on."""
        return self.folds is not None or self.valid is not None

    def judged(
        self, most: int, seed: int
    ) -> tuple[tuple[Tensor, Tensor], Folds | None, Tensor | None]:
        """At most `most` random rows to judge a fit on: x and y, their folds, and their weights."""
        place = 0 if self.folds is not None else 1
        part = (self.train, self.valid)[place]
        if part is None:
            raise ValueError("there are neither validation rows nor folds to judge a fit on")
        weights = None if self.weights is None else self.weights[place]
        chosen = _chosen(part, most, seed)
        if chosen is None:
            return part, self.folds, weights
        folds = None if self.folds is None else self.folds.take(chosen)
        rows = part[0][chosen], part[1][chosen]
        return rows, folds, None if weights is None else weights[chosen]

    def with_valid_at_most(self, most: int, seed: int) -> EncodedRows:
        """At most so many random validation rows, one of each label among them."""
        chosen = None if self.valid is None else _chosen(self.valid, most, seed)
        if self.valid is None or chosen is None:
            return self
        (x, y), weights = self.valid, self.weights
        if weights is not None and weights[1] is not None:
            weights = weights[0], weights[1][chosen]
        return replace(self, valid=(x[chosen], y[chosen]), weights=weights)

    def observing(self, predictor: nn.Module) -> Self:
        """The same rows with a predictor's outputs as y."""

        def outputs(part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return part[0], regime_targets("self post-hoc", part[0], predictor=predictor)

        valid = None if self.valid is None else outputs(self.valid)
        return replace(self, train=outputs(self.train), valid=valid)


def _chosen(part: tuple[Tensor, Tensor], most: int, seed: int) -> Tensor | None:
    """Places of so many random rows, one of each label among them; None for all."""
    x, y = part
    if len(x) <= most:
        return None
    strata = np.zeros(len(x)) if y.is_floating_point() else y.cpu().numpy()
    return torch.from_numpy(some_of_each(strata, most, np.random.default_rng(seed))).to(x.device)


BALANCED = "balanced"

Counts = NDArray[np.float64]


def checked_weights(sample_weight: Any, rows: int) -> Counts | None:
    """`sample_weight` as `(N,)` numbers of at least 0, two of them above 0; or None.

    Example:
        >>> checked_weights([1, 0, 2], 3)
        array([1., 0., 2.])
    """
    if sample_weight is None:
        return None
    weights: Counts = _check_sample_weight(
        sample_weight, np.empty(rows), dtype=np.float64, ensure_non_negative=True
    )
    if int((weights > 0).sum()) < 2:
        above = int((weights > 0).sum())
        raise ValueError(f"sample_weight must be above 0 for two rows at least; {above} are")
    return weights


def with_class_weights(
    class_weight: Any, classes: NDArray[Any], labels: NDArray[np.int64], weights: Counts | None
) -> Counts | None:
    """Row weights times class weights, `v_n = w_n u_{y_n}`.

    "balanced" is `u_c = Σ_n w_n / (C Σ_{n: y_n = c} w_n)`.
    """
    if class_weight is None:
        return weights
    times = np.ones(len(labels)) if weights is None else weights
    if isinstance(class_weight, str):
        if class_weight != BALANCED:
            raise ValueError(
                f"class_weight must be {BALANCED!r}, a mapping from labels to weights, or None; it "
                f"is {class_weight!r}"
            )
        of_label = times.sum() / (len(classes) * np.bincount(labels, times, minlength=len(classes)))
    elif isinstance(class_weight, Mapping):
        of_label = compute_class_weight(dict(class_weight), classes=classes, y=classes[labels])
    else:
        raise TypeError(
            f"class_weight must be {BALANCED!r}, a mapping from labels to weights, or None; it is "
            f"{type(class_weight).__name__}"
        )
    if not bool((np.isfinite(of_label) & (of_label >= 0)).all()) or int((of_label > 0).sum()) < 2:
        raise ValueError(
            "class_weight must be finite and at least 0, and above 0 for two labels or more; it is "
            f"{class_weight!r}"
        )
    return times * of_label[labels]


def as_counts(weights: Counts | None) -> Counts | None:
    """Whole weights as they are, others divided by their mean; None where each row counts once."""
    if weights is None or bool((weights == 1.0).all()):
        return None
    return weights if (weights == weights.round()).all() else weights / weights.mean()
