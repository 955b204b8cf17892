"""Held-out predictions of y from each of several sets of columns, by predictors of these sets."""

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
from lexppl.inference.training.settings import EagerAdam
from lexppl.models import Grouping, Likelihood, StudentTLikelihood
from lexppl.models.likelihoods import CountLikelihood, response_likelihood
from lexppl.models.trees.boosted_trees import column_kind, column_values, table_columns
from lexppl.workers import fixed_threads

Array = NDArray[np.float64]

WIDTH, BATCH, MOST_BATCH, RATE = 32, 128, 256, 8e-3
"""Of the networks: units of both hidden layers, rows of a step, times √(N / 2000) up to the third,
learning rate. With 256 rows V(all) of 20,000 rows of which 1 % are positive is .002 nats higher."""
PRICES, RIDGE = (0.3, 1.0), 0.3
"""Prices of the entries that networks read, over √N, and of the squares of all weights, over N. Of
2,000 rows of a switch networks without a price reach .113 nats above the base rate, with .3 .145,
the law .215; of 300 rows of mixed columns −.6, with 1.0 .04."""
STEPS, STEPS_OF_SETS, MOST_STEPS, EPOCHS = 300, 150, 3.3, 60
"""Of networks of every feature, and then of sets, times √(N / 2000) from 1 to the third; the last
is the most epochs of either."""
LEVELS = 4  # Indicators of more levels are scaled by √(4 / levels), so that few rows move them less
TREES: dict[str, Any] = {"max_iter": 20, "learning_rate": 0.2, "max_leaf_nodes": 6}
TREES |= {"min_samples_leaf": 20, "l2_regularization": 5.0, "early_stopping": False}
FEW_TREES = {"max_iter": 15, "learning_rate": 0.3}  # Of sets of a column without a network
BINS = 64  # Of a number, for trees: with weights scikit-learn takes seconds for bins of its own
POOL_STEPS, POOL_RATE, POOL_ROWS, POOL_SETS = 50, 8.0, 3000, 8
"""Steps of the weights of predictors, their size for 2,000 rows, and most rows and sets that they
are found by."""
DISPERSIONS = np.geomspace(1e-6, 10.0, 22)  # Of counts; the first is a Poisson's
LEAST = 1e-4  # Probability of a label
OF_SPREAD = {"loss": "gamma", "max_iter": 6, "learning_rate": 0.25, "min_samples_leaf": 40}
LEAST_SPREAD = 1e-3


class _Family:
    """What y is: outputs of predictors, their losses, and the density of y given them."""

    width = 1

    def loss(self, outputs: Tensor, rows: Tensor) -> Tensor:
        raise NotImplementedError

    def pooled_loss(self, outputs: Tensor, rows: Tensor, share: Tensor) -> Tensor:
        """The mean loss of rows by each set of columns, `(S,)`."""
        return self.loss(outputs, rows) @ share


class _Labels(_Family):
    """Labels by their shares, or a black box's probabilities, `(N, C)`; outputs are log p."""

    def __init__(self, share: Tensor, trees: dict[str, Any]) -> None:
        from sklearn import dummy, ensemble, linear_model  # noqa: PLC0415 - slow to import

        self.share, self.y, self.base = share, share.numpy(), dummy.DummyClassifier()
        self.width = share.shape[1]
        self.linear = linear_model.LogisticRegression(max_iter=200)
        self.boosting = ensemble.HistGradientBoostingClassifier(**trees)

    def loss(self, outputs: Tensor, rows: Tensor) -> Tensor:
        return -(self.share[rows].to(outputs) * log_softmax(outputs, -1)).sum(-1)

    def learned(self, kind: Any, x: Array, rows: Array, weight: Array, new: Array) -> Array:
        share = self.y[rows] * weight[:, None]
        row, label = np.nonzero(share)
        probabilities = np.full((len(new), share.shape[1]), LEAST)
        kind = self.base if np.ptp(label) == 0 else kind
        fitted = _fitted(kind, x[row], label, share[row, label])
        probabilities[:, fitted.classes_] += fitted.predict_proba(new)
        return np.asarray(np.log(probabilities))

    def log_density(self, held: Array, rows: Array, others: Array, known: Array, w: Array) -> Array:
        return np.asarray((self.y[rows] * special.log_softmax(held, -1)).sum(-1))

    def errors(self, held: Array, rows: Array) -> Array:
        return held.argmax(-1) != self.y[rows].argmax(-1)


class _Responses(_Family):
    """Responses `(N,)`, normal or Student's t; outputs are means and logs of scales, in units of
    their spread: what a column leaves open may be wider in some rows than in others."""

    width = 2

    def __init__(self, y: Tensor, likelihood: Likelihood | None, trees: dict[str, Any]) -> None:
        from sklearn import dummy, ensemble, linear_model  # noqa: PLC0415 - slow to import

        usual, centre = response_likelihood(y)
        spread = float(usual.get_parameter("log_scale").detach().exp())
        heavy = isinstance(likelihood or usual, StudentTLikelihood)
        self.degrees, self.unit = 4.0 if heavy else math.inf, math.log(spread)
        self.scale_of_distance = 1.0 if heavy else math.sqrt(math.pi / 2.0)
        self.target = (y.double() - centre) / spread
        self.y = self.target.numpy()
        self.base = dummy.DummyRegressor(strategy="median" if heavy else "mean")
        self.linear = linear_model.HuberRegressor(max_iter=300) if heavy else linear_model.Ridge()
        loss = "absolute_error" if heavy else "squared_error"
        self.boosting = ensemble.HistGradientBoostingRegressor(**trees, loss=loss)

    def loss(self, outputs: Tensor, rows: Tensor) -> Tensor:
        return self._loss((outputs[..., 0] - self.target[rows].to(outputs)).square())

    def _loss(self, square: Tensor) -> Tensor:
        if math.isinf(self.degrees):
            return square / 2.0
        return (self.degrees + 1.0) / 2.0 * (square / self.degrees).log1p()

    def pooled_loss(self, outputs: Tensor, rows: Tensor, share: Tensor) -> Tensor:
        log_scale = outputs[..., 1]
        square = (outputs[..., 0] - self.target[rows].to(outputs)).square()
        square = square * (-2.0 * log_scale).exp()
        likeliest = self._variance(square.detach().double().numpy(), share.double().numpy())
        square = square / torch.from_numpy(likeliest).to(outputs)[:, None]
        return (self._loss(square) + log_scale) @ share

    def _variance(self, square: Array, share: Array) -> Array:
        """The squared scale of each set under which squares `(S, N)` are likeliest, `(S,)`."""
        variance = np.maximum(square @ share, 1e-12)
        for _ in range(30 * (self.degrees < math.inf)):
            far = (self.degrees + 1.0) / (self.degrees + square / variance[:, None])
            variance = np.maximum((far * square) @ share, 1e-12)
        return np.asarray(variance)

    def learned(self, kind: Any, x: Array, rows: Array, weight: Array, new: Array) -> Array:
        from sklearn import clone  # noqa: PLC0415 - slow to import

        fitted = _fitted(kind, x, self.y[rows], weight)
        far = np.abs(self.y[rows] - fitted.predict(x)) + LEAST_SPREAD
        spread = np.full(len(new), np.average(far, weights=weight))
        if kind is self.boosting:
            spread = _fitted(clone(kind).set_params(**OF_SPREAD), x, far, weight).predict(new)
        return np.stack([fitted.predict(new), np.log(self.scale_of_distance * spread)], -1)

    def log_density(self, held: Array, rows: Array, others: Array, known: Array, w: Array) -> Array:
        square = np.square((others[..., 0] - self.y[known]) * np.exp(-others[..., 1]))
        scale = np.exp(held[..., 1]) * np.sqrt(self._variance(square, w / w.sum()))[:, None]
        law = stats.norm if math.isinf(self.degrees) else stats.t(self.degrees)
        density = law.logpdf((held[..., 0] - self.y[rows]) / scale)
        return np.asarray(density - np.log(scale) - self.unit)

    def errors(self, held: Array, rows: Array) -> Array:
        return np.asarray(np.abs(held[..., 0] - self.y[rows]) * math.exp(self.unit))


class _Counts(_Family):
    """Counts `(N,)`, negative binomial; outputs are logs of means."""

    def __init__(self, y: Tensor, trees: dict[str, Any]) -> None:
        from sklearn import dummy, ensemble, linear_model  # noqa: PLC0415 - slow to import

        self.target = y.double()
        self.y, self.base = self.target.numpy(), dummy.DummyRegressor()
        self.linear = linear_model.PoissonRegressor(alpha=1.0 / len(y), max_iter=300)
        self.boosting = ensemble.HistGradientBoostingRegressor(**trees, loss="poisson")

    def loss(self, outputs: Tensor, rows: Tensor) -> Tensor:
        log_mean = outputs[..., 0].clamp(-20.0, 20.0)
        return log_mean.exp() - self.target[rows].to(outputs) * log_mean

    def learned(self, kind: Any, x: Array, rows: Array, weight: Array, new: Array) -> Array:
        mean = _fitted(kind, x, self.y[rows], weight).predict(new)
        return np.asarray(np.log(np.maximum(mean, 1e-9))[:, None])

    def log_density(self, held: Array, rows: Array, others: Array, known: Array, w: Array) -> Array:
        def log_count(y: Array, log_mean: Array, dispersion: Any) -> Array:
            mean = np.exp(np.clip(log_mean[..., 0], -20.0, 20.0))
            return stats.nbinom.logpmf(y, 1.0 / dispersion, 1.0 / (1.0 + dispersion * mean))

        by_dispersion = [
            log_count(self.y[known], others, dispersion) @ w for dispersion in DISPERSIONS
        ]
        likeliest = DISPERSIONS[np.argmax(by_dispersion, 0)][:, None]
        return log_count(self.y[rows], held, likeliest)

    def errors(self, held: Array, rows: Array) -> Array:
        return np.abs(np.exp(np.clip(held[..., 0], -20.0, 20.0)) - self.y[rows])


def _fitted(estimator: Any, x: Array, y: NDArray[Any], weight: Array) -> Any:
    return estimator.fit(x, y, sample_weight=None if np.ptp(weight) == 0.0 else weight)


def _family(y: Tensor, likelihood: Likelihood | None, seed: int) -> Any:
    trees = {**TREES, "random_state": seed}
    if isinstance(likelihood, CountLikelihood):
        likelihood.check_responses(y)
        return _Counts(y, trees)
    if y.dim() == 1 and y.is_floating_point():
        return _Responses(y, likelihood, trees)
    return _Labels(torch.eye(int(y.max()) + 1).double()[y] if y.dim() == 1 else y.double(), trees)


def held_out_scores(
    x: Tensor,
    y: Tensor,
    entries: Sequence[int],
    sets: Sequence[tuple[int, ...]],
    folds: Folds,
    *,
    networks: Sequence[bool],
    likelihood: Likelihood | None,
    weight: Array,
    seed: int,
) -> Array:
    """log p(y | x_S), and the error of the prediction, of each row and set S of mask entries,
    `(2, S, N)`, by predictors that have not learned from the row. An error is 1 for another label
    than the likeliest one, else 0, or the distance of a response from its mean.

    Args:
        x, y, likelihood, folds, seed: as in :func:`lexppl.evaluation.importance`.
        entries: of each feature its mask entry, `D`.
        sets: of entries.
        networks: whether a set has a network; sets that are compared must be alike in this.
        weight: how often each row counts, of mean 1.
    """
    x, y, part = x.detach().cpu().double(), y.detach().cpu(), folds.part.cpu().numpy()
    family, place = _family(y, likelihood, seed), np.asarray(entries)
    few = torch.from_numpy(np.minimum(1.0, np.sqrt(LEVELS / np.bincount(place)[place])))
    standard = (x - x.mean(0)) / x.std(0).clamp_min(1e-12)
    scaled = torch.where(((x == 0) | (x == 1)).all(0), x * few, standard).clamp(-8.0, 8.0)
    columns, owner = table_columns(x, Grouping(list(entries)))
    plain, binned = scaled.numpy(), _binned(column_values(x, columns).numpy())
    of_levels = np.array([column_kind(features) == 0 for features in columns])
    read, of_trees = (
        np.array([np.isin(owners, columns) for columns in sets]) for owners in (place, owner)
    )
    every, starts = np.empty((3 + len(PRICES), len(sets), len(x), family.width)), []
    with warnings.catch_warnings(), fixed_threads(1):
        warnings.simplefilter("ignore")
        for fold in range(folds.count):
            known, held = np.flatnonzero(part != fold), np.flatnonzero(part == fold)
            count = weight[known]
            starts.append(family.learned(family.base, plain[known], known, count, plain[:1]))
            every[:, :, held] = starts[-1]
            for number in (number for number, columns in enumerate(sets) if columns and len(held)):
                how = {} if networks[number] else FEW_TREES
                kinds = {"categorical_features": of_levels[of_trees[number]]}
                family.boosting.set_params(**{**TREES, **how, **kinds})
                linear = family.linear, plain[:, read[number]]
                boosting = family.boosting, binned[:, of_trees[number]]
                for predictor, (kind, values) in enumerate((linear, boosting), 1):
                    outputs = family.learned(kind, values[known], known, count, values[held])
                    every[predictor, number, held] = outputs
        of_networks = np.array(networks)
        every[3:] = every[1:3].mean(0)
        if of_networks.any():
            start = torch.from_numpy(np.stack(starts)).float()
            every[3:, of_networks] = _networks(
                scaled, place, read[of_networks], family, start, part, weight, seed
            )
            if isinstance(family, _Responses):  # A network learns means.
                every[3:, ..., 1] = every[2, ..., 1]
        return _pooled(family, every, of_networks, part, weight, seed)


def _binned(values: Array) -> Array:
    bins = np.empty_like(values)
    for place, column in enumerate(values.T):
        edges = np.unique(column)
        if len(edges) > BINS:
            edges = np.unique(np.quantile(column, np.linspace(0.0, 1.0, BINS + 1)[1:-1]))
        bins[:, place] = np.searchsorted(edges, column)
    return bins


def _networks(
    x: Tensor,
    entries: Array,
    read: Any,
    family: Any,
    start: Tensor,
    part: Array,
    count: Array,
    seed: int,
) -> Array:
    """Outputs of held-out rows, `(Q, S, N, O)`, by one batch of networks: of each of Q prices, fold
    and set one that reads the features of the set, `(S, D)`, and learns outside the fold.

    A price is of a group lasso of the weights by which an entry is read. Networks of a price and
    fold go on from one that reads every feature, so that without an entry that is not read they
    predict as with it.
    """
    draw, folds, (sets, inputs) = torch.Generator().manual_seed(seed), len(start), read.shape
    x, rows, kinds = x.float(), len(x), len(PRICES)
    larger = max(1.0, math.sqrt(rows / 2000))
    batch_rows = min(MOST_BATCH, round(BATCH * larger))
    of_entry = torch.from_numpy(np.eye(entries.max() + 1)[entries]).float()
    price = of_entry.sum(0).sqrt() * torch.tensor(PRICES)[:, None] / math.sqrt(rows)
    times = torch.from_numpy((part != np.arange(folds)[:, None]) * count).float()
    price, times = price.repeat_interleave(folds, 0), times.repeat(kinds, 1)

    def uniform(*shape: int, scale: float = 1.0) -> Tensor:
        bound = scale / math.sqrt(shape[0])
        drawn = torch.empty(folds, *shape).uniform_(-bound, bound, generator=draw)
        return drawn.repeat(kinds, 1, 1)

    def outputs(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        inner = torch.baddbmm(weights[3], x.expand(len(weights[0]), -1, -1), weights[0])
        inner = torch.baddbmm(weights[4], relu(inner), weights[1])
        return torch.baddbmm(weights[5], relu(inner), weights[2])

    def learn(steps: int, ends: bool) -> None:
        """Adam's steps of `weights`, whose rate falls where it ends."""
        steps = round(steps * min(MOST_STEPS, larger))
        steps = max(40, min(steps, EPOCHS * math.ceil(rows / BATCH)))
        order = torch.empty(0, dtype=torch.long)
        optimizer = EagerAdam([weight.requires_grad_() for weight in weights], lr=RATE, fused=True)
        for step in range(1, steps + 1):
            while len(order) < batch_rows:
                order = torch.cat([order, torch.randperm(rows, generator=draw)])
            batch, order = order[:batch_rows], order[batch_rows:]
            if ends:
                optimizer.param_groups[0]["lr"] = RATE * min(1.0, 2.02 - 2.0 * step / steps)
            first = weights[0] * mask
            of_rows = family.loss(outputs(x[batch], [first, *weights[1:]]), batch)
            of_entries = price * (first.square().sum(-1) @ of_entry + 1e-8).sqrt()
            squares = torch.stack([weight.square().sum() for weight in weights[:3]])
            loss = (of_rows * times[:, batch]).mean(1).sum() + of_entries.sum()
            optimizer.zero_grad()
            (loss + RIDGE / rows * squares.sum()).backward()
            optimizer.step()

    width = start.shape[-1]
    weights = [uniform(inputs, WIDTH), uniform(WIDTH, WIDTH), uniform(WIDTH, width, scale=0.1)]
    weights += [torch.zeros(kinds * folds, 1, WIDTH) for _ in range(2)]
    weights.append(start.repeat(kinds, 1, 1))
    mask, held_outputs = torch.ones(1, inputs, 1), np.empty((kinds, sets, rows, width))
    with flushed_denormals():
        learn(STEPS, ends=False)
        weights = [weight.detach().repeat_interleave(sets, 0) for weight in weights]
        price, times = (numbers.repeat_interleave(sets, 0) for numbers in (price, times))
        mask = torch.from_numpy(read).float().repeat(kinds * folds, 1)[..., None]
        learn(STEPS_OF_SETS, ends=True)
        with torch.no_grad():
            weights[0] = weights[0] * mask
            for network in range(kinds * folds):
                kind, held = network // folds, part == network % folds
                of_network = [weight[network * sets : (network + 1) * sets] for weight in weights]
                held_outputs[kind][:, held] = (
                    outputs(x[torch.from_numpy(held)], of_network).double().numpy()
                )
    return held_outputs


def _pooled(
    family: Any, every: Array, networks: Any, part: Array, count: Array, seed: int
) -> Array:
    """log p and errors, `(2, S, N)`, of the outputs of Q predictors `(Q, S, N, O)` averaged by
    weights that make the rows of all other folds likeliest, by exponentiated gradient from even
    weights. Sets with networks have the same weights, and those without, so that sets which are
    compared differ in what they read alone."""
    scores_and_errors, draw = np.empty((2, *every.shape[1:3])), np.random.default_rng(seed)
    rate = POOL_RATE * min(1.0, every.shape[2] / 2000)
    alike = [sets for sets in (np.flatnonzero(networks), np.flatnonzero(~networks)) if len(sets)]
    for fold in np.unique(part):
        held, known = np.flatnonzero(part == fold), np.flatnonzero(part != fold)
        rows = known
        if len(rows) > POOL_ROWS:
            rows = np.sort(draw.choice(known, POOL_ROWS, replace=False))
        share = torch.from_numpy(count[rows] / count[rows].sum()).float()
        for sets in alike:
            judged_sets = sets[np.unique(np.linspace(0, len(sets) - 1, POOL_SETS).astype(int))]
            others = torch.from_numpy(every[:, judged_sets[:, None], rows]).float()
            # Labels have their outputs averaged alike, responses means and scales each by itself.
            alone = isinstance(family, _Responses)
            score = torch.zeros(len(every), family.width if alone else 1)
            for _ in range(POOL_STEPS):
                weight = score.softmax(0)[:, None, None]
                outputs = (weight * others).sum(0).requires_grad_()
                loss = family.pooled_loss(outputs, torch.from_numpy(rows), share)
                (slope,) = torch.autograd.grad(loss.mean(), outputs)
                downhill = torch.einsum("qsno,sno->qo", others, slope)
                score = score - rate * (downhill if alone else downhill.sum(1, keepdim=True))
            weights = score.softmax(0).double().numpy()[:, None, None]
            of_known, of_held = (
                (weights * every[:, sets[:, None], places]).sum(0) for places in (known, held)
            )
            place = np.ix_(sets, held)
            densities = family.log_density(of_held, held, of_known, known, count[known])
            scores_and_errors[0][place], scores_and_errors[1][place] = (
                densities,
                family.errors(of_held, held),
            )
    return scores_and_errors
