"""Each program of the zoo under each estimator: the sum over all draws, or a refusal by name."""

import pyro
import pytest
import torch

from lexppl.inference import REBAR, DisARM, Enumerate, LeaveOneOut, NestedIWAE, ScoreFunction
from tests.gradients.enumeration import threshold, z_scores
from tests.programs.enumeration import distance, exact, expected
from tests.programs.zoo import ZOO

FORCED = (LeaveOneOut(), ScoreFunction(baseline=-0.8))
"""Estimators that draw masks from their distributions as they are, so that draws can be forced on
them."""
DRAWN = (DisARM(), REBAR(0.5), REBAR(0.4, scale=0.6))
"""Estimators that draw masks their own way."""
RUNS, SAMPLES = 60, 400


def objective(program, estimator, samples=None):
    return NestedIWAE(
        program.masks,
        program.imputations,
        samples=program.samples if samples is None else samples,
        entropy=program.entropy,
        penalty=program.penalty,
        estimator=estimator,
    )


def truth(program):
    return exact(
        program.case(),
        program.masks,
        program.imputations,
        entropy=program.entropy,
        penalty=program.penalty,
    )


def value_and_gradient(program, elbo):
    case = program.case()
    leaves = {name: v.requires_grad_() for name, v in case.parameters.items()}
    value = -elbo.differentiable_loss(case.model, case.guide, leaves)
    gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
    return value.detach(), {
        name: torch.zeros_like(leaf) if g is None else g.detach()
        for (name, leaf), g in zip(leaves.items(), gradients, strict=True)
    }


def test_the_zoo_is_large():
    assert len(ZOO) >= 40


@pytest.mark.complete(but=8)
@pytest.mark.parametrize("estimator", FORCED, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", ZOO)
def test_expectation_is_the_sum_over_all_draws(name, estimator):
    program = ZOO[name]
    elbo = objective(program, estimator)
    value_and_gradient(program, elbo)  # with all of Pyro's checks
    found = expected(program.case(), elbo, program.masks * program.samples, program.imputations)
    assert distance(found, truth(program)) < 1e-10


@pytest.mark.complete(but=11)
@pytest.mark.parametrize("name", ZOO)
def test_enumerate_is_the_sum_over_all_masks(name):
    program = ZOO[name]
    elbo = objective(program, Enumerate())
    if "Enumerate" in program.refuses:
        with pytest.raises(ValueError, match=program.refuses["Enumerate"]):
            value_and_gradient(program, elbo)
        return
    if program.imputations == 1:
        assert distance(value_and_gradient(program, elbo), truth(program)) < 1e-10
        return
    # Imputations are still drawn.
    draws = drawn(program, elbo, 400)
    assert largest_z(draws, truth(program)) < threshold(11)


@pytest.mark.complete(but=4)
@pytest.mark.parametrize("estimator", DRAWN, ids=lambda e: f"{type(e).__name__} {vars(e)}"[:25])
@pytest.mark.parametrize("name", ZOO)
def test_mean_of_draws_is_the_sum_over_all_draws(name, estimator):
    program = ZOO[name]
    elbo = objective(program, estimator, samples=SAMPLES)
    kind = type(estimator).__name__
    if kind in program.refuses:
        with pytest.raises((ValueError, TypeError), match=program.refuses[kind]):
            drawn(program, elbo, 1)
        return
    assert largest_z(drawn(program, elbo, RUNS), truth(program)) < threshold(11 * len(ZOO))


def drawn(program, elbo, runs):
    """Values and gradients of so many runs, the first with all of Pyro's checks."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = value_and_gradient(program, elbo)
        with pyro.validation_enabled(False):
            others = [value_and_gradient(program, elbo) for _ in range(runs - 1)]
    return [first, *others]


def largest_z(draws, exact_one):
    value, gradient = exact_one
    scores = [z_scores(torch.stack([v for v, _ in draws]), value).abs()]
    for name, expected_gradient in gradient.items():
        every = torch.stack([g[name] for _, g in draws])
        scores.append(z_scores(every, expected_gradient).abs().max())
    return float(torch.stack([score.max() for score in scores]).max())


WITHOUT_NOISE = [n for n, p in ZOO.items() if "Enumerate" not in p.refuses and p.imputations == 1]


@pytest.mark.parametrize("name", WITHOUT_NOISE)
def test_single_precision_agrees(name):
    """Parameters in float32, beside the zoo's constants in float64."""
    program = ZOO[name]
    case = program.case(torch.float32)
    elbo = objective(program, Enumerate())
    assert float(-elbo.loss(case.model, case.guide, case.parameters)) == pytest.approx(
        float(truth(program)[0]), abs=1e-5
    )
