"""The size-then-subset law against the list of all masks."""

import math

import pytest
import torch
from torch.distributions import kl_divergence

from lexppl.distributions import (
    RandomSizeSubset,
    beta_binomial_sizes,
    geometric_sizes,
    mask_support,
    uniform_masks,
)
from lexppl.distributions.support import draws_zeros_and_ones
from tests.distributions.listed import assert_equals_list, masks_of, of_sizes
from tests.refusals import refusals

G = 5
GENERATOR = torch.Generator().manual_seed(0)
LOGITS = 2.0 * torch.randn(3, G, generator=GENERATOR).double()
SIZES = {
    "all": torch.randn(3, G + 1, generator=GENERATOR).double(),
    "truncated": torch.randn(4, generator=GENERATOR).double(),
    "with holes": torch.tensor([-math.inf, 0.3, -math.inf, 1.0, 0.2, -math.inf]).double(),
    "none": torch.zeros(1).double(),
    "one": torch.tensor([-math.inf, -math.inf, 0.0]).double(),
}
MASKS = masks_of(G)


@pytest.mark.smoke
@pytest.mark.parametrize("name", SIZES)
def test_against_the_list_of_masks(name):
    logits, sizes = LOGITS.clone().requires_grad_(), SIZES[name].clone().requires_grad_()
    law = RandomSizeSubset(logits, sizes)
    log_p = of_sizes(MASKS @ logits.mT, sizes.log_softmax(-1).expand(3, -1))
    assert_equals_list(law, log_p, *([] if name in ("none", "one") else [logits, sizes]))
    outside = MASKS[log_p.isneginf().all(-1)].unsqueeze(1)
    unchecked = RandomSizeSubset(LOGITS, SIZES[name], validate_args=False)
    assert bool((unchecked.log_prob(outside) == -math.inf).all())
    masks = law.expand([2, 3]).sample((200,))
    assert masks.shape == (200, 2, 3, G) and bool(law.support.check(masks).all())


def test_the_uniform_member():
    alike = uniform_masks(RandomSizeSubset(LOGITS, SIZES["with holes"]))
    log_p = alike.log_prob(mask_support(alike))
    assert torch.allclose(log_p, torch.full_like(log_p, -math.log(len(log_p))))
    assert draws_zeros_and_ones(alike)


# Sizes


def test_the_geometric_prior():
    sizes = geometric_sizes(0.7, 6, smallest=1, largest=5)
    total = sum(0.7**k for k in range(1, 6))
    expected = torch.tensor([0.0, *(0.7**k / total for k in range(1, 6)), 0.0]).double()
    assert torch.allclose(sizes, expected, atol=1e-15)
    assert torch.allclose(geometric_sizes(1.0, 4), torch.full((5,), 0.2).double())
    assert float((geometric_sizes(0.999, 4) - 0.2).abs().max()) > 1e-4
    # The normaliser of sizes 0 to G is another one.
    untruncated = torch.tensor([0.7**k for k in range(7)]).double() * 0.3
    assert float((sizes[1:6] - untruncated[1:6]).abs().max()) > 0.05


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.5, 4.0), (2.0, 3.0)])
def test_the_beta_binomial_against_quadrature(a, b):
    """∫ C(G, k) π^k (1 − π)^(G − k) Beta(π) dπ, by the trapezoid rule in log-odds."""
    log_odds = torch.linspace(-60, 60, 20001).double()
    log_on, log_off = torch.nn.functional.logsigmoid(torch.stack([log_odds, -log_odds]))
    density = (a * log_on + b * log_off).exp()
    moments = torch.stack(
        [math.comb(G, k) * (density * (k * log_on + (G - k) * log_off).exp()) for k in range(G + 1)]
    )
    expected = torch.trapezoid(moments, log_odds) / torch.trapezoid(density, log_odds)
    assert torch.allclose(beta_binomial_sizes(G, a, b), expected, atol=1e-9)


NOWHERE = torch.full((3,), -math.inf)
test_what_cannot_be_is_refused = refusals(
    (lambda: RandomSizeSubset(LOGITS, torch.zeros(G + 2)), "at most G = 5"),
    (lambda: RandomSizeSubset(LOGITS, torch.zeros(())), "in their last dimension"),
    (lambda: RandomSizeSubset(LOGITS, NOWHERE, validate_args=True), "a possible size in"),
    (lambda: RandomSizeSubset(LOGITS / 0.0, torch.zeros(3), validate_args=True), "must be finite"),
    (lambda: RandomSizeSubset(torch.zeros(30), torch.zeros(3)).enumerate_support(), "draw"),
    (lambda: RandomSizeSubset(LOGITS, torch.zeros(3)).expand([2]), "expanded|broadcast"),
    (lambda: geometric_sizes(0.0, 3), "ratio"),
    (lambda: geometric_sizes(0.5, 3, largest=4), "largest"),
    (lambda: geometric_sizes(0.5, 3, smallest=3, largest=2), "smallest"),
    (lambda: beta_binomial_sizes(3, 0.0), "a must be"),
    error=(ValueError, RuntimeError),
)


def test_divergences_are_not_invented():
    law = RandomSizeSubset(LOGITS, SIZES["all"])
    with pytest.raises(NotImplementedError):
        kl_divergence(law, law)
