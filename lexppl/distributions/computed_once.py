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
    """A method of a :class:`ComputedOnce` that computes its value once, and anew where a gradient
    is first needed of it."""

    @wraps(method)
    def value(self: ComputedOnce) -> Value:
        graph = torch.is_grad_enabled()
        known = self._computed.get(method.__name__)
        # What was computed without a graph (in a sampler, say) must not cut later gradients.
        if known is None or (graph and not known[0]):
            known = self._computed[method.__name__] = (graph, method(self))
        result: Value = known[1]
        return result

    return value


class MadeOnce:
    """What a part makes of numbers that it has, for each type and device that is needed.

    A device waits for what is copied there from the host, so that no step should copy.

    Example:
        >>> kept = MadeOnce()
        >>> first = kept.like(torch.zeros(1), (1.0, 2.0), torch.tensor)
        >>> first, kept.like(torch.zeros(5), (1.0, 2.0), torch.tensor) is first
        (tensor([1., 2.]), True)
        >>> kept.like(torch.zeros(1).double(), (1.0, 3.0), torch.tensor)
        tensor([1., 3.], dtype=torch.float64)
    """

    def __init__(self) -> None:
        self._made: dict[tuple[torch.dtype, torch.device], tuple[Any, Any]] = {}

    def like(self, tensor: Tensor, numbers: Any, make: Callable[..., Any]) -> Any:
        """What is made of the numbers, in the type and on the device of a tensor.

        Args:
            tensor: any.
            numbers: one or a tuple of them.
            make: from the numbers, `dtype` and `device`.
        """
        place = (tensor.dtype, tensor.device)
        known = self._made.get(place)
        if known is None or known[0] != numbers:
            # What is made in inference mode could take part in no gradient later.
            with torch.inference_mode(False):
                made = make(numbers, dtype=tensor.dtype, device=tensor.device)
            known = self._made[place] = (numbers, made)
        return known[1]
