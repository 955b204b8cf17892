"""Whether a gradient may go through a tensor."""

from typing import Any

import torch
from torch import Tensor

_FUNCTORCH: Any = getattr(torch._C, "_functorch", None)


def may_carry_gradient(tensor: Tensor) -> bool:
    """Whether a gradient may go through a tensor: it requires one, or `torch.func` has wrapped it,
    inside whose transforms `requires_grad` reads False."""
    if tensor.requires_grad:
        return True
    is_wrapped = getattr(_FUNCTORCH, "is_functorch_wrapped_tensor", None)
    return is_wrapped is None or bool(is_wrapped(tensor))


def carries_gradient(tensor: Tensor) -> bool:
    """Whether a gradient goes through a tensor, looking into what `torch.func.vmap` has wrapped.

    Example:
        >>> seen = []
        >>> def noted(t):
        ...     seen.append(carries_gradient(t))
        ...     return t.sum()
        >>> _ = torch.func.vmap(noted)(torch.zeros(2))
        >>> _ = torch.func.vmap(noted)(torch.zeros(2, requires_grad=True))
        >>> _ = torch.func.grad(noted)(torch.zeros(2))
        >>> seen
        [False, True, True]
    """
    is_batched = getattr(_FUNCTORCH, "is_batchedtensor", None)
    while is_batched is not None and is_batched(tensor):
        tensor = _FUNCTORCH.get_unwrapped(tensor)
    return may_carry_gradient(tensor)
