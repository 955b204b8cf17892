"""Every mask distribution, of rows of any number, type and layout."""

from collections.abc import Callable
from typing import Any

import pyro.distributions as dist
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from lexppl.distributions import (
    ChainMask,
    ExchangeableMasks,
    KSubset,
    MaskDirichlet,
    MaxConcrete,
    OrderedTopK,
    RandomSizeSubset,
    RelaxedSubset,
    SequentialMask,
    ShapleyKernel,
    TopKMask,
    geometric_sizes,
)
from lexppl.distributions.relaxed import successive_softmax
from lexppl.distributions.top_k import TopEntries
from lexppl.inference.contexts import seeded
from tests.properties.given_tensors import EXAMPLES, LAYOUTS, TYPES, close, laid_out, values

BATCHES = st.sampled_from([(), (1,), (3,), (2, 3), (0,), (2, 0)])


def _policy(kept, mask):
    return kept - mask, kept.sum(-1)


MADE: dict[str, Callable[[Any, int], Any]] = {
    "k-subset": KSubset,
    "k-subset by row": lambda logits, k: KSubset(
        logits, torch.full(logits.shape[:-1], k), max_k=logits.shape[-1]
    ),
    "top-k": TopKMask,
    "ordered top-k": OrderedTopK,
    "relaxed": lambda logits, k: RelaxedSubset(0.5, logits, k),
    "max of Concrete": lambda logits, k: MaxConcrete(0.5, logits, k),
    "chain": lambda logits, k: ChainMask(logits, 0.7),
    "random size": lambda logits, k: RandomSizeSubset(
        logits, torch.tensor(geometric_sizes(0.5, k), dtype=logits.dtype).log()
    ),
    "Dirichlet": lambda logits, k: MaskDirichlet(logits.exp()),
    "top entries": TopEntries,
    "Bernoulli": lambda logits, k: dist.Bernoulli(logits=logits).to_event(1),
    "sequential": lambda logits, k: SequentialMask(_policy, logits, logits.shape[-1], k),
    "any size": lambda logits, k: ExchangeableMasks(
        [1.0] * (logits.shape[-1] + 1), logits.shape[:-1], dtype=logits.dtype
    ),
    "Shapley": lambda logits, k: ShapleyKernel(
        logits.shape[-1], logits.shape[:-1], dtype=logits.dtype
    ),
}
OF_TORCH = ("Bernoulli", "Dirichlet", "top entries")
"""Torch's own distributions, or made of them, which refuse a batch without rows."""
CONTINUOUS = ("relaxed", "soft", "max of Concrete", "Dirichlet")
STATED = ("mean", "variance", "mode", "entropy")


def stated(distribution):
    """What the distribution says of itself, by name."""
    found = {}
    for name in STATED:
        try:
            value = getattr(distribution, name)
            found[name] = value() if callable(value) else value
        except NotImplementedError:
            continue
    return found


def drawn(distribution, seed=0, shape=(2,)):
    with seeded(seed):
        return distribution.sample(shape)


@EXAMPLES
@given(st.data(), st.sampled_from(sorted(MADE)), st.integers(1, 6), BATCHES, TYPES, LAYOUTS)
def test_shapes_types_layouts_and_rows(data, name, entries, batch, dtype, layout):
    assume(0 not in batch or name not in OF_TORCH)
    entries = max(entries, 2) if name == "Shapley" else entries
    k = data.draw(st.integers(1, entries))
    exact = data.draw(values(*batch, entries))
    logits = exact.to(dtype)
    one, other = MADE[name](logits, k), MADE[name](laid_out(logits, layout), k)
    assert one.batch_shape == batch
    sample, again = drawn(one), drawn(other)
    assert sample.shape == (2, *batch, *one.event_shape)
    close(sample, again, dtype)
    assert torch.equal(sample, again) or name in CONTINUOUS
    if not name.startswith("ordered"):
        assert sample.dtype == dtype
    expected = stated(one)
    for what, value in expected.items():
        event = () if what == "entropy" else one.event_shape
        assert value.shape == (*batch, *event), what
        assert value.dtype == dtype or name.startswith("ordered"), what
        close(value, stated(other)[what], dtype)
    expanded = one.expand((4, *batch))
    assert expanded.batch_shape == (4, *batch)
    assert drawn(expanded, shape=()).shape == (4, *batch, *one.event_shape)
    for what, value in stated(expanded).items():
        close(value, expected[what].expand(value.shape), dtype)
    density = densities(one, sample)
    if density is None:
        return
    assert density.shape == (2, *batch) and density.dtype == dtype
    close(density, densities(other, laid_out(sample, layout)), dtype)
    double = MADE[name](exact.to(dtype).double(), k)
    whole = name.startswith("ordered")
    close(density, densities(double, sample if whole else sample.double()), torch.float32)
    if len(batch) == 1 and batch[0] > 1:
        alone = MADE[name](logits[1:2], k)
        close(densities(alone, sample[:, 1:2]), density[:, 1:2], dtype)
        for what, value in stated(alone).items():
            close(value, expected[what][1:2], dtype)


def densities(distribution, sample):
    try:
        return distribution.log_prob(sample)
    except NotImplementedError:
        return None


@EXAMPLES
@given(st.data(), st.integers(1, 5), BATCHES, TYPES, LAYOUTS)
def test_relaxed_masks_keep_their_sum(data, entries, batch, dtype, layout):
    k = data.draw(st.integers(1, entries))
    keys = data.draw(values(*batch, entries)).to(dtype)
    temperature = data.draw(st.sampled_from([0.05, 0.1, 1.0, 5.0]))
    mask = successive_softmax(keys, k, temperature)
    assert mask.shape == keys.shape and mask.dtype == dtype
    assert bool((mask >= 0).all()) and (k > 1 or bool((mask <= 1 + 1e-6).all()))
    close(mask.sum(-1), torch.full(batch, float(k), dtype=dtype), dtype)
    close(successive_softmax(laid_out(keys, layout), k, temperature), mask, dtype)
