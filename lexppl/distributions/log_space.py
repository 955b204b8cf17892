"""Sums in log space whose derivatives of any order stay finite, and Gumbel noise."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions.utils import clamp_probs
from torch.nn.functional import softplus

LOG_ZERO = -1e30  # In place of log 0: small enough to vanish, finite so that gradients stay clean


def log_add(a: Tensor, b: Tensor) -> Tensor:
    """log(exp a + exp b), broadcast; second derivatives are finite, where those of
    ``torch.logaddexp`` are NaN for a and b more than 88 apart in float32."""
    larger = a >= b
    most, least = torch.where(larger, a, b), torch.where(larger, b, a)
    return most + softplus(least - most)


def log_cumulative_sum(x: Tensor, segment: Tensor | None = None) -> Tensor:
    """Running sums log Σ_{m ≤ j} exp x_m along the last dimension, in log2 of its length rounds;
    within each segment of equal numbers, in place of all."""
    shift = 1
    while shift < x.shape[-1]:
        sums = log_add(x[..., shift:], x[..., :-shift])
        if segment is not None:
            sums = torch.where(segment[shift:] == segment[:-shift], sums, x[..., shift:])
        x = torch.cat([x[..., :shift], sums], -1)
        shift *= 2
    return x


def gumbel(shape: Sequence[int], like: Tensor) -> Tensor:
    """Standard Gumbel draws of the dtype and on the device of ``like``, new tensors for
    ``torch.func.vmap``."""
    return -log_exponential(shape, like)


def log_exponential(shape: Sequence[int], like: Tensor) -> Tensor:
    """Logarithms of standard exponential draws."""
    uniform = clamp_probs(torch.rand(*shape, dtype=like.dtype, device=like.device))
    return uniform.log().neg().log()


def gumbel_given_order(
    logits: Tensor, order: Tensor, log_weights: Tensor, log_exponentials: Tensor
) -> Tensor:
    """Gumbel noise ``(…, G)`` given that ``logits + noise`` has its k largest keys at ``order``
    ``(…, k)``.

    With E standard exponential and W_m the weights still to choose from,

        e^{−key_j} = Σ_{m ≤ j} E_m / W_m,    e^{−key_i} = e^{−key_k} + E_i / e^{logit_i},

    differentiable in ``logits`` (Gadetsky et al. 2020, § 4; Maddison and Tarlow 2017).
    """
    log_at_picks = log_exponentials.gather(-1, order) - log_weights
    negative_top = log_cumulative_sum(log_at_picks)
    negative = log_add(negative_top[..., -1:], log_exponentials - logits)
    return -negative.scatter(-1, order, negative_top) - logits
