"""Mask distributions: standard Pyro distributions over which of G entries are kept."""

from lexppl.distributions.chain import ChainMask
from lexppl.distributions.k_subset import KSubset
from lexppl.distributions.random_size import (
    ExchangeableMasks,
    RandomSizeSubset,
    ShapleyKernel,
    beta_binomial_sizes,
    geometric_sizes,
)
from lexppl.distributions.relaxed import MaskDirichlet, MaxConcrete, RelaxedSubset, relaxation
from lexppl.distributions.sequential_mask import SequentialMask
from lexppl.distributions.support import mask_support, uniform_masks
from lexppl.distributions.top_k import OrderedTopK, TopKMask

__all__ = [
    "ChainMask",
    "ExchangeableMasks",
    "KSubset",
    "MaskDirichlet",
    "MaxConcrete",
    "OrderedTopK",
    "RandomSizeSubset",
    "RelaxedSubset",
    "SequentialMask",
    "ShapleyKernel",
    "TopKMask",
    "beta_binomial_sizes",
    "geometric_sizes",
    "mask_support",
    "relaxation",
    "uniform_masks",
]
