"""The binary chain against full enumeration, and against a sequential pass where there is none."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.distributions import kl_divergence
from torch.fx.experimental.proxy_tensor import make_fx

from lexppl.distributions import ChainMask, mask_support, uniform_masks
from lexppl.distributions.support import draws_zeros_and_ones
from tests.distributions.goodness_of_fit import FAILURE_RATE, assert_fits, p_value


def numbers(*shape: int, scale: float = 1.5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(*shape, dtype=torch.float64, generator=generator) * scale
    return values.requires_grad_()


def masks_of(size: int) -> Tensor:
    code = torch.arange(2**size).unsqueeze(-1)
    return ((code >> torch.arange(size)) & 1).double()


def enumerated(logits: Tensor, coupling: Tensor) -> Tensor:
    """log-probabilities `(2^G, B)`."""
    masks = masks_of(logits.shape[-1])
    score = masks @ logits.mT - masks.diff(dim=-1).abs() @ coupling.mT
    return score.log_softmax(0)


def forward_pass(logits: Tensor, coupling: Tensor) -> Tensor:
    """log Z by G sequential steps."""
    off, on = torch.zeros_like(logits[..., 0]), logits[..., 0]
    for g in range(1, logits.shape[-1]):
        cost = coupling[..., g - 1]
        off, on = (
            torch.logaddexp(off, on - cost),
            torch.logaddexp(on, off - cost) + logits[..., g],
        )
    return torch.logaddexp(off, on)


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9])
def test_everything_equals_enumeration(size: int) -> None:
    logits, coupling = numbers(3, size, seed=size), numbers(3, size - 1, seed=50 + size)
    chain = ChainMask(logits, coupling)
    masks = masks_of(size)
    reference = enumerated(logits, coupling)
    p = reference.exp()
    mean, switches = p.mT @ masks, p.mT @ masks.diff(dim=-1).abs()
    pairs = {
        "log_prob": (chain.log_prob(masks.unsqueeze(1)), reference),
        "mean": (chain.mean, mean),
        "variance": (chain.variance, mean * (1 - mean)),
        "switches": (chain.switches, switches),
        "entropy": (chain.entropy(), -(p * reference).sum(0)),
    }
    for name, (value, exact) in pairs.items():
        assert value.shape == exact.shape, name
        if not exact.numel():
            continue
        assert (value - exact).abs().max() < 1e-10, name
        weights = torch.linspace(-1, 2, exact.numel(), dtype=torch.float64).reshape(exact.shape)
        for of in (logits, coupling)[: 1 + (size > 1)]:
            (gradient,) = grad((value * weights).sum(), of, retain_graph=True)
            (expected,) = grad((exact * weights).sum(), of, retain_graph=True)
            assert (gradient - expected).abs().max() < 1e-9, name
    assert torch.equal(chain.mode, masks[reference.argmax(0)])
    listed = chain.enumerate_support(expand=False)
    assert listed.shape == (2**size, 1, size)
    assert chain.log_prob(listed).exp().sum(0).sub(1).abs().max() < 1e-10


def test_no_coupling_gives_independent_entries_and_some_does_not() -> None:
    logits = numbers(3, 6)
    independent = dist.Bernoulli(logits=logits).to_event(1)
    masks = masks_of(6).unsqueeze(1)
    free = ChainMask(logits, 0.0)
    assert (free.log_prob(masks) - independent.log_prob(masks)).abs().max() < 1e-12
    assert (free.mean - independent.mean).abs().max() < 1e-12
    assert (free.entropy() - independent.entropy()).abs().max() < 1e-12
    coupled = ChainMask(logits, 0.5)
    assert (coupled.log_prob(masks) - independent.log_prob(masks)).abs().max() > 0.1
    assert (coupled.mean - independent.mean).abs().max() > 0.01


def test_derivatives_of_any_order() -> None:
    logits, coupling = numbers(2, 5), numbers(2, 4, seed=1)
    value = ChainMask(logits, coupling).mode
    checks = {
        "log_prob": lambda u, j: ChainMask(u, j).log_prob(value),
        "mean": lambda u, j: ChainMask(u, j).mean,
        "entropy": lambda u, j: ChainMask(u, j).entropy(),
    }
    for name, function in checks.items():
        assert gradcheck(function, (logits, coupling)), name
        assert gradgradcheck(function, (logits, coupling)), name


@pytest.mark.complete(but=7)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["spread", "alternating", "constant"])
@pytest.mark.parametrize("coupling", [-50.0, 0.0, 3.0, 50.0])
def test_thousands_of_entries_and_extreme_logits(
    dtype: torch.dtype, kind: str, coupling: float
) -> None:
    size = 1568
    uniform = torch.rand(2, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logits = {
        "spread": 100 * uniform - 50,
        "alternating": 50.0 - 100.0 * (torch.arange(size) % 2).expand(2, size),
        "constant": torch.full_like(uniform, -50.0),
    }[kind].to(dtype)
    logits.requires_grad_()
    chain = ChainMask(logits, coupling)
    value = chain.sample()
    exact = logits.detach().double().requires_grad_()
    pairs = torch.full((2, size - 1), coupling, dtype=torch.float64, requires_grad=True)
    total = forward_pass(exact, pairs)
    marginals, by_coupling = grad(total.sum(), (exact, pairs))
    value64 = value.double()
    log_prob = (exact * value64).sum(-1) - (pairs * value64.diff(dim=-1).abs()).sum(-1) - total
    # Rounding of the reference's own large sums, and of float32's terms relative to the mode.
    unit = torch.finfo(dtype).eps
    limit = 1e-9 + 20 * unit * (100 + float(log_prob.detach().abs().max()))
    assert bool(chain.log_prob(value).isfinite().all())
    assert (chain.log_prob(value) - log_prob).abs().max() < limit
    assert (chain.mean - marginals).abs().max() < 1e-10 + 200 * unit
    assert (chain.switches + by_coupling).abs().max() < 1e-10 + 200 * unit
    assert bool((chain.entropy() > -limit).all())
    (gradient,) = grad(chain.log_prob(value).sum(), logits, retain_graph=True)
    assert (gradient - (value - marginals)).abs().max() < 1e-10 + 200 * unit
    (gradient,) = grad(chain.entropy().sum(), logits)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("size", [1, 2, 5, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_fit(size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(size)
    logits, coupling = numbers(2, size).detach(), numbers(2, size - 1, seed=1).detach()
    p = enumerated(logits, coupling).exp()
    draws = ChainMask(logits.to(dtype), coupling.to(dtype)).sample((20_000,))
    assert draws.dtype == dtype
    for row in range(2):
        assert_fits(draws[:, row], masks_of(size), p[:, row])


def test_draws_of_another_chain_do_not_fit() -> None:
    """Negative controls: rows swapped, and independent entries of the right marginals."""
    torch.manual_seed(0)
    logits, coupling = numbers(2, 5).detach(), torch.full((2, 4), 1.0, dtype=torch.float64)
    p = enumerated(logits, coupling).exp()
    chain = ChainMask(logits, coupling)
    draws = chain.sample((20_000,))
    assert p_value(draws[:, 0], masks_of(5), p[:, 1]) < FAILURE_RATE
    independent = torch.bernoulli(chain.mean.expand(20_000, 2, 5))
    assert p_value(independent[:, 0], masks_of(5), p[:, 0]) < FAILURE_RATE


def test_marginals_and_switches_of_draws_of_a_long_chain() -> None:
    torch.manual_seed(3)
    chain = ChainMask(numbers(777).detach(), numbers(776, seed=1).detach())
    number = 4000
    draws = chain.sample((number,))
    bound = 6.5
    sd = (chain.variance / number).sqrt()
    assert ((draws.mean(0) - chain.mean) / sd).abs().max() < bound
    share = chain.switches
    sd = (share * (1 - share) / number).sqrt()
    assert ((draws.diff(dim=-1).abs().mean(0) - share) / sd).abs().max() < bound


def test_shapes_and_expand_share_what_is_computed() -> None:
    logits = numbers(4, 6)
    chain = ChainMask(logits, 1.0)
    wide = chain.expand((3, 4))
    assert wide._rows is chain._rows
    draws = wide.sample((2,))
    assert draws.shape == (2, 3, 4, 6)
    assert len(draws.reshape(-1, 6).unique(dim=0)) > 1
    assert torch.equal(wide.log_prob(draws), chain.log_prob(draws))
    for name, last in (("mean", 6), ("variance", 6), ("mode", 6), ("switches", 5), ("coupling", 5)):
        assert getattr(wide, name).shape == (3, 4, last), name
        assert getattr(wide, name).stride(0) == 0, name
    assert wide.entropy().shape == (3, 4)
    assert wide.log_prob(draws[0, 0, 0]).shape == (3, 4)
    by_row = ChainMask(logits[0], torch.tensor([[0.0], [1.0], [2.0]]))
    assert by_row.batch_shape == (3,)
    assert bool((by_row.switches.diff(dim=0) < 0).all())
    with pytest.raises(ValueError, match="cannot be expanded to"):
        wide.expand((4,))
    assert repr(wide) == "ChainMask(logits: (3, 4, 6))"


def test_gradients_survive_an_earlier_use_without_them() -> None:
    logits = numbers(3, 6)
    chain = ChainMask(logits, 1.0)
    with torch.no_grad():
        mask = chain.sample()
        chain.log_prob(mask)
        assert not chain.mean.requires_grad
    for value, fresh in (
        (chain.mean.square().sum(), ChainMask(logits, 1.0).mean.square().sum()),
        (chain.log_prob(mask).sum(), ChainMask(logits, 1.0).log_prob(mask).sum()),
    ):
        assert torch.equal(grad(value, logits)[0], grad(fresh, logits)[0])


def test_in_a_pyro_model_under_plates() -> None:
    logits = numbers(4, 6)

    def model() -> None:
        with pyro.plate("data", 4, dim=-1), pyro.plate("masks", 3, dim=-2):
            pyro.sample("mask", ChainMask(logits, 1.0))

    trace = poutine.trace(model).get_trace()
    trace.compute_log_prob()
    site = trace.nodes["mask"]
    assert site["log_prob"].shape == (3, 4)
    site["log_prob_sum"].backward()
    assert logits.grad is not None
    exact = site["value"].sum(0) - 3 * ChainMask(logits, 1.0).mean
    assert (logits.grad - exact).abs().max() < 1e-10


def test_vmap_and_a_traced_program() -> None:
    logits, coupling = numbers(5, 3, 7).detach(), numbers(5, seed=1).detach()

    def everything(u: Tensor, j: Tensor) -> tuple[Tensor, ...]:
        chain = ChainMask(u, j, validate_args=False)
        mask = chain.expand((4, 3)).sample()
        return mask, chain.log_prob(mask), chain.mean, chain.entropy()

    mask, *values = torch.func.vmap(everything, randomness="different")(logits, coupling)
    chain = ChainMask(logits, coupling[:, None, None])
    plain = (chain.log_prob(mask.movedim(1, 0)).movedim(0, 1), chain.mean, chain.entropy())
    for value, expected in zip(values, plain, strict=True):
        assert (value - expected).abs().max() < 1e-12

    def step(u: Tensor) -> Tensor:
        chain = ChainMask(u, 1.0, validate_args=False)
        return chain.log_prob(torch.ones(7, dtype=torch.float64)) + chain.entropy()

    other = numbers(3, 7, seed=9).detach()
    assert (make_fx(step)(logits[0])(other) - step(other)).abs().max() < 1e-12


def test_divergences() -> None:
    p_logits, p_coupling = numbers(3, 6), numbers(3, 5, seed=1)
    q_logits, q_coupling = numbers(3, 6, seed=2), numbers(3, 5, seed=3)
    p = enumerated(p_logits, p_coupling)
    q = enumerated(q_logits, q_coupling)
    chain = ChainMask(p_logits, p_coupling)
    independent = dist.Bernoulli(logits=q_logits).to_event(1)
    others = {
        "chain": (ChainMask(q_logits, q_coupling), q),
        "independent": (independent, independent.log_prob(masks_of(6).unsqueeze(1))),
    }
    for name, (other, log_q) in others.items():
        exact = (p.exp() * (p - log_q)).sum(0)
        value = kl_divergence(chain, other)
        assert (value - exact).abs().max() < 1e-10, name
        for of in (p_logits, q_logits):
            (gradient,) = grad(value.sum(), of, retain_graph=True)
            (expected,) = grad(exact.sum(), of, retain_graph=True)
            assert (gradient - expected).abs().max() < 1e-10, name
    assert kl_divergence(chain.expand((2, 3)), others["chain"][0]).shape == (2, 3)
    alike = ChainMask(torch.zeros(5), 0.0)
    assert torch.autograd.functional.hessian(
        lambda u: ChainMask(u, 0.0).entropy(), torch.zeros(5)
    ).diagonal().tolist() == pytest.approx([-0.25] * 5), "alike scores have curvature, too"
    assert alike.entropy().item() == pytest.approx(5 * math.log(2))
    with pytest.raises(NotImplementedError):
        kl_divergence(chain, dist.Normal(torch.zeros(3, 6), 1.0).to_event(1))


def test_what_the_library_asks_of_masks() -> None:
    chain = ChainMask(torch.zeros(2, 4), 1.0)
    assert draws_zeros_and_ones(chain)
    assert mask_support(chain).shape == (16, 1, 4)
    assert uniform_masks(chain).entropy().tolist() == pytest.approx([4 * math.log(2)] * 2)
    with pytest.raises(ValueError, match=r"65536.*limit = 16"):
        mask_support(ChainMask(torch.zeros(16), 1.0), limit=16)
    with pytest.raises(ValueError, match="draw samples instead"):
        ChainMask(torch.zeros(30), 1.0).enumerate_support()


@pytest.mark.parametrize(
    ("logits", "coupling", "message"),
    [
        (torch.tensor(0.0), 1.0, "last dimension"),
        (torch.zeros(2, 0), 1.0, "at least one mask entry"),
        (torch.zeros(2, 4), torch.zeros(4), r"broadcast with \(\*batch, G - 1\) = \(2, 3\)"),
        (torch.zeros(2, 4), torch.zeros(3, 3), r"its shape is \(3, 3\)"),
        (torch.tensor([0.0, math.nan]), 1.0, "logits"),
        (torch.zeros(4), math.inf, "coupling must be finite"),
    ],
)
def test_bad_input(logits: Tensor, coupling: float | Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ChainMask(logits, coupling, validate_args=True)


def test_support_is_checked() -> None:
    chain = ChainMask(torch.zeros(2, 4), 1.0, validate_args=True)
    for bad in (torch.full((2, 4), 0.5), torch.zeros(2, 3)):
        with pytest.raises(ValueError):
            chain.log_prob(bad)
