"""Components of a mixture, a few at a time, so that memory has a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

__all__ = ["NUMBERS_AT_ONCE", "blocks", "each_block"]

NUMBERS_AT_ONCE = 2**22
"""Most numbers of a tensor with a dimension for components beside one for features, where one
component alone has no more; a computation holds a few such tensors."""


def blocks(components: int, numbers: int) -> list[slice]:
    """Components in their order, as many at a time as the bound allows, at least one.

    Args:
        components: C.
        numbers: of a tensor for one component.

    Example:
        >>> blocks(5, numbers=NUMBERS_AT_ONCE // 2)
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = max(1, NUMBERS_AT_ONCE // max(1, numbers))
    return [slice(start, min(start + size, components)) for start in range(0, components, size)]


def each_block(pieces: list[slice], of: Callable[[slice], Tensor]) -> Iterator[Tensor]:
    """What a function gives for each block.

    Of several blocks nothing is kept for the gradient: it is computed once more there.

    Args:
        pieces: of :func:`blocks`.
        of: a function of one, without random numbers.

    Example:
        >>> list(each_block(blocks(3, numbers=1), lambda block: torch.arange(3)[block]))
        [tensor([0, 1, 2])]
    """
    again = len(pieces) > 1 and torch.is_grad_enabled()
    for piece in pieces:
        if again:
            yield checkpoint(of, piece, use_reentrant=False, preserve_rng_state=False)
        else:
            yield of(piece)
