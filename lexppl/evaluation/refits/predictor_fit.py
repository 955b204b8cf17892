"""The fit of a predictor whose sizes are read off its training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lexppl.inference import Checkpoints, FitResult, NestedIWAE, fit
from lexppl.inference.batches import Data, TensorRows, rows_of
from lexppl.inference.schedules import Schedule
from lexppl.inference.training.watch import Progress
from lexppl.models import (
    MLP,
    Architecture,
    CategoricalLikelihood,
    Likelihood,
    NormalLikelihood,
    Predictor,
    ScaledOutput,
)

HIDDEN = (200, 200, 200)
"""Widths of a perceptron's hidden layers, where none are given."""


class TrainingOptions(TypedDict, total=False):
    """How a predictor is trained: arguments of :func:`lexppl.inference.fit`, with the defaults
    `epochs=100, batch_size=500, learning_rate=1e-3, weight_decay=1e-4, patience=20,
    progress=True, row_weights=None, sample_weight=None, checkpoint=None`."""

    epochs: int
    batch_size: int
    learning_rate: float | Schedule
    weight_decay: float
    patience: int | None
    progress: Progress
    row_weights: Any
    sample_weight: Any
    checkpoint: str | Path | Checkpoints | None


def fit_program(
    model: nn.Module,
    train: Data,
    objective: NestedIWAE,
    *,
    valid: Data | float | None,
    replicates: int,
    seed: int,
    training: TrainingOptions,
) -> FitResult:
    """Fit a program with a predictor's defaults in place of an explainer's.

    Raises:
        TypeError: options that are none of :class:`TrainingOptions`.
        ValueError, TypeError: as :func:`lexppl.inference.fit`.
    """
    known = TrainingOptions.__optional_keys__
    unknown = sorted(set(training) - known)
    if unknown:
        raise TypeError(f"{unknown} are no options of a predictor's fit, {sorted(known)}")
    defaults: dict[str, Any] = {
        "epochs": 100,
        "batch_size": 500,
        "learning_rate": 1e-3,
        "weight_decay": 1e-4,
        "patience": 20,
    }
    return fit(
        model,
        train,
        valid=valid,
        objective=objective,
        replicates=replicates,
        seed=seed,
        **{**defaults, **training},
    )


@dataclass(frozen=True)
class TrainingShape:
    """What a predictor must know of its training data before it can be built.

    Args:
        event: shape of a row.
        dtype: of x.
        device: of x.
        y: all labels, responses or probabilities; None where a loader gives them batch by batch.
        classes: C, where the data set says so.
    """

    event: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    y: Tensor | None
    classes: int | None


def training_shape(train: Data) -> TrainingShape:
    """Look at a data set, `(x, y)`, or a loader's first batch.

    Raises:
        ValueError, TypeError: no x and y, or as :func:`lexppl.inference.batches.rows_of`.

    Example:
        >>> training_shape((torch.zeros(2, 3), torch.tensor([0, 1]))).event
        (3,)
    """
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
    """A predictor of y, with what is not given chosen by the data: a perceptron, or an
    architecture's predictor, and a categorical distribution of labels or a normal one of responses
    in their own units.

    Raises:
        ValueError: data from which it cannot be chosen, an architecture of other rows, or beside a
            network or the widths of one.
    """
    if architecture is not None:
        _check_architecture(architecture, data, network, hidden)
    y = data.y
    if y is None and (network is None or likelihood is None):
        raise ValueError(
            "a loader does not tell the classes of y: give network= and likelihood=, or tensors"
        )
    response = y is not None and y.is_floating_point() and y.dim() == 1
    shift, scale = _mean_and_deviation(y) if y is not None and response else (0.0, 1.0)
    if likelihood is None:
        likelihood = NormalLikelihood(scale) if response else CategoricalLikelihood()
        likelihood = likelihood.to(data.device, data.dtype)
    if network is None:
        if architecture is None and len(data.event) != 1:
            raise ValueError(
                f"rows of shape {data.event} need a network=, or an architecture= such as "
                "lexppl.models.images(…); a perceptron takes tables"
            )
        categorical = isinstance(likelihood, CategoricalLikelihood)
        outputs = (data.classes or _classes(y)) if categorical and y is not None else 1
        if architecture is None:
            network = MLP(data.event[0], outputs, hidden, seed=seed)
        else:
            network = architecture.predictor(outputs, seed)
        network = network.to(data.device, data.dtype)
        if response and isinstance(likelihood, NormalLikelihood):
            network = ScaledOutput(network, shift, scale)
    return Predictor(network, likelihood, event_dim=len(data.event))


def _check_architecture(
    architecture: Architecture,
    data: TrainingShape,
    network: nn.Module | None,
    hidden: Sequence[int],
) -> None:
    if data.event not in (architecture.event_shape, architecture.hidden_shape):
        raise ValueError(
            f"the architecture is of rows {architecture.event_shape}; those of train are "
            f"{data.event}"
        )
    if network is not None:
        raise ValueError("give either a network, or an architecture, which has one")
    if tuple(hidden) != HIDDEN:
        raise ValueError(
            "hidden= is of a table's perceptron; an architecture has networks of its own"
        )


def _classes(y: Tensor) -> int:
    return int(y.shape[1]) if y.dim() == 2 else int(y.max()) + 1


def _mean_and_deviation(y: Tensor) -> tuple[float, float]:
    deviation = float(y.double().std()) if len(y) > 1 else 0.0
    return float(y.double().mean()), deviation if deviation > 0.0 else 1.0
