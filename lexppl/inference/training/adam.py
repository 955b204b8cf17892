"""Adam without the import of torch's compiler, which takes a second of the first step."""

from typing import Any

import torch
from torch.optim import Optimizer


def _plain(method: Any) -> Any:
    """A method without torch's decorators for a step that is compiled."""
    return getattr(method, "__wrapped__", method)


class EagerAdam(torch.optim.Adam):
    """:class:`torch.optim.Adam`, of steps that no `torch.compile` looks into.

    Example:
        >>> weight = torch.ones(1, requires_grad=True)
        >>> optimizer = EagerAdam([weight], lr=0.5)
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight
        tensor([0.5000], requires_grad=True)
    """

    add_param_group = _plain(Optimizer.add_param_group)
    zero_grad = _plain(Optimizer.zero_grad)
    step = torch.no_grad()(_plain(torch.optim.Adam.step))
