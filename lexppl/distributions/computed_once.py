"""A cache of values that a distribution computes at most once, shared by its expansions."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Self, TypeVar

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor

Value = TypeVar("Value")


class SharedRows(TorchDistribution):
    """Base of distributions whose expansions share what was computed of their rows, before or by
    methods that :func:`computed_once` decorates."""

    expanded: ClassVar[tuple[str, ...]] = ()
    """Tensors `(*batch, …)`, in full, that are expanded with the batch."""

    def __init__(
        self, batch_shape: torch.Size, event_shape: torch.Size, validate_args: bool | None = None
    ) -> None:
        self._computed: dict[str, tuple[bool, Any]] = {}
        super().__init__(batch_shape, event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same distribution over more dimensions; nothing is computed again."""
        new: Self = self._get_checked_instance(type(self), _instance)
        shape, rows = torch.Size(batch_shape), self._batch_shape
        ends = shape[len(shape) - len(rows) :]
        if len(ends) != len(rows) or any(a not in (1, b) for a, b in zip(rows, ends, strict=True)):
            raise ValueError(f"batch shape {tuple(rows)} cannot be expanded to {tuple(shape)}")
        new.__dict__.update(self.__dict__)
        for name in self.expanded:
            value = getattr(self, name)
            setattr(new, name, value.expand(*shape, *value.shape[len(rows) :]))
        TorchDistribution.__init__(new, shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new


def computed_once(method: Callable[[Any], Value]) -> Callable[[Any], Value]:
    """A method of a :class:`SharedRows` whose value is kept, and computed anew where a gradient
    is first needed."""

    @wraps(method)
    def value(self: SharedRows) -> Value:
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
