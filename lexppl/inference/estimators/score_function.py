"""Score-function estimators: with a baseline, and self-normalised."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lexppl.effects import (
    MASK_DIM,
)
from lexppl.inference.estimators.base import (
    SampledEstimator,
    Share,
    averages_by_draw,
    scored,
)
from lexppl.inference.objective.bound import BoundSpec, BoundTerms, LogWeight, score_of
from lexppl.inference.objective.site import Site

Baseline = Callable[..., Tensor]


@dataclass(frozen=True)
class ScoreFunction(SampledEstimator):
    """Unbiased score-function gradient (REINFORCE, Williams 1992):

        ∇ log q(z_l) · (ℒ − b(x)).

    Args:
        baseline: `b`, a number, or a module called with the program's arguments that gives
            `(B,)` nats a row. INVASE's is the log-likelihood of a predictor that sees all of x
            (Yoon et al. 2018, eq. 5). A baseline must not depend on the masks.

    Example:
        >>> ScoreFunction(baseline=-0.5).unbiased
        True
    """

    baseline: float | Baseline = 0.0
    unbiased: ClassVar[bool] = True

    def score_term(self, site: Site, terms: BoundTerms) -> Tensor | float:
        def shares() -> Iterator[Share]:
            baseline = self.baseline
            level = baseline(*terms.run.arguments) if callable(baseline) else baseline
            yield from averages_by_draw(site, terms)
            for place, weight in enumerate(terms.log_weights):
                # One baseline for all that a row's draws bring.
                benefit = weight.bounds if place else _above(weight, level)
                yield Share(weight.to_nats(weight.by_mask(benefit)), weight.plates)

        return scored(site, score_of(site), shares())


def _above(weight: LogWeight, level: float | Tensor) -> Tensor:
    """The bounds less a baseline by row, or less its sum where all rows share one log."""
    bounds = weight.bounds
    if isinstance(level, Tensor) and level.dim() and bounds.shape[-1] == 1:
        level = level.sum(-1, keepdim=True)
    return bounds - level


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
        # The bound itself holds −w̃ ∇ log q of a guided site: twice the weight turns it round.
        factor = 2.0 if site.name in terms.run.guide_sites else 1.0

        def shares() -> Iterator[Share]:
            yield from averages_by_draw(site, terms)
            for weight in terms.log_weights:
                grouped = weight.log_means.unflatten(MASK_DIM, (weight.samples, weight.masks))
                normalised = torch.softmax(grouped, MASK_DIM).flatten(-3, -2)
                yield Share(weight.to_nats(factor * normalised), weight.plates)

        return scored(site, score_of(site), shares())
