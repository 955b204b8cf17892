"""Antithetic pairs of Bernoulli masks, with the choice of the pair integrated out."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor
from torch.distributions import Bernoulli, Independent

from lexppl.effects import MASK_DIM
from lexppl.inference.estimators.base import SampledEstimator, Share, per_mask, signal_of
from lexppl.inference.objective.bound import (
    BoundSpec,
    BoundTerms,
    LogWeight,
    score_of,
    zero_with_gradient,
)
from lexppl.inference.objective.site import Site


@dataclass(frozen=True)
class DisARM(SampledEstimator):
    """Unbiased, for independent Bernoulli masks (Dong, Mnih & Tucker 2020, eq. 5 and § 4).

    Masks come in antithetic pairs `z = 1[u < σ(a)]`, `z' = 1[u > 1 − σ(a)]`, and for each pair the
    gradient of the logits is

        ½ (f(z) − f(z')) (−1)^{z'_g} 1[z_g ≠ z'_g] σ(|a_g|),

    `f` the bound as a function of one of its masks, the others held. The second half of the `S`
    bounds, an even number, holds the partners of the first.

    Raises:
        ValueError: an odd number of samples; a distribution that differs within a pair.
        TypeError: a distribution other than `Bernoulli(…).to_event(1)`.

    Example:
        >>> DisARM().unbiased
        True
    """

    unbiased: ClassVar[bool] = True

    def check(self, site: Site, spec: BoundSpec) -> None:
        if not _is_bernoulli(site):
            raise TypeError(
                f"DisARM needs Bernoulli(…).to_event(1) masks; site {site.name!r} has "
                f"{type(site.distribution).__name__}: LeaveOneOut works for any distribution"
            )
        if spec.samples % 2:
            raise ValueError(f"DisARM draws pairs: samples must be even; it is {spec.samples}")
        _refuse_unlike_halves(site)

    def draw(self, site: Site) -> Tensor | None:
        if not _is_bernoulli(site):
            return None
        with torch.no_grad():
            probability = torch.sigmoid(site.distribution.base_dist.logits)
            half = probability.shape[-3] // 2
            if half == 0:
                return None
            uniform = torch.rand_like(probability.narrow(-3, 0, half))
            first = uniform < probability.narrow(-3, 0, half)
            second = uniform > 1.0 - probability.narrow(-3, half, half)
            return torch.cat([first, second], -3).to(probability.dtype)

    def score_term(self, site: Site, terms: BoundTerms) -> Tensor | float:
        if score_of(site) is None or site.value is None:
            return 0.0
        logits = site.distribution.base_dist.logits
        with torch.no_grad():
            first, second = site.value.chunk(2, -3)
            sign = torch.where(second > 0.5, -1.0, 1.0).to(logits.dtype)
            share = (first != second) * sign * torch.sigmoid(logits.chunk(2, -3)[0].abs())
            signal = signal_of(site, _paired(site, terms))
        score = site.summed((zero_with_gradient(logits.chunk(2, -3)[0]) * share).sum(-1))
        return (score * signal).sum()


def _is_bernoulli(site: Site) -> bool:
    distribution = site.distribution
    return isinstance(distribution, Independent) and isinstance(distribution.base_dist, Bernoulli)


def _refuse_unlike_halves(site: Site) -> None:
    logits = site.distribution.base_dist.logits
    if logits.dim() < 3 or logits.stride(-3) == 0 or not is_validation_enabled():
        return
    first, second = logits.detach().chunk(2, -3)
    if not torch.equal(first, second):
        raise ValueError(
            f"the distribution of {site.name!r} depends on another mask, so that DisARM's pairs "
            f"are not of one distribution; choose LeaveOneOut() for {site.name!r} by "
            f"infer={{'estimator': …}}, or for the objective"
        )


def _paired(site: Site, terms: BoundTerms) -> Iterator[Share]:
    """Half the difference that each pair makes, `(…, S·L/2, B)`, summed over both of its bounds."""
    for weight in terms.log_weights:
        first, second = weight.log_means.chunk(2, MASK_DIM)
        gain = _exchanged(weight, first, second) + _exchanged(weight, second, first, back=True)
        yield Share(0.5 * weight.to_nats(gain), weight.plates)
    for average in terms.averages_of(site):
        value = per_mask(average.value)
        draws = value.shape[MASK_DIM] if value.dim() >= -MASK_DIM else 1
        if draws > 1:
            first, second = value.chunk(2, MASK_DIM)
            yield Share((first - second) / draws, average.plates)


def _exchanged(weight: LogWeight, drawn: Tensor, partner: Tensor, back: bool = False) -> Tensor:
    """`f(z_l) − f(z'_l)` for the bounds of `drawn`, each mask exchanged for its partner in turn."""
    masks = weight.masks
    drawn, partner = (v.unflatten(MASK_DIM, (-1, masks)) for v in (drawn, partner))
    bound = torch.logsumexp(drawn, -2, keepdim=True) - math.log(masks)
    at = torch.eye(masks, dtype=torch.bool, device=drawn.device).unsqueeze(-1)
    other = torch.where(at, partner.unsqueeze(-3), drawn.unsqueeze(-3))
    exchanged = torch.logsumexp(other, -2) - math.log(masks)
    difference = exchanged - bound if back else bound - exchanged
    return difference.flatten(-3, -2)
