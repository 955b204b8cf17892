"""Whether a gradient may go through a tensor."""

from typing import Any

import torch
from torch import Tensor

_FUNCTORCH: Any = getattr(torch._C, "_functorch", None)


def may_carry_gradient(tensor: Tensor) -> bool:
    """Whether a gradient may go through a tensor: it requires one, or a gradient transform of
    `torch.func` has wrapped it, inside which `requires_grad` reads False.

    What `torch.func.vmap` has wrapped is looked into. Where torch does not say what it has wrapped,
    any tensor may.

    Example:
        >>> may_carry_gradient(torch.zeros(1)), may_carry_gradient(torch.zeros(1) + 1)
        (False, False)
        >>> may_carry_gradient(torch.zeros(1, requires_grad=True) + 1)
        True
        >>> seen = []
        >>> def noted(t):
        ...     seen.append(may_carry_gradient(t))
        ...     return t.sum()
        >>> _ = torch.func.vmap(noted)(torch.zeros(2))
        >>> _ = torch.func.vmap(noted)(torch.zeros(2, requires_grad=True))
        >>> _ = torch.func.grad(noted)(torch.zeros(2))
        >>> seen
        [False, True, True]
    """
    if tensor.requires_grad:
        return True
    try:
        while _FUNCTORCH.is_batchedtensor(tensor):
            tensor = _FUNCTORCH.get_unwrapped(tensor)
        return tensor.requires_grad or bool(_FUNCTORCH.is_functorch_wrapped_tensor(tensor))
    except AttributeError:
        return True
