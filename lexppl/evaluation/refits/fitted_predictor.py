"""A predictor that sees all of x, the reference for what masks can lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from torch import Tensor, nn

from lexppl.evaluation.prediction import (
    PredictionScores,
    prediction_scores,
    predictive,
    predictive_log_likelihood,
)
from lexppl.evaluation.refits.predictor_fit import (
    HIDDEN,
    TrainingOptions,
    fit_program,
    predictor_for,
    training_shape,
)
from lexppl.inference import FitResult, NestedIWAE
from lexppl.inference.batches import Data
from lexppl.models import Architecture, Likelihood, UnmaskedPredictor


@dataclass(frozen=True, eq=False)
class FittedPredictor:
    """A predictor that sees all of x: see :func:`fit_predictor`.

    Args:
        result: the fit of a :class:`lexppl.models.UnmaskedPredictor`; of several replicates the
            best one predicts.
    """

    result: FitResult

    @property
    def predictor(self) -> Any:
        """The distribution of y given x: a black box for the post-hoc regimes."""
        return self.result.model.predictor

    def predict(self, x: Tensor) -> Tensor:
        """Probabilities `(N, C)`, or means `(N,)` of responses.

        Raises:
            ValueError: rows unlike those of the fit.
        """
        return predictive(self.result, x, masks=1)[self.result.best]

    def scores(self, x: Tensor, y: Tensor) -> PredictionScores:
        """Scores of the predictions, the log-likelihood among them.

        Raises:
            ValueError: as :meth:`predict`; labels not seen in the fit.
        """
        likelihood = predictive_log_likelihood(self.result, x, y, masks=1)[self.result.best]
        return prediction_scores(self.predict(x), y, log_likelihood=likelihood)


def fit_predictor(
    train: Data,
    *,
    valid: Data | float | None = 0.2,
    architecture: Architecture | None = None,
    network: nn.Module | None = None,
    hidden: Sequence[int] = HIDDEN,
    likelihood: Likelihood | None = None,
    replicates: int = 1,
    seed: int = 0,
    **training: Unpack[TrainingOptions],
) -> FittedPredictor:
    """Fit the predictor that sees everything, `max_θ Σ_n log Φ(y_n | f_θ(x_n))`.

    Args:
        train, valid, architecture, network, hidden, likelihood: as
            :func:`lexppl.evaluation.fit_evalx`.
        replicates: R seeds trained at once; the best one predicts, and all are in `result`.
        seed: of initial weights and batches.
        training: epochs (100), batch_size (500), learning_rate (1e-3), weight_decay (1e-4),
            patience (20), progress (True), sample_weight, checkpoint: as in
            :func:`lexppl.inference.fit`.

    Raises:
        ValueError, TypeError: as `fit`; data from which the network's sizes cannot be told.

    Example:
        >>> import torch
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> full = fit_predictor((x, y), hidden=(16,), epochs=20, batch_size=50,
        ...     learning_rate=1e-2, progress=False)
        >>> full.scores(x, y).accuracy > 0.9
        True
    """
    predictor = predictor_for(
        training_shape(train), network, hidden, likelihood, seed, architecture
    )
    result = fit_program(
        UnmaskedPredictor(predictor),
        train,
        NestedIWAE(1),
        valid=valid,
        replicates=replicates,
        seed=seed,
        training=training,
    )
    return FittedPredictor(result)
