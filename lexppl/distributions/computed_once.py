"""What is computed when it is first needed, and kept."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


class ComputedOnce:
    """Holds the values of its methods that are decorated by :func:`computed_once`."""

    def __init__(self) -> None:
        self._computed: dict[str, tuple[bool, Any]] = {}


def computed_once(method: Callable[[Any], Value]) -> Callable[[Any], Value]:
    """A method of a :class:`ComputedOnce` whose value is kept, and computed anew where a gradient
    is first needed."""

    @wraps(method)
    def value(self: ComputedOnce) -> Value:
        graph = torch.is_grad_enabled()
        known = self._computed.get(method.__name__)
        # What was computed without a graph (in a sampler, say) must not cut later gradients.
        if known is None or (graph and not known[0]):
            known = self._computed[method.__name__] = (graph, method(self))
        return known[1]

    return value


class MadeOnce:
    """What a part makes of its numbers, kept for each type and device, so that no step copies from
    the host."""

    def __init__(self) -> None:
        self._made: dict[tuple[torch.dtype, torch.device], tuple[Any, Any]] = {}

    def like(self, tensor: Tensor, numbers: Any, make: Callable[..., Value]) -> Value:
        """`make(numbers, dtype, device)` in the type and on the device of a tensor."""
        place = (tensor.dtype, tensor.device)
        known = self._made.get(place)
        if known is None or known[0] != numbers:
            # What is made in inference mode could take part in no gradient later.
            with torch.inference_mode(False):
                made = make(numbers, dtype=tensor.dtype, device=tensor.device)
            known = self._made[place] = (numbers, made)
        return known[1]
