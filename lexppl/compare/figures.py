"""Figures of a comparison: masks of the highest entries, their scores with intervals, and leaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm, rankdata, t
from torch import Tensor
from torch.nn.functional import one_hot

from lexppl.distributions.masks import largest_entries
from lexppl.evaluation import encode_meter, selection_scores
from lexppl.evaluation.evalx import TRAINING, EvalX
from lexppl.evaluation.prediction import prediction_scores
from lexppl.explanation.reading.tables import mean_error
from lexppl.models import Grouping


def top_masks(importances: Tensor, sizes: int | Tensor, *, seed: int = 0) -> Tensor:
    """Masks `(B, G)` of each row's k highest entries, k one number or `(B,)`, ties by lot."""
    generator = torch.Generator().manual_seed(seed)
    lot = torch.rand(importances.shape, generator=generator).argsort(1).to(importances.device)
    most = sizes.to(importances.device) if isinstance(sizes, Tensor) else sizes
    shuffled = largest_entries(importances.gather(1, lot), most)
    return torch.empty_like(shuffled).scatter(1, lot, shuffled)


Values = NDArray[np.float64]

LEVEL = 0.95


@dataclass(frozen=True)
class Figure:
    """A figure of N rows, its standard error over rows, and whether it is a share, from 0 to 1."""

    value: float
    error: float
    rows: int
    shares: bool = True

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval over rows: of a share Wilson's, of as many rows as its error is worth,
        so that a figure of 1 on few rows is not held for certain; else a t-interval."""
        if self.rows < 2 or math.isnan(self.error):
            return math.nan, math.nan
        if not self.shares:
            half = float(t.ppf((1 + LEVEL) / 2, self.rows - 1)) * self.error
            return self.value - half, self.value + half
        at_bound = min(self.value, 1.0 - self.value) < 1e-9
        if self.error == 0.0 and not at_bound:
            return self.value, self.value
        worth = self.rows if at_bound else self.value * (1.0 - self.value) / self.error**2
        return wilson(self.value, worth)


def wilson(share: float, rows: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of so many rows (JASA 22, 1927)."""
    z = float(norm.ppf((1 + LEVEL) / 2))
    shrink = 1.0 + z**2 / rows
    center = (share + z**2 / (2 * rows)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2))
    return center - half, center + half


def figures_of(
    judge: EvalX,
    importances: Tensor,
    x: Tensor,
    y: Tensor,
    truth: Tensor | None,
    sizes: Sequence[int],
    seed: int,
) -> dict[str, Figure]:
    """The figures of a ranking `(N, G)` of test rows, by name."""
    figures: dict[str, Figure] = {}
    for k in sizes:
        masks = top_masks(importances, k, seed=seed)
        fixed = top_masks(importances.double().mean(0).expand_as(importances), k, seed=seed)[:1]
        predicted = judge.predict(x, torch.stack([masks, fixed.expand_as(masks)]), seed=seed)
        figures |= {f"{name}@{k}": figure for name, figure in _predicted(predicted[0], y).items()}
        figures[f"fixed@{k}"] = next(iter(_predicted(predicted[1], y).values()))
        figures[f"choice@{k}"] = _of_choice(masks, y, seed)
        if truth is not None:
            figures |= {f"{name}@{k}": figure for name, figure in _selected(masks, truth).items()}
    if truth is not None:
        masks = top_masks(importances, truth.sum(1).long(), seed=seed)
        figures["tpr@truth"] = _selected(masks, truth)["tpr"]
    return figures


def with_intervals(
    judged: Callable[[Tensor], Mapping[str, Figure]], importances: Tensor, weighted: bool = False
) -> dict[str, float]:
    """Figures of the mean of R replicates' importances `(R, N, G)`, each with its 95 % interval.

    The replicates' error is the jackknife's: s of the pseudo-values `R f − (R − 1) f_{−r}`, over
    √R, or times √(1 + 1/R) where replicates weighted their rows at random. With the rows' interval
    (l, u) it is f − √((f − l)² + t² s²/R) to f + √((u − f)² + t² s²/R), t = t_{.975, R−1} (Zou and
    Donner 2008).
    """
    count = len(importances)
    whole = judged(importances.mean(0))
    others: list[Mapping[str, Figure]] = []
    if count > 1:
        total = importances.sum(0)
        others = [judged((total - of_replicate) / (count - 1)) for of_replicate in importances]
    bounds: dict[str, float] = {}
    for name, figure in whole.items():
        half = 0.0
        if others:
            values = np.array([left_out[name].value for left_out in others])
            values = count * figure.value - (count - 1) * values
            half = float(t.ppf((1 + LEVEL) / 2, count - 1) * mean_error(values, weighted))
        low, high = figure.interval
        lower = figure.value - math.hypot(figure.value - low, half)
        upper = figure.value + math.hypot(high - figure.value, half)
        if figure.shares:
            lower, upper = max(lower, 0.0), min(upper, 1.0)
        bounds |= {f"{name}_lower": lower, f"{name}_upper": upper}
    return {name: figure.value for name, figure in whole.items()} | bounds


def _predicted(outputs: Tensor, y: Tensor) -> dict[str, Figure]:
    """How well what is kept predicts, from probabilities `(N, C)` or means `(N,)`."""
    scores = prediction_scores(outputs, y)
    values, truth = outputs.double().cpu().numpy(), y.cpu().numpy()
    rows = len(truth)
    if scores.accuracy is None or scores.auroc is None:
        square = (values - truth) ** 2
        spread = (truth - truth.mean()) ** 2
        r2, rmse = (math.nan if v is None else v for v in (scores.r2, scores.rmse))
        of_r2 = -(square - (1.0 - r2) * spread) / spread.mean() if spread.any() else square * np.nan
        of_rmse = (square - rmse**2) / (2.0 * rmse) if rmse > 0.0 else square
        return {
            "r2": Figure(r2, _error(of_r2), rows, shares=False),
            "rmse": Figure(rmse, _error(of_rmse), rows, shares=False),
        }
    right = (values.argmax(1) == truth).astype(float)
    influence, rarest = area_influence(values, truth)
    return {
        "accuracy": Figure(scores.accuracy, _error(right), rows),
        "auroc": Figure(scores.auroc, _error(influence), rarest),
    }


CHOICE_FOLDS = 10


def _of_choice(masks: Tensor, y: Tensor, seed: int) -> Figure:
    """Accuracy (R² of responses) of y predicted from which entries are kept alone, by naive Bayes
    (ridge regression) in ten folds of the rows."""
    from sklearn import linear_model, model_selection, naive_bayes  # noqa: PLC0415 - slow to import

    labels, keep = y.cpu().numpy(), masks.cpu().numpy()
    if len(labels) < 2:
        return Figure(math.nan, math.nan, len(labels))
    model = linear_model.Ridge() if y.is_floating_point() else naive_bayes.BernoulliNB()
    parts = model_selection.KFold(min(CHOICE_FOLDS, len(labels)), shuffle=True, random_state=seed)
    predicted = torch.from_numpy(model_selection.cross_val_predict(model, keep, labels, cv=parts))
    outputs = predicted if y.is_floating_point() else one_hot(predicted, int(y.max()) + 1)
    return next(iter(_predicted(outputs.to(y.device), y).values()))


def area_influence(values: Values, labels: NDArray[np.int64]) -> tuple[Values, int]:
    """Each row's influence on the area A under the ROC curve, and the rows of the rarer kind: of m
    rows in a class and n not, N/m (V_i − A) and N/n (V_j − A), V the share of the other kind that
    the row is on the right side of (DeLong et al., Biometrics 44, 1988)."""
    influences, rarest = [], 0
    for c in range(1, 2) if values.shape[1] == 2 else range(values.shape[1]):
        inside = labels == c
        m, n = int(inside.sum()), int((~inside).sum())
        if min(m, n) == 0:
            continue
        score = values[:, c]
        beaten = rankdata(score)
        placed = np.empty(len(score))
        placed[inside] = (beaten[inside] - rankdata(score[inside])) / n
        placed[~inside] = 1.0 - (beaten[~inside] - rankdata(score[~inside])) / m
        area = placed[inside].mean()
        influences.append((placed - area) * np.where(inside, len(score) / m, len(score) / n))
        rarest = min(m, n) if rarest == 0 else min(rarest, m, n)
    if not influences:
        return np.full(len(labels), np.nan), 0
    return np.mean(influences, axis=0), rarest


def _selected(masks: Tensor, truth: Tensor) -> dict[str, Figure]:
    """How many of the truly relevant entries are kept, and how many others."""
    scores = selection_scores(masks, truth)
    keep, relevant = masks.double().cpu().numpy(), truth.double().cpu().numpy()
    both, size = (keep * relevant).sum(1), keep.sum(1)
    false = np.where(size > 0, 1.0 - both / np.maximum(size, 1.0), 1.0)
    rows = len(keep)
    return {
        "tpr": Figure(scores.tpr, _error(both / relevant.sum(1)), rows),
        "fdr": Figure(scores.fdr, _error(false), rows),
    }


def _error(influence: Values) -> float:
    """Standard error of a mean; NaN of one row."""
    if len(influence) < 2:
        return math.nan
    return float(influence.std(ddof=1) / math.sqrt(len(influence)))


def encoded(
    importances: Tensor,
    x: Tensor,
    y: Tensor,
    grouping: Grouping | None,
    sizes: Sequence[int],
    seed: int,
    fit_options: Mapping[str, Any],
) -> dict[str, float]:
    """`encoded@k`, the encode-meter of each row's k highest entries, and its 95 % interval."""
    known = {"hidden", "progress", *TRAINING}
    options = {name: value for name, value in fit_options.items() if name in known}
    bounds: dict[str, float] = {}
    for k in sizes:
        masks = top_masks(importances, k, seed=seed)
        meter = encode_meter(x, y, masks, grouping=grouping, seed=seed, **options)
        name = f"encoded@{k}"
        bounds |= {name: meter.value, f"{name}_lower": meter.lower, f"{name}_upper": meter.upper}
    return bounds
