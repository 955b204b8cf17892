"""What every law of masks keeps to: its definition, draws, expansion, transforms, plates."""

import math
from itertools import permutations

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.distributions import kl_divergence
from torch.fx.experimental.proxy_tensor import make_fx

from lexppl.distributions import (
    ChainMask,
    ExchangeableMasks,
    KSubset,
    OrderedTopK,
    RandomSizeSubset,
    ShapleyKernel,
    TopKMask,
    mask_support,
)
from tests.distributions.goodness_of_fit import FAILURE_RATE, assert_fits, p_value
from tests.distributions.listed import assert_equals_list, masks_of, numbers, of_sizes
from tests.refusals import refusals, refused

G = 5
MASKS = masks_of(G)
COUPLING = numbers(3, G - 1, seed=1).detach()
HOLES = torch.tensor([-math.inf, 0.3, -math.inf, 1.0, 0.2, -math.inf]).double()


def in_order(logits: Tensor, order: tuple[int, ...]) -> Tensor:
    """log p of entries drawn one by one without replacement, `(B,)`."""
    total, left = torch.zeros_like(logits[:, 0]), list(range(logits.shape[1]))
    for pick in order:
        total = total + logits[:, pick] - logits[:, left].logsumexp(-1)
        left.remove(pick)
    return total


def by_orders(logits: Tensor, k: int) -> Tensor:
    """log p of masks as the sum over the orders of their ones, `(2^G, B)`."""
    rows = []
    for mask in masks_of(logits.shape[1]):
        on = mask.nonzero().flatten().tolist()
        orders = [in_order(logits, order) for order in permutations(on)]
        fits = len(on) == k
        rows.append(torch.stack(orders).logsumexp(0) if fits else logits[:, 0] * 0 - torch.inf)
    return torch.stack(rows)


def kernel(size: int) -> Tensor:
    """P(s) of the Shapley kernel (Lundberg and Lee 2017, theorem 2), `(G + 1,)`, up to a factor."""
    between = [(size - 1) / (s * (size - s)) for s in range(1, size)]
    return torch.tensor([0.0, *between, 0.0], dtype=torch.float64)


LAWS = {
    "k-subset": lambda x: KSubset(x, 2),
    "top-k": lambda x: TopKMask(x, 2),
    "chain": lambda x: ChainMask(x, COUPLING.to(x.dtype)[: len(x)]),
    "random size": lambda x: RandomSizeSubset(x, HOLES.to(x.dtype)),
    "Shapley": lambda x: ShapleyKernel(x.shape[-1], x.shape[:-1], dtype=x.dtype),
    "uniform size": lambda x: ExchangeableMasks([1.0] * (G + 1), x.shape[:-1], dtype=x.dtype),
    "any size": lambda x: ExchangeableMasks([0.0, 3.0, 0, 5, 1, 2], x.shape[:-1], dtype=x.dtype),
}
OF_LOGITS = ("k-subset", "top-k", "chain", "random size")
every_law = pytest.mark.parametrize("name", LAWS)


def log_probabilities(name: str, logits: Tensor) -> Tensor:
    """log p of all masks by the definition, `(32, B)`: no code of the library."""
    weights = MASKS @ logits.mT
    sizes = {
        "k-subset": torch.tensor([0.0, 0, 1, 0, 0, 0]),
        "random size": HOLES.softmax(-1),
        "Shapley": kernel(G),
        "uniform size": torch.ones(G + 1),
        "any size": torch.tensor([0.0, 3, 0, 5, 1, 2]),
    }
    if name == "top-k":
        return by_orders(logits, 2)
    if name == "chain":
        return (weights - MASKS.diff(dim=-1).abs() @ COUPLING[: len(logits)].mT).log_softmax(0)
    weights = weights if name in OF_LOGITS else torch.zeros_like(weights)
    return of_sizes(weights, sizes[name].double().log().log_softmax(-1))


@pytest.mark.smoke
@every_law
def test_it_equals_the_list_of_masks(name: str) -> None:
    logits = numbers(3, G)
    law, log_p = LAWS[name](logits), log_probabilities(name, logits)
    if name == "top-k":
        inside = log_p.isfinite().all(-1)
        found = law.log_prob(MASKS[inside].unsqueeze(1))
        assert (found - log_p[inside]).abs().max() < 1e-12
        weights = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).reshape(found.shape)
        (gap,) = grad((weights * (found - log_p[inside])).sum(), logits)
        assert gap.abs().max() < 1e-12
        return
    assert_equals_list(law, log_p, *([logits] if name in OF_LOGITS else []))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_law
def test_draws_fit_and_those_of_another_row_do_not(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    logits = numbers(3, G).detach()
    p = log_probabilities(name, logits).exp()
    draws = LAWS[name](logits.to(dtype)).sample((20_000,))
    assert draws.dtype == dtype
    for row in range(3):
        assert_fits(draws[:, row], MASKS[p[:, row] > 0], p[p[:, row] > 0, row])
    if name in OF_LOGITS:
        inside = p[:, 1] > 0
        assert p_value(draws[:, 0], MASKS[inside], p[inside, 1]) < FAILURE_RATE


@pytest.mark.parametrize("name", OF_LOGITS)
def test_derivatives_of_any_order(name: str) -> None:
    logits = numbers(2, G)
    value = LAWS[name](logits).sample()
    checks = [lambda x: LAWS[name](x).log_prob(value)]
    if name != "top-k":
        checks += [lambda x: LAWS[name](x).mean, lambda x: LAWS[name](x).entropy()]
    for check in checks:
        assert gradcheck(check, (logits,))
        assert gradgradcheck(check, (logits,))


def coins(logits: Tensor) -> dist.Independent:
    return dist.Bernoulli(logits=logits).to_event(1)


@pytest.mark.parametrize(
    ("name", "other"), [("k-subset", LAWS["k-subset"]), ("chain", LAWS["chain"]), ("chain", coins)]
)
def test_divergences_are_sums_over_the_masks(name: str, other) -> None:
    p_logits, q_logits = numbers(3, G), numbers(3, G, seed=1)
    p = log_probabilities(name, p_logits)
    q = coins(q_logits).log_prob(MASKS.unsqueeze(1)) if other is coins else None
    q = log_probabilities(name, q_logits) if q is None else q
    inside = p.isfinite().all(-1)
    exact = (p[inside].exp() * (p[inside] - q[inside])).sum(0)
    law, second = LAWS[name](p_logits), other(q_logits)
    value = kl_divergence(law, second)
    assert (value - exact).abs().max() < 1e-10
    for of in (p_logits, q_logits):
        found, expected = (grad(v.sum(), of, retain_graph=True)[0] for v in (value, exact))
        assert (found - expected).abs().max() < 1e-10
    assert kl_divergence(law.expand((2, 3)), second).shape == (2, 3)
    with pytest.raises(NotImplementedError):
        kl_divergence(law, dist.Normal(torch.zeros(3, G), 1.0).to_event(1))


@every_law
def test_expansion_shares_what_is_computed(name: str) -> None:
    law = LAWS[name](numbers(3, G))
    wide = law.expand((4, 3))
    assert type(wide) is type(law)
    assert (wide.batch_shape, wide.event_shape) == ((4, 3), (G,))
    draws = wide.sample((2,))
    assert draws.shape == (2, 4, 3, G) and bool(wide.support.check(draws).all())
    assert len(wide.sample((20,)).reshape(-1, G).unique(dim=0)) > 1
    assert torch.equal(wide.log_prob(draws), law.log_prob(draws))
    # As plates expand a law, one value has a density in each row.
    assert wide.log_prob(draws[0, 0, 0]).shape == (4, 3)
    assert wide.enumerate_support().shape == (len(mask_support(law)), 4, 3, G)
    assert mask_support(wide).shape[1:] == (1, 1, G)
    if name != "top-k":
        assert wide.entropy().shape == (4, 3)
        for statistic in ("mean", "variance"):
            view = getattr(wide, statistic)
            assert view.shape == (4, 3, G)
            assert torch.equal(view[0], getattr(law, statistic))
    if name in ("k-subset", "chain"):
        assert wide._computed is law._computed
        assert wide.mean.stride(0) == wide.entropy().stride(0) == wide.variance.stride(0) == 0
    assert law.to_event(1).log_prob(law.sample()).shape == ()
    for bad in ((4,), (), (3, 1)):
        refused("cannot be expanded to", law.expand, bad)


@pytest.mark.parametrize("name", ["k-subset", "chain"])
def test_gradients_survive_an_earlier_use_without_them(name: str) -> None:
    logits = numbers(3, G)
    law, fresh = LAWS[name](logits), LAWS[name](logits)
    with torch.no_grad():
        mask = law.sample()
        law.log_prob(mask), law.entropy()
        assert not law.mean.requires_grad
    for of in (
        lambda one: one.mean.square().sum(),
        lambda one: one.variance.square().sum(),
        lambda one: one.log_prob(mask).sum(),
    ):
        found, expected = (grad(of(one), logits, retain_graph=True)[0] for one in (law, fresh))
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", OF_LOGITS)
def test_in_a_pyro_model_under_plates(name: str) -> None:
    logits = numbers(3, G)

    def model() -> None:
        with pyro.plate("data", 3, dim=-1), pyro.plate("masks", 2, dim=-2):
            pyro.sample("mask", LAWS[name](logits))

    trace = poutine.trace(model).get_trace()
    trace.compute_log_prob()
    site = trace.nodes["mask"]
    assert site["value"].shape == (2, 3, G) and site["log_prob"].shape == (2, 3)
    (found,) = grad(site["log_prob_sum"], logits)
    (expected,) = grad(LAWS[name](logits).log_prob(site["value"]).sum(), logits)
    assert (found - expected).abs().max() < 1e-12


@pytest.mark.parametrize("name", ["k-subset", "top-k", "chain"])
def test_vmap(name: str) -> None:
    torch.manual_seed(0)
    logits = numbers(4, 3, G).detach()

    def everything(x: Tensor) -> tuple[Tensor, ...]:
        law = LAWS[name](x)
        law._validate_args = False
        mask = law.expand((2, 3)).sample()
        log_prob = law.log_prob(mask)
        return (mask, log_prob) if name == "top-k" else (mask, log_prob, law.mean, law.entropy())

    with pyro.validation_enabled(False):
        found = torch.func.vmap(everything, randomness="different")(logits)
        assert found[0].shape == (4, 2, 3, G)
        for row, law in enumerate(map(LAWS[name], logits)):
            plain = [law.log_prob(found[0][row])]
            plain += [] if name == "top-k" else [law.mean, law.entropy()]
            for value, expected in zip(found[1:], plain, strict=True):
                assert (value[row] - expected).abs().max() < 1e-12
        alike = torch.func.vmap(everything, randomness="different")(logits[:1].expand(4, 3, G))[0]
        assert not all(torch.equal(alike[0], other) for other in alike[1:])


@pytest.mark.parametrize(("name", "size"), [("k-subset", G), ("k-subset", 70), ("chain", G)])
def test_a_traced_program_is_the_eager_one(name: str, size: int) -> None:
    """Of 70 entries a k-subset is computed by frequencies."""

    def step(x: Tensor) -> tuple[Tensor, ...]:
        x = x.detach().requires_grad_()
        law = LAWS[name](x)
        with torch.no_grad():
            mask = law.mode
        loss = law.log_prob(mask).sum() + law.entropy().sum() + law.mean.square().sum()
        return loss, grad(loss, x)[0]

    with pyro.validation_enabled(False):
        graph, other = (make_fx(step)(numbers(3, size).detach()), numbers(3, size, seed=9).detach())
        for traced, eager in zip(graph(other), step(other), strict=True):
            assert (traced - eager).abs().max() < 1e-10
        drawn = make_fx(lambda x: LAWS[name](x).sample((7,)))(numbers(3, size).detach())(other)
    assert drawn.shape == (7, 3, size) and bool(((drawn == 0) | (drawn == 1)).all())
    assert name == "chain" or bool((drawn.sum(-1) == 2).all())


@every_law
def test_what_is_outside_the_support_is_refused(name: str) -> None:
    law = LAWS[name](torch.zeros(2, G))
    law._validate_args = True
    outside = [torch.full((2, G), 0.5), torch.zeros(2, 3)]
    if name not in ("chain", "uniform size"):
        outside.append(torch.zeros(2, G))
    for bad in outside:
        with pytest.raises(ValueError):
            law.log_prob(bad)


@pytest.mark.parametrize("k", range(1, 6))
def test_ordered_draws_have_their_probabilities(k: int) -> None:
    logits = numbers(2, G)
    law = OrderedTopK(logits, k)
    draws = law.enumerate_support(expand=False)
    log_prob = law.log_prob(draws)
    assert draws.shape == (math.perm(G, k), 1, k)
    assert log_prob.logsumexp(0).abs().max() < 1e-12
    for order, value in list(zip(draws[:, 0].tolist(), log_prob, strict=True))[:20]:
        exact = in_order(logits, tuple(order))
        assert (value - exact).abs().max() < 1e-12
        (gap,) = grad((value - exact).sum(), logits, retain_graph=True)
        assert gap.abs().max() < 1e-12
    assert (TopKMask(logits, k).log_prob(law.mask(draws)) - log_prob).min() > -1e-12


# Laws of the size alone.


@pytest.mark.parametrize("size", [2, 3, 7])
def test_laws_of_the_size_at_other_numbers_of_entries(size: int) -> None:
    zeros = torch.zeros(2**size, 1).double()
    uniform = torch.ones(size + 1).double().log().log_softmax(-1)
    flat = ExchangeableMasks([2.0] * (size + 1), (1,), dtype=torch.float64)
    assert_equals_list(flat, of_sizes(zeros, uniform))
    shapley = kernel(size).log().log_softmax(-1)
    assert_equals_list(ShapleyKernel(size, (1,), dtype=torch.float64), of_sizes(zeros, shapley))


def test_sizes_that_are_not_the_laws_do_not_fit() -> None:
    torch.manual_seed(0)
    p = log_probabilities("Shapley", numbers(1, G).detach())[:, 0].exp()
    flat = ExchangeableMasks([0.0, 1.0, 1.0, 1.0, 1.0, 0.0]).sample((20_000,))
    assert p_value(flat, MASKS[p > 0], p[p > 0]) < FAILURE_RATE


def test_draws_at_the_ends_of_the_uniform_have_allowed_sizes(monkeypatch) -> None:
    rand, largest = torch.rand, {torch.float32: 1.0 - 2.0**-24, torch.float64: 1.0 - 2.0**-53}

    def extreme(value):
        def draw(shape, **options):
            uniform = rand(shape, **options)
            return torch.full_like(uniform, value) if len(shape) == 1 else uniform

        return draw

    for size in (2, 7, 10, 100, 1001):
        for dtype, end in largest.items():
            law = ShapleyKernel(size, dtype=dtype)
            for value, drawn in ((end, size - 1), (0.0, 1)):
                monkeypatch.setattr(torch, "rand", extreme(value))
                assert (law.sample((5,)).sum(-1) == drawn).all()


def test_a_wide_law_has_finite_probabilities() -> None:
    law = ShapleyKernel(3000)
    draws = law.sample((10,))
    assert bool(((draws.sum(-1) >= 1) & (draws.sum(-1) <= 2999)).all())
    assert bool(law.log_prob(draws).isfinite().all())
    refused(r"about 2\^3000 masks", law.enumerate_support)
    assert ShapleyKernel(3, validate_args=False).log_prob(torch.zeros(3)) == -math.inf


test_bad_input = refusals(
    (lambda: ShapleyKernel(1), "entries must be a whole number of at least 2; it is 1"),
    (lambda: ExchangeableMasks([1.0]), "G of at least 1"),
    (lambda: ExchangeableMasks([0.0, 0.0]), "not all 0"),
    (lambda: ExchangeableMasks([1.0, -0.5]), "none negative"),
    (lambda: ExchangeableMasks([1.0, math.nan]), "none negative"),
    (lambda: ChainMask(torch.tensor(0.0), 1.0), "last dimension"),
    (lambda: ChainMask(torch.zeros(2, 0), 1.0), "at least one mask entry"),
    (lambda: ChainMask(torch.zeros(2, 4), torch.zeros(4)), r"with \(\*batch, G - 1\) = \(2, 3"),
    (lambda: ChainMask(torch.zeros(2, 4), torch.zeros(3, 3)), r"its shape is \(3, 3\)"),
    (lambda: ChainMask(torch.tensor([0.0, math.nan]), 1.0, True), "logits"),
    (lambda: ChainMask(torch.zeros(4), math.inf, True), "coupling must be finite"),
)
