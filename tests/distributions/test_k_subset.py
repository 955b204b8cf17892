"""The exact k-subset distribution against full enumeration, and against a sequential table where
none is."""

import math
from itertools import combinations

import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.distributions import kl_divergence

from lexppl.distributions import KSubset
from lexppl.distributions.k_subset import frequencies
from tests.distributions.goodness_of_fit import assert_fits
from tests.distributions.listed import assert_equals_list, masks_of, numbers
from tests.refusals import refusals, refused

SIZES = [(size, k) for size in (1, 2, 3, 6, 9) for k in range(1, size + 1)]
IMAGE = (1568, 157)


def all_masks(size: int, k: int) -> Tensor:
    masks = torch.zeros(math.comb(size, k), size, dtype=torch.float64)
    for mask, chosen in zip(masks, combinations(range(size), k), strict=True):
        mask[list(chosen)] = 1.0
    return masks


def enumerated(logits: Tensor, masks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log-probabilities (M, B), marginals (B, G), entropy (B,)."""
    log_prob = (masks @ logits.mT).log_softmax(0)
    mean = log_prob.exp().mT @ masks
    return log_prob, mean, -(log_prob.exp() * log_prob).sum(0)


def sequential_log_normaliser(logits: Tensor, k: int) -> Tensor:
    """log e_k by G sequential steps in log space."""
    table = torch.full((*logits.shape[:-1], k + 1), -1e30, dtype=logits.dtype)
    table[..., 0] = 0
    floor = torch.full_like(table[..., :1], -1e30)
    for logit in logits.unbind(-1):
        taken = logit.unsqueeze(-1) + torch.cat([floor, table[..., :-1]], -1)
        table = torch.logaddexp(table, taken)
    return table[..., k]


@pytest.mark.parametrize(("size", "k"), SIZES)
def test_it_equals_the_list_at_every_size(size: int, k: int) -> None:
    logits = numbers(3, size, seed=size)
    weights = masks_of(size) @ logits.mT
    of_size = (masks_of(size).sum(-1) == k).unsqueeze(-1)
    assert_equals_list(KSubset(logits, k), weights.masked_fill(~of_size, -torch.inf), logits)


@pytest.mark.smoke
@pytest.mark.parametrize("k", [1, 2, 63, 69, 70])
def test_equals_enumeration_where_the_frequencies_are_used(k: int) -> None:
    size = 70
    logits = numbers(2, size)
    if min(k, size - k) <= 2:
        masks = all_masks(size, min(k, size - k))
        masks = masks if k <= 2 else 1 - masks
        reference = (masks @ logits.mT).logsumexp(0)
    else:
        reference = sequential_log_normaliser(logits, k)
    mode = KSubset(logits, k).mode
    value = (mode * logits).sum(-1) - KSubset(logits, k).log_prob(mode)
    assert (value - reference).abs().max() < 1e-10
    (exact,) = grad(reference.sum(), logits)
    assert (KSubset(logits, k).mean - exact).abs().max() < 1e-10


def test_derivatives_of_many_entries_and_of_k_by_row() -> None:
    k = torch.tensor([2, 4])
    for size in (6, 70):
        logits = numbers(2, size)
        value = KSubset(logits, k).mode
        for check in (
            lambda x, value=value: KSubset(x, k).log_prob(value),
            lambda x: KSubset(x, k).mean,
            lambda x: KSubset(x, k).entropy(),
        ):
            assert gradcheck(check, (logits,), fast_mode=size > 6)
            assert gradgradcheck(check, (logits,), fast_mode=size > 6)


@pytest.mark.smoke
def test_k_differs_by_row() -> None:
    size = 7
    logits = numbers(4, size)
    k = torch.tensor([1, 3, 7, 4])
    distribution = KSubset(logits, k)
    bounded = KSubset(logits[:2], k[:2], max_k=3)
    draws = distribution.sample((50,))
    log_prob = distribution.log_prob(draws)
    for row in range(4):
        alone = KSubset(logits[row], int(k[row]))
        assert (distribution.mean[row] - alone.mean).abs().max() < 1e-12
        assert (distribution.entropy()[row] - alone.entropy()).abs() < 1e-12
        assert (log_prob[:, row] - alone.log_prob(draws[:, row])).abs().max() < 1e-12
    assert (bounded.mean - distribution.mean[:2]).abs().max() < 1e-12
    assert torch.equal(distribution.mode.sum(-1), k.double())
    assert torch.equal(draws.sum(-1), k.double().expand(50, 4))
    # One row of logits, several k: they broadcast.
    wide = KSubset(logits[0], torch.tensor([[1], [2]]).expand(2, 3))
    assert wide.batch_shape == (2, 3)
    assert wide.sample((5,)).shape == (5, 2, 3, size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["spread", "two values", "constant", "far off"])
def test_image_size_with_extreme_logits(dtype: torch.dtype, kind: str) -> None:
    size, k = IMAGE
    generator = torch.Generator().manual_seed(1)
    uniform = torch.rand(2, size, generator=generator, dtype=torch.float64)
    logits = {
        "spread": 100 * uniform - 50,
        "two values": 100 * uniform.round() - 50,
        "constant": torch.full_like(uniform, 50),
        "far off": 1e4 + 4 * uniform,
    }[kind].to(dtype)
    logits.requires_grad_()
    distribution = KSubset(logits, k)
    mask = distribution.sample()
    assert torch.equal(mask.sum(-1), torch.full((2,), float(k), dtype=dtype))
    # A constant cancels from the distribution; the reference is spared the rounding it costs.
    exact = logits.detach().double()
    exact = (exact - exact.mean().round()).requires_grad_()
    log_normaliser = sequential_log_normaliser(exact, k)
    (marginals,) = grad(log_normaliser.sum(), exact, create_graph=True)
    log_prob = (exact * mask).sum(-1) - log_normaliser
    entropy = log_normaliser - (exact * marginals).sum(-1)
    # The reference subtracts numbers of the order of k·|logit|; its own rounding is the limit.
    scale = k * float(exact.detach().abs().max())
    tolerance = (1e-6 if dtype == torch.float32 else 0.0) + 5e-16 * size
    for name, value, reference, size_of_terms in (
        ("log_prob", distribution.log_prob(mask), log_prob, scale),
        ("mean", distribution.mean, marginals, 10.0),
        ("entropy", distribution.entropy(), entropy, scale),
    ):
        assert value.dtype == dtype
        limit = 5e-16 * size_of_terms * 10 + tolerance * (1 + float(reference.detach().abs().max()))
        assert (value - reference).abs().max() < limit, name
        (gradient,) = grad(value.square().sum(), logits, retain_graph=True)
        assert bool(gradient.isfinite().all()), name
    (gradient,) = grad(distribution.log_prob(mask).sum(), logits, retain_graph=True)
    assert (gradient - (mask - marginals)).abs().max() < 1e-10 + 10 * tolerance


@pytest.mark.complete(but=8)
@pytest.mark.parametrize(
    ("size", "k"), [(1, 1), (5, 2), (8, 4), (8, 7), (40, 2), (70, 2), (150, 1)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_fit(size: int, k: int, dtype: torch.dtype) -> None:
    torch.manual_seed(size)
    logits = numbers(2, size, scale=1.0).detach()
    masks = all_masks(size, k)
    probabilities = enumerated(logits, masks)[0].exp()
    draws = KSubset(logits.to(dtype), k).sample((20_000,))
    for row in range(2):
        assert_fits(draws[:, row], masks, probabilities[:, row])


@pytest.mark.parametrize("size", [67, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_that_leave_few_out_fit(size: int, dtype: torch.dtype) -> None:
    """k = G − 1 and G − 2 by row in one distribution, by the masks that are left out."""
    torch.manual_seed(size)
    logits = numbers(2, size, scale=1.0).detach()
    k = torch.tensor([size - 1, size - 2])
    draws = KSubset(logits.to(dtype), k).sample((20_000,))
    for row, out in enumerate([1, 2]):
        masks = 1 - all_masks(size, out)
        assert_fits(draws[:, row], masks, enumerated(logits, masks)[0][:, row].exp())


def test_marginals_and_pairs_of_draws_at_image_size() -> None:
    """Every marginal and neighbouring pair within the z that fails once in 10^6 such tests."""
    torch.manual_seed(3)
    size, k = IMAGE
    logits = numbers(size, scale=2.0).detach()
    distribution = KSubset(logits, k)
    number = 4000
    draws = distribution.sample((number,))
    logits.requires_grad_()
    (first,) = grad(KSubset(logits, k).mean[::97].sum(), logits)  # row sums of the covariance
    bound = 6.5  # two-sided, 2 × 1568 z-scores: 2.5e-7
    sd = (distribution.variance / number).sqrt()
    assert ((draws.mean(0) - distribution.mean) / sd).abs().max() < bound
    centred = draws - distribution.mean
    products = centred[:, ::97].sum(-1, keepdim=True) * centred
    spread = products.std(0) / number**0.5
    often = distribution.variance > 0.01
    assert ((products.mean(0) - first) / spread)[often].abs().max() < bound


def test_kl_divergence_where_k_differs_by_row() -> None:
    """That of one k is among tests/distributions/test_mask_laws.py."""
    one, two = KSubset(numbers(3, 6), torch.tensor([2, 2, 3])), KSubset(numbers(3, 6, seed=1), 2)
    by_row, alike = kl_divergence(one, two), kl_divergence(KSubset(one.logits, 2), two)
    assert (by_row[:2] - alike[:2]).abs().max() < 1e-10
    assert by_row[2] == math.inf


def test_support_is_checked() -> None:
    distribution = KSubset(torch.zeros(2, 4), torch.tensor([1, 2]), validate_args=True)
    good = torch.tensor([[0.0, 1, 0, 0], [1, 1, 0, 0]])
    assert distribution.log_prob(good).exp().tolist() == pytest.approx([1 / 4, 1 / 6])
    assert distribution.support.check(good).tolist() == [True, True]
    for bad in (good.flip(0), good * 0.5, good[:, :3]):
        with pytest.raises(ValueError):
            distribution.log_prob(bad)
    # Without validation: the formula, Σ z·logits − log e_k, and its gradient by the value.
    logits = numbers(4)
    free = KSubset(logits, 2, validate_args=False)
    value = torch.tensor([0.2, 0.9, 0.3, 1.0], dtype=torch.float64, requires_grad=True)
    log_normaliser = (all_masks(4, 2) @ logits).logsumexp(0)
    assert abs(free.log_prob(value) - ((value * logits).sum() - log_normaliser)) < 1e-10
    (gradient,) = grad(free.log_prob(value), value)
    assert (gradient - logits).abs().max() < 1e-10


test_bad_input = refusals(
    ((torch.zeros(4), 0), {}, "between 1 and G = 4.*it is 0"),
    ((torch.zeros(4), 5), {}, "between 1 and G = 4.*it is 5"),
    ((torch.zeros(4), 5), {"validate_args": False}, "it is 5"),
    ((torch.zeros(4), 2.0), {}, TypeError, "k must be an int.*float"),
    ((torch.zeros(4), torch.tensor(2.0)), {}, TypeError, "dtype is torch.float32"),
    ((torch.zeros(3, 4), torch.tensor([1, 2, 5])), {}, "it is 1 to 5"),
    ((torch.zeros(3, 4), torch.tensor([0, 2, 4])), {}, "it is 0 to 4"),
    ((torch.zeros(3, 4), torch.tensor(2)), {"max_k": 9}, "max_k must lie"),
    ((torch.zeros(3, 4), 2), {"max_k": 3}, "max_k is for a tensor k"),
    ((torch.tensor([0.0, math.inf]), 1), {}, "finite"),
    ((torch.tensor([0.0, math.nan]), 1), {}, "logits"),
    ((torch.tensor(0.0), 1), {}, "last dimension"),
    of=lambda arguments, options: KSubset(*arguments, **{"validate_args": True, **options}),
)


def test_enumeration_refuses() -> None:
    with pytest.raises(NotImplementedError, match="the same k in every row"):
        KSubset(torch.zeros(2, 4), torch.tensor([1, 2])).enumerate_support()
    refused("40116600 masks", KSubset(torch.zeros(28), 14).enumerate_support)
    assert len(KSubset(torch.zeros(2, 4), torch.tensor([2, 2])).enumerate_support()) == 6


@pytest.mark.parametrize("k", [1, 10, 157, 784, 1500, 1568])
def test_number_of_frequencies_bounds_the_aliased_counts(k: int) -> None:
    """The widest distribution of mean k, a binomial, has less than 1e-17 of its mass beyond the
    aliases."""
    from scipy import stats

    number = frequencies(1568, k)
    assert number % 2 == 1
    distribution = stats.binom(1568, k / 1568)
    aliased = sum(distribution.pmf(k + j * number) for j in (*range(-20, 0), *range(1, 20)))
    assert aliased < 1e-17
    assert frequencies(1568, k) <= 1569
    single = frequencies(1568, k, torch.float32)
    assert single <= number
    aliased = sum(distribution.pmf(k + j * single) for j in (*range(-20, 0), *range(1, 20)))
    assert aliased < 1e-9


def test_independent_bernoullis_are_another_law() -> None:
    """Negative control: neither their marginals nor their entropy pass for the distribution's."""
    logits = numbers(3, 6)
    _, mean, entropy = enumerated(logits, all_masks(6, 3))
    independent = dist.Bernoulli(logits=logits).to_event(1)
    assert (independent.mean - mean).abs().max() > 0.01
    assert (independent.entropy() - entropy).abs().max() > 0.01
    tilted = dist.Bernoulli(logits=logits + KSubset(logits, 3)._tilted()[0].unsqueeze(-1))
    assert (tilted.mean - mean).abs().max() > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 157, 700, 784, 785, 1000, 1567, 1568])
def test_no_draw_takes_an_unlikely_entry_before_a_likely_one(k: int, dtype: torch.dtype) -> None:
    """Logits of ±50: fewer than one draw in 10^36 does."""
    likely = torch.arange(1568) % 2 == 0
    logits = torch.where(likely, 50.0, -50.0).to(dtype)
    draws = KSubset(logits, k).sample((40,))
    assert bool((draws.sum(-1) == k).all())
    assert bool((draws[:, likely].sum(-1) == min(k, 784)).all())
    if 1 < k < 1568 and k != 784:
        assert len(draws.unique(dim=0)) > 1
