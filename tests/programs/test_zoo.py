"""Each program of the zoo under each estimator: the sum over all draws, or a refusal by name."""

import pytest
import torch

from lexppl.inference import REBAR, DisARM, Enumerate, LeaveOneOut, ScoreFunction
from lexppl.inference.estimators import base, leave_one_out
from lexppl.inference.objective import bound
from tests.gradients.enumeration import threshold
from tests.programs.enumeration import distance, drawn, expected, largest_z, value_and_gradient
from tests.programs.zoo import ZOO
from tests.refusals import refused

FORCED = (LeaveOneOut(), ScoreFunction(baseline=-0.8))
"""Estimators that draw masks from their distributions as they are, so that draws can be forced on
them."""
DRAWN = (DisARM(), REBAR(0.4, scale=0.6))
"""Estimators that draw masks their own way."""
RUNS, SAMPLES = 60, 400


def error(program, estimator):
    """The estimator's expectation less the objective, value and gradient."""
    elbo, particles = program.objective(estimator), program.masks * program.samples
    return distance(expected(program.case(), elbo, particles, program.imputations), program.truth())


@pytest.mark.complete(but=8)
@pytest.mark.parametrize("estimator", FORCED, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", ZOO)
def test_expectation_is_the_sum_over_all_draws(name, estimator):
    program = ZOO[name]
    value_and_gradient(program.case(), program.objective(estimator))  # with all of Pyro's checks
    assert error(program, estimator) < 1e-10


@pytest.mark.complete(but=11)
@pytest.mark.parametrize("name", ZOO)
def test_enumerate_is_the_sum_over_all_masks(name):
    program = ZOO[name]
    case, elbo = program.case(), program.objective(Enumerate())
    if "Enumerate" in program.refuses:
        refused(program.refuses["Enumerate"], value_and_gradient, case, elbo)
    elif program.imputations == 1:
        assert distance(value_and_gradient(case, elbo), program.truth()) < 1e-10
    else:  # Imputations are still drawn.
        assert largest_z(drawn(case, elbo, 400), program.truth()) < threshold(11)


@pytest.mark.complete(but=4)
@pytest.mark.parametrize("estimator", DRAWN, ids=lambda e: f"{type(e).__name__} {vars(e)}"[:25])
@pytest.mark.parametrize("name", ZOO)
def test_mean_of_draws_is_the_sum_over_all_draws(name, estimator):
    program = ZOO[name]
    case, elbo = program.case(), program.objective(estimator, samples=SAMPLES)
    kind = type(estimator).__name__
    if kind in program.refuses:
        with pytest.raises((ValueError, TypeError), match=program.refuses[kind]):
            value_and_gradient(case, elbo)
        return
    assert largest_z(drawn(case, elbo, RUNS), program.truth()) < threshold(11 * len(ZOO))


WITHOUT_NOISE = [n for n, p in ZOO.items() if "Enumerate" not in p.refuses and p.imputations == 1]


@pytest.mark.parametrize("name", WITHOUT_NOISE)
def test_single_precision_agrees(name):
    """Parameters in float32, beside the zoo's constants in float64."""
    program = ZOO[name]
    case, elbo = program.case(torch.float32), program.objective(Enumerate())
    assert float(-elbo.loss(case.model, case.guide, case.parameters)) == pytest.approx(
        float(program.truth()[0]), abs=1e-5
    )


def scale_inside_the_log(patch):
    def scaled(weighted):
        return sum(sign * site.scaled_log_prob() for site, sign in weighted)

    patch.setattr(bound, "common_scale", lambda *sites: 1.0)
    patch.setattr(bound, "log_weight_of", scaled)


def a_score_dropped(patch):
    whole = leave_one_out.mask_score

    def all_but_the_first(site, terms):
        return 0.0 if site is terms.run.drawn[0] else whole(site, terms)

    patch.setattr(leave_one_out, "mask_score", all_but_the_first)


def another_rows_score(patch):
    right = bound.learned_score_of

    def rolled(site):
        score = right(site)
        return None if score is None else score.roll(1, -1)

    patch.setattr(base, "learned_score_of", rolled)


def a_learned_imputation_forgotten(patch):
    patch.setattr(base, "imputation_score", lambda site, terms: 0.0)


CONTROLS = {
    scale_inside_the_log: ("a number on everything", "row weights on everything"),
    a_score_dropped: ("plain rows", "a guide", "two masks", "a chain of three masks"),
    another_rows_score: ("plain rows", "a guide", "class weights on the response"),
    a_learned_imputation_forgotten: ("a learned imputation",),
}


@pytest.mark.parametrize(("fault", "name"), [(f, n) for f, ns in CONTROLS.items() for n in ns])
def test_a_broken_objective_is_noticed(fault, name, monkeypatch):
    assert error(ZOO[name], LeaveOneOut()) < 1e-10
    fault(monkeypatch)
    assert error(ZOO[name], LeaveOneOut()) > 1e-6
