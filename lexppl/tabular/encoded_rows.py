"""Rows for training and validation, as a fit takes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from lexppl.data import Dataset
from lexppl.data.stratification import some_of_each
from lexppl.evaluation.folds import Folds
from lexppl.models import Grouping, regime_targets
from lexppl.tabular.table_columns import grouping_of_values, markers_in

MOST_JUDGED = 10_000
"""Most rows by which a fit is judged while it is made: they tell a loss to within a hundredth of
its spread over rows."""


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

    def at_most(self, train: int | None, valid: int, seed: int) -> EncodedRows:
        """At most so many random rows of each part; None for all."""
        of_train, of_valid = (None, None) if self.weights is None else self.weights
        train_rows, of_train = _some(self.train, of_train, train, seed)
        weights = None if of_train is None else (of_train, of_valid)
        if self.valid is None:
            return replace(self, train=train_rows, weights=weights)
        valid_rows, of_valid = _some(self.valid, of_valid, valid, seed)
        weights = None if of_train is None else (of_train, of_valid)
        return replace(self, train=train_rows, valid=valid_rows, weights=weights)

    def observing(self, predictor: nn.Module) -> Self:
        """The same rows with a predictor's outputs as y."""

        def outputs(part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return part[0], regime_targets("self post-hoc", part[0], predictor=predictor)

        valid = None if self.valid is None else outputs(self.valid)
        return replace(self, train=outputs(self.train), valid=valid)


def _some(
    part: tuple[Tensor, Tensor], weights: Tensor | None, most: int | None, seed: int
) -> tuple[tuple[Tensor, Tensor], Tensor | None]:
    """At most so many random rows, one of each label among them, and their weights."""
    chosen = None if most is None else _chosen(part, most, seed)
    if chosen is None:
        return part, weights
    return (part[0][chosen], part[1][chosen]), None if weights is None else weights[chosen]


def _chosen(part: tuple[Tensor, Tensor], most: int, seed: int) -> Tensor | None:
    """Places of so many random rows, one of each label among them; None for all."""
    x, y = part
    if len(x) <= most:
        return None
    strata = np.zeros(len(x)) if y.is_floating_point() else y.cpu().numpy()
    return torch.from_numpy(some_of_each(strata, most, np.random.default_rng(seed))).to(x.device)
