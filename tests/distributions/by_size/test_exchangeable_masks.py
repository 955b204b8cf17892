"""Distributions of a mask's size: probabilities, moments and draws against enumeration."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pyro
import pytest
import torch
from pyro import poutine

from lexppl.distributions import ExchangeableMasks, ShapleyKernel, UniformSize, mask_support
from tests.distributions.goodness_of_fit import FAILURE_RATE, assert_fits, p_value

DOUBLE = {"dtype": torch.float64}


def all_masks(size):
    return torch.tensor(list(product([0.0, 1.0], repeat=size)), dtype=torch.float64)


def by_formula(weight_of_size, size):
    """Normalised probabilities of all masks, by exact fractions."""
    masks = all_masks(size)
    weights = [weight_of_size(int(m.sum()), size) for m in masks]
    total = sum(weights)
    return masks, torch.tensor([float(w / total) for w in weights], dtype=torch.float64)


def kernel(s, size):
    """Lundberg and Lee 2017, theorem 2."""
    if s in (0, size):
        return Fraction(0)
    return Fraction(size - 1, math.comb(size, s) * s * (size - s))


def uniform_size(s, size):
    return Fraction(1, (size + 1) * math.comb(size, s))


def some_sizes(s, size):
    return Fraction([0, 3, 0, 5, 1][s % 5], math.comb(size, s))


def law_of(name, size, **options):
    if name == "kernel":
        return ShapleyKernel(size, **options), kernel
    if name == "uniform":
        return UniformSize(size, **options), uniform_size
    weights = [float(some_sizes(s, size) * math.comb(size, s)) for s in range(size + 1)]
    return ExchangeableMasks(weights, **options), some_sizes


@pytest.mark.smoke
@pytest.mark.parametrize("size", [2, 3, 4, 7])
@pytest.mark.parametrize("name", ["kernel", "uniform", "some"])
def test_probabilities_moments_and_entropy_equal_the_enumerated_ones(name, size):
    distribution, formula = law_of(name, size, validate_args=False, **DOUBLE)
    masks, exact = by_formula(formula, size)
    assert (distribution.log_prob(masks).exp() - exact).abs().max() < 1e-14
    mean = exact @ masks
    assert (distribution.mean - mean).abs().max() < 1e-14
    assert (distribution.variance - mean * (1 - mean)).abs().max() < 1e-14
    surprise = torch.where(exact > 0, exact * exact.clamp(min=1e-300).log(), 0.0)
    assert abs(distribution.entropy() + surprise.sum()) < 1e-13
    listed = {tuple(m.tolist()) for m in distribution.enumerate_support()}
    assert listed == {tuple(m.tolist()) for m, p in zip(masks, exact, strict=True) if p > 0}
    assert torch.equal(distribution.support.check(masks), exact > 0)


def test_a_size_has_the_probability_of_the_docstring():
    size = 9
    distribution = ShapleyKernel(size, **DOUBLE)
    masks = distribution.enumerate_support()
    harmonic = sum(1 / i for i in range(1, size))
    for s in range(1, size):
        found = distribution.log_prob(masks[masks.sum(-1) == s]).exp().sum()
        assert abs(found - size / (2 * harmonic) / (s * (size - s))) < 1e-13


def test_uniform_sizes_are_bernoullis_of_a_uniform_rate():
    """The integral over the rate, by a quadrature that is exact for polynomials of degree 6."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    rate, weight = torch.tensor((nodes + 1) / 2), torch.tensor(weights / 2)
    masks = all_masks(6)
    on = masks.sum(-1, keepdim=True)
    mixed = (weight * rate**on * (1 - rate) ** (6 - on)).sum(-1)
    assert (UniformSize(6, **DOUBLE).log_prob(masks).exp() - mixed).abs().max() < 1e-15


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("name", ["kernel", "uniform", "some"])
def test_draws_fit(name, size, dtype):
    torch.manual_seed(size)
    distribution, formula = law_of(name, size, dtype=dtype)
    masks, exact = by_formula(formula, size)
    draws = distribution.sample((20_000,))
    assert draws.dtype == dtype
    assert_fits(draws, masks[exact > 0], exact[exact > 0])


def test_draws_of_another_law_do_not_fit():
    """Negative control: the kernel without its 1/(s (G − s)), and uniform sizes for coins."""
    torch.manual_seed(0)
    masks, exact = by_formula(kernel, 5)
    proper = exact > 0
    flat = ExchangeableMasks([0.0, 1.0, 1.0, 1.0, 1.0, 0.0]).sample((20_000,))
    assert p_value(flat, masks[proper], exact[proper]) < FAILURE_RATE
    coins = torch.bernoulli(torch.full((20_000, 5), 0.5))
    assert p_value(coins, *by_formula(uniform_size, 5)) < FAILURE_RATE


def test_draws_at_the_ends_of_the_uniform_have_allowed_sizes(monkeypatch):
    rand = torch.rand

    def extreme(value):
        def draw(shape, **options):
            uniform = rand(shape, **options)
            return torch.full_like(uniform, value) if len(shape) == 1 else uniform

        return draw

    largest = {torch.float32: 1.0 - 2.0**-24, torch.float64: 1.0 - 2.0**-53}
    for size, dtype in product((2, 3, 7, 10, 100, 200, 1001), largest):
        distribution = ShapleyKernel(size, dtype=dtype)
        monkeypatch.setattr(torch, "rand", extreme(largest[dtype]))
        assert (distribution.sample((5,)).sum(-1) == size - 1).all()
        monkeypatch.setattr(torch, "rand", extreme(0.0))
        assert (distribution.sample((5,)).sum(-1) == 1).all()


def test_a_wide_law_has_finite_probabilities():
    distribution = ShapleyKernel(3000)
    draws = distribution.sample((10,))
    size = draws.sum(-1)
    assert bool(((size >= 1) & (size <= 2999)).all())
    assert bool(distribution.log_prob(draws).isfinite().all())
    with pytest.raises(ValueError, match=r"about 2\^3000 masks"):
        distribution.enumerate_support()


def test_shapes_expansion_and_plates():
    distribution = ShapleyKernel(4, (3,), **DOUBLE)
    wide = distribution.expand((2, 3))
    assert wide.batch_shape == (2, 3)
    assert wide._log_mask is distribution._log_mask
    draws = wide.sample((5,))
    assert draws.shape == (5, 2, 3, 4)
    assert wide.log_prob(draws).shape == (5, 2, 3)
    assert wide.log_prob(draws[0, 0, 0]).shape == (2, 3)
    assert wide.mean.shape == wide.variance.shape == (2, 3, 4)
    assert wide.entropy().shape == (2, 3)
    assert wide.enumerate_support().shape == (14, 2, 3, 4)
    assert mask_support(distribution).shape == (14, 1, 4)
    assert len({tuple(m.tolist()) for m in wide.sample((50,)).reshape(-1, 4)}) == 14
    for bad in ((2,), (), (3, 1)):
        with pytest.raises(ValueError, match="cannot be expanded to"):
            distribution.expand(bad)

    def model():
        with pyro.plate("data", 3, dim=-1), pyro.plate("masks", 2, dim=-2):
            pyro.sample("mask", UniformSize(4))

    trace = poutine.trace(model).get_trace()
    trace.compute_log_prob()
    assert trace.nodes["mask"]["value"].shape == (2, 3, 4)
    assert trace.nodes["mask"]["log_prob"].shape == (2, 3)


def test_vmap_draws_differ_and_their_probabilities_are_the_laws():
    def one(shift):
        distribution = ShapleyKernel(5, (6,), **DOUBLE)
        mask = distribution.sample((20,))
        return mask, distribution.log_prob(mask) + shift

    masks, log_prob = torch.func.vmap(one, randomness="different")(torch.zeros(3).double())
    assert masks.shape == (3, 20, 6, 5)
    assert not torch.equal(masks[0], masks[1])
    assert torch.equal(log_prob, ShapleyKernel(5, **DOUBLE).log_prob(masks))


def test_what_is_outside_the_support_is_refused():
    distribution = ShapleyKernel(3, validate_args=True)
    for bad in ([0.0, 0, 0], [1.0, 1, 1], [0.5, 0.5, 0], [2.0, -1, 0]):
        with pytest.raises(ValueError):
            distribution.log_prob(torch.tensor(bad))
    free = ShapleyKernel(3, validate_args=False)
    assert free.log_prob(torch.zeros(3)) == -math.inf


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ShapleyKernel(1), "entries must be a whole number of at least 2; it is 1"),
        (lambda: ShapleyKernel(2.0), "entries must be a whole number of at least 2; it is 2.0"),
        (lambda: UniformSize(0), "entries must be a whole number of at least 1; it is 0"),
        (lambda: UniformSize(True), "entries must be"),
        (lambda: ExchangeableMasks([1.0]), "G of at least 1"),
        (lambda: ExchangeableMasks([0.0, 0.0]), "not all 0"),
        (lambda: ExchangeableMasks([1.0, -0.5]), "none negative"),
        (lambda: ExchangeableMasks([1.0, math.nan]), "none negative"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
