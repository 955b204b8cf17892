"""The annealing towards a rate of keeping: its value, its gradient, where a selector starts."""

from functools import partial

import pyro.distributions as dist
import pytest
import torch
from torch.distributions import kl_divergence

from lexppl.inference import LeaveOneOut, NestedIWAE, annealed
from lexppl.inference.contexts import program_settings, seeded
from lexppl.models import MLP, BernoulliSelector, KSubsetSelector, MaxConcreteSelector
from tests.inference.builders import explainer, table

X, Y = table(20)


@pytest.fixture(autouse=True)
def parameters_of_their_own():
    """Programs that are run by themselves leave nothing in Pyro's parameter store."""
    with program_settings(validate=True):
        yield


def loss(model, **options):
    objective = NestedIWAE(2, estimator=LeaveOneOut(), **options)
    with seeded(0):
        return objective.differentiable_loss(model, None, X, Y)


@pytest.mark.smoke
@pytest.mark.parametrize("towards", [0.8, 0.3, 0.5])
def test_the_bonus_is_a_divergence_from_a_rate(towards):
    model = explainer()
    masks = model.selector(X)
    prior = dist.Bernoulli(torch.full((20, 3), towards)).to_event(1)
    divergence = 0.25 * kl_divergence(masks, prior).sum()
    if towards == 0.5:
        # Without its constant, the exact entropy.
        divergence = -0.25 * masks.entropy().sum()
    found = loss(model, entropy=0.25, towards=towards) - loss(model)
    torch.testing.assert_close(found, divergence)
    weights = list(model.selector.parameters())
    exact = torch.autograd.grad(divergence, weights)
    both = torch.autograd.grad(loss(model, entropy=0.25, towards=towards), weights)
    alone = torch.autograd.grad(loss(model), weights)
    for whole, part, expected in zip(both, alone, exact, strict=True):
        torch.testing.assert_close(whole - part, expected, rtol=1e-3, atol=1e-5)


def test_masks_of_a_given_size_are_only_shifted():
    model = explainer(partial(KSubsetSelector, k=2))
    weights = list(model.selector.parameters())
    first, second = (
        torch.autograd.grad(loss(model, entropy=0.25, towards=rate), weights) for rate in (0.5, 0.8)
    )
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_a_selector_starts_at_its_rate():
    network = MLP(3, 3, (4,), seed=0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    torch.testing.assert_close(BernoulliSelector(network, 0.8)(X).mean, torch.full((20, 3), 0.8))


def test_refused():
    for rate in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="towards must be a share"):
            annealed(towards=rate)
        with pytest.raises(ValueError, match="rate must be a share"):
            BernoulliSelector(MLP(3, 3), rate)
    model = explainer(partial(MaxConcreteSelector, k=2))
    with pytest.raises(ValueError, match="exact entropy"):
        loss(model, entropy=0.1, towards=0.8)
