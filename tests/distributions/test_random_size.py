"""The size-then-subset law against the list of all masks."""

import itertools
import math

import pytest
import torch
from torch.distributions import Bernoulli, kl_divergence

from lexppl.distributions import (
    ExchangeableMasks,
    KSubset,
    RandomSizeSubset,
    UniformSize,
    beta_binomial_sizes,
    geometric_sizes,
    mask_support,
    uniform_masks,
)
from lexppl.distributions.support import draws_zeros_and_ones
from tests.gradients.enumeration import threshold, z_scores

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
MASKS = torch.tensor(list(itertools.product((0.0, 1.0), repeat=G))).double()


def listed(logits, sizes):
    """log p of all masks, `(32, B)`, from its definition: no code of the library."""
    weights = (MASKS.unsqueeze(1) * logits).sum(-1)
    size = MASKS.sum(-1).long()
    log_p = torch.full_like(weights, -math.inf)
    sizes = sizes.log_softmax(-1).expand(len(logits), -1)
    for k in range(sizes.shape[-1]):
        own = size == k
        log_p[own] = sizes[:, k] + weights[own] - weights[own].logsumexp(0)
    return log_p


@pytest.mark.smoke
@pytest.mark.parametrize("name", SIZES)
def test_against_the_list_of_masks(name):
    law = RandomSizeSubset(LOGITS, SIZES[name])
    log_p = listed(LOGITS, SIZES[name])
    p = log_p.exp()
    assert float((p.sum(0) - 1.0).abs().max()) < 1e-12
    possible = mask_support(law)
    inside = torch.tensor([bool((possible.reshape(-1, G) == m).all(-1).any()) for m in MASKS])
    assert torch.equal(inside, p.max(-1).values > 0)
    found = law.log_prob(MASKS[inside].unsqueeze(1))
    assert torch.allclose(found, log_p[inside], atol=1e-12)
    assert torch.allclose(law.mean, (p.unsqueeze(-1) * MASKS.unsqueeze(1)).sum(0), atol=1e-12)
    entropy = -torch.where(p > 0, p * log_p, 0.0).sum(0)
    assert torch.allclose(law.entropy(), entropy, atol=1e-12)
    assert torch.allclose(law.variance, law.mean * (1 - law.mean))
    with pytest.raises(ValueError, match="support"):
        RandomSizeSubset(LOGITS, SIZES["one"], validate_args=True).log_prob(torch.ones(3, G))
    unchecked = RandomSizeSubset(LOGITS, SIZES[name], validate_args=False)
    assert bool((unchecked.log_prob(MASKS[~inside].unsqueeze(1)) == -math.inf).all())


@pytest.mark.parametrize("name", SIZES)
def test_draws_are_of_the_law(name):
    law = RandomSizeSubset(LOGITS, SIZES[name]).expand([2, 3])
    with torch.random.fork_rng():
        torch.manual_seed(1)
        masks = law.sample((4000,))
    assert law.support.check(masks).all()
    code = (masks * 2.0 ** torch.arange(G - 1, -1, -1)).sum(-1).long()
    p = listed(LOGITS, SIZES[name]).exp()
    for row in range(3):
        counts = torch.bincount(code[:, :, row].flatten(), minlength=32).double()
        expected = 8000 * p[:, row]
        assert bool((counts[expected == 0] == 0).all())
        seen = expected > 5
        z = (counts - expected)[seen] / (expected * (1 - p[:, row])).sqrt().clamp(min=1e-9)[seen]
        assert float(z.abs().max()) < threshold(5 * 3 * 32)


def test_gradients_are_those_of_the_list():
    logits, sizes = LOGITS.clone().requires_grad_(), SIZES["with holes"].clone().requires_grad_()
    law = RandomSizeSubset(logits, sizes)
    value = mask_support(law)[::3]
    own = [int((v.flatten() == MASKS).all(-1).nonzero()) for v in value]
    for found, expected in (
        (law.log_prob(value).sum(), listed(logits, sizes)[own].sum()),
        (law.mean[:, 2].sum(), (listed(logits, sizes).exp() * MASKS[:, 2:3]).sum()),
    ):
        one = torch.autograd.grad(found, (logits, sizes), retain_graph=True)
        two = torch.autograd.grad(expected, (logits, sizes), retain_graph=True)
        for a, b in zip(one, two, strict=True):
            assert torch.allclose(a, b.nan_to_num(), atol=1e-10)


def test_independent_masks_are_a_case():
    """P(k) ∝ e_k: the Poisson-binomial sizes of independent entries."""
    weights = (MASKS.unsqueeze(1) * LOGITS).sum(-1)
    size = MASKS.sum(-1).long()
    sizes = torch.stack([weights[size == k].logsumexp(0) for k in range(G + 1)], -1)
    law = RandomSizeSubset(LOGITS, sizes)
    independent = Bernoulli(logits=LOGITS)
    assert torch.allclose(law.mean, independent.mean, atol=1e-12)
    assert torch.allclose(law.entropy(), independent.entropy().sum(-1), atol=1e-12)
    wrong = RandomSizeSubset(LOGITS, sizes * 0.5)
    assert float((wrong.mean - independent.mean).abs().max()) > 1e-2


def test_one_size_is_the_k_subset():
    law, exact = RandomSizeSubset(LOGITS, SIZES["one"]), KSubset(LOGITS, 2)
    assert torch.allclose(law.mean, exact.mean) and torch.allclose(law.entropy(), exact.entropy())
    masks = exact.enumerate_support()
    assert torch.allclose(law.log_prob(masks), exact.log_prob(masks))


def test_large_logits_of_many_entries():
    """Float32 at G = 300 and logits up to 50, against float64."""
    logits = 50.0 * (2 * torch.rand(1, 300, generator=torch.Generator().manual_seed(2)) - 1)
    sizes = geometric_sizes(0.9, 300, smallest=1, largest=40)[:41].log()
    law = RandomSizeSubset(logits, sizes.float())
    exact = RandomSizeSubset(logits.double(), sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        masks = law.sample((20,))
    assert torch.allclose(law.log_prob(masks).double(), exact.log_prob(masks.double()), rtol=1e-4)
    assert torch.allclose(law.mean.double(), exact.mean, atol=1e-4)


def test_the_uniform_member():
    alike = uniform_masks(RandomSizeSubset(LOGITS, SIZES["with holes"]))
    log_p = alike.log_prob(mask_support(alike))
    assert torch.allclose(log_p, torch.full_like(log_p, -math.log(len(log_p))))
    assert draws_zeros_and_ones(alike)


def test_zero_logits_are_exchangeable():
    law = RandomSizeSubset(torch.zeros(G).double(), beta_binomial_sizes(G).log())
    assert torch.allclose(law.log_prob(MASKS), UniformSize(G, dtype=torch.double).log_prob(MASKS))


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


def test_a_wrong_size_is_noticed():
    """What the other tests rest on: sizes that are a little off are told apart."""
    right = ExchangeableMasks(geometric_sizes(0.5, G).tolist(), dtype=torch.double)
    wrong = RandomSizeSubset(torch.zeros(G).double(), geometric_sizes(0.55, G).log())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = wrong.sample((8000,)).sum(-1)
    assert float(z_scores(sizes, right.mean.sum()).abs()) > threshold(1)
    exact = RandomSizeSubset(torch.zeros(G).double(), geometric_sizes(0.5, G).log())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = exact.sample((8000,)).sum(-1)
    assert float(z_scores(sizes, right.mean.sum()).abs()) < threshold(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RandomSizeSubset(LOGITS, torch.zeros(G + 2)), "at most G = 5"),
        (lambda: RandomSizeSubset(LOGITS, torch.zeros(())), "in their last dimension"),
        (
            lambda: RandomSizeSubset(LOGITS, torch.full((3,), -math.inf), validate_args=True),
            "a size that can be",
        ),
        (
            lambda: RandomSizeSubset(LOGITS / 0.0, torch.zeros(3), validate_args=True),
            "must be finite",
        ),
        (lambda: RandomSizeSubset(torch.zeros(30), torch.zeros(3)).enumerate_support(), "draw"),
        (lambda: RandomSizeSubset(LOGITS, torch.zeros(3)).expand([2]), "expanded|broadcast"),
        (lambda: geometric_sizes(0.0, 3), "ratio"),
        (lambda: geometric_sizes(0.5, 3, largest=4), "largest"),
        (lambda: geometric_sizes(0.5, 3, smallest=3, largest=2), "smallest"),
        (lambda: beta_binomial_sizes(3, 0.0), "a must be"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        call()


def test_divergences_are_not_invented():
    law = RandomSizeSubset(LOGITS, SIZES["all"])
    with pytest.raises(NotImplementedError):
        kl_divergence(law, law)
