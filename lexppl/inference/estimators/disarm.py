"""Antithetic pairs of Bernoulli masks, with the choice of the pair integrated out."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Independent

from lexppl.inference.estimators.base import SampledEstimator
from lexppl.inference.estimators.target import Target, penalty_per_draw, per_draw, score_of
from lexppl.inference.program import Run, Site, no_gradient


@dataclass(frozen=True)
class DisARM(SampledEstimator):
    """Unbiased, for independent Bernoulli masks (Dong, Mnih & Tucker 2020, eq. 5 and § 4).

    Masks come in antithetic pairs `z = 1[u < σ(a)]`, `z' = 1[u > 1 − σ(a)]`, and for each pair the
    gradient of the logits is

        ½ (f(z) − f(z')) (−1)^{z'_g} 1[z_g ≠ z'_g] σ(|a_g|).

    `samples` must be even: the second half of the `S` bounds holds the partners of the first, and
    `f` is the bound as a function of one of its masks, the others held.

    Raises:
        ValueError: an odd number of samples.
        TypeError: a law other than `Bernoulli(…).to_event(1)`.

    Example:
        >>> DisARM().unbiased
        True
    """

    unbiased: ClassVar[bool] = True

    def check(self, site: Site, target: Target) -> None:
        if not _is_bernoulli(site):
            raise TypeError(
                f"DisARM needs Bernoulli(…).to_event(1) masks; site {site.name!r} has "
                f"{type(site.law).__name__}: LeaveOneOut works for any law"
            )
        if target.samples % 2:
            raise ValueError(
                f"DisARM draws pairs of bounds, so samples must be even; it is {target.samples}"
            )

    def draw(self, site: Site) -> Tensor | None:
        if not _is_bernoulli(site):
            return None
        with torch.no_grad():
            probability = torch.sigmoid(site.law.base_dist.logits)
            half = probability.shape[-3] // 2
            if half == 0:
                return None
            uniform = torch.rand_like(probability.narrow(-3, 0, half))
            first = uniform < probability.narrow(-3, 0, half)
            second = uniform > 1.0 - probability.narrow(-3, half, half)
            return torch.cat([first, second], -3).to(probability.dtype)

    def surrogate(self, site: Site, run: Run, target: Target) -> Tensor | float:
        if score_of(site) is None or site.value is None:
            return 0.0
        logits = site.law.base_dist.logits
        with torch.no_grad():
            first, second = site.value.chunk(2, -3)
            sign = torch.where(second > 0.5, -1.0, 1.0).to(logits.dtype)
            share = (first != second) * sign * torch.sigmoid(logits.chunk(2, -3)[0].abs())
            signal = _paired(run, target)
        return (no_gradient(logits.chunk(2, -3)[0]) * share * signal.unsqueeze(-1)).sum()


def _is_bernoulli(site: Site) -> bool:
    law = site.law
    return isinstance(law, Independent) and isinstance(law.base_dist, Bernoulli)


def _paired(run: Run, target: Target) -> Tensor:
    """Half the difference that each pair makes, `(S·L/2, B)`, summed over both of its bounds."""
    weight = target.log_means(run)
    a, b = weight.chunk(2, -3)
    gain = _exchanged(a, b) + _exchanged(b, a, back=True)
    half = Target(target.masks, target.imputations, target.samples // 2)
    whole = per_draw(gain, run, half) * 0.5
    cost = penalty_per_draw(run, target)
    if isinstance(cost, Tensor) and cost.dim() >= 2 and cost.shape[-2] > 1:
        cost = cost * (1.0 - 1.0 / cost.shape[-2])
        first, second = cost.chunk(2, -2)
        whole = 0.5 * whole - (first - second)
        return whole
    return 0.5 * whole


def _exchanged(own: Tensor, partner: Tensor, back: bool = False) -> Tensor:
    """`f(z_l) − f(z'_l)` for the bounds of `own`, each mask exchanged for its partner in turn."""
    masks = own.shape[-2]
    bound = torch.logsumexp(own, -2, keepdim=True) - math.log(masks)
    at = torch.eye(masks, dtype=torch.bool, device=own.device).unsqueeze(-1)
    other = torch.where(at, partner.unsqueeze(-3), own.unsqueeze(-3))
    exchanged = torch.logsumexp(other, -1 - 1) - math.log(masks)
    return exchanged - bound if back else bound - exchanged
