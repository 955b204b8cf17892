"""What a model returns, and what it means: probabilities or responses."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lexppl.models.black_box.box import Task

Output = Literal["logits", "probabilities", "response"]


def distribution_targets(distribution: Any) -> Tensor:
    """Probabilities of a distribution of labels, `(…, C)`, or the mean of another distribution,
    `(…)`.

    Example:
        >>> import pyro.distributions as dist
        >>> distribution_targets(dist.Bernoulli(torch.tensor([0.25])))
        tensor([[0.7500, 0.2500]])
        >>> distribution_targets(dist.Normal(torch.tensor([3.0]), 1.0))
        tensor([3.])
    """
    if not distribution.has_enumerate_support:
        mean: Tensor = distribution.mean
        return mean
    labels = distribution.enumerate_support(expand=False)
    return torch.as_tensor(distribution.log_prob(labels)).exp().movedim(0, -1)


def refuse_classes_of_responses(name: str, task: Task, classes: int | None) -> None:
    """Refuse a number of classes where there are none."""
    if task == "regression" and classes is not None:
        raise ValueError(f"{name} gives responses, which have no classes; classes is {classes}")


def numbers_of(given: Any, name: str) -> Tensor:
    """Whatever came back, as float64."""
    if isinstance(given, Tensor):
        if given.is_complex():
            raise TypeError(f"{name} must give real numbers; it gave {given.dtype}")
        return given.detach().double()
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise TypeError(f"{name} must give an array of numbers; {error}") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} must give an array of numbers; it gave {type(given).__name__} of {array.dtype}"
        )
    return torch.from_numpy(np.array(array, dtype=np.float64))


def meant_by(given: Tensor, output: Output, name: str) -> Tensor:
    """Outputs as probabilities `(B, C)` or responses `(B,)`."""
    if given.dim() == 2 and given.shape[1] == 1:
        given = given.squeeze(1)
    most = 1 if output == "response" else 2
    if not 1 <= given.dim() <= most:
        raise ValueError(
            f"{name} must give {output} of shape {'(N,)' if most == 1 else '(N, C) or (N,)'}; it "
            f"gave {tuple(given.shape)}"
        )
    if output == "response":
        return given
    if output == "logits":
        if given.dim() == 2:
            return given.softmax(1)
        return torch.stack([torch.sigmoid(-given), torch.sigmoid(given)], 1)
    return given if given.dim() == 2 else torch.stack([1.0 - given, given], 1)
