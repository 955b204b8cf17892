"""The exact k-subset distribution against full enumeration, and against a sequential table where
none is."""

import math
from itertools import combinations

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.distributions import kl_divergence
from torch.fx.experimental.proxy_tensor import make_fx

from lexppl.distributions import KSubset
from lexppl.distributions.counts import frequencies
from tests.distributions.goodness_of_fit import FAILURE_RATE, assert_fits, p_value

SIZES = [(size, k) for size in range(1, 11) for k in range(1, size + 1)]
IMAGE = (1568, 157)


def all_masks(size: int, k: int) -> Tensor:
    masks = torch.zeros(math.comb(size, k), size, dtype=torch.float64)
    for mask, chosen in zip(masks, combinations(range(size), k), strict=True):
        mask[list(chosen)] = 1.0
    return masks


def logits_of(*shape: int, scale: float = 2.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, dtype=torch.float64, generator=generator) * scale
    return logits.requires_grad_()


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
def test_everything_equals_enumeration(size: int, k: int) -> None:
    logits = logits_of(3, size, seed=size)
    masks = all_masks(size, k)
    distribution = KSubset(logits, k)
    log_prob, mean, entropy = enumerated(logits, masks)
    weight = torch.linspace(-1, 1, 3 * size, dtype=torch.float64).reshape(3, size)
    pairs = {
        "log_prob": (distribution.log_prob(masks.unsqueeze(1)), log_prob),
        "mean": (distribution.mean, mean),
        "variance": (distribution.variance, mean * (1 - mean)),
        "entropy": (distribution.entropy(), entropy),
    }
    for name, (value, reference) in pairs.items():
        assert (value - reference).abs().max() < 1e-10, name
        weights = weight if value.shape == weight.shape else torch.ones_like(value)
        weights = weights * torch.arange(1.0, 1 + len(value)).reshape(-1, *(1,) * (value.dim() - 1))
        (gradient,) = grad((value * weights).sum(), logits, retain_graph=True)
        (exact,) = grad((reference * weights).sum(), logits, retain_graph=True)
        assert (gradient - exact).abs().max() < 1e-10 * weights.abs().sum(), name
    assert torch.equal(distribution.enumerate_support(expand=False)[:, 0], masks)


@pytest.mark.smoke
@pytest.mark.parametrize("k", [1, 2, 63, 69, 70])
def test_equals_enumeration_where_the_frequencies_are_used(k: int) -> None:
    size = 70
    logits = logits_of(2, size)
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


def test_independent_bernoullis_are_another_law() -> None:
    """Negative control: neither their marginals nor their entropy pass for the distribution's."""
    logits = logits_of(3, 6)
    _, mean, entropy = enumerated(logits, all_masks(6, 3))
    independent = dist.Bernoulli(logits=logits).to_event(1)
    assert (independent.mean - mean).abs().max() > 0.01
    assert (independent.entropy() - entropy).abs().max() > 0.01
    tilted = dist.Bernoulli(logits=logits + KSubset(logits, 3)._rows._tilted()[0].unsqueeze(-1))
    assert (tilted.mean - mean).abs().max() > 0.01


@pytest.mark.parametrize("size", [6, 70])
def test_gradcheck(size: int) -> None:
    logits = logits_of(2, size)
    k = torch.tensor([2, 4])
    value = KSubset(logits, k).mode
    checks = {
        "log_prob": lambda x: KSubset(x, k).log_prob(value),
        "mean": lambda x: KSubset(x, k).mean,
        "entropy": lambda x: KSubset(x, k).entropy(),
    }
    for name, function in checks.items():
        assert gradcheck(function, (logits,), fast_mode=size > 6), name
        assert gradgradcheck(function, (logits,), fast_mode=size > 6), name


@pytest.mark.smoke
def test_k_differs_by_row() -> None:
    size = 7
    logits = logits_of(4, size)
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


def test_extreme_logits_of_a_small_law() -> None:
    logits = torch.tensor([50.0, -50.0, 50.0, 0.0, -50.0, 1e4])
    for k in range(1, 7):
        distribution = KSubset(logits.clone().requires_grad_(), k)
        exact = KSubset(logits.double(), k)
        assert (distribution.mean - exact.mean).abs().max() < 1e-5
        assert (distribution.entropy() - exact.entropy()).abs() < 1e-5
        assert torch.equal(distribution.sample().sum(), torch.tensor(float(k)))


@pytest.mark.complete(but=8)
@pytest.mark.parametrize(
    ("size", "k"), [(1, 1), (5, 2), (8, 4), (8, 7), (40, 2), (70, 2), (150, 1)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_fit(size: int, k: int, dtype: torch.dtype) -> None:
    torch.manual_seed(size)
    logits = logits_of(2, size, scale=1.0).detach()
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
    logits = logits_of(2, size, scale=1.0).detach()
    k = torch.tensor([size - 1, size - 2])
    draws = KSubset(logits.to(dtype), k).sample((20_000,))
    for row, out in enumerate([1, 2]):
        masks = 1 - all_masks(size, out)
        assert_fits(draws[:, row], masks, enumerated(logits, masks)[0][:, row].exp())


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


def test_draws_of_another_law_do_not_fit() -> None:
    """Negative controls: rows swapped, and Gumbel top-k (without replacement) in its place."""
    torch.manual_seed(0)
    logits = logits_of(2, 6, scale=1.0).detach()
    masks = all_masks(6, 3)
    probabilities = enumerated(logits, masks)[0].exp()
    draws = KSubset(logits, 3).sample((20_000,))
    assert p_value(draws[:, 0], masks, probabilities[:, 1]) < FAILURE_RATE
    gumbel = -torch.rand(20_000, 6, dtype=torch.float64).log().neg().log()
    keys = (logits[0] + gumbel).argsort(-1, descending=True).argsort(-1)
    assert p_value((keys < 3).double(), masks, probabilities[:, 0]) < FAILURE_RATE


def test_marginals_and_pairs_of_draws_at_image_size() -> None:
    """Every marginal and neighbouring pair within the z that fails once in 10^6 such tests."""
    torch.manual_seed(3)
    size, k = IMAGE
    logits = logits_of(size, scale=2.0).detach()
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


def test_shapes_and_expand_share_the_tables() -> None:
    logits = logits_of(4, 6)
    distribution = KSubset(logits, 2)
    wide = distribution.expand((3, 4))
    assert wide.batch_shape == (3, 4)
    assert wide.event_shape == (6,)
    assert wide._rows is distribution._rows
    assert wide.logits.shape == (3, 4, 6)
    draws = wide.sample((2,))
    assert draws.shape == (2, 3, 4, 6)
    assert wide.log_prob(draws).shape == (2, 3, 4)
    assert torch.equal(wide.log_prob(draws), distribution.log_prob(draws))
    for name in ("mean", "variance"):
        view = getattr(wide, name)
        assert view.shape == (3, 4, 6)
        assert view.stride(0) == 0, f"{name} of the expanded distribution must be a view"
        assert torch.equal(view[0], getattr(distribution, name))
    assert wide.entropy().shape == (3, 4)
    assert wide.entropy().stride(0) == 0
    assert wide.mode.shape == (3, 4, 6)
    assert wide.enumerate_support().shape == (15, 3, 4, 6)
    assert wide.enumerate_support(expand=False).shape == (15, 1, 1, 6)
    with pytest.raises(ValueError, match="cannot be expanded to"):
        wide.expand((4,))
    one = KSubset(logits_of(1, 6), 2).expand((5, 4))
    assert one.sample((2,)).shape == (2, 5, 4, 6)
    assert len({tuple(m.tolist()) for m in one.sample().reshape(-1, 6)}) > 1
    scalar = KSubset(logits_of(6), 2)
    assert scalar.batch_shape == ()
    assert scalar.log_prob(scalar.sample()).shape == ()
    assert scalar.expand_by((2, 3)).sample().shape == (2, 3, 6)
    assert repr(wide) == "KSubset(logits: (3, 4, 6), k: 2)"
    assert distribution.to_event(1).log_prob(distribution.sample()).shape == ()
    assert (
        distribution.mask(torch.tensor([True, False, True, True])).log_prob(distribution.sample())[
            1
        ]
        == 0
    )


def test_gradients_survive_an_earlier_use_without_them() -> None:
    logits = logits_of(3, 6)
    distribution = KSubset(logits, 2)
    with torch.no_grad():
        mask = distribution.sample()
        distribution.log_prob(mask)
        assert not distribution.mean.requires_grad
        distribution.entropy()
    fresh = KSubset(logits, 2)
    for name in ("mean", "variance"):
        assert torch.equal(
            grad(getattr(distribution, name).square().sum(), logits, retain_graph=True)[0],
            grad(getattr(fresh, name).square().sum(), logits, retain_graph=True)[0],
        )
    assert torch.equal(
        grad(distribution.log_prob(mask).sum(), logits)[0],
        grad(fresh.log_prob(mask).sum(), logits)[0],
    )


def test_in_a_pyro_model_under_plates() -> None:
    logits = logits_of(4, 6)

    def model() -> None:
        with pyro.plate("data", 4, dim=-1), pyro.plate("masks", 3, dim=-2):
            pyro.sample("mask", KSubset(logits, 2))

    trace = poutine.trace(model).get_trace()
    trace.compute_log_prob()
    site = trace.nodes["mask"]
    assert site["value"].shape == (3, 4, 6)
    assert site["log_prob"].shape == (3, 4)
    site["log_prob_sum"].backward()
    assert logits.grad is not None
    exact = site["value"].sum(0) - 3 * KSubset(logits, 2).mean
    assert (logits.grad - exact).abs().max() < 1e-10


@pytest.mark.parametrize("size", [6, 70])
def test_vmap(size: int) -> None:
    torch.manual_seed(0)
    logits = logits_of(5, 3, size).detach()

    def everything(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        distribution = KSubset(x, 2, validate_args=False)
        mask = distribution.expand((4, 3)).sample()
        return mask, distribution.log_prob(mask), distribution.mean, distribution.entropy()

    mask, log_prob, mean, entropy = torch.func.vmap(everything, randomness="different")(logits)
    assert mask.shape == (5, 4, 3, size)
    assert bool((mask.sum(-1) == 2).all())
    distribution = KSubset(logits, 2)
    assert (log_prob - distribution.log_prob(mask.movedim(1, 0)).movedim(0, 1)).abs().max() < 1e-12
    assert (mean - distribution.mean).abs().max() < 1e-12
    assert (entropy - distribution.entropy()).abs().max() < 1e-12
    same = torch.func.vmap(everything, randomness="different")(logits[:1].expand(5, 3, size))[0]
    assert not all(torch.equal(same[0], other) for other in same[1:])


def test_function_transforms() -> None:
    logits = logits_of(5).detach()
    masks = all_masks(5, 2)

    def exact_entropy(x: Tensor) -> Tensor:
        log_prob = (masks @ x).log_softmax(0)
        return -(log_prob.exp() * log_prob).sum()

    def entropy(x: Tensor) -> Tensor:
        return KSubset(x, 2, validate_args=False).entropy()

    hessian = torch.func.hessian(entropy)(logits)
    assert (hessian - torch.func.hessian(exact_entropy)(logits)).abs().max() < 1e-10


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("size", [6, 70])
def test_traced_program_equals_the_eager_one(size: int) -> None:
    logits = logits_of(4, size).detach()

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        distribution = KSubset(x, 3, validate_args=False).expand((2, 4))
        with torch.no_grad():
            mask = distribution.mode
        loss = (
            distribution.log_prob(mask).sum()
            + distribution.entropy().sum()
            + distribution.mean.square().sum()
        )
        return loss, grad(loss, x)[0]

    graph = make_fx(step)(logits)
    other = logits_of(4, size, seed=9).detach()
    for traced, eager in zip(graph(other), step(other), strict=True):
        assert (traced - eager).abs().max() < 1e-10
    sampler = make_fx(lambda x: KSubset(x, 3, validate_args=False).sample((7,)))(logits)
    assert bool((sampler(other).sum(-1) == 3).all())


def test_kl_divergence() -> None:
    p_logits, q_logits = logits_of(3, 6), logits_of(3, 6, seed=1)
    masks = all_masks(6, 2)
    p, q = enumerated(p_logits, masks)[0], enumerated(q_logits, masks)[0]
    exact = (p.exp() * (p - q)).sum(0)
    value = kl_divergence(KSubset(p_logits, 2), KSubset(q_logits, 2))
    assert (value - exact).abs().max() < 1e-10
    for logits in (p_logits, q_logits):
        difference = (
            grad(value.sum(), logits, retain_graph=True)[0]
            - grad(exact.sum(), logits, retain_graph=True)[0]
        )
        assert difference.abs().max() < 1e-10
    wide = kl_divergence(KSubset(p_logits, 2).expand((2, 3)), KSubset(q_logits, 2))
    assert wide.shape == (2, 3)
    k = torch.tensor([2, 2, 3])
    by_row = kl_divergence(KSubset(p_logits, k), KSubset(q_logits, 2))
    assert (by_row[:2] - exact[:2]).abs().max() < 1e-10
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
    logits = logits_of(4)
    free = KSubset(logits, 2, validate_args=False)
    value = torch.tensor([0.2, 0.9, 0.3, 1.0], dtype=torch.float64, requires_grad=True)
    log_normaliser = (all_masks(4, 2) @ logits).logsumexp(0)
    assert abs(free.log_prob(value) - ((value * logits).sum() - log_normaliser)) < 1e-10
    (gradient,) = grad(free.log_prob(value), value)
    assert (gradient - logits).abs().max() < 1e-10


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((torch.zeros(4), 0), {}, ValueError, "between 1 and G = 4.*it is 0"),
        ((torch.zeros(4), 5), {}, ValueError, "between 1 and G = 4.*it is 5"),
        ((torch.zeros(4), 5), {"validate_args": False}, ValueError, "it is 5"),
        ((torch.zeros(4), 2.0), {}, TypeError, "k must be an int.*float"),
        ((torch.zeros(4), torch.tensor(2.0)), {}, TypeError, "dtype is torch.float32"),
        ((torch.zeros(3, 4), torch.tensor([1, 2, 5])), {}, ValueError, "runs from 1 to 5"),
        ((torch.zeros(3, 4), torch.tensor([0, 2, 4])), {}, ValueError, "runs from 0 to 4"),
        ((torch.zeros(3, 4), torch.tensor(2)), {"max_k": 9}, ValueError, "max_k must lie"),
        ((torch.zeros(3, 4), 2), {"max_k": 3}, ValueError, "max_k is for a tensor k"),
        ((torch.tensor([0.0, math.inf]), 1), {}, ValueError, "finite"),
        ((torch.tensor([0.0, math.nan]), 1), {}, ValueError, "logits"),
        ((torch.tensor(0.0), 1), {}, ValueError, "last dimension"),
    ],
)
def test_bad_input(arguments: tuple, options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        KSubset(*arguments, **{"validate_args": True, **options})


def test_enumeration_refuses() -> None:
    with pytest.raises(NotImplementedError, match="differs by row"):
        KSubset(torch.zeros(2, 4), torch.tensor([1, 2])).enumerate_support()
    with pytest.raises(ValueError, match="40116600 masks"):
        KSubset(torch.zeros(28), 14).enumerate_support()
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


def test_a_value_for_all_rows_has_a_density_in_each():
    """As plates expand a distribution, and enumeration gives one value for all of its rows."""
    distribution = KSubset(torch.zeros(3), 1).expand((4, 2))
    for value, shape in ((torch.eye(3)[0], (4, 2)), (torch.eye(3)[:, None, None], (3, 4, 2))):
        log_prob = distribution.log_prob(value)
        assert log_prob.shape == shape
        assert torch.allclose(log_prob.exp(), torch.full(shape, 1 / 3))
