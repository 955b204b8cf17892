"""Importance-weighted score of the posterior."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lexppl.inference.estimators.base import SampledEstimator
from lexppl.inference.estimators.target import Target, penalty_per_draw, per_draw, score_of
from lexppl.inference.program import Run, Site, no_gradient


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

    def check(self, site: Site, target: Target) -> None:
        if target.masks < 2:
            raise ValueError(
                f"SelfNormalized weighs the masks of a row against one another, and masks=1 draws "
                f"one of {site.name!r}; set masks=2 or more"
            )

    def surrogate(self, site: Site, run: Run, target: Target) -> Tensor | float:
        log_q = score_of(site)
        if log_q is None:
            return 0.0
        guided = site.name in run.sites and run.sites[site.name].guided
        with torch.no_grad():
            weight = torch.softmax(target.log_means(run), -2)
            # The bound itself holds −w̃ ∇ log q of a guided site: twice the weight turns it round.
            signal = per_draw(2.0 * weight if guided else weight, run, target)
            signal = signal - penalty_per_draw(run, target)
        return (no_gradient(log_q) * signal).sum()
