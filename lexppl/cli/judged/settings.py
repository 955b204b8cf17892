"""One fit at each of its penalties: what it reads of held-out rows, how well it predicts them, and
how the prediction of single rows comes about."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.cli.judged.closer_look import values_of
from lexppl.cli.judged.judged_rows import folds_at
from lexppl.cli.judged.judging import EXPLAINER, PREDICTED_MASKS, ScoreRow, judge_explainer
from lexppl.data import DividedTable
from lexppl.evaluation import PenaltyPath
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.learned import base_frequencies
from lexppl.evaluation.revealed import revealed_predictions
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
        penalty: λ, nats for each entry kept; NaN of a fit that has none.
        score: held-out scores.
        kept: share of the rows that keep each feature and then each group, `(G + K,)`; None of a
            fit that has no penalties.
        span: the least and the largest of the fits, `(2, G + K)`, or None.
        rows: single rows.
    """

    penalty: float
    score: ScoreRow | None
    kept: Numbers | None
    span: Numbers | None
    rows: PickedAt


@dataclass(frozen=True, eq=False)
class Settings:
    """A fit at each of its penalties.

    Args:
        each: by rising penalty.
        chosen: the place of the penalty in use.
        numbers: of the rows that can be picked, their places in the table.
        observed: their labels or responses as text.
        values: of each row the values of its features, as text.
    """

    each: tuple[Setting, ...]
    chosen: int
    numbers: tuple[int, ...]
    observed: tuple[str, ...]
    values: tuple[Mapping[str, str], ...]


def at_each_penalty(
    result: FitResult,
    path: PenaltyPath | None,
    source: DividedTable,
    scores: Sequence[ScoreRow],
    targets: Tensor,
    groups: FeatureGroups,
    asked: Sequence[int],
    count: int,
    seed: int,
) -> Settings:
    """Read, judge and look at rows at each penalty of a path, or at the one of the fit.

    Args:
        result: the fit in use, of masks that select.
        path: what its penalty was chosen from, where it was.
        source: the table.
        scores: of the fit in use.
        targets: what the explainer observes of each row of the table.
        groups: of the features.
        asked: places of rows in the table that can be picked in any case.
        count: how many held-out rows are read.
        seed: of the draws.
    """
    numbers = _picked(source, asked)
    fits = [(math.nan, result)]
    if path is not None:
        fits = [(penalty, path.fitted.at(penalty)) for penalty in path.table["penalty"]]
    chosen = 0 if path is None else path.index
    own = next((score for score in scores if score.who == EXPLAINER), None)
    masks = max(LEAST_MASKS, min(PREDICTED_MASKS // 2, JUDGED // len(source.test_rows)))
    each = []
    for place, (penalty, fitted) in enumerate(fits):
        score = own if place == chosen else judge_explainer(fitted, source, seed, masks)
        kept = span = by_row = None
        if path is not None:
            kept, span, _ = _reading(fitted, source, groups, source.test_rows[:count], seed)
            by_row = _reading(fitted, source, groups, numbers, seed)[2][:, source.data.n_entries :]
        rows = _rows(fitted, source, targets, groups, numbers, by_row, seed)
        each.append(Setting(penalty, score, kept, span, rows))
    x = source.data.x[torch.from_numpy(numbers).to(source.data.x.device)]
    known = values_of(source, x)
    values = [{name: v.text(n) for name, v in known.items()} for n in range(len(numbers))]
    names = source.data.class_names
    y = source.data.y[torch.from_numpy(numbers).to(source.data.y.device)].tolist()
    observed = [
        str(names[int(one)]) if names else f"{one * source.target_scale + source.target_mean:.4g}"
        for one in y
    ]
    return Settings(tuple(each), chosen, tuple(map(int, numbers)), tuple(observed), tuple(values))


def _picked(source: DividedTable, asked: Sequence[int]) -> NDArray[np.int64]:
    """The rows that are asked for, and an even choice of held-out ones."""
    held = np.sort(source.test_rows)
    even = held[np.unique(np.linspace(0, len(held) - 1, min(PICKED_ROWS, len(held))).astype(int))]
    return np.unique([*even, *asked]).astype(np.int64)


def _of_groups(kept: Numbers, groups: FeatureGroups) -> Numbers:
    """Probability that a member of each group is kept, `(…, K)`, of independent entries."""
    each = [1.0 - (1.0 - kept[..., list(group)]).prod(-1) for group in groups.members]
    return np.stack(each, -1)


def _reading(
    fitted: FitResult,
    source: DividedTable,
    groups: FeatureGroups,
    numbers: NDArray[np.int64],
    seed: int,
) -> tuple[Numbers, Numbers, Numbers]:
    """How often features and groups are kept in rows, the range of that over the fits, and the
    probabilities of each row, `(N, G + K)`."""
    x = source.data.x[torch.from_numpy(numbers).to(source.data.x.device)]
    means = mask_means(explain(fitted, x, draws=0, seed=seed)).values.astype(np.float64)
    both = np.concatenate([means, _of_groups(means, groups)], -1)
    folds = folds_at(source, numbers)
    by_row = both.mean(0)
    if folds is not None:
        by_row = both[folds.part.cpu().numpy(), np.arange(len(x))]
    over = both.mean(1)
    return by_row.mean(0), np.stack([over.min(0), over.max(0)]), by_row


def _rows(
    fitted: FitResult,
    source: DividedTable,
    targets: Tensor,
    groups: FeatureGroups,
    numbers: NDArray[np.int64],
    known: Numbers | None,
    seed: int,
) -> PickedAt:
    """How the predictions of rows come about, each by the fit that holds it out."""
    data, folds = source.data, folds_at(source, numbers)
    x = data.x[torch.from_numpy(numbers).to(data.x.device)]
    parts = [(fitted, torch.arange(len(x)))] if folds is None else list(folds.each(fitted))
    steps = min(ROW_STEPS, len(groups.names))
    predictions: list[Numbers] = [np.empty(0)] * len(x)
    kept, order = np.zeros((len(x), len(groups.names))), np.zeros((len(x), steps), np.int64)
    for own, places in parts:
        found = revealed_predictions(
            own, x[places.to(x.device)], masks=ROW_MASKS, groups=groups, most=steps, seed=seed
        )
        kept[places], order[places] = found.kept.numpy(), found.order.numpy()[:, :steps]
        for place, one in zip(places.tolist(), found.predictions.mean(0).numpy(), strict=True):
            predictions[place] = one
    kept = kept if known is None else known
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
