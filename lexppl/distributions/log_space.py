"""Sums in log space whose derivatives of any order stay finite."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

LOG_ZERO = -1e30
"""In place of log 0: small enough to vanish, finite so that gradients stay clean."""


def log_add(a: Tensor, b: Tensor) -> Tensor:
    """log(exp a + exp b), broadcast.

    The second derivative of ``torch.logaddexp`` is NaN where a and b lie more than 88 apart in
    float32 (709 in float64); that of this is not.
    """
    larger = a >= b
    most, least = torch.where(larger, a, b), torch.where(larger, b, a)
    return most + softplus(least - most)


def log_cumulative_sum(x: Tensor) -> Tensor:
    """Running sums along the last dimension, log Σ_{m ≤ j} exp x_m, in log2 of its length rounds.

    ``torch.logcumsumexp`` has the same fault as ``torch.logaddexp``.
    """
    shift = 1
    while shift < x.shape[-1]:
        x = torch.cat([x[..., :shift], log_add(x[..., shift:], x[..., :-shift])], -1)
        shift *= 2
    return x
