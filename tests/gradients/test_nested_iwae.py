"""Value and gradient of the nested bound against full enumeration, by z-scores."""

import itertools
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from lexppl.inference import Enumerate, LeaveOneOut, NestedIWAE
from lexppl.inference.estimators.base import SampledEstimator
from lexppl.inference.objective.bound import BoundTerms
from tests.gradients.enumeration import (
    Toy,
    drawn_values_and_gradients,
    exact_value_and_gradient,
    threshold,
    z_scores,
)

DRAWS = 40_000
BOUNDS = list(itertools.product((1, 2, 5), (1, 2, 5)))
PROGRAMS = {
    "free in-situ": Toy(features=2),
    "free in-situ, guide": Toy(features=2, guided=True),
    "k-subset": Toy(features=4, size=1),
    "k-subset, guide, penalty": Toy(features=4, size=1, guided=True, cost=0.3),
    "surrogate post-hoc": Toy(features=2, soft_labels=0.3),
    "surrogate post-hoc, guide, penalty": Toy(features=2, soft_labels=0.3, guided=True, cost=0.2),
}


def largest_z(toy, objective, exact, draws=DRAWS, seed=0):
    value, gradient = exact
    values, gradients = drawn_values_and_gradients(toy, objective, draws, seed)
    scores = [z_scores(gradients[name], gradient[name]).abs().max() for name in gradient]
    return float(z_scores(values, value).abs()), float(torch.stack(scores).max())


@pytest.mark.complete(but=8)
@pytest.mark.parametrize(("masks", "imputations"), BOUNDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_leave_one_out_agrees_with_enumeration(name, masks, imputations):
    toy = PROGRAMS[name]
    objective = NestedIWAE(masks, imputations, samples=2 if masks == 1 else 1)
    exact = exact_value_and_gradient(toy, masks, imputations)
    value_z, gradient_z = largest_z(toy, objective, exact)
    limit = threshold(54 * 12)
    assert value_z < limit
    assert gradient_z < limit


@pytest.mark.smoke
@pytest.mark.parametrize("masks", [1, 2, 3, math.inf])
@pytest.mark.parametrize("name", PROGRAMS)
def test_enumerate_is_exact_for_masks(name, masks):
    toy = PROGRAMS[name]
    toy = Toy(toy.features, toy.size, toy.guided, toy.soft_labels, toy.cost)
    toy.fills = (0.4, 0.4)
    objective = NestedIWAE(masks, estimator=Enumerate(), entropy=0.1, penalty=0.5)
    value, gradient = exact_value_and_gradient(toy, masks, 1, entropy=0.1, penalty_factor=0.5)
    values, gradients = drawn_values_and_gradients(toy, objective, 2, seed=0)
    assert torch.allclose(values[0], value, rtol=0, atol=1e-12)
    for key, expected in gradient.items():
        assert torch.allclose(gradients[key][1], expected, rtol=0, atol=1e-12)


def test_eight_features_several_samples_entropy_and_penalty():
    toy = Toy(features=8, cost=0.05)
    objective = NestedIWAE(2, 1, samples=3, entropy=0.2, penalty=0.7)
    exact = exact_value_and_gradient(toy, 2, 1, entropy=0.2, penalty_factor=0.7)
    value_z, gradient_z = largest_z(toy, objective, exact, draws=100_000)
    assert max(value_z, gradient_z) < threshold(17)


@pytest.mark.complete
def test_bounds_rise_to_the_likelihood():
    toy = PROGRAMS["k-subset, guide, penalty"]
    exact = [float(exact_value_and_gradient(toy, L, 1)[0]) for L in (1, 2, 3, 5, math.inf)]
    assert exact == sorted(exact) and exact[0] < exact[-1] - 0.01
    drawn = []
    for L in (1, 2, 5, 50):
        values, _ = drawn_values_and_gradients(
            toy, NestedIWAE(L, samples=2 if L == 1 else 1), DRAWS, seed=1
        )
        drawn.append(float(values.mean()))
    assert drawn == sorted(drawn)
    assert drawn[-1] < exact[-1] + 0.005


@dataclass(frozen=True)
class NoScore(SampledEstimator):
    """Wrong on purpose: differentiates the weights only."""

    unbiased: ClassVar[bool] = False

    def score_term(self, site, terms):
        return 0.0


@dataclass(frozen=True)
class WrongSign(LeaveOneOut):
    """Wrong on purpose: walks downhill."""

    def score_term(self, site, terms):
        return -1.0 * LeaveOneOut.score_term(self, site, terms)


@dataclass(frozen=True)
class AverageForTheBound(LeaveOneOut):
    """Wrong on purpose: the average's signal under the bound's logarithm."""

    def score_term(self, site, terms):
        average = replace(terms.spec, masks=1, samples=int(terms.spec.masks))
        (weight,) = terms.log_weights
        terms = BoundTerms(terms.run, average)
        terms.log_weights = [replace(weight, masks=1, samples=average.samples)]
        return LeaveOneOut.score_term(self, site, terms)


@pytest.mark.parametrize("wrong", [NoScore(), WrongSign(), AverageForTheBound()])
def test_wrong_estimators_are_caught(wrong):
    toy = PROGRAMS["k-subset"]
    exact = exact_value_and_gradient(toy, 5, 2)
    value_z, gradient_z = largest_z(toy, NestedIWAE(5, 2, estimator=wrong), exact)
    assert value_z < threshold(9)
    assert gradient_z > 2 * threshold(9)
