"""Relaxed masks: sums, limits of low temperature, gradients, shapes."""

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from lexppl.distributions import KSubset, MaxConcrete, RelaxedSubset, TopKMask
from lexppl.distributions.relaxed import successive_softmax
from tests.distributions.goodness_of_fit import FAILURE_RATE, assert_fits, p_value
from tests.distributions.listed import numbers
from tests.refusals import refused


def keys_of(*shape: int, scale: float = 2.0) -> Tensor:
    return numbers(*shape, scale=scale).detach()


def test_successive_softmax_by_the_published_formula() -> None:
    keys, temperature = keys_of(50, 6), 0.7
    weights, mask = keys, torch.zeros_like(keys)
    for _ in range(3):
        share = (weights / temperature).softmax(-1)
        mask = mask + share
        weights = weights + torch.log1p(-share)
    assert (successive_softmax(keys, 3, temperature) - mask).abs().max() < 1e-10
    # The published relaxation is not confined to [0, 1], as its docstring says.
    assert mask.max() > 1.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_low_temperature_gives_the_largest_keys(dtype: torch.dtype, scale: float) -> None:
    # Spaced keys: at this temperature nothing is left to ties.
    generator = torch.Generator().manual_seed(0)
    order = torch.rand(40, 9, generator=generator).argsort(-1)
    keys = (order.to(dtype) * scale).requires_grad_()
    for k in (1, 4, 9):
        mask = successive_softmax(keys, k, 0.01)
        assert (mask - (order >= 9 - k).to(dtype)).abs().max() < 1e-5
        (gradient,) = torch.autograd.grad(mask.square().sum(), keys)
        assert bool(gradient.isfinite().all())


def test_gradcheck() -> None:
    keys = keys_of(3, 5).requires_grad_()
    temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, t: successive_softmax(x, 3, t), (keys, temperature))


@pytest.mark.smoke
def test_relaxed_subset_becomes_the_law_without_replacement() -> None:
    """…and not the exact k-subset distribution with the same logits: the negative control."""
    torch.manual_seed(0)
    logits = keys_of(6, scale=1.0)
    distribution = RelaxedSubset(1e-4, logits, 3)
    soft = distribution.rsample((20_000,))
    settled = (soft - soft.round()).abs().amax(-1) < 1e-3
    assert settled.double().mean() > 0.98
    draws = soft[settled].round()
    masks = TopKMask(logits, 3).enumerate_support()
    assert_fits(draws, masks, TopKMask(logits, 3).log_prob(masks).exp())
    assert p_value(draws, masks, KSubset(logits, 3).log_prob(masks).exp()) < FAILURE_RATE


@pytest.mark.smoke
def test_max_concrete_becomes_the_law_with_replacement() -> None:
    torch.manual_seed(0)
    logits = keys_of(4, scale=1.0)
    weights = logits.softmax(-1)
    probabilities: dict[tuple[float, ...], float] = {}
    for picks in product(range(4), repeat=2):
        mask = tuple(float(i in picks) for i in range(4))
        probabilities[mask] = probabilities.get(mask, 0.0) + float(weights[list(picks)].prod())
    soft = MaxConcrete(1e-4, logits, 2).rsample((20_000,))
    settled = (soft - soft.round()).abs().amax(-1) < 1e-3
    assert settled.double().mean() > 0.98
    support = torch.tensor(list(probabilities), dtype=torch.float64)
    chances = torch.tensor(list(probabilities.values()), dtype=torch.float64)
    assert_fits(soft[settled].round(), support, chances)
    assert p_value(soft[settled].round(), support, chances.flip(0)) < FAILURE_RATE


def test_gradients_are_those_of_the_reparameterised_draw() -> None:
    logits = keys_of(4, 5).requires_grad_()
    for make in (lambda x: RelaxedSubset(0.5, x, 2), lambda x: MaxConcrete(0.5, x, 2)):

        def function(x: Tensor, make=make) -> Tensor:
            torch.manual_seed(0)
            return make(x).rsample()

        assert gradcheck(function, (logits,))


@pytest.mark.parametrize("distribution", [RelaxedSubset, MaxConcrete])
def test_expansion_and_vmap(distribution: type) -> None:
    """Shapes are those of tests/properties."""
    narrow = distribution(0.5, keys_of(4, 6), 2)
    wide = narrow.expand((3, 4))
    assert type(wide) is distribution
    assert bool(wide.support.check(wide.rsample()).all())
    assert len(wide.rsample().unique(dim=0)) == 3
    refused("no log_prob", wide.log_prob, wide.rsample(), error=NotImplementedError)
    drawn = torch.func.vmap(
        lambda x: distribution(0.5, x, 2, validate_args=False).rsample((3,)), randomness="different"
    )(torch.zeros(5, 2, 6))
    assert drawn.shape == (5, 3, 2, 6)
    assert len(drawn.unique(dim=0)) == 5
    assert repr(narrow) == f"{distribution.__name__}((4, 6), k: 2)"


@pytest.mark.parametrize("distribution", [RelaxedSubset, MaxConcrete])
@pytest.mark.parametrize("temperature", [0.0, -1.0, torch.tensor(0.0), float("nan")])
def test_temperature_must_be_positive(distribution: type, temperature) -> None:
    with pytest.raises(ValueError, match="temperature must be positive"):
        distribution(temperature, torch.zeros(4), 2, validate_args=True)


@pytest.mark.parametrize("distribution", [RelaxedSubset, MaxConcrete])
def test_bad_k_and_logits(distribution: type) -> None:
    refused("between 1 and G = 4", distribution, 0.5, torch.zeros(4), 5)
    refused("k must be an int", distribution, 0.5, torch.zeros(4), 2.0, error=TypeError)
    refused("finite", distribution, 0.5, torch.tensor([0.0, float("inf")]), 1, validate_args=True)
