"""The methods that :func:`lexppl.compare.compare` knows by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from torch import Tensor

from lexppl.choices.compared import LIBRARIES
from lexppl.compare.captum import (
    gradient_x_input_importances,
    integrated_gradients_importances,
    saliency_importances,
)
from lexppl.compare.importances import (
    fit_tabnet,
    lime_importances,
    permutation_importances,
    shap_importances,
)
from lexppl.models import Grouping

Importances = Callable[[Tensor], Tensor]
"""From rows `(B, D)` to importances `(B, G)`."""


@dataclass(frozen=True, eq=False)
class ComparisonContext:
    """What every method starts from.

    Args:
        x: training rows, `(N, D)`.
        y: their labels or responses, `(N,)`.
        model: the model that is explained; None where no method explains one.
        grouping: which columns make a mask entry, or None.
        seed: of the methods' draws.
        model_seconds: of the model's fit, NaN where that is not known.
    """

    x: Tensor
    y: Tensor
    model: Any
    grouping: Grouping | None
    seed: int
    model_seconds: float = math.nan


@dataclass(frozen=True)
class Method:
    """A method by name.

    Args:
        prepare: from the ground, and the method's own options, to what explains rows.
        explains_model: whether it explains a model, rather than fitting its own.
        by_gradient: whether that model must be a torch predictor.
        needs: the library that it needs beyond lexppl's own, or None.
    """

    prepare: Callable[..., Importances]
    explains_model: bool = True
    by_gradient: bool = False
    needs: str | None = None


def _shap(ground: ComparisonContext, **options: Any) -> Importances:
    return lambda x: shap_importances(
        ground.model, x, ground.x, grouping=ground.grouping, seed=ground.seed, **options
    )


def _lime(ground: ComparisonContext, **options: Any) -> Importances:
    return lambda x: lime_importances(
        ground.model, x, ground.x, grouping=ground.grouping, seed=ground.seed, **options
    )


def _saliency(ground: ComparisonContext, **options: Any) -> Importances:
    return lambda x: saliency_importances(ground.model, x, grouping=ground.grouping, **options)


def _gradient_x_input(ground: ComparisonContext, **options: Any) -> Importances:
    return lambda x: gradient_x_input_importances(
        ground.model, x, grouping=ground.grouping, **options
    )


def _integrated_gradients(ground: ComparisonContext, **options: Any) -> Importances:
    mean = ground.x.mean(0)
    return lambda x: integrated_gradients_importances(
        ground.model, x, mean, grouping=ground.grouping, **options
    )


def _permutation(ground: ComparisonContext, **options: Any) -> Importances:
    scored = (ground.x, ground.y)
    of_all = permutation_importances(
        ground.model, ground.x[:1], scored, grouping=ground.grouping, seed=ground.seed, **options
    )
    return lambda x: of_all.expand(len(x), -1)


def _tabnet(ground: ComparisonContext, **options: Any) -> Importances:
    fitted = fit_tabnet(ground.x, ground.y, **{"seed": ground.seed, **options})
    return lambda x: fitted.importances(x, ground.grouping)


_PREPARED: Mapping[str, Method] = MappingProxyType(
    {
        "shap": Method(_shap),
        "lime": Method(_lime),
        "saliency": Method(_saliency, by_gradient=True),
        "integrated_gradients": Method(_integrated_gradients, by_gradient=True),
        "gradient_x_input": Method(_gradient_x_input, by_gradient=True),
        "permutation": Method(_permutation),
        "tabnet": Method(_tabnet, explains_model=False),
    }
)

METHODS: Mapping[str, Method] = MappingProxyType(
    {name: replace(_PREPARED[name], needs=library) for name, library in LIBRARIES.items()}
)
"""By name; `compare` adds "random", the control."""
