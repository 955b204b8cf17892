"""What the compared methods share: optional libraries, checks, random numbers, models by NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.evaluation import FittedPredictor
from lexppl.extras import extra_library
from lexppl.inference.contexts import seeded
from lexppl.models import Grouping
from lexppl.models.black_box import BlackBox, black_box


def library(module: str) -> Any:
    """A library of the `compare` extra; ``ImportError`` says how to get it."""
    return extra_library(module, "compare")


def check_tables(grouping: Grouping | None, **tables: Tensor) -> None:
    """Refuse tables `(N, D)`, by argument, unlike the first or the grouping's features."""
    first_name, first = next(iter(tables.items()))
    for name, table in tables.items():
        if not isinstance(table, Tensor) or not table.is_floating_point():
            kind = table.dtype if isinstance(table, Tensor) else type(table).__name__
            raise TypeError(f"{name} must be a floating-point tensor; it is {kind}")
        if table.dim() != 2 or table.numel() == 0 or not bool(table.isfinite().all()):
            raise ValueError(
                f"{name} must be a table (N, D) of finite numbers; it has shape "
                f"{tuple(table.shape)} and {int((~table.isfinite()).sum())} NaN or infinite values"
            )
        kinds = [f"{one.shape[1]} features, {one.dtype}, on {one.device}" for one in (table, first)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"{name} has {kinds[0]}, and {first_name} {kinds[1]}; convert one")
    if grouping is not None and grouping.features != first.shape[1]:
        raise ValueError(
            f"grouping is of {grouping.features} features; {first_name} has {first.shape[1]}"
        )


def grouped_importances(attributions: Tensor, grouping: Grouping | None) -> Tensor:
    """Importances of mask entries `(B, G)`, `I_g = Σ_{d in g} |a_d|` of attributions `(B, D)`."""
    size = attributions.abs()
    if grouping is None:
        return size
    total = size.new_zeros(len(size), grouping.entries)
    return total.index_add_(1, grouping.index.to(size.device), size)


@contextmanager
def all_seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Draws from a seed inside; all global generators are as before after."""
    seed = int_at_least("seed", seed, 0)
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(numpy_seed(seed))  # noqa: NPY002
    try:
        with seeded(seed, device):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


def numpy_seed(seed: int) -> int:
    """The seed as numpy's global generator takes it, below 2³²; small seeds stay as they are."""
    return seed % 2**32


def black_box_of(model: Any) -> BlackBox:
    """A black box, a full predictor, or what :func:`~lexppl.models.black_box` takes, as a black
    box."""
    if isinstance(model, BlackBox):
        return model
    return black_box(model.predictor if isinstance(model, FittedPredictor) else model)


def numpy_model(box: BlackBox, like: Tensor) -> Callable[[np.ndarray], np.ndarray]:
    """A black box from arrays `(n, D)` to probabilities `(n, C)`, or responses `(n,)`, float64."""

    def outputs(rows: np.ndarray) -> np.ndarray:
        x = torch.as_tensor(np.ascontiguousarray(rows)).to(like)
        return box.targets(x).double().cpu().numpy()

    return outputs


def array_of(x: Tensor) -> np.ndarray:
    """Rows as a float64 array, as the libraries compute."""
    return x.detach().double().cpu().numpy()
