"""Masks that have nothing to learn by a score."""

from dataclasses import dataclass
from typing import ClassVar

from pyro.infer.util import is_validation_enabled
from torch import Tensor

from lexppl.inference.estimators.base import SamplePathEstimator
from lexppl.inference.objective.bound import BoundTerms, score_of
from lexppl.inference.objective.site import Site


@dataclass(frozen=True)
class Unscored(SamplePathEstimator):
    """Exact where masks are drawn from distributions that do not learn: random masks, given ones.

    Masks are drawn from their distribution and add no term to the gradient. A distribution with
    something to learn is refused (where Pyro validates, as in the first step of a fit): its
    gradient would be lost.

    Raises:
        ValueError: a distribution whose log-probability has a gradient.

    Example:
        >>> Unscored().unbiased
        True
    """

    unbiased: ClassVar[bool] = True

    def score_term(self, site: Site, terms: BoundTerms) -> Tensor | float:
        if is_validation_enabled():
            score = score_of(site)
            if score is not None and score.requires_grad:
                raise ValueError(
                    f"the distribution of {site.name!r} learns, and Unscored() gives it no "
                    "gradient; use LeaveOneOut(), or detach the distribution's parameters"
                )
        return 0.0
