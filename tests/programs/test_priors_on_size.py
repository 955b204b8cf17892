"""One k of all rows with a prior, and masks of that size: which masks there are depends on it."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl.distributions import KSubset, geometric_sizes
from lexppl.effects import mask_particles
from lexppl.inference import Enumerate, NestedIWAE
from tests.programs.zoo import respond, rows

X = torch.tensor([[0.9, -0.6, 0.3], [-0.4, 1.2, 0.5]]).double()
Y = torch.tensor([1.0, 0.0]).double()
PRIOR = geometric_sizes(0.6, 3, smallest=1)[1:]
VALUES = {"a": [0.4, -0.7, 0.2], "w": [1.3, -0.9, 0.5], "q": [0.5, -0.3, 0.1]}


def parameters():
    return {n: torch.tensor(v).double().requires_grad_() for n, v in VALUES.items()}


def model(p):
    k = pyro.sample("k", dist.Categorical(PRIOR)) + 1
    with rows(), mask_particles():
        z = pyro.sample("mask", KSubset(p["a"] * X, k))
        respond(p, (p["w"] * z).sum(-1))


def guide(p):
    pyro.sample("k", dist.Categorical(logits=p["q"]))


def masks_of_size(k):
    every = torch.tensor([[(c >> g) & 1 for g in range(3)] for c in range(8)]).double()
    return every[every.sum(-1) == k]


def exact(p, most):
    """Σ_k q(k) [Σ_n log-likelihood or average given k + log p(k) − log q(k)], by listing here."""
    log_q = p["q"].log_softmax(0)
    total = torch.zeros(()).double()
    for k in (1, 2, 3):
        z = masks_of_size(k).unsqueeze(1)
        log_p = (z * p["a"] * X).sum(-1).log_softmax(0)
        effect = (p["w"] * z).sum(-1) + 0.4 * X[:, 1]
        log_y = dist.Bernoulli(logits=effect).log_prob(Y.expand(effect.shape))
        bound = (log_p + log_y).logsumexp(0) if most == math.inf else (log_p.exp() * log_y).sum(0)
        inside = bound.sum() + PRIOR[k - 1].log() - log_q[k - 1]
        total = total + log_q[k - 1].exp() * inside
    return total


def gradient(value, p):
    return torch.cat(torch.autograd.grad(value, list(p.values())))


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("masks", [1, math.inf])
def test_enumerate_lists_the_masks_of_each_size(masks, checked):
    """Whatever k the program happens to draw, and whether or not Pyro checks it."""
    elbo = NestedIWAE(masks, estimator=Enumerate())
    for seed in range(4):
        p = parameters()
        with torch.random.fork_rng(), pyro.validation_enabled(checked):
            torch.manual_seed(seed)
            value = -elbo.differentiable_loss(model, guide, p)
        expected = exact(p, masks)
        assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-10)
        assert torch.allclose(gradient(value, p), gradient(expected, p), atol=1e-10)
