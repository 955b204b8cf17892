"""Priors: of weights, of how much is kept, of sites."""

from lexppl.models.priors.horseshoe import HorseshoeLinear
from lexppl.models.priors.inclusion import BetaBernoulliSelector, PriorLogits, RandomSizeSelector
from lexppl.models.priors.sites import SiteOffsets
from lexppl.models.priors.with_prior import with_prior

__all__ = [
    "BetaBernoulliSelector",
    "HorseshoeLinear",
    "PriorLogits",
    "RandomSizeSelector",
    "SiteOffsets",
    "with_prior",
]
