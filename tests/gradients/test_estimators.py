"""Each estimator on each distribution and objective: unbiased ones agree with full enumeration,
biased ones are seen to be biased by the same test."""

import itertools
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from lexppl.distributions import ChainMask, TopKMask
from lexppl.inference import (
    REBAR,
    DisARM,
    LeaveOneOut,
    MarginalStraightThrough,
    NestedIWAE,
    Pathwise,
    ScoreFunction,
    SelfNormalized,
    StraightThrough,
    TunedControl,
)
from lexppl.inference.estimators import rebar as rebar_module
from tests.gradients.enumeration import (
    Toy,
    drawn_values_and_gradients,
    exact_value_and_gradient,
    threshold,
    z_scores,
)
from tests.refusals import refused

DRAWS = 100_000
PLACKETT_LUCE = 2


def ordered_top_two(logits, masks):
    """Log-probability of each mask under draws without replacement, by both orders."""
    p = torch.softmax(logits, 0)
    total = []
    for mask in masks:
        a, b = mask.nonzero().flatten().tolist()
        total.append(p[a] * p[b] / (1 - p[a]) + p[b] * p[a] / (1 - p[b]))
    return torch.stack(total).log()


def chain(logits, masks):
    """Log-probability of each mask of a chain, up to a constant and then normalised."""
    return torch.log_softmax(masks @ logits - masks.diff(dim=-1).abs().sum(-1), 0)


LAWS = {
    "bernoulli": {"features": 3},
    "k-subset": {"features": 4, "size": 2},
    "top-k": {
        "features": 4,
        "size": PLACKETT_LUCE,
        "distribution": lambda logits: TopKMask(logits, PLACKETT_LUCE),
        "log_law": ordered_top_two,
    },
    "chain": {
        "features": 3,
        "distribution": lambda logits: ChainMask(logits, 1.0),
        "log_law": chain,
    },
}
OBJECTIVES = {
    "average": ({}, {"masks": 1, "samples": 4}),
    "iwae": ({}, {"masks": 4, "samples": 2}),
    "penalty": ({"cost": 0.2}, {"masks": 2, "samples": 2, "entropy": 0.0, "penalty": 0.5}),
    "guide": ({"guided": True}, {"masks": 2, "samples": 2}),
    "labels": ({"soft_labels": 0.3}, {"masks": 2, "samples": 2}),
}
UNBIASED = {
    "leave one out": (LeaveOneOut(), ("bernoulli", "k-subset", "top-k", "chain")),
    "score function": (ScoreFunction(), ("bernoulli", "k-subset", "top-k", "chain")),
    "score function, baseline": (
        ScoreFunction(lambda values, unit: -0.5 * unit.detach()),
        ("bernoulli", "k-subset"),
    ),
    "rebar": (REBAR(0.5), ("bernoulli", "top-k")),
    "rebar, scaled": (REBAR(0.2, scale=0.7), ("bernoulli", "top-k")),
    "rebar, tuned": (REBAR(control=TunedControl(0.8, 1.3).double()), ("bernoulli", "top-k")),
    "disarm": (DisARM(), ("bernoulli",)),
}
BIASED = {
    "straight through": (StraightThrough(0.5), ("bernoulli", "top-k")),
    "marginals": (MarginalStraightThrough(), ("bernoulli", "k-subset", "chain")),
    "rebar, straight through": (REBAR(0.5, straight_through=True), ("bernoulli", "top-k")),
    "pathwise": (Pathwise(0.5), ("bernoulli", "top-k")),
    "self-normalised": (SelfNormalized(), ("bernoulli", "k-subset", "top-k")),
}
CASES = [
    (name, distribution, objective)
    for name, (_, distributions) in UNBIASED.items()
    for distribution, objective in itertools.product(distributions, OBJECTIVES)
]


def scores_of(toy, objective, exact, draws=DRAWS, seed=0, chunk=50_000):
    """|z| of the value and the largest of the gradients."""
    value, gradient = exact
    values, gradients = drawn_values_and_gradients(toy, objective, draws, seed, chunk=chunk)
    scores = [z_scores(gradients[name], gradient[name]).abs().max() for name in gradient]
    return float(z_scores(values, value).abs()), float(torch.stack(scores).max())


def largest_z(estimator, distribution, objective):
    program, options = OBJECTIVES[objective]
    toy = Toy(**LAWS[distribution], **program)
    penalty = options.get("penalty", 1.0)
    exact = exact_value_and_gradient(toy, options["masks"], 1, penalty_factor=penalty)
    return scores_of(toy, NestedIWAE(estimator=estimator, **options), exact)


@pytest.mark.complete(but=30)
@pytest.mark.parametrize(("name", "distribution", "objective"), CASES)
def test_unbiased(name, distribution, objective):
    estimator = UNBIASED[name][0]
    assert estimator.unbiased
    limit = threshold(len(CASES) * 13)
    value_z, gradient_z = largest_z(estimator, distribution, objective)
    assert value_z < limit
    assert gradient_z < limit


@pytest.mark.complete(but=4)
@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        (name, distribution)
        for name, (_, distributions) in BIASED.items()
        for distribution in distributions
    ],
)
def test_biased_ones_say_so_and_are(name, distribution):
    estimator = BIASED[name][0]
    assert not estimator.unbiased
    assert largest_z(estimator, distribution, "iwae")[1] > threshold(13)


@pytest.mark.smoke
def test_self_normalised_weights_tend_to_the_likelihoods_gradient():
    toy = Toy(features=3)
    _, gradient = exact_value_and_gradient(toy, math.inf, 1)
    errors = []
    for masks in (4, 64):
        _, drawn = drawn_values_and_gradients(
            toy, NestedIWAE(masks, estimator=SelfNormalized()), 20_000, seed=0, chunk=5_000
        )
        errors.append(float((drawn["selector"].mean(0) - gradient["selector"]).norm()))
    assert errors[1] < errors[0] / 4


@dataclass(frozen=True)
class ForgetsTheControl(REBAR):
    """Wrong on purpose: drops the relaxed terms that undo the control variate."""

    def estimate(self, program, spec):
        kept = rebar_module.zero_with_gradient
        rebar_module.zero_with_gradient = lambda value: (
            value.detach() * 0 if value.dim() == 0 else kept(value)
        )
        try:
            return REBAR.estimate(self, program, spec)
        finally:
            rebar_module.zero_with_gradient = kept


@dataclass(frozen=True)
class OneSidedPairs(DisARM):
    """Wrong on purpose: forgets the weight of the integrated pair."""

    def score_term(self, site, terms):
        return 2.0 * DisARM.score_term(self, site, terms)


@dataclass(frozen=True)
class IncludesItself(LeaveOneOut):
    """Wrong on purpose: the baseline holds the draw's own weight."""

    unbiased: ClassVar[bool] = True

    def score_term(self, site, terms):
        log_q = site.log_prob()
        (weight,) = terms.log_weights
        with torch.no_grad():
            bound = weight.bounds
            signal = (bound - bound.mean(-2, keepdim=True)) / weight.samples
        return ((log_q - log_q.detach()) * signal).sum()


def test_negative_controls_are_caught(monkeypatch):
    limit = threshold(13)
    assert largest_z(ForgetsTheControl(0.5), "bernoulli", "average")[1] > 2 * limit
    assert largest_z(OneSidedPairs(), "bernoulli", "average")[1] > 2 * limit
    assert largest_z(IncludesItself(), "bernoulli", "average")[1] > 2 * limit

    relaxed = rebar_module.relaxation

    def forgetful(distribution):
        one = relaxed(distribution)
        one.conditional_noise = lambda draw: (
            torch.where(draw > 0.5, 0.5, -0.5) - distribution.base_dist.logits
        )
        return one

    monkeypatch.setattr(rebar_module, "relaxation", forgetful)
    assert largest_z(REBAR(0.5), "bernoulli", "average")[1] > 2 * limit


def test_estimators_refuse_what_they_cannot_do():
    def loss(estimator, distribution="k-subset", guided=False, **options):
        toy = Toy(**LAWS[distribution], guided=guided)
        leaves = {n: v.expand(2, -1).clone().requires_grad_() for n, v in toy.parameters.items()}
        NestedIWAE(estimator=estimator, **{"masks": 2, **options}).differentiable_loss(
            toy.model, toy.guide if guided else None, leaves, torch.ones(2, dtype=torch.double)
        )

    refused(r"REBAR needs the noise of 'mask' given its draw.*TopKMask", loss, REBAR())
    refused("MarginalStraightThrough", loss, StraightThrough())
    refused(r"DisARM needs Bernoulli.*LeaveOneOut", loss, DisARM(), error=TypeError, samples=2)
    refused("samples must be even", loss, DisARM(), "bernoulli")
    refused("masks=2 or more", loss, SelfNormalized(), masks=1)
    refused("LeaveOneOut needs at least 2", loss, LeaveOneOut(), masks=1)
    for bad in (0.0, -1.0, math.inf):
        for kind in (REBAR, StraightThrough, Pathwise):
            refused("temperature must be a finite number above 0", kind, bad)
    refused("only Enumerate", loss, LeaveOneOut(), masks=math.inf)


@pytest.mark.parametrize("own", [LeaveOneOut(), REBAR(0.5)])
def test_a_sites_own_estimator_takes_the_objectives_place(own):
    toy = replace(Toy(**LAWS["bernoulli"]), infer={"estimator": own})
    _, gradient = exact_value_and_gradient(toy, 2, 1)
    _, drawn = drawn_values_and_gradients(
        toy, NestedIWAE(2, estimator=StraightThrough()), 20_000, seed=0
    )
    assert z_scores(drawn["selector"], gradient["selector"]).abs().max() < threshold(3)


# The nested bound: L masks, K imputations of each


BOUNDS = list(itertools.product((1, 2, 5), (1, 2, 5)))
PROGRAMS = {
    "free in-situ": Toy(features=2),
    "free in-situ, guide": Toy(features=2, guided=True),
    "k-subset": Toy(features=4, size=1),
    "k-subset, guide, penalty": Toy(features=4, size=1, guided=True, cost=0.3),
    "surrogate post-hoc": Toy(features=2, soft_labels=0.3),
    "surrogate post-hoc, guide, penalty": Toy(features=2, soft_labels=0.3, guided=True, cost=0.2),
}


@pytest.mark.complete(but=8)
@pytest.mark.parametrize(("masks", "imputations"), BOUNDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_leave_one_out_agrees_with_enumeration(name, masks, imputations):
    toy = PROGRAMS[name]
    objective = NestedIWAE(masks, imputations, samples=2 if masks == 1 else 1)
    exact = exact_value_and_gradient(toy, masks, imputations)
    assert max(scores_of(toy, objective, exact, 40_000, chunk=20_000)) < threshold(54 * 12)


@pytest.mark.complete
def test_bounds_rise_to_the_likelihood():
    toy = PROGRAMS["k-subset, guide, penalty"]
    exact = [float(exact_value_and_gradient(toy, L, 1)[0]) for L in (1, 2, 3, 5, math.inf)]
    assert exact == sorted(exact) and exact[0] < exact[-1] - 0.01
    drawn = []
    for L in (1, 2, 5, 50):
        objective = NestedIWAE(L, samples=2 if L == 1 else 1)
        drawn.append(float(drawn_values_and_gradients(toy, objective, 40_000, seed=1)[0].mean()))
    assert drawn == sorted(drawn)
    assert drawn[-1] < exact[-1] + 0.005
