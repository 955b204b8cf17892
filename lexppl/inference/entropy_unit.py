"""What a fit's constants in nats are counted in: the information in y."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def entropy_unit(y: Tensor, classes: int | None = None, weights: Tensor | None = None) -> float:
    r"""The entropy of the base rate, in that of a fair coin:

        H(y) / log 2,    H(y) = −Σ_c p_c log p_c,    p_c = (n_c + 1) / (N + C).

    A penalty λ, the annealing's weight and a weight decay are weighed against a likelihood of at
    most H(y) nats a row: of 1 % positives a λ of 0.02 nats is a third of all there is to say, of
    50 % a thirty-fifth. Multiplied by this unit they mean the same at every base rate.

    A real response has no entropy to count in: a density's depends on the unit of y. Of it the
    unit is 1, which is what a predictor with R² = ¾ gains over the mean, `−½ log(1 − R²) = log 2`.

    Args:
        y: labels `(N,)` of an integer type; probabilities `(N, C)`, whose `n_c` is their sum; or
            responses `(N,)`, floating.
        classes: C, where some labels may not occur; the largest label and one if None.
        weights: how often each row counts in `n_c` and N, `(N,)`; None for once.

    Returns:
        the unit, above 0: 1 for two labels as frequent as each other.

    Raises:
        ValueError: no rows, another shape, fewer than two classes.

    Example:
        >>> entropy_unit(torch.tensor([0, 1, 1, 0])), entropy_unit(torch.randn(9))
        (1.0, 1.0)
        >>> round(entropy_unit((torch.arange(10_000) % 100 == 0).long()), 2)
        0.08
    """
    if len(y) == 0 or y.dim() not in (1, 2):
        raise ValueError(f"y must be (N,) or (N, C), N >= 1; it has shape {tuple(y.shape)}")
    if y.dim() == 1 and y.is_floating_point():
        return 1.0
    if y.dim() == 2:
        shares = y.double() if weights is None else y.double() * weights.double()[:, None]
        counts = shares.sum(0)
    else:
        times = None if weights is None else weights.double()
        counts = torch.bincount(y.long(), times, minlength=classes or 0).double()
    if len(counts) < 2:
        raise ValueError(
            "y has one label only, and there is no information in it: give classes=, if there are "
            "more"
        )
    share = (counts + 1.0) / (counts + 1.0).sum()
    return float(-(share * share.log()).sum()) / math.log(2.0)
