"""Solves with one Cholesky factor for every right-hand side that shares it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["solve_shared"]


def solve_shared(cholesky: Tensor, rhs: Tensor) -> Tensor:
    """The solution `w` of `L Lᵀ w = r`, batch dimensions broadcast.

    Dimensions of `rhs` over which the factor does not change (imputations of one mask, rows under
    one mask) become columns of one solve, so that the factor is never copied.

    Args:
        cholesky: lower triangular `L`, shape `(*factors, D, D)`.
        rhs: `r`, shape `(*batch, D)`; `factors` broadcasts with `batch`.

    Returns:
        shape `(*broadcast, D)`.

    Example:
        >>> solve_shared(2 * torch.eye(2), torch.tensor([[4.0, 8.0], [0.0, 2.0]]))
        tensor([[1.0000, 2.0000],
                [0.0000, 0.5000]])
    """
    size = rhs.shape[-1]
    batch = torch.broadcast_shapes(cholesky.shape[:-2], rhs.shape[:-1])
    n = len(batch)
    factors = (1,) * (n - cholesky.ndim + 2) + tuple(cholesky.shape[:-2])
    own = [i for i in range(n) if factors[i] != 1]
    shared = [i for i in range(n) if factors[i] == 1]
    own_sizes = [batch[i] for i in own]
    shared_sizes = [batch[i] for i in shared]

    order = [*own, n, *shared]
    columns = rhs.expand(*batch, size).permute(order)
    columns = columns.reshape(*own_sizes, size, math.prod(shared_sizes))
    factor = cholesky.reshape(*own_sizes, size, size)
    solution = torch.linalg.solve_triangular(factor, columns, upper=False)
    solution = torch.linalg.solve_triangular(factor.mT, solution, upper=True)
    back = [order.index(i) for i in range(n + 1)]
    return solution.reshape(*own_sizes, size, *shared_sizes).permute(back)
