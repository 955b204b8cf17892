"""Gumbel noise, free and given the order of its largest keys."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions.utils import clamp_probs

from lexppl.distributions.log_space import log_add, log_cumulative_sum


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
