"""Where the random numbers stand, so that a program can be run again with the same ones."""

from typing import Any

import torch
from pyro.poutine.runtime import effectful
from torch import Tensor


@effectful(type="random_state")
def random_state(like: Tensor) -> Any:
    """Where the default generator stands that draws tensors like this one.

    Where a step is traced (`training.compiled`) it is a place among the draws made so far, as a
    graph has no generator to ask.

    Args:
        like: on whose device.

    Example:
        >>> with torch.random.fork_rng(devices=[]):
        ...     state = random_state(torch.zeros(1))
        ...     first = torch.rand(3)
        ...     set_random_state(torch.zeros(1), state)
        ...     torch.equal(first, torch.rand(3))
        True
    """
    if like.is_cuda:
        return torch.cuda.get_rng_state(like.device)
    return torch.get_rng_state()


@effectful(type="set_random_state")
def set_random_state(like: Tensor, state: Any) -> None:
    """Go back to where :func:`random_state` found it.

    Args:
        like: on whose device.
        state: what it returned.
    """
    if like.is_cuda:
        torch.cuda.set_rng_state(state, like.device)
    else:
        torch.set_rng_state(state)
