"""Whether a gradient may go through a tensor."""

from typing import Any

import torch
from torch import Tensor

_FUNCTORCH: Any = getattr(torch._C, "_functorch", None)


def may_carry_gradient(tensor: Tensor) -> bool:
    """Whether a gradient may go through a tensor: it requires one, or `torch.func` has wrapped it,
    inside whose transforms `requires_grad` reads False.

    Where torch does not say what it has wrapped, any tensor may.

    Example:
        >>> may_carry_gradient(torch.zeros(1)), may_carry_gradient(torch.zeros(1) + 1)
        (False, False)
        >>> may_carry_gradient(torch.zeros(1, requires_grad=True) + 1)
        True
        >>> seen = []
        >>> _ = torch.func.vmap(lambda t: seen.append(may_carry_gradient(t)) or t)(torch.zeros(2))
        >>> seen
        [True]
    """
    if tensor.requires_grad:
        return True
    is_wrapped = getattr(_FUNCTORCH, "is_functorch_wrapped_tensor", None)
    return is_wrapped is None or bool(is_wrapped(tensor))
