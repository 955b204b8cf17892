"""Relaxations: their noise gives the distribution, and the noise given the draw is the noise's
conditional.

The conditional is tested by what defines it: noise drawn given the draw of free noise is free noise
again; given one draw, it has the distribution of free noise that happens to give this draw; and
gradients through it, with the draw's score, are those of the relaxed mask.
"""

import math

import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.autograd import grad

from lexppl.distributions import (
    KSubset,
    MaxConcrete,
    OrderedTopK,
    TopKMask,
    mask_support,
    relaxation,
)
from lexppl.distributions.relaxed import Relaxation
from tests.distributions.goodness_of_fit import FAILURE_RATE, assert_fits
from tests.distributions.listed import numbers
from tests.refusals import refused

SIZE = 5


def bernoulli(logits: Tensor) -> dist.Independent:
    return dist.Bernoulli(logits=logits).to_event(1)


LAWS = {
    "Bernoulli": bernoulli,
    "OrderedTopK": lambda logits: OrderedTopK(logits, 2),
    "TopKMask": lambda logits: TopKMask(logits, 2),
    "OrderedTopK of all": lambda logits: OrderedTopK(logits, SIZE),
}
NOISE = {"Bernoulli": stats.logistic}
"""The standard distribution of the noise; Gumbel where not listed."""


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["Bernoulli", "OrderedTopK", "TopKMask"])
def test_hard_masks_follow_the_law(name: str) -> None:
    torch.manual_seed(1)
    logits = numbers(SIZE)
    distribution = LAWS[name](logits)
    relaxed = relaxation(distribution)
    masks = TopKMask(logits, 2).enumerate_support() if "K" in name else mask_support(distribution)
    mask_law = TopKMask(logits, 2) if "K" in name else distribution
    hard = relaxed.hard(relaxed.noise((20_000,)))
    assert relaxed.exact
    assert not hard.requires_grad
    assert_fits(hard, masks, mask_law.log_prob(masks).exp().detach())


@pytest.mark.parametrize("name", LAWS)
def test_conditional_noise_gives_its_draw_and_is_noise_again(name: str) -> None:
    torch.manual_seed(2)
    relaxed = relaxation(LAWS[name](numbers(SIZE)))
    assert relaxed.has_conditional
    draw = relaxed.draw(relaxed.noise((20_000,)))
    noise = relaxed.conditional_noise(draw)
    assert torch.equal(relaxed.draw(noise), draw)
    noise = noise.detach()
    cdf = NOISE.get(name, stats.gumbel_r).cdf
    for coordinate in range(SIZE):
        assert stats.kstest(noise[:, coordinate].numpy(), cdf).pvalue > FAILURE_RATE / SIZE
    # Independent coordinates: products of uniform scores, each z-score standard normal.
    score = torch.from_numpy(cdf(noise.numpy())) - 0.5
    products = (score.T @ score) / math.sqrt(len(score)) * 12
    off_diagonal = products[~torch.eye(SIZE, dtype=torch.bool)]
    assert off_diagonal.abs().max() < 6


@pytest.mark.parametrize("name", LAWS)
def test_conditional_noise_is_that_of_free_noise_with_the_draw(name: str) -> None:
    torch.manual_seed(3)
    relaxed = relaxation(LAWS[name](numbers(SIZE)))
    free = relaxed.noise((100_000,))
    draws = relaxed.draw(free)
    common = draws.unique(dim=0, return_counts=True)
    draw = common[0][common[1].argmax()]
    accepted = free[(draws == draw).all(-1)][:5000]
    conditional = relaxed.conditional_noise(draw.expand(5000, -1)).detach()
    assert len(accepted) > 1000
    views = {f"coordinate {i}": (accepted[:, i], conditional[:, i]) for i in range(SIZE)}
    views["range"] = tuple(x.amax(-1) - x.amin(-1) for x in (accepted, conditional))
    views["first pair"] = tuple(x[:, 0] - x[:, 1] for x in (accepted, conditional))
    for view, (a, b) in views.items():
        assert stats.ks_2samp(a.numpy(), b.numpy()).pvalue > FAILURE_RATE / len(views), view
    # Negative control: noise that ignores the draw is told from it.
    ignoring = relaxed.noise((5000,))
    worst = min(
        stats.ks_2samp(accepted[:, i].numpy(), ignoring[:, i].numpy()).pvalue for i in range(SIZE)
    )
    assert worst < FAILURE_RATE


def gradient_z_scores(relaxed: Relaxation, logits: Tensor, detach: bool = False) -> Tensor:
    r"""z-scores of ∇E[f(relaxed(ε))] − E[∇f(relaxed(ε′)) + f(relaxed(ε′)) ∇log p(d)].

    ε′ is drawn given d, d is the draw of ε; f has neither symmetry nor zeros.
    """
    weights = torch.linspace(-1.0, 2.0, SIZE, dtype=torch.float64)

    def f(mask: Tensor) -> Tensor:
        return (1 + mask @ weights).square() + (mask[:, 0] * mask[:, 1])

    number = 40_000
    rows = logits.detach().expand(number, SIZE).clone().requires_grad_()
    relaxed = type(relaxed)(_with_logits(relaxed.distribution, rows))
    noise = relaxed.noise()
    draw = relaxed.draw(noise)
    (free,) = grad(f(relaxed.relaxed(noise, 0.7)).sum(), rows)
    conditional = relaxed.conditional_noise(draw)
    if detach:
        conditional = conditional.detach()
    value = f(relaxed.relaxed(conditional, 0.7))
    (through,) = grad((value + value.detach() * relaxed.log_prob(draw)).sum(), rows)
    difference = free - through
    return difference.mean(0) / (difference.std(0) / math.sqrt(number))


def _with_logits(distribution, logits: Tensor):
    return (
        type(distribution)(logits, distribution.k)
        if hasattr(distribution, "k")
        else bernoulli(logits)
    )


@pytest.mark.parametrize("name", ["Bernoulli", "OrderedTopK", "TopKMask"])
def test_gradient_through_the_conditional_noise(name: str) -> None:
    """Five z-scores within 5.5 (failure rate 2e-7); a conditional cut from its logits is caught."""
    torch.manual_seed(4)
    logits = numbers(SIZE)
    relaxed = relaxation(LAWS[name](logits))
    assert gradient_z_scores(relaxed, logits).abs().max() < 5.5
    assert gradient_z_scores(relaxed, logits, detach=True).abs().max() > 5.5


@pytest.mark.parametrize("name", LAWS)
def test_relaxed_masks_become_the_hard_ones(name: str) -> None:
    torch.manual_seed(5)
    relaxed = relaxation(LAWS[name](numbers(3, SIZE)))
    noise = relaxed.noise((200,))
    close = (relaxed.relaxed(noise, 1e-4) - relaxed.hard(noise)).abs().amax(-1) < 1e-3
    assert close.double().mean() > 0.98


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LAWS)
def test_extreme_logits_stay_finite(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(6)
    logits = torch.tensor([50.0, -50.0, 0.0, 50.0, -50.0], dtype=dtype, requires_grad=True)
    relaxed = relaxation(LAWS[name](logits))
    draw = relaxed.draw(relaxed.noise((500,)))
    noise = relaxed.conditional_noise(draw)
    assert (relaxed.draw(noise) == draw).all(-1).double().mean() > 0.99
    mask = relaxed.relaxed(noise, 0.5)
    (gradient,) = grad(mask.square().sum(), logits, create_graph=True)
    (second,) = grad(gradient.square().sum(), logits)
    for value in (noise, mask, gradient, second):
        assert bool(value.isfinite().all())


def test_k_subset_says_what_its_relaxation_is_not() -> None:
    logits = numbers(SIZE)
    relaxed = relaxation(KSubset(logits, 2))
    assert not relaxed.exact
    assert not relaxed.has_conditional
    noise = relaxed.noise((7,))
    assert (relaxed.relaxed(noise, 0.5).sum(-1) - 2).abs().max() < 1e-10
    refused("follow TopKMask", relaxed.hard, noise, error=NotImplementedError)
    refused("no noise given the draw", relaxed.conditional_noise, noise, error=NotImplementedError)
    refused("needs an int k", relaxation, KSubset(logits, torch.tensor(2)), error=TypeError)


def test_refusals() -> None:
    with pytest.raises(TypeError, match="no relaxation is registered for MaxConcrete"):
        relaxation(MaxConcrete(0.5, torch.zeros(4), 2))
    with pytest.raises(TypeError, match="and not Normal"):
        relaxation(dist.Normal(torch.zeros(4), 1.0).to_event(1))
