"""Penalties on grids against sums over neighbours one by one, and against enumeration."""

import itertools

import pyro.distributions as dist
import pytest
import torch

from lexppl.distributions import ChainMask, KSubset
from lexppl.models import GridVariationPenalty, IsingPenalty, TotalVariationPenalty
from tests.refusals import refused

KINDS = [GridVariationPenalty, IsingPenalty]


def pairs(shape, neighbours):
    """Flat places of all pairs of neighbours, each once."""
    steps = [(0, 1), (1, 0), (1, 1), (1, -1)][: 2 if neighbours == 4 else 4]
    height, width = shape
    for (i, j), (down, right) in itertools.product(
        itertools.product(range(height), range(width)), steps
    ):
        if i + down < height and 0 <= j + right < width:
            yield i * width + j, (i + down) * width + j + right


@pytest.mark.smoke
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1), (2, 3), (3, 2)])
@pytest.mark.parametrize("neighbours", [4, 8])
def test_costs_are_sums_over_neighbours(shape, neighbours):
    size = shape[0] * shape[1]
    mask = torch.rand(3, 2, size, generator=torch.Generator().manual_seed(0))
    costs = {
        GridVariationPenalty: lambda a, b: (a - b).abs(),
        IsingPenalty: lambda a, b: (1 - (2 * a - 1) * (2 * b - 1)) / 2,
    }
    for kind, cost in costs.items():
        value = kind(0.7, shape, neighbours)(KSubset(torch.zeros(2, size), 1), mask)
        exact = torch.zeros(3, 2)
        for a, b in pairs(shape, neighbours):
            exact = exact + 0.7 * cost(mask[..., a], mask[..., b])
        assert value.shape == (3, 2)
        assert torch.allclose(value, exact, atol=1e-5), kind
    hard = mask.round()
    assert torch.allclose(*(kind(1.0, shape, neighbours)(None, hard) for kind in KINDS)), (
        "on zeros and ones the two are one"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("neighbours", [4, 8])
def test_expectations_of_independent_entries_are_exact(kind, neighbours):
    shape = (2, 3)
    logits = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(2, 6).requires_grad_()
    distribution = dist.Bernoulli(logits=logits).to_event(1)
    masks = torch.tensor(list(itertools.product((0.0, 1.0), repeat=6)), dtype=torch.float64)
    penalty = kind(0.3, shape, neighbours)
    p = distribution.log_prob(masks.unsqueeze(1)).exp()
    exact = (p * penalty(None, masks).unsqueeze(-1)).sum(0)
    value = penalty(distribution, distribution.sample((5,)))
    assert value.shape == (2,)
    assert (value - exact).abs().max() < 1e-12
    gradients = [torch.autograd.grad(v.sum(), logits, retain_graph=True)[0] for v in (value, exact)]
    assert (gradients[0] - gradients[1]).abs().max() < 1e-12
    # Negative control: an expectation is not the cost of the mean.
    assert (GridVariationPenalty(0.3, shape)(None, distribution.mean) - exact).abs().max() > 0.01


@pytest.mark.parametrize("shape", [(1, 6), (6, 1)])
def test_of_a_chain_on_a_line_the_expectation_is_exact(shape):
    chain = ChainMask(torch.linspace(-1, 2, 6), 0.7)
    masks = chain.enumerate_support()
    exact = (chain.log_prob(masks).exp() * TotalVariationPenalty(1.0)(None, masks)).sum()
    value = GridVariationPenalty(1.0, shape)(chain, chain.sample((3,)))
    assert value.shape == ()
    assert float(value) == pytest.approx(float(exact), rel=1e-5)
    with_draws = GridVariationPenalty(1.0, (2, 3))(chain, masks)
    assert with_draws.shape == (64,), "pairs that are no neighbours on the chain are drawn"


@pytest.mark.parametrize("kind", KINDS)
def test_bad_input(kind):
    with pytest.raises(ValueError, match=r"shape \(…, 6\), of a grid of 2 × 3; the shape is .*5\)"):
        kind(1.0, (2, 3))(None, torch.zeros(1, 1, 5))
    refused("two numbers, rows and columns", kind, 1.0, (2, 3, 4))
    refused("shape must be", kind, 1.0, (0, 3))
    refused("neighbours must be 4 or 8; they are 6", kind, 1.0, (2, 3), neighbours=6)
    refused("weight", kind, -1.0, (2, 3))
    assert kind(0.5, [2, 3], neighbours=8).config() == {
        "weight": 0.5,
        "shape": [2, 3],
        "neighbours": 8,
    }
