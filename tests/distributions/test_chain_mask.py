"""The binary chain against full enumeration, and against a sequential pass where there is none."""

import math

import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradgradcheck

from lexppl.distributions import ChainMask, mask_support, uniform_masks
from lexppl.distributions.support import draws_zeros_and_ones
from tests.distributions.listed import assert_equals_list, masks_of, numbers
from tests.refusals import refused


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
def test_it_equals_the_list_at_every_length(size: int) -> None:
    logits, coupling = numbers(3, size, seed=size), numbers(3, size - 1, seed=50 + size)
    chain, log_p = ChainMask(logits, coupling), enumerated(logits, coupling)
    assert_equals_list(chain, log_p, logits, coupling)
    assert torch.equal(chain.mode, masks_of(size)[log_p.argmax(0)])
    switches = log_p.exp().mT @ masks_of(size).diff(dim=-1).abs()
    assert (chain.switches - switches).abs().sum() < 1e-9
    if size > 2:
        check = lambda u, j: ChainMask(u, j).log_prob(chain.mode)  # noqa: E731
        assert size > 5 or gradgradcheck(check, (logits, coupling))


def test_a_coupling_by_row_and_what_expands_with_it() -> None:
    by_row = ChainMask(numbers(6), torch.tensor([[0.0], [1.0], [2.0]]))
    assert by_row.batch_shape == (3,)
    assert bool((by_row.switches.diff(dim=0) < 0).all())
    wide = by_row.expand((4, 3))
    for name, last in (("mode", 6), ("switches", 5), ("coupling", 5)):
        assert getattr(wide, name).shape == (4, 3, last)


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


def test_alike_scores_have_an_entropy_with_curvature() -> None:
    hessian = torch.autograd.functional.hessian
    found = hessian(lambda u: ChainMask(u, 0.0).entropy(), torch.zeros(5)).diagonal()
    assert found.tolist() == pytest.approx([-0.25] * 5)
    assert ChainMask(torch.zeros(5), 0.0).entropy().item() == pytest.approx(5 * math.log(2))


def test_what_the_library_asks_of_masks() -> None:
    chain = ChainMask(torch.zeros(2, 4), 1.0)
    assert draws_zeros_and_ones(chain)
    assert mask_support(chain).shape == (16, 1, 4)
    assert uniform_masks(chain).entropy().tolist() == pytest.approx([4 * math.log(2)] * 2)
    refused(r"65536.*limit = 16", mask_support, ChainMask(torch.zeros(16), 1.0), limit=16)
    refused("draw samples instead", ChainMask(torch.zeros(30), 1.0).enumerate_support)
