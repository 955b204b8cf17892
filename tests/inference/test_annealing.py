"""Schedules and units of the annealing: value and gradient towards a rate of keeping, entropy."""

import math
from functools import partial

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from torch.distributions import kl_divergence

from lexppl import fit
from lexppl.effects import Progress
from lexppl.inference import LeaveOneOut, Linear, NestedIWAE, WarmUp, annealed, entropy_unit
from lexppl.inference.contexts import seeded
from lexppl.inference.objective.objective import settles
from lexppl.models import MLP, BernoulliSelector, KSubsetSelector, MaxConcreteSelector
from lexppl.systems import lex
from tests.refusals import refusals, refused
from tests.small_models import explainer, table

SMALL = {"hidden": (4,), "predictor_hidden": (4,)}
X, Y = table(20)
pytestmark = pytest.mark.usefixtures("local_parameters")


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


@pytest.mark.parametrize(
    ("progress", "kept"), [(0.0, 16), (0.15, 10), (0.3, 6), (0.45, 3), (0.6, 2), (1.0, 2)]
)
def test_number_kept_falls_geometrically_from_all_to_k(progress, kept):
    # 16, 16 (1/8)^(1/4) = 9.5, 16 (1/8)^(1/2) = 5.7, 3.4, 2.
    selector = KSubsetSelector(MLP(3, 16), 2, until=0.6)
    with Progress(progress):
        assert selector.eval()(X).k == 2
        masks = selector.train()(X)
        assert masks.k == kept and bool((masks.sample().sum(-1) == kept).all())
        assert KSubsetSelector(MLP(3, 16), 2)(X).k == 2


def test_systems_of_a_k_each_fall_to_their_own():
    systems = [lex(8, classes=2, k=k, folds=1, **SMALL) for k in (1, 4)]
    given = torch.randn(40, 8, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    settings = {"epochs": 3, "batch_size": 20, "valid": None, "progress": False}
    result = fit(systems, given, **settings)
    sizes = [model.selector.eval()(given[0]).sample().sum(-1) for model in result.models]
    assert [set(size.tolist()) for size in sizes] == [{1.0}, {4.0}]
    alone = fit(systems[1], given, **settings)
    assert np.isfinite(result.history.train).all() and np.isfinite(alone.history.train).all()


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("seed", range(3))
def test_product_of_two_of_sixteen_is_found_where_the_number_kept_falls(seed):
    x = torch.randn(1000, 16, generator=torch.Generator().manual_seed(seed))
    y = (x[:, 0] * x[:, 1] > 0).long()
    settings = {"epochs": 40, "batch_size": 100, "learning_rate": 3e-3, "valid": None, "seed": seed}
    sizes = {"hidden": (32,), "predictor_hidden": (64, 64)}

    def kept(**options):
        result = fit(
            lex(16, classes=2, k=2, **sizes, **options), (x, y), progress=False, **settings
        )
        return result.model.selector.eval()(x).mean.mean(0)[:2].min()

    assert kept() > 0.95
    # Of two of sixteen from the first step on the predictor learns nothing.
    assert kept(objective=annealed()) < 0.5


def test_a_selector_starts_at_its_rate():
    network = MLP(3, 3, (4,), seed=0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    torch.testing.assert_close(BernoulliSelector(network, 0.8)(X).mean, torch.full((20, 3), 0.8))


def test_refused():
    refused("until must be a share", KSubsetSelector, MLP(3, 3), 2, until=1.5)
    for rate in (0.0, 1.0, -0.1):
        refused("towards must be a share", annealed, towards=rate)
        refused("rate must be a share", BernoulliSelector, MLP(3, 3), rate)
    model = explainer(partial(MaxConcreteSelector, k=2))
    refused("exact entropy", loss, model, entropy=0.1, towards=0.8)


def test_a_schedule_is_risen_to_and_then_followed():
    fall = Linear(2.0, 1.0, begin=0.05, end=0.5)
    rate = WarmUp(fall, share=0.1)
    assert rate(0.0) == 0.0
    assert rate(0.075) == pytest.approx(0.75 * fall(0.075))
    assert [rate(t) for t in (0.1, 0.3, 1.0)] == [fall(t) for t in (0.1, 0.3, 1.0)]
    assert settles(rate) == 0.5
    constant = WarmUp(0.5, share=0.2)
    assert [constant(t) for t in (0.1, 0.2, 1.0)] == [0.25, 0.5, 0.5]
    assert settles(constant) == 0.2


def test_a_share_that_is_none_is_refused():
    for share in (0.0, 1.0, -0.1):
        refused("share must be a share of the fit", WarmUp, 1.0, share)


def nats(*shares):
    return -sum(share * math.log(share) for share in shares)


def test_labels():
    y = torch.tensor([0] * 97 + [1])
    assert entropy_unit(y) == pytest.approx(nats(0.98, 0.02) / math.log(2.0), rel=1e-12)
    assert entropy_unit(y.int()) == entropy_unit(y)
    even = torch.arange(8) % 4
    assert entropy_unit(even) == pytest.approx(2.0, rel=1e-12)
    # A class that no row has counts one row, as every class does.
    assert entropy_unit(torch.tensor([0, 0]), classes=2) == pytest.approx(
        nats(0.75, 0.25) / math.log(2.0)
    )


def test_probabilities_are_of_their_mean():
    p = torch.tensor([[0.9, 0.1], [0.7, 0.3]])
    assert entropy_unit(p) == pytest.approx(nats(2.6 / 4, 1.4 / 4) / math.log(2.0), rel=1e-6)
    assert entropy_unit(torch.eye(2)[torch.tensor([0, 1, 1])]) == pytest.approx(
        entropy_unit(torch.tensor([0, 1, 1]))
    )


def test_a_response_has_none():
    assert entropy_unit(1000.0 * torch.randn(20)) == 1.0


test_mistakes = refusals(
    (torch.zeros(0), "none of them 0"),
    (torch.zeros(3, 2, 2), "the shape is"),
    (torch.zeros(3, dtype=torch.long), "one label only"),
    of=entropy_unit,
)


def test_the_annealing_is_counted_in_it():
    for progress, entropy in ((0.0, 0.03), (0.3, 0.015), (0.6, 0.0)):
        assert annealed(unit=0.3).at(progress).spec.entropy == pytest.approx(entropy)
        assert annealed(unit=0.3).at(progress).spec.penalty == annealed().at(progress).spec.penalty
    refused("unit must be a finite number above 0", annealed, unit=0.0)
