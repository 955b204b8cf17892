"""Mask distributions: standard Pyro distributions over which of G entries are kept.

``KSubset`` is exact (probabilities, draws, marginals, entropy), and so is ``ChainMask``, whose
entries are kept in runs; ``TopKMask`` and ``OrderedTopK`` draw without replacement;
``RandomSizeSubset`` draws k first, as by ``geometric_sizes`` or ``beta_binomial_sizes``;
``RelaxedSubset`` and ``MaxConcrete`` are continuous stand-ins.
``ShapleyKernel`` and ``UniformSize`` know the mask's size alone (``ExchangeableMasks``).
Independent masks are Pyro's own ``Bernoulli(...).to_event(1)``. ``mask_support`` lists what a
distribution can draw, ``uniform_masks`` is its family's uniform member, and ``relaxation`` its
relaxation; all three are ``functools.singledispatch`` functions, open to distributions of your own.
"""

from lexppl.distributions.by_size.exchangeable_masks import ExchangeableMasks
from lexppl.distributions.by_size.shapley_kernel import ShapleyKernel
from lexppl.distributions.by_size.uniform_size import UniformSize
from lexppl.distributions.chain.distribution import ChainMask
from lexppl.distributions.k_subset.distribution import KSubset
from lexppl.distributions.mask_dirichlet import MaskDirichlet
from lexppl.distributions.random_size import RandomSizeSubset
from lexppl.distributions.relaxed.max_concrete import MaxConcrete
from lexppl.distributions.relaxed.relaxation import Relaxation, relaxation
from lexppl.distributions.relaxed.relaxed_subset import (
    RelaxedSubset,
    soft_top_k,
    successive_softmax,
)
from lexppl.distributions.sequential_mask import ChosenMask, SequentialMask
from lexppl.distributions.sizes import beta_binomial_sizes, geometric_sizes
from lexppl.distributions.support import draws_zeros_and_ones, mask_support, uniform_masks
from lexppl.distributions.top_entries import TopEntries
from lexppl.distributions.top_k import OrderedTopK, TopKMask

__all__ = [
    "ChainMask",
    "ChosenMask",
    "ExchangeableMasks",
    "KSubset",
    "MaskDirichlet",
    "MaxConcrete",
    "OrderedTopK",
    "RandomSizeSubset",
    "Relaxation",
    "RelaxedSubset",
    "SequentialMask",
    "ShapleyKernel",
    "TopEntries",
    "TopKMask",
    "UniformSize",
    "beta_binomial_sizes",
    "draws_zeros_and_ones",
    "geometric_sizes",
    "mask_support",
    "relaxation",
    "soft_top_k",
    "successive_softmax",
    "uniform_masks",
]
