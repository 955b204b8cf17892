"""Remove and retrain: whether a predictor misses the features that are ranked highest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Unpack

import numpy as np
from scipy.integrate import trapezoid
from torch import Tensor, nn

from lexppl.evaluation.prediction import prediction_scores, predictive
from lexppl.evaluation.refits.entry_order import places, random_places
from lexppl.evaluation.refits.fitted_predictor import FittedPredictor, fit_predictor
from lexppl.evaluation.refits.hidden_entries import mask_entries, with_hidden
from lexppl.evaluation.refits.predictor_fit import HIDDEN, TrainingOptions
from lexppl.inference.predictive import drawing
from lexppl.models import Architecture, ConstantImputer, Grouping


@dataclass(frozen=True, eq=False)
class RoarScores:
    """Accuracy (for responses R², the share of their variance) after removal and refit.

    Args:
        fractions: the F removed shares of the entries, in rising order.
        removed: the number of entries of a row that each removes.
        accuracy: `(F, R)`, where the highest-ranked entries were removed, by replicate.
        random_accuracy: `(F, R)`, where as many random ones were.
    """

    fractions: tuple[float, ...]
    removed: tuple[int, ...]
    accuracy: np.ndarray
    random_accuracy: np.ndarray

    @property
    def area(self) -> np.ndarray:
        """Area under accuracy against fraction, divided by the range of the fractions, `(R,)`:
        the mean accuracy over them. Lower is a better ranking."""
        return self._area(self.accuracy)

    @property
    def random_area(self) -> np.ndarray:
        """The same of the random ranking, `(R,)`."""
        return self._area(self.random_accuracy)

    @property
    def advantage(self) -> float:
        """How far the ranking's area lies below that of the random one, mean over replicates; not
        above 0 for a ranking that is no better than chance."""
        return float((self.random_area - self.area).mean())

    def _area(self, accuracy: np.ndarray) -> np.ndarray:
        span = self.fractions[-1] - self.fractions[0]
        area: np.ndarray = trapezoid(accuracy, self.fractions, axis=0) / span
        return area


def roar(
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    train_ranking: Tensor,
    test_ranking: Tensor,
    *,
    fractions: Sequence[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
    replicates: int = 3,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
    valid: float = 0.2,
    architecture: Architecture | None = None,
    network: nn.Module | None = None,
    hidden: Sequence[int] = HIDDEN,
    seed: int = 0,
    **training: Unpack[TrainingOptions],
) -> RoarScores:
    """Replace each row's highest-ranked entries in training and test rows alike, refit, and see how
    much accuracy is lost; for several fractions, and for random entries beside.

    The refit makes the loss one of information: a predictor that was never shown the altered rows
    would also stumble over their being altered. Two limits: redundant features can stand in for the
    removed ones; and with a ranking of each row its own, *where* the replacements are can tell the
    label, so that accuracy may stay though all relevant entries are gone.

    Args:
        train: rows and their labels or responses, `((M, *event), (M,))`.
        test: the same, `((N, *event), (N,))`, of no fit.
        train_ranking: importances of the training rows, larger is more important, `(M, G)`.
        test_ranking: of the test rows, `(N, G)`.
        fractions: shares t of the G entries to remove, from 0 to 1, rising, two or more; `t·G` is
            rounded to a whole number.
        replicates: R predictors a fraction, trained at once from different initial weights.
        grouping: which features an entry stands for; the architecture's if None, or one entry a
            feature.
        imputer: distribution of the removed features; if None the mean of the training rows, as in
            the paper, or the architecture's where there is one.
        valid: share of the training rows that is set apart to choose the best epoch.
        architecture, network, hidden, training: as in :func:`~lexppl.evaluation.fit_predictor`.
        seed: of fits, imputations and the random ranking.

    Raises:
        ValueError: rankings of another shape or with NaN, fractions out of order; as
            `fit_predictor`.

    Source:
        Hooker, Erhan, Kindermans, Kim. A benchmark for interpretability methods in deep neural
        networks. NeurIPS 2019.

    Example:
        >>> import torch
        >>> x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> ranking = torch.tensor([0.9, 0.2, 0.1]).expand(200, 3)
        >>> scores = roar((x[:200], y[:200]), (x[200:], y[200:]), ranking, ranking,
        ...     fractions=(0.0, 0.4), replicates=1, hidden=(8,), epochs=20, batch_size=50,
        ...     learning_rate=1e-2, progress=False)
        >>> scores.removed, bool(scores.accuracy[0, 0] > 0.9), bool(scores.accuracy[1, 0] < 0.65)
        ((0, 1), True, True)
    """
    (x, y), (test_x, test_y) = _rows("train", train), _rows("test", test)
    if test_x.shape[1:] != x.shape[1:]:
        raise ValueError(
            f"rows of test must have the shape of train's, {tuple(x.shape[1:])}; they have "
            f"{tuple(test_x.shape[1:])}"
        )
    shares = _fractions(fractions)
    if grouping is None and architecture is not None:
        grouping = architecture.grouping
    entries = mask_entries(x, grouping)
    given = (
        places(train_ranking, len(x), entries, "train_ranking"),
        places(test_ranking, len(test_x), entries, "test_ranking"),
    )
    chance = (
        random_places(len(x), entries, seed, x.device),
        random_places(len(test_x), entries, seed + 1, x.device),
    )
    if imputer is None:
        imputer = _usual_imputer(x, architecture)
    counts = tuple(round(share * entries) for share in shares)

    def refitted(order: tuple[Tensor, Tensor], count: int) -> np.ndarray:
        with drawing(seed, x.device):
            altered, altered_test = (
                with_hidden(rows, place >= count, imputer, grouping)
                for rows, place in zip((x, test_x), order, strict=True)
            )
        full = fit_predictor(
            (altered, y),
            valid=valid,
            architecture=architecture,
            network=network,
            hidden=hidden,
            replicates=replicates,
            seed=seed,
            **training,
        )
        return _accuracy(full, altered_test, test_y)

    # Where nothing or everything is removed, the order does not matter: one fit serves both.
    by_count = {count: refitted(given, count) for count in dict.fromkeys(counts)}
    by_chance = {
        count: by_count[count] if count in (0, entries) else refitted(chance, count)
        for count in by_count
    }
    return RoarScores(
        shares,
        counts,
        np.stack([by_count[count] for count in counts]),
        np.stack([by_chance[count] for count in counts]),
    )


def _usual_imputer(x: Tensor, architecture: Architecture | None) -> nn.Module:
    """The mean of the training rows; an architecture's own, whose rows may have no mean."""
    if architecture is None:
        return ConstantImputer(x.mean(0))
    return architecture.imputer().to(x.device, x.dtype)


def _accuracy(full: FittedPredictor, x: Tensor, y: Tensor) -> np.ndarray:
    """Accuracy or R² of each replicate, `(R,)`."""
    full.result.check(x, y)
    scores = [prediction_scores(each, y) for each in predictive(full.result, x, masks=1)]
    return np.array([s.r2 if s.accuracy is None else s.accuracy for s in scores])


def _rows(name: str, given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"{name} must be a tuple (x, y) of tensors; it is {type(given).__name__}")
    x, y = given
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)) or not x.is_floating_point():
        raise TypeError(f"{name} must hold tensors, x a floating one")
    if y.dim() != 1 or len(x) != len(y) or len(x) == 0:
        raise ValueError(
            f"{name} must have rows x and as many labels or responses y, (N,); they have shapes "
            f"{tuple(x.shape)} and {tuple(y.shape)}"
        )
    for part, values in (("x", x), ("y", y)):
        if not bool(values.isfinite().all()):
            raise ValueError(f"{part} of {name} must be finite; it has NaN or infinite values")
    return x, y


def _fractions(fractions: Sequence[float]) -> tuple[float, ...]:
    shares = tuple(float(share) for share in fractions)
    rising = all(a < b for a, b in pairwise(shares))
    if len(shares) < 2 or not rising or not 0.0 <= shares[0] <= shares[-1] <= 1.0:
        raise ValueError(
            f"fractions must be two or more shares from 0 to 1, rising; they are {shares}"
        )
    return shares
