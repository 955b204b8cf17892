"""Held-out likelihoods of y given each of several sets of columns, by predictors of these sets."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats
from torch import Tensor
from torch.nn.functional import log_softmax, relu

from lexppl.evaluation.folds import Folds
from lexppl.inference.contexts import flushed_denormals
from lexppl.models import Grouping, Likelihood, StudentTLikelihood
from lexppl.models.likelihoods import CountLikelihood, response_likelihood
from lexppl.models.trees.boosted_trees import column_kind, column_values, table_columns

Array = NDArray[np.float64]

WIDTH, BATCH, RATE = 32, 128, 5e-3
"""Of the networks: units of both hidden layers, rows of a step, learning rate."""
DECAY, LEAST_DECAY, MOST_DECAY = 130.0, 1.0, 8.0
"""Decoupled weight decay of the networks, over √N, and its ends: of 300 rows with a column of 66
levels networks reach −2.6 nats at .02 and −.66 at 8, where the base rate has −.69."""
EPOCHS, STEPS, MOST_STEPS = 60, 300, 1000
"""Of the networks: at most so many epochs, and steps: STEPS for 2,000 rows, with √N for more."""
STOPS = (0.4, 1.0)  # Shares of the steps after which a network predicts
LEVELS = 4  # Indicators of more levels are scaled by √(4 / levels), so that few rows move them less
TREES: dict[str, Any] = {"max_iter": 40, "learning_rate": 0.12, "max_leaf_nodes": 6}
TREES |= {"min_samples_leaf": 20, "l2_regularization": 5.0, "early_stopping": False}
BINS = 64  # Of a number, for trees: with weights scikit-learn takes seconds for bins of its own
POOL_STEPS, POOL_RATE, POOL_ROWS = 50, 8.0, 3000
"""Steps of the weights of predictors, their size, and most rows that they are found by."""
DISPERSIONS = np.array([0.0, *np.geomspace(0.01, 10.0, 13)])  # Of counts; 0 is a Poisson's
LEAST = 1e-4  # Probability of a label


class _Labels:
    """Labels by their shares, or a black box's probabilities, `(N, C)`; outputs are log p."""

    def __init__(self, share: Tensor, seed: int) -> None:
        from sklearn import ensemble, linear_model  # noqa: PLC0415 - slow to import

        self.share, self.y = share, share.numpy()
        self.boosting = ensemble.HistGradientBoostingClassifier(**TREES, random_state=seed)
        self.linear = linear_model.LogisticRegression(max_iter=200)

    def base(self, rows: Array, weight: Array) -> Array:
        count = weight @ self.y[rows] + 0.5
        return np.asarray(np.log(count / count.sum()))

    def loss(self, outputs: Tensor, rows: Tensor) -> Tensor:
        return -(self.share[rows].to(outputs) * log_softmax(outputs, -1)).sum(-1)

    def slope(self, outputs: Array, rows: Array) -> Array:
        return np.asarray(special.softmax(outputs, -1) - self.y[rows])

    def learned(self, kind: Any, x: Array, rows: Array, weight: Array, new: Array) -> Array:
        share = self.y[rows] * weight[:, None]
        row, label = np.nonzero(share)
        found = np.full((len(new), share.shape[1]), LEAST)
        if label.min() == label.max():
            found[:, label[0]] = 1.0
        else:
            of_copies = _fitted(kind, x[row], label, share[row, label])
            found[:, of_copies.classes_] += of_copies.predict_proba(new)
        return np.asarray(np.log(found))

    def log_density(self, held: Array, rows: Array, others: Array, known: Array, w: Array) -> Array:
        each = self.y[rows] * special.log_softmax(held, -1)
        return np.asarray(each.sum(-1))


class _Responses:
    """Responses `(N,)`, normal or Student's t; outputs are means."""

    def __init__(self, y: Tensor, likelihood: Likelihood | None, seed: int) -> None:
        from sklearn import ensemble, linear_model  # noqa: PLC0415 - slow to import

        usual, centre = response_likelihood(y)
        spread = float(usual.get_parameter("log_scale").detach().exp())
        heavy = isinstance(likelihood or usual, StudentTLikelihood)
        self.degrees = 4.0 if heavy else math.inf
        self.unit, self.target = math.log(spread), (y.double() - centre) / spread
        self.y = self.target.numpy()
        loss = "absolute_error" if heavy else "squared_error"
        trees = {**TREES, "loss": loss, "random_state": seed}
        self.boosting = ensemble.HistGradientBoostingRegressor(**trees)
        self.linear = linear_model.HuberRegressor(max_iter=300) if heavy else linear_model.Ridge()

    def base(self, rows: Array, weight: Array) -> Array:
        y = self.y[rows]
        return np.array(
            [np.median(y) if self.degrees < math.inf else np.average(y, weights=weight)]
        )

    def loss(self, outputs: Tensor, rows: Tensor) -> Tensor:
        square = (outputs[..., 0] - self.target[rows].to(outputs)).square()
        if math.isinf(self.degrees):
            return square / 2.0
        return (self.degrees + 1.0) / 2.0 * (square / self.degrees).log1p()

    def slope(self, outputs: Array, rows: Array) -> Array:
        miss = outputs - self.y[rows][:, None]
        scale = np.square(miss).mean(-2, keepdims=True)
        if self.degrees < math.inf:
            scale = (
                np.square(np.median(np.abs(miss), -2, keepdims=True))
                + np.square(miss) / self.degrees
            )
        return np.asarray(miss / np.maximum(scale, 1e-12))

    def learned(self, kind: Any, x: Array, rows: Array, weight: Array, new: Array) -> Array:
        found: Array = _fitted(kind, x, self.y[rows], weight).predict(new)
        return found[:, None]

    def log_density(self, held: Array, rows: Array, others: Array, known: Array, w: Array) -> Array:
        square, share = np.square(others[..., 0] - self.y[known]), w / w.sum()
        found = square @ share
        for _ in range(30 * (self.degrees < math.inf)):
            weight = (self.degrees + 1.0) / (self.degrees + square / found[:, None])
            found = np.maximum((weight * square) @ share, 1e-12)
        scale = np.sqrt(np.maximum(found, 1e-12))[:, None]
        law = stats.norm if math.isinf(self.degrees) else stats.t(self.degrees)
        each = law.logpdf((held[..., 0] - self.y[rows]) / scale)
        return np.asarray(each - np.log(scale) - self.unit)


class _Counts:
    """Counts `(N,)`, Poisson's or negative binomial; outputs are logs of means."""

    def __init__(self, y: Tensor, seed: int) -> None:
        from sklearn import ensemble, linear_model  # noqa: PLC0415 - slow to import

        self.target = y.double()
        self.y = self.target.numpy()
        trees = {**TREES, "loss": "poisson", "random_state": seed}
        self.boosting = ensemble.HistGradientBoostingRegressor(**trees)
        self.linear = linear_model.PoissonRegressor(alpha=1.0 / len(y), max_iter=300)

    def base(self, rows: Array, weight: Array) -> Array:
        return np.array([math.log((weight @ self.y[rows] + 0.5) / (weight.sum() + 0.5))])

    def loss(self, outputs: Tensor, rows: Tensor) -> Tensor:
        log_mean = outputs[..., 0].clamp(-20.0, 20.0)
        return log_mean.exp() - self.target[rows].to(outputs) * log_mean

    def slope(self, outputs: Array, rows: Array) -> Array:
        miss = np.exp(outputs) - self.y[rows][:, None]
        return np.asarray(miss / max(1.0, self.y.var() / max(self.y.mean(), 1e-12)))

    def learned(self, kind: Any, x: Array, rows: Array, weight: Array, new: Array) -> Array:
        mean: Array = _fitted(kind, x, self.y[rows], weight).predict(new)
        return np.log(np.maximum(mean, 1e-9))[:, None]

    def log_density(self, held: Array, rows: Array, others: Array, known: Array, w: Array) -> Array:
        each = [_log_count(self.y[known], others[..., 0], d) @ w for d in DISPERSIONS]
        dispersion = DISPERSIONS[np.argmax(each, 0)][:, None]
        return _log_count(self.y[rows], held[..., 0], dispersion)


def _log_count(y: Array, log_mean: Array, dispersion: Any) -> Array:
    """Log-probability of counts of a negative binomial distribution; of a Poisson's at 0."""
    mean = np.exp(np.clip(log_mean, -20.0, 20.0))
    size = 1.0 / np.maximum(dispersion, 1e-6)
    wide = special.gammaln(y + size) - special.gammaln(size) - size * np.log1p(mean / size)
    wide = wide + special.xlogy(y, mean / (size + mean))
    found = np.where(np.asarray(dispersion) > 0.0, wide, special.xlogy(y, mean) - mean)
    return np.asarray(found - special.gammaln(y + 1.0))


def _fitted(estimator: Any, x: Array, y: NDArray[Any], weight: Array) -> Any:
    return estimator.fit(x, y, sample_weight=None if np.ptp(weight) == 0.0 else weight)


def _family(y: Tensor, likelihood: Likelihood | None, seed: int) -> Any:
    if isinstance(likelihood, CountLikelihood):
        likelihood.check_responses(y)
        return _Counts(y, seed)
    if y.dim() == 1 and y.is_floating_point():
        return _Responses(y, likelihood, seed)
    return _Labels(torch.eye(int(y.max()) + 1).double()[y] if y.dim() == 1 else y.double(), seed)


def held_out_log_likelihood(
    x: Tensor,
    y: Tensor,
    entries: Sequence[int],
    sets: Sequence[tuple[int, ...]],
    folds: Folds,
    *,
    likelihood: Likelihood | None,
    weight: Array,
    seed: int,
) -> Array:
    """log p(y | x_S) of each row and set S of mask entries, `(S, N)`, by predictors that have not
    learned from the row.

    Args:
        x, y, likelihood, folds, seed: as in :func:`lexppl.evaluation.importance`.
        entries: of each feature its mask entry, `D`.
        sets: of entries.
        weight: how often each row counts, of mean 1.
    """
    x, y, part = x.detach().cpu().double(), y.detach().cpu(), folds.part.cpu().numpy()
    family, place = _family(y, likelihood, seed), np.asarray(entries)
    count = weight
    rows = [np.flatnonzero(part != fold) for fold in range(folds.count)]
    bases = np.stack([family.base(some, count[some]) for some in rows])
    is_level = ((x == 0) | (x == 1)).all(0)
    few = torch.from_numpy(np.minimum(1.0, np.sqrt(LEVELS / np.bincount(place)[place])))
    spread = x.std(0).clamp_min(1e-12)
    scaled = torch.where(is_level, x * few, (x - x.mean(0)) / spread).clamp(-8.0, 8.0)
    read = np.array([np.isin(place, some) for some in sets])
    columns, owner = table_columns(x, Grouping(list(entries)))
    binned = _binned(column_values(x, columns).numpy())
    of_levels = np.array([column_kind(features) == 0 for features in columns])
    base = bases[part]
    trees, linear = (np.tile(base, (len(sets), 1, 1)) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, some in enumerate(sets):
            if not some:
                continue
            of_set = np.isin(owner, some)
            family.boosting.set_params(categorical_features=of_levels[of_set])
            inputs = binned[:, of_set], scaled.numpy()[:, read[number]]
            for fold, learned in enumerate(rows):
                held = part == fold
                kinds = (trees, family.boosting), (linear, family.linear)
                for values, (found, kind) in zip(inputs, kinds, strict=True):
                    how = values[learned], learned, count[learned], values[held]
                    found[number, held] = family.learned(kind, *how)
    # One column needs no network beside trees.
    several = np.array([len(some) > 1 for some in sets])
    networks = [linear.copy(), trees.copy()]
    if several.any():
        of_several = _networks(scaled, read[several], family, bases, part, count, seed)
        for each, outputs in zip(networks, of_several, strict=True):
            each[several] = outputs
    every = np.stack([np.tile(base, (len(sets), 1, 1)), linear, trees, *networks])
    return _pooled(family, every, part, count, seed)


def _binned(values: Array) -> Array:
    found = np.empty_like(values)
    for place, column in enumerate(values.T):
        edges = np.unique(column)
        if len(edges) > BINS:
            edges = np.unique(np.quantile(column, np.linspace(0.0, 1.0, BINS + 1)[1:-1]))
        found[:, place] = np.searchsorted(edges, column)
    return found


def _networks(
    x: Tensor, read: Any, family: Any, bases: Array, part: Array, count: Array, seed: int
) -> list[Array]:
    """Outputs of held-out rows `(S, N, O)` after each of STOPS, by one batch of networks: of every
    fold and set one that reads the features of the set, `(S, D)`, and learns outside the fold."""
    draw, folds, (sets, inputs) = torch.Generator().manual_seed(seed), len(bases), read.shape
    rows, x, total = len(x), x.float(), folds * sets

    def uniform(*shape: int, scale: float = 1.0) -> Tensor:
        bound = scale / math.sqrt(shape[0])
        one = torch.empty(folds, *shape).uniform_(-bound, bound, generator=draw)
        return one.repeat_interleave(sets, 0).requires_grad_()

    # Networks of a fold start alike, so that their differences are of what they read.
    first, second = uniform(inputs, WIDTH), uniform(WIDTH, WIDTH)
    last = uniform(WIDTH, bases.shape[1], scale=0.1)
    shifts = [torch.zeros(total, 1, WIDTH).requires_grad_() for _ in range(2)]
    start = torch.from_numpy(bases).float().repeat_interleave(sets, 0)[:, None]
    shifts.append(start.requires_grad_())
    mask = torch.from_numpy(read).float().repeat(folds, 1)[..., None]

    def outputs(x: Tensor, of: slice = slice(None)) -> Tensor:
        inner = torch.baddbmm(shifts[0][of], x.expand(len(mask[of]), -1, -1), (first * mask)[of])
        inner = torch.baddbmm(shifts[1][of], relu(inner), second[of])
        return torch.baddbmm(shifts[2][of], relu(inner), last[of])

    known = (part != np.arange(folds)[:, None]) * count
    times = torch.from_numpy(known).float()
    steps = round(STEPS * min(MOST_STEPS / STEPS, max(1.0, math.sqrt(rows / 2000))))
    steps = max(40, min(steps, EPOCHS * math.ceil(rows / BATCH)))
    stops = [round(share * steps) for share in STOPS]
    decay = min(max(DECAY / math.sqrt(rows), LEAST_DECAY), MOST_DECAY)
    weights = [{"params": [first, second, last], "weight_decay": decay}]
    optimizer = torch.optim.AdamW([*weights, {"params": shifts, "weight_decay": 0.0}], lr=RATE)
    found, order = [], torch.empty(0, dtype=torch.long)
    with flushed_denormals():
        for step in range(1, steps + 1):
            while len(order) < BATCH:
                order = torch.cat([order, torch.randperm(rows, generator=draw)])
            batch, order = order[:BATCH], order[BATCH:]
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1.0, 2.0 * (1.0 - step / steps) + 0.02)
            loss = family.loss(outputs(x[batch]), batch)
            optimizer.zero_grad()
            (loss * times[:, batch].repeat_interleave(sets, 0)).mean(1).sum().backward()
            optimizer.step()
            if step in stops:
                each = np.empty((sets, rows, bases.shape[1]))
                with torch.no_grad():
                    for fold in range(folds):
                        held, of = part == fold, slice(fold * sets, (fold + 1) * sets)
                        each[:, held] = outputs(x[torch.from_numpy(held)], of).double().numpy()
                found.append(each)
    return found


def _pooled(family: Any, every: Array, part: Array, count: Array, seed: int) -> Array:
    """log p of the outputs of Q predictors `(Q, S, N, O)` averaged by weights that make the rows of
    all other folds likeliest, by exponentiated gradient from even weights."""
    found, draw = np.empty(every.shape[1:3]), np.random.default_rng(seed)
    rate = POOL_RATE * min(1.0, every.shape[2] / 2000)
    for fold in range(int(part.max()) + 1):
        held, known = np.flatnonzero(part == fold), np.flatnonzero(part != fold)
        if len(known) > POOL_ROWS:
            known = np.sort(draw.choice(known, POOL_ROWS, replace=False))
        others, share = every[:, :, known], count[known] / count[known].sum()
        weight = np.full(every.shape[:2], 1.0 / len(every))
        for _ in range(POOL_STEPS):
            slope = family.slope(np.einsum("qs,qsno->sno", weight, others), known)
            weight *= np.exp(-rate * np.einsum("qsno,sno,n->qs", others, slope, share))
            weight /= weight.sum(0)
        pooled, of_held = (
            np.einsum("qs,qsno->sno", weight, e) for e in (others, every[:, :, held])
        )
        found[:, held] = family.log_density(of_held, held, pooled, known, count[known])
    return found
