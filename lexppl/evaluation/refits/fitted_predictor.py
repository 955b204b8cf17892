"""Predictors fitted to judge: sizes from the training data; the one that sees all of x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lexppl.evaluation.prediction import (
    PredictionScores,
    prediction_scores,
    predictive,
    predictive_log_likelihood,
)
from lexppl.inference import FitResult, NestedIWAE, fit
from lexppl.inference.batches import Data, TensorRows, rows_of
from lexppl.models import (
    MLP,
    Architecture,
    CategoricalLikelihood,
    Likelihood,
    NormalLikelihood,
    Predictor,
    UnmaskedPredictor,
)
from lexppl.models.networks import ScaledOutput

HIDDEN = (200, 200, 200)
"""Widths of a perceptron's hidden layers, by default."""
TRAINING: Mapping[str, Any] = {
    "epochs": 100,
    "batch_size": 500,
    "learning_rate": 1e-3,
    "weight_decay": 1e-4,
    "patience": 20,
}
"""How a predictor is trained, where nothing else is chosen."""


def fit_program(
    model: nn.Module,
    train: Data,
    objective: NestedIWAE,
    training: Mapping[str, Any],
    **options: Any,
) -> FitResult:
    """Fit a program with a predictor's defaults (:data:`TRAINING`) in place of an explainer's."""
    return fit(model, train, objective=objective, **options, **{**TRAINING, **training})


class TrainingShape(NamedTuple):
    """Shape, type and device of a training row, all y, None of a loader, and C where it is
    known."""

    event: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    y: Tensor | None
    classes: int | None


def training_shape(train: Data) -> TrainingShape:
    """The shape of a data set, `(x, y)`, or a loader's first batch."""
    if isinstance(train, DataLoader):
        first = next(iter(train), None)
        if not isinstance(first, list | tuple) or len(first) < 2:
            raise ValueError("train: the loader must give batches of (x, y)")
        x, y = first[0], None
    else:
        rows = rows_of(train, torch.get_default_dtype(), "train")
        if not isinstance(rows, TensorRows) or len(rows.columns) < 2:
            raise ValueError("train must have x and y; it has no y")
        x, y = rows.columns[:2]
    return TrainingShape(
        tuple(x.shape[1:]), x.dtype, x.device, y, getattr(train, "n_classes", None)
    )


def predictor_for(
    data: TrainingShape,
    network: nn.Module | None,
    hidden: Sequence[int],
    likelihood: Likelihood | None,
    seed: int,
    architecture: Architecture | None = None,
) -> Predictor:
    """A predictor of y, with what is not given chosen by the data: network, likelihood and their
    units."""
    y, table = data.y, architecture is None
    if architecture is not None and (
        data.event not in (architecture.event_shape, architecture.hidden_shape)
        or network is not None
        or tuple(hidden) != HIDDEN
    ):
        raise ValueError(
            f"the architecture has rows {architecture.event_shape} and networks of its own; train "
            f"has rows {data.event}: leave network= and hidden= out, or the architecture"
        )
    if y is None and (network is None or likelihood is None):
        raise ValueError(
            "a loader does not say the classes of y: give network= and likelihood=, or tensors"
        )
    if table and network is None and len(data.event) != 1:
        raise ValueError(
            f"rows of shape {data.event} need a network=, or an architecture= such as "
            "lexppl.models.images(…); a perceptron takes tables"
        )
    response = y is not None and y.is_floating_point() and y.dim() == 1
    shift, scale = 0.0, 1.0
    if y is not None and response:
        shift = float(y.double().mean())
        scale = (float(y.double().std()) if len(y) > 1 else 0.0) or 1.0
    if likelihood is None:
        likelihood = NormalLikelihood(scale) if response else CategoricalLikelihood()
        likelihood = likelihood.to(data.device, data.dtype)
    if network is None:
        outputs = 1
        if isinstance(likelihood, CategoricalLikelihood) and y is not None:
            outputs = data.classes or (int(y.shape[1]) if y.dim() == 2 else int(y.max()) + 1)
        if architecture is None:
            network = MLP(data.event[0], outputs, hidden, seed=seed)
        else:
            network = architecture.predictor(outputs, seed)
        network = network.to(data.device, data.dtype)
        if response and isinstance(likelihood, NormalLikelihood):
            network = ScaledOutput(network, shift, scale)
    return Predictor(network, likelihood, event_dim=len(data.event))


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
        """Probabilities `(N, C)`, or means `(N,)` of responses."""
        return predictive(self.result, x, masks=1)[self.result.best]

    def scores(self, x: Tensor, y: Tensor) -> PredictionScores:
        """Scores of the predictions, the log-likelihood among them."""
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
    **training: Any,
) -> FittedPredictor:
    """Fit the predictor that sees everything, `max_θ Σ_n log Φ(y_n | f_θ(x_n))`.

    Args:
        train, valid, architecture, network, hidden, likelihood: as
            :func:`lexppl.evaluation.fit_evalx`.
        replicates: R seeds trained at once; the best one predicts, and all are in `result`.
        training: as :func:`lexppl.evaluation.fit_evalx`, and sample_weight.

    Raises:
        ValueError, TypeError: as `fit`; data from which the network's sizes are not known.

    Example:
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
    options = {"valid": valid, "replicates": replicates, "seed": seed}
    program = UnmaskedPredictor(predictor)
    return FittedPredictor(fit_program(program, train, NestedIWAE(1), training, **options))
