"""Importance-weighted score of the posterior."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lexppl.effects import MASK_DIM
from lexppl.inference.estimators.base import SampledEstimator
from lexppl.inference.estimators.leaving_one_out import average_per_draw
from lexppl.inference.objective.bound import (
    BoundSpec,
    BoundTerms,
    no_gradient,
    score_of,
    shared_with,
)
from lexppl.inference.objective.site import Site


@dataclass(frozen=True)
class SelfNormalized(SampledEstimator):
    """BIASED for finite L, consistent: the log-likelihood's gradient by self-normalised weights.

        Σ_l w̃_l ∇ log p(z_l, y | x),    w̃_l = w_l / Σ_j w_j,

    which tends to `∇ log p(y|x)` as L grows (reweighted wake-sleep, Bornschein & Bengio 2015). A
    guide follows the same weights, `Σ_l w̃_l ∇ log q(z_l)`: it minimises the inclusive divergence
    from the posterior, not the bound.

    Example:
        >>> SelfNormalized().unbiased
        False
    """

    unbiased: ClassVar[bool] = False

    def check(self, site: Site, spec: BoundSpec) -> None:
        if spec.masks < 2:
            raise ValueError(
                f"SelfNormalized weighs the masks of a row against one another, and masks=1 draws "
                f"one of {site.name!r}; set masks=2 or more"
            )

    def score_term(self, site: Site, terms: BoundTerms) -> Tensor | float:
        log_q = score_of(site)
        if log_q is None:
            return 0.0
        guided = site.name in terms.run.guide_sites
        with torch.no_grad():
            signal: Tensor | float = average_per_draw(site, terms)
            for weight in terms.log_weights:
                grouped = weight.log_means.unflatten(MASK_DIM, (weight.samples, weight.masks))
                share = torch.softmax(grouped, MASK_DIM).flatten(-3, -2)
                # The bound itself holds −w̃ ∇ log q of a guided site: twice the weight turns it
                # round.
                benefit = weight.to_nats(2.0 * share if guided else share)
                signal = signal + shared_with(site, benefit, weight.plates)
        return (no_gradient(log_q) * signal).sum()
