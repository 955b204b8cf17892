"""Sums in log space whose derivatives of any order stay finite, and Gumbel noise."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions.utils import clamp_probs
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


def gumbel(shape: Sequence[int], like: Tensor) -> Tensor:
    """Standard Gumbel draws of the dtype and on the device of ``like``.

    They are new tensors rather than filled in place, so that ``torch.func.vmap`` can draw them
    apart for each of its entries.
    """
    return -log_exponential(shape, like)


def log_exponential(shape: Sequence[int], like: Tensor) -> Tensor:
    """Logarithms of standard exponential draws."""
    uniform = clamp_probs(torch.rand(*shape, dtype=like.dtype, device=like.device))
    return uniform.log().neg().log()


def gumbel_given_order(
    logits: Tensor, order: Tensor, log_weights: Tensor, log_exponentials: Tensor
) -> Tensor:
    r"""Gumbel noise ``(…, G)`` given that ``logits + noise`` has its k largest keys at ``order``.

    With :math:`E` standard exponential, the first key is Gumbel around the log-sum of all weights;
    each next one is Gumbel around the log-sum of what remains, truncated at the key before; and
    all others are truncated at the k-th. On the scale :math:`e^{-\mathrm{key}}` truncation is
    addition:

    .. math:: e^{-\mathrm{key}_j} = \sum_{m \le j} E_m / W_m, \qquad
              e^{-\mathrm{key}_i} = e^{-\mathrm{key}_k} + E_i / e^{\mathrm{logit}_i}.

    The result is differentiable in ``logits``, as a reparameterised draw.

    Args:
        logits: ``(…, G)``.
        order: indices of the k largest keys, falling, ``(…, k)``.
        log_weights: log W_m, the log-sum of the weights still to choose from, ``(…, k)``.
        log_exponentials: logarithms of standard exponential draws, ``(…, G)``.

    Source: Gadetsky, Struminsky, Robinson, Quadrianto and Vetrov (2020), "Low-variance black-box
    gradient estimates for the Plackett–Luce distribution", AAAI, § 4; Maddison and Tarlow (2017),
    "Gumbel machinery".
    """
    log_at_picks = log_exponentials.gather(-1, order) - log_weights
    negative_top = log_cumulative_sum(log_at_picks)
    negative = log_add(negative_top[..., -1:], log_exponentials - logits)
    return -negative.scatter(-1, order, negative_top) - logits
