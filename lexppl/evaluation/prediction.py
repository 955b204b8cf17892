"""Predictive distributions of fitted explainers on new rows, their scores, and errors of means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from lexppl.argument_checks import refuse_not_finite, shaped
from lexppl.evaluation.folds import Folds, judged
from lexppl.explanation.row_draws import shares
from lexppl.explanation.sampler import log_likelihood, log_weights, outcome, read_runs
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.training.result import FitResult
from lexppl.models.likelihoods import response_likelihood


@dataclass(frozen=True)
class PredictionScores:
    """Accuracy, :func:`auroc` and :func:`average_precision` of labels, or RMSE and R² of responses;
    and the mean log p(y | x) in nats."""

    accuracy: float | None = None
    auroc: float | None = None
    log_likelihood: float | None = None
    rmse: float | None = None
    r2: float | None = None
    average_precision: float | None = None


def predictive(
    result: FitResult,
    x: Tensor,
    *,
    masks: int = 50,
    imputations: int = 1,
    seed: int = 0,
    site: str = "y",
) -> Tensor:
    """The predictive distribution of each replicate, probabilities `(R, N, C)` or of responses its
    mean `(R, N)`, by Monte Carlo over masks and imputations:

        p(y = c | x) = 1/(LK) Σ_{l,k} p(y = c | x̃_{l,k}),   z_l ~ p(z|x),  x̃_{l,k} ~ p(x̃|x, z_l).

    Unbiased for every L and K (Senetaire et al. 2023, eq. 4). A guide of masks, which has seen y,
    takes no part; latents outside the particle plates are drawn L times from their guide. Where the
    program observes something without y, the mean is weighed by it, as in :func:`lexppl.explain`.

    Args:
        x: rows, `(N, *event)`.
        masks, imputations: L and K.
        site: name of the program's outcome.

    Raises:
        ValueError: rows unlike those of the fit; counts below 1; a program without the site, or
            with a latent outside its particle plates that no guide covers.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> system = lex(3, classes=2, k=1, hidden=(8,), predictor_hidden=(8,))
        >>> result = fit(system, (x, (x[:, 0] > 0).long()), epochs=1, progress=False)
        >>> predictive(result, x, masks=10).shape
        torch.Size([1, 100, 2])
    """
    result.check(x)

    def read(runs: Iterator[ParticleTrace], _: slice) -> dict[str, Tensor]:
        values, weights = [], []
        for run in runs:
            values.append(outcome(run, site))
            if run.beside:
                # Particles count as what is observed without y is likely under them.
                weight = log_weights(run.weighing(run.beside))
                size = torch.broadcast_shapes(weight.shape, values[-1].shape[:3])
                values[-1] = values[-1].expand(*size, *values[-1].shape[3:])
                weights.append(weight.expand(size).flatten(0, 1))
        if not weights:
            return {"y": torch.stack([value.mean((0, 1)) for value in values]).mean(0)}
        share = shares(torch.cat(weights))
        particles = torch.cat([value.flatten(0, 1) for value in values])
        return {"y": (share.reshape(*share.shape, *[1] * (particles.dim() - 2)) * particles).sum(0)}

    return read_runs(result, (x,), read, masks, imputations, seed)["y"]


def predictive_log_likelihood(
    result: FitResult, x: Tensor, y: Tensor, *, masks: int = 50, imputations: int = 1, seed: int = 0
) -> Tensor:
    """Log-likelihood of each row under each replicate's predictive distribution, `(R, N)`, in nats:

        log 1/(LK) Σ_{l,k} p(y | x̃_{l,k}),

    the bound ℒ_{L,K} of the fit (LEX, eq. 8), without penalties; it rises to `log p(y | x)` with
    L and K. Where the program observes something without y, its own bound is subtracted.

    Args:
        result, x, masks, imputations, seed: as in :func:`predictive`.
        y: labels or responses `(N,)`, or a black box's probabilities `(N, C)`, of which it is the
            expectation `Σ_c y_c log p(c | x)`.

    Raises:
        ValueError: as :func:`predictive`; a label not seen in the fit.
    """
    result.check(x, y)

    def read(runs: Iterator[ParticleTrace], rows: slice) -> dict[str, Tensor]:
        bound = log_likelihood(runs)
        if bound.dim() > 1:
            # Σ_c y_c log p(c | x): labels of probability 0 count nothing.
            share = y[rows].mT
            bound = torch.where(share > 0.0, share * bound, 0.0).sum(0)
        return {"y": bound}

    return read_runs(result, (x, y), read, masks, imputations, seed)["y"]


def prediction_scores(
    predictions: Tensor, y: Tensor, *, log_likelihood: Tensor | None = None
) -> PredictionScores:
    """Score one replicate's predictions.

    Args:
        predictions: probabilities `(N, C)` where `y` holds labels, means `(N,)` where it holds
            responses.
        y: labels 0 … C−1 (of an integer type), or responses (floating), `(N,)`.
        log_likelihood: `log p(y | x)` of each row in nats, `(N,)`; of labels, if None, that of the
            probabilities.

    Raises:
        ValueError: shapes that do not fit, no rows, values that are not finite, probabilities
            that do not sum to 1, labels outside 0 … C−1.

    Example:
        >>> p = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
        >>> scores = prediction_scores(p, torch.tensor([0, 1, 1]))
        >>> round(scores.accuracy, 4), scores.auroc, round(scores.log_likelihood, 4)
        (0.6667, 1.0, -0.3406)
    """
    responses = y.is_floating_point()
    (rows,) = shaped("y", y, "N", filled=True)
    kind = "probabilities of one replicate where y holds labels"
    if responses:
        kind = "means where y holds responses; labels have an integer type"
    form = (rows,) if responses else (rows, "C")
    classes = shaped("predictions", predictions, form, note=kind)[-1]
    if log_likelihood is not None:
        shaped("log_likelihood", log_likelihood, y.shape)
    refuse_not_finite("predictions", predictions)
    refuse_not_finite("y", y)
    likelihood = None if log_likelihood is None else float(log_likelihood.double().mean())
    exact = predictions.double()
    if responses:
        truth = y.double()
        error = (exact - truth).square().sum()
        spread = float((truth - truth.mean()).square().sum())
        return PredictionScores(
            log_likelihood=likelihood,
            rmse=float((error / len(y)).sqrt()),
            r2=1.0 - float(error) / spread if spread > 0.0 else math.nan,
        )
    if bool((predictions < 0.0).any()) or float((predictions.sum(1) - 1.0).abs().max()) > 1e-3:
        raise ValueError("predictions must be probabilities, each row summing to 1")
    if int(y.min()) < 0 or int(y.max()) >= classes:
        raise ValueError(f"y must hold 0 to {classes - 1}, not {int(y.min())} to {int(y.max())}")
    chosen = exact.gather(1, y.long()[:, None]).squeeze(1)
    return PredictionScores(
        accuracy=float((exact.argmax(1) == y).double().mean()),
        auroc=auroc(predictions, y),
        log_likelihood=float(chosen.log().mean()) if likelihood is None else likelihood,
        average_precision=average_precision(predictions, y),
    )


def auroc(probabilities: Tensor, y: Tensor) -> float:
    """Area under the ROC curve, 0 … 1: of the second class of two, else the mean over classes of
    one against the rest, over the classes that some rows have and some have not; NaN where all rows
    have one label.

    Args:
        probabilities: `(N, C)`.
        y: labels, `(N,)`.

    Raises:
        ValueError: shapes that do not fit, values that are not finite.

    Example:
        >>> auroc(torch.eye(3), torch.arange(3))
        1.0
    """
    classes = [1] if probabilities.shape[-1] == 2 else range(probabilities.shape[-1])
    return _mean_over_labels(_area, classes, probabilities, y)


def _area(is_label: NDArray[np.bool_], p: NDArray[np.float64]) -> float:
    """Mann and Whitney's U of the rows of a label, over the number of pairs with another row."""
    count = int(is_label.sum())
    more = rankdata(p)[is_label].sum() - count * (count + 1) / 2
    return float(more / (count * (len(p) - count)))


def average_precision(probabilities: Tensor, y: Tensor) -> float:
    """`Σ_n (R_n − R_{n−1}) P_n` over the rows by falling probability, of the rarer label of two,
    else the mean over labels of one against the rest; NaN where all rows have one label."""
    classes: Sequence[int] = range(probabilities.shape[-1])
    if len(classes) == 2:
        classes = [0 if 2 * int((y == 0).sum()) < len(y) else 1]
    from sklearn.metrics import average_precision_score  # noqa: PLC0415 - slow to import

    return _mean_over_labels(average_precision_score, classes, probabilities, y)


def _mean_over_labels(
    metric: Callable[[Any, Any], float], classes: Sequence[int], probabilities: Tensor, y: Tensor
) -> float:
    """The mean of a metric of each label against the rest."""
    shaped("y", y, shaped("probabilities", probabilities, "N C")[:1])
    refuse_not_finite("probabilities", probabilities)
    values, labels = probabilities.detach().cpu().double().numpy(), y.cpu().numpy()
    mixed = [c for c in classes if 0 < (labels == c).sum() < len(labels)]
    by_label = [float(metric(labels == c, values[:, c])) for c in mixed]
    return sum(by_label) / len(by_label) if by_label else math.nan


def mean_errors(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Standard errors of the means over the last axis of `(P, N)`, NaN of one value: with weights
    `(N,)` and `m = Σ w v / Σ w` it is `√(N / (N − 1) · Σ w² (v − m)²) / Σ w`."""
    count = values.shape[1]
    if count < 2:
        return np.full(len(values), math.nan)
    if weights is None:
        return values.std(1, ddof=1) / math.sqrt(count)
    far = values - np.average(values, axis=1, weights=weights)[:, None]
    return np.sqrt(((weights * far) ** 2).sum(1) * count / (count - 1)) / weights.sum()


def more_by_errors(
    more: np.ndarray, weights: np.ndarray | None = None, errors: float = 1.0
) -> bool:
    """Whether the mean of differences `(N,)` is above so many standard errors of it."""
    error = float(mean_errors(more[None], weights)[0])
    return float(np.average(more, weights=weights)) > errors * error


class BehindWarning(UserWarning):
    """Held-out rows are less likely by an explainer than by a predictor of all features."""


BEHIND = 2.0
LEAST_BEHIND = 0.02
"""Standard errors, and the share of what all features say, by which predictions are worse."""


def is_behind(
    explained: np.ndarray, full: np.ndarray, base: np.ndarray, weights: np.ndarray | None = None
) -> bool:
    """Whether rows are less likely by an explainer than by a predictor of all features, by over two
    standard errors of the rows' differences and a fiftieth of what the predictor gains over the
    base rate, which is two standard errors or more.

    Args:
        explained, full, base: log p of each held-out row by explainer, predictor and base rate.
    """
    more, gain = full - explained, full - base
    least = LEAST_BEHIND * float(np.average(gain, weights=weights))
    shown = more_by_errors(gain, weights, BEHIND) and more_by_errors(more, weights, BEHIND)
    return shown and float(np.average(more, weights=weights)) > least


def behind_sentence(scores: Mapping[str, Any], full: Mapping[str, Any], kind: str = "") -> str:
    """That an explainer predicts worse than a predictor of all features, of a kind, with their
    scores by the names of :class:`PredictionScores`."""
    name, words = ("r2", "R²") if scores.get("accuracy") is None else ("accuracy", "accuracy")
    return (
        f"the explainer predicts held-out rows worse than {kind or 'a network'} of all features: "
        f"log-likelihood {scores['log_likelihood']:.3f} against {full['log_likelihood']:.3f} nats "
        f"a row, by more than two standard errors, and {words} {scores[name]:.3f} against "
        f"{full[name]:.3f}"
    )


@dataclass(frozen=True)
class BaseRateGain:
    """The mean of `log p(y | x) − log p(y)` over N `rows` and replicates, in nats, and its
    `error`."""

    nats: float
    error: float
    rows: int

    @property
    def shown(self) -> bool:
        """Whether the gain is above 0 by more than two standard errors."""
        return self.nats > 2.0 * self.error


def gain_over_base_rate(
    result: FitResult,
    train_y: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    masks: int = 50,
    seed: int = 0,
    folds: Folds | None = None,
) -> BaseRateGain:
    """Held-out log-likelihood of an explainer's predictive distribution against one that knows
    nothing of x,

        1/N Σ_n [ mean_r log p_r(y_n | x_n) − log p(y_n) ],

    with `p(y)` the labels' frequencies in the training rows, one row of each label added, or the
    normal distribution with their mean and standard deviation. The error is over rows, given the
    fit.

    Args:
        train_y: labels or responses of the training rows `(M,)`, or probabilities `(M, C)`.
        x, y: held-out rows, `(N, *event)`, and what they observe, as `train_y`.
        folds: of the rows, where each is held out by one of the replicates alone.

    Raises:
        ValueError: as :func:`lexppl.evaluation.predictive_log_likelihood`; y of another kind than
            train_y.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> system = lex(2, classes=2, k=1, hidden=(8,), predictor_hidden=(8,))
        >>> result = fit(system, (x[:300], y[:300]), epochs=20, batch_size=50, learning_rate=1e-2,
        ...     progress=False)
        >>> gain_over_base_rate(result, y[:300], x[300:], y[300:]).shown
        True
    """
    if train_y.dim() != y.dim() or train_y.is_floating_point() != y.is_floating_point():
        raise ValueError(
            f"train_y and y must be of one kind; they are {train_y.dtype} of shape "
            f"{tuple(train_y.shape)} and {y.dtype} of shape {tuple(y.shape)}"
        )
    likelihoods = judged(folds, predictive_log_likelihood, result, x, y, masks=masks, seed=seed)
    gained = likelihoods.double().mean(0) - base_log_likelihood(train_y, y)
    rows = len(gained)
    error = float(gained.std() / math.sqrt(rows)) if rows > 1 else math.nan
    return BaseRateGain(float(gained.mean()), error, rows)


def base_log_likelihood(train_y: Tensor, y: Tensor) -> Tensor:
    """`log p(y)` of labels, probabilities `(N, C)` or responses, by the base rate, `(N,)`."""
    if y.dim() == 2:
        return y.double() @ base_frequencies(train_y).log()
    if y.is_floating_point():
        return base_density(train_y, y)
    return base_frequencies(train_y, int(y.max()) + 1).log()[y]


def base_frequencies(train_y: Tensor, classes: int = 0) -> Tensor:
    """The labels' frequencies in training rows, one row of each label added, `(C,)`."""
    if train_y.dim() == 2:
        return (train_y.double().sum(0) + 1.0) / (len(train_y) + train_y.shape[1])
    counts = torch.bincount(train_y, minlength=classes).double() + 1.0
    return counts / counts.sum()


def base_density(train_y: Tensor, y: Tensor) -> Tensor:
    """`log p(y)` of responses by the distribution of those of the training rows, normal or of a
    heavy tail Student's t (:func:`lexppl.models.likelihoods.response_likelihood`), `(N,)`."""
    likelihood, location = response_likelihood(train_y)
    outputs = torch.full_like(y, location, dtype=torch.float64).unsqueeze(-1)
    with torch.no_grad():
        return likelihood.to(outputs)(outputs).log_prob(y.double())


LEAST_RARE = 20
"""Held-out rows with another label than the commonest, of fewer of which a test says too much. Of
some 8 in 400 rows .18 ± .04 of what gains find in planted tables was false at a rate of .1,
of 20 to 40 in 2,000 .06 to .11. By ten of 1,000 a choice without a leak seemed to leak in two
tables of 16, by twenty in one of 32."""


def rare_rows(y: Tensor) -> int | None:
    """How many rows have another label than the commonest; None without labels."""
    return None if y.is_floating_point() else len(y) - int(y.bincount().max())
