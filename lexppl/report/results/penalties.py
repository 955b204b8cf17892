"""One fit at each of its penalties: scores, selections and single rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.evaluation.effects import revealed_predictions
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.penalty_path import PenaltyPath
from lexppl.evaluation.prediction import base_frequencies
from lexppl.explanation import mask_means
from lexppl.explanation.explain import explanation_tree
from lexppl.inference import FitResult
from lexppl.inference.training.result import with_penalty
from lexppl.report.results.gains import FittedTable
from lexppl.report.results.scores import PREDICTED_MASKS, ScoreRow, folds_at, judge_explainer
from lexppl.report.results.single_rows import observed_text, values_of
from lexppl.summary import number_text

JUDGED = 100_000  # Rows times masks for each penalty: a second for all
LEAST_MASKS = 10
PICKED_ROWS, ROW_MASKS, ROW_STEPS = 60, 20, 4
"""Rows that can be picked, masks of their predictions, and groups revealed one by one."""
CLOSEST = 2
MOST_OF_ROW, LEAST_KEPT = 12, 0.05  # Most groups listed of a row, and their least probability

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AtPenalty:
    """A fit at one penalty λ, nats an entry.

    Args:
        score: held-out scores.
        shares: of rows that keep each group, `(K,)`.
        span: least and largest of the fits, `(2, K)`.
        rows: of each row the outcome `predicted`, the groups `kept` with their probabilities, the
            `steps` of the prediction with its totals as text (the base rate, all hidden, each group
            revealed, and all others where there are some), and the places of the `closest` rows
            with another outcome.
    """

    penalty: float
    score: ScoreRow
    shares: Numbers
    span: Numbers
    rows: list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class AllPenalties:
    """A fit at each penalty, rising.

    Args:
        chosen: place of the penalty in use.
        rows: that can be picked: their `number` in the table, and what is `observed`, and the
            `values` of their features, as text.
    """

    fits: tuple[AtPenalty, ...]
    chosen: int
    groups: FeatureGroups
    rows: list[dict[str, Any]]


def at_each_penalty(
    table: FittedTable, path: PenaltyPath, chosen: ScoreRow, requested: Sequence[int], count: int
) -> AllPenalties:
    """A table's fit at each penalty of a path.

    Args:
        chosen: scores at the penalty in use.
        requested: rows that can be picked in any case.
        count: how many held-out rows are read.
    """
    source, seed = table.source, table.seed
    rows = _PickedRows(table, _picked(source.test_rows, requested))
    masks = max(LEAST_MASKS, min(PREDICTED_MASKS // 2, JUDGED // len(source.test_rows)))
    by_penalty, fit = [], path.fitted
    for place, penalty in enumerate(path.table["penalty"].tolist()):
        with with_penalty(fit.models, penalty):
            score = chosen if place == path.index else judge_explainer(fit, source, seed, masks)
            shares, by_fit = _kept(table, fit, source.test_rows[:count])
            span = np.stack([by_fit.min(0), by_fit.max(0)])
            by_penalty.append(AtPenalty(penalty, score, shares.mean(0), span, rows.at(fit)))
    known, picked = values_of(source, rows.x), []
    for place, number in enumerate(rows.numbers.tolist()):
        values = {name: value.text(place) for name, value in known.items()}
        observed = observed_text(source, number)
        picked.append({"number": number, "observed": observed, "values": values})
    return AllPenalties(tuple(by_penalty), path.index, table.groups, picked)


def _picked(held_out: NDArray[np.int64], requested: Sequence[int]) -> NDArray[np.int64]:
    """The requested rows, and an even choice of held-out ones."""
    held = np.sort(held_out)
    even = held[np.unique(np.linspace(0, len(held) - 1, min(PICKED_ROWS, len(held))).astype(int))]
    return np.unique([*even, *requested]).astype(np.int64)


def _kept(
    table: FittedTable, fit: FitResult, numbers: NDArray[np.int64]
) -> tuple[Numbers, Numbers]:
    """Probability that groups are kept, of each row `(N, K)` by the fit that holds it out, and
    of each fit `(R, K)`."""
    source = table.source
    x = source.data.x[torch.from_numpy(numbers).to(source.data.x.device)]
    means = mask_means(explanation_tree(fit, x, draws=0, seed=table.seed)).values.astype(np.float64)
    by_fit = table.groups.kept(means)
    folds = folds_at(source, numbers)
    by_row = by_fit.mean(0)
    if folds is not None:
        by_row = by_fit[folds.part.cpu().numpy(), np.arange(len(x))]
    return by_row, by_fit.mean(1)


class _PickedRows:
    """Rows that can be picked."""

    def __init__(self, table: FittedTable, numbers: NDArray[np.int64]) -> None:
        self.table, self.numbers = table, numbers
        data = table.source.data
        self.x: Tensor = data.x[torch.from_numpy(numbers).to(data.x.device)]
        self.folds: Folds | None = folds_at(table.source, numbers)
        self.train_y = table.targets(table.source.train_rows)

    def at(self, fit: FitResult) -> list[dict[str, Any]]:
        """The rows as :attr:`AtPenalty.rows`, each by the fit that holds it out."""
        x, table, source = self.x, self.table, self.table.source
        by_row = _kept(table, fit, self.numbers)[0]
        whole = [(fit, torch.arange(len(x)))]
        parts = whole if self.folds is None else list(self.folds.each(fit))
        steps = min(ROW_STEPS, len(table.groups.names))
        how: dict[str, Any] = {"masks": ROW_MASKS, "groups": table.groups, "most": steps}
        by_part = [
            revealed_predictions(fitted, x[places.to(x.device)], seed=table.seed, **how)
            for fitted, places in parts
        ]
        at = torch.cat([places for _, places in parts]).argsort().cpu().numpy()
        order = np.concatenate([part.order.numpy()[:, :steps] for part in by_part])[at]
        stages = np.concatenate([part.predictions.mean(0).numpy() for part in by_part])[at]
        classes = source.data.class_names
        if classes is not None and stages.ndim == 3:
            base = base_frequencies(self.train_y, stages.shape[-1]).cpu().numpy()
            label = stages[:, -1].argmax(-1)
            start, totals = base[label], stages[np.arange(len(x)), :, label].clip(1e-12)
            names = [f"{classes[int(c)]} ({{}})" for c in label]
            text = "{:.2f}".format
        else:
            totals = source.target.inverse(stages)
            mean = float(source.target.inverse(self.train_y.double().mean().cpu().numpy()))
            start, names = np.full(len(x), mean), ["{}"] * len(x)
            text = partial(number_text, scale=source.target_scale)
        groups, closest, rows = table.groups.names, self._closest(by_row), []
        for place, shares in enumerate(by_row):
            first = [k for k in shares.argsort()[::-1][:MOST_OF_ROW] if shares[k] >= LEAST_KEPT]
            shown = [text(total) for total in (start[place], *totals[place].tolist())]
            steps_of, known = order[place], shares.round(5) > 0.0
            named = ["base rate", "all hidden", *(groups[k] for k in steps_of), "all others"]
            # A group that no mask keeps has no step.
            has_step = [True, True, *known[steps_of], np.delete(known, steps_of).any()]
            lines = zip(named, shown, has_step, strict=False)
            rows.append(
                {
                    "predicted": names[place].format(shown[-1]),
                    "kept": [[groups[k], round(float(shares[k]), 5)] for k in first],
                    "steps": [[name, total] for name, total, has in lines if has],
                    "closest": [int(k) for k in closest[place] if k >= 0],
                }
            )
        return rows

    def _closest(self, probability: Numbers) -> NDArray[np.int64]:
        """The closest rows of another outcome, by squares of differences weighed by the
        probability that the group is kept. Responses differ by over a standard deviation."""
        data = self.table.source.data
        owner = self.table.groups.of_entries()[np.asarray(data.groups)]
        values = self.x.double().reshape(len(self.x), -1).cpu().numpy()
        weight = probability[:, owner]
        far = (weight * values**2).sum(1)[:, None] - 2 * (weight * values) @ values.T
        far += weight @ (values**2).T
        y = data.y[torch.from_numpy(self.numbers).to(data.y.device)].double().cpu().numpy()
        same = y[:, None] == y
        if data.class_names is None:
            same = np.abs(y[:, None] - y) <= max(float(data.y.double().std()), 1e-12)
        far[same] = np.inf
        order = np.argsort(far, 1, kind="stable")[:, :CLOSEST]
        return np.where(np.isinf(np.take_along_axis(far, order, 1)), -1, order)
