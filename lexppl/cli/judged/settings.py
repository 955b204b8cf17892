"""One fit at each of its penalties: what it reads of held-out rows, how well it predicts them, and
how the prediction of single rows comes about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.cli.judged.closer_look import observed_text, values_of
from lexppl.cli.judged.judged_rows import folds_at
from lexppl.cli.judged.judging import PREDICTED_MASKS, ScoreRow, judge_explainer
from lexppl.data import DividedTable
from lexppl.evaluation.effects import revealed_predictions
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.penalty_path import PenaltyPath
from lexppl.evaluation.prediction import base_frequencies
from lexppl.explanation import explain, mask_means
from lexppl.inference import FitResult

JUDGED = 100_000
"""Rows times masks by which each penalty is judged, so that all take a second."""
LEAST_MASKS = 10
PICKED_ROWS, ROW_MASKS, ROW_STEPS = 60, 20, 4
"""Rows that can be picked, masks by which their predictions come about, and groups that are
revealed one by one."""
CLOSEST = 2

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PickedAt:
    """N rows at one penalty.

    Args:
        kept: probability that each group is kept, `(N, K)`.
        order: the groups that are revealed one by one, `(N, J)`.
        totals: the log-probability of the label that is predicted, or the mean response in its own
            units: by the base rate, with all hidden, and after each step, `(N, J + 2)`, or with a
            last one of all other groups `(N, J + 3)`.
        label: the place of the label that is predicted, `(N,)`; None of responses.
        closest: the places among the rows of the closest with another outcome, `(N, 2)`, −1 for
            none.
    """

    kept: Numbers
    order: NDArray[np.int64]
    totals: Numbers
    label: NDArray[np.int64] | None
    closest: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Setting:
    """A fit at one penalty.

    Args:
        penalty: λ, nats for each entry kept.
        score: held-out scores.
        kept: share of the rows that keep each group, `(K,)`.
        span: the least and the largest of the fits, `(2, K)`.
        rows: single rows.
    """

    penalty: float
    score: ScoreRow
    kept: Numbers
    span: Numbers
    rows: PickedAt


@dataclass(frozen=True, eq=False)
class Settings:
    """A fit at each of its penalties.

    Args:
        each: by rising penalty.
        chosen: the place of the penalty in use.
        groups: of the features.
        numbers: of the rows that can be picked, their places in the table.
        observed: their labels or responses as text.
        values: of each row the values of its features, as text.
    """

    each: tuple[Setting, ...]
    chosen: int
    groups: FeatureGroups
    numbers: tuple[int, ...]
    observed: tuple[str, ...]
    values: tuple[Mapping[str, str], ...]


def at_each_penalty(
    path: PenaltyPath,
    source: DividedTable,
    own: ScoreRow,
    targets: Tensor,
    groups: FeatureGroups,
    requested: Sequence[int],
    count: int,
    seed: int,
) -> Settings:
    """Read, judge and look at rows at each penalty of a path of masks that select.

    Args:
        path: of the penalties.
        source: the table.
        own: the scores at the penalty in use.
        targets: what the explainer observes of each row of the table.
        groups: of the features.
        requested: places of rows in the table that can be picked in any case.
        count: how many held-out rows are read.
        seed: of the draws.
    """
    numbers = _picked(source, requested)
    masks = max(LEAST_MASKS, min(PREDICTED_MASKS // 2, JUDGED // len(source.test_rows)))
    each = []
    for place, penalty in enumerate(path.table["penalty"].tolist()):
        fitted = path.fitted.at(penalty)
        score = own if place == path.index else judge_explainer(fitted, source, seed, masks)
        kept, span, _ = _reading(fitted, source, groups, source.test_rows[:count], seed)
        by_row = _reading(fitted, source, groups, numbers, seed)[2]
        rows = _rows(fitted, source, targets, groups, numbers, by_row, seed)
        each.append(Setting(penalty, score, kept, span, rows))
    x = source.data.x[torch.from_numpy(numbers).to(source.data.x.device)]
    known = values_of(source, x)
    values = [{name: v.text(n) for name, v in known.items()} for n in range(len(numbers))]
    observed = tuple(observed_text(source, n) for n in numbers)
    picked = tuple(map(int, numbers)), observed, tuple(values)
    return Settings(tuple(each), path.index, groups, *picked)


def _picked(source: DividedTable, requested: Sequence[int]) -> NDArray[np.int64]:
    """The requested rows, and an even choice of held-out ones."""
    held = np.sort(source.test_rows)
    even = held[np.unique(np.linspace(0, len(held) - 1, min(PICKED_ROWS, len(held))).astype(int))]
    return np.unique([*even, *requested]).astype(np.int64)


def _reading(
    fitted: FitResult,
    source: DividedTable,
    groups: FeatureGroups,
    numbers: NDArray[np.int64],
    seed: int,
) -> tuple[Numbers, Numbers, Numbers]:
    """How often groups are kept in rows, the range of that over the fits, and the probabilities of
    each row, `(N, K)`."""
    x = source.data.x[torch.from_numpy(numbers).to(source.data.x.device)]
    means = mask_means(explain(fitted, x, draws=0, seed=seed)).values.astype(np.float64)
    each = groups.kept(means)
    folds = folds_at(source, numbers)
    by_row = each.mean(0)
    if folds is not None:
        by_row = each[folds.part.cpu().numpy(), np.arange(len(x))]
    over = each.mean(1)
    return by_row.mean(0), np.stack([over.min(0), over.max(0)]), by_row


def _rows(
    fitted: FitResult,
    source: DividedTable,
    targets: Tensor,
    groups: FeatureGroups,
    numbers: NDArray[np.int64],
    kept: Numbers,
    seed: int,
) -> PickedAt:
    """How the predictions of rows come about, each by the fit that holds it out."""
    data, folds = source.data, folds_at(source, numbers)
    x = data.x[torch.from_numpy(numbers).to(data.x.device)]
    parts = [(fitted, torch.arange(len(x)))] if folds is None else list(folds.each(fitted))
    steps = min(ROW_STEPS, len(groups.names))
    predictions: list[Numbers] = [np.empty(0)] * len(x)
    order = np.zeros((len(x), steps), np.int64)
    for own, places in parts:
        found = revealed_predictions(
            own, x[places.to(x.device)], masks=ROW_MASKS, groups=groups, most=steps, seed=seed
        )
        order[places] = found.order.numpy()[:, :steps]
        for place, one in zip(places.tolist(), found.predictions.mean(0).numpy(), strict=True):
            predictions[place] = one
    stages = np.stack(predictions)
    train = targets[torch.from_numpy(source.train_rows).to(targets.device)]
    label = None
    if data.class_names is not None and stages.ndim == 3:
        base = base_frequencies(train, stages.shape[-1]).cpu().numpy()
        label = stages[:, -1].argmax(-1)
        values = np.log(stages[np.arange(len(x)), :, label].clip(1e-12))
        start = np.log(base[label])
    else:
        values = stages * source.target_scale + source.target_mean
        mean = float(train.double().mean()) * source.target_scale + source.target_mean
        start = np.full(len(x), mean)
    totals = np.concatenate([start[:, None], values], 1)
    return PickedAt(kept, order, totals, label, _closest(source, x, kept, groups, numbers))


def _closest(
    source: DividedTable,
    x: Tensor,
    kept: Numbers,
    groups: FeatureGroups,
    numbers: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The rows of another outcome that are closest in what each row keeps: by the squares of
    differences, weighed by the probability that their group is kept. Of responses another outcome
    is one further away than a standard deviation."""
    data = source.data
    owner = groups.of_entries()[np.asarray(data.groups)]
    values = x.double().reshape(len(x), -1).cpu().numpy()
    weight = kept[:, owner]
    far = (weight * values**2).sum(1)[:, None] - 2 * (weight * values) @ values.T
    far += weight @ (values**2).T
    y = data.y[torch.from_numpy(numbers).to(data.y.device)].double().cpu().numpy()
    same = y[:, None] == y
    if data.class_names is None:
        same = np.abs(y[:, None] - y) <= max(float(data.y.double().std()), 1e-12)
    far[same] = np.inf
    order = np.argsort(far, 1, kind="stable")[:, :CLOSEST]
    missing = np.isinf(np.take_along_axis(far, order, 1))
    return np.where(missing, -1, order)
