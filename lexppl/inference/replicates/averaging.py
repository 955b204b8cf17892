"""One model from several: the mean of their parameters."""

import copy
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def averaged(models: Sequence[Module]) -> Module:
    """A copy of the first model whose floating parameters and buffers are the means over all.

    XTab's global mask network is the average of its seeds' (Uçar & Hajiramezanali 2022, eq. 6).
    The mean of networks is in general no good network: it is here as far as their hidden units
    mean the same, which weight clipping and few layers help.

    Args:
        models: modules of one architecture, such as a fit's replicates.

    Raises:
        ValueError: no models, or models whose parameters differ in name or shape.

    Example:
        >>> a, b = nn.Linear(1, 1), nn.Linear(1, 1)
        >>> mean = averaged([a, b])
        >>> bool(torch.allclose(mean.weight, (a.weight + b.weight) / 2))
        True
    """
    if not models:
        raise ValueError("averaged needs at least one model; there is none")
    states = [model.state_dict() for model in models]
    shapes = [{name: value.shape for name, value in state.items()} for state in states]
    for other in shapes[1:]:
        if other != shapes[0]:
            differing = sorted(set(other.items()) ^ set(shapes[0].items()))
            raise ValueError(
                f"the models must have parameters of the same names and shapes; {differing[0][0]!r}"
                " is not in all of them alike"
            )
    mean = {}
    for name, first in states[0].items():
        if first.is_floating_point():
            mean[name] = torch.stack([state[name] for state in states]).mean(0)
        else:
            mean[name] = first
    result = copy.deepcopy(models[0])
    result.load_state_dict(mean)
    return result
