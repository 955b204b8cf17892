"""Mask laws: standard Pyro distributions over which features are kept."""

from lexppl.distributions.k_subset import KSubset
from lexppl.distributions.support import mask_support, uniform_masks

__all__ = ["KSubset", "mask_support", "uniform_masks"]
