"""Two hundred programs composed at random, value and gradient against the sum over all draws."""

import dataclasses
import math

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings

from lexppl.inference import Enumerate, LeaveOneOut, ScoreFunction
from tests.programs.enumeration import distance, support, traces, value_and_gradient
from tests.programs.random_programs import recipes
from tests.programs.test_zoo import (
    a_score_dropped,
    another_rows_score,
    error,
    scale_inside_the_log,
)

SHARDS, PROGRAMS = 20, 10
MOST_DRAWS, FEW_DRAWS = 128, 64
REFUSED = (
    "no log in common",
    "must share one scale",
    "differs within its log",
    "shared by several logs",
)


def draws(recipe):
    """How many joint values its latents have."""
    case = recipe.program().case()
    with torch.no_grad():
        particles = recipe.masks * recipe.samples
        model, guide = traces(case, case.parameters, particles, recipe.imputations)
    nodes = [s for s in guide.values() if not s["is_observed"]]
    nodes += [s for n, s in model.items() if not s["is_observed"] and n not in guide]
    return math.prod(
        len(support(s["fn"])) ** math.prod(s["fn"].batch_shape)
        for s in nodes
        if not s["fn"].has_rsample
    )


def run_once(recipe):
    program = recipe.program()
    value_and_gradient(program.case(), program.objective(LeaveOneOut()))


def readable(recipe):
    """The recipe, or where its sites have no log in common that of its sum of logs."""
    try:
        run_once(recipe)
    except ValueError as refusal:
        assert any(part in str(refusal) for part in REFUSED), refusal
        recipe = dataclasses.replace(recipe, masks=1, samples=2, imputations=1)
        try:
            run_once(recipe)
        except ValueError as again:
            assert "drawn after latents in plates" in str(again), again
            assume(False)
    return recipe


def over_programs(shard, programs, check, *, such_that=lambda recipe: True, most=MOST_DRAWS):
    """Run a check on so many programs, the same ones each time."""

    @hypothesis.seed(shard)
    @settings(
        max_examples=programs,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @given(recipes())
    def run(recipe):
        assume(such_that(recipe))
        assume(draws(recipe) <= most)
        check(recipe)

    run()


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_value_and_gradient_are_those_of_the_sum_over_all_draws(shard):
    compared = []

    def check(recipe):
        recipe = readable(recipe)
        assume(draws(recipe) <= MOST_DRAWS)
        estimator = (LeaveOneOut(), ScoreFunction(baseline=-0.8))[len(compared) % 2]
        assert error(recipe.program(), estimator) < 1e-9, recipe
        compared.append(recipe)

    over_programs(shard, PROGRAMS, check)
    assert len(compared) == PROGRAMS


@pytest.mark.complete
def test_enumerate_is_exact():
    compared = []

    def check(recipe):
        recipe = readable(recipe)
        program = recipe.program()
        found = value_and_gradient(program.case(), program.objective(Enumerate()))
        assert distance(found, program.truth()) < 1e-9, recipe
        compared.append(recipe)

    over_programs(100, 40, check, such_that=lambda r: r.fill == "none")
    assert len(compared) == 40


CONTROLS = {
    scale_inside_the_log: lambda recipe: recipe.masks > 1,
    a_score_dropped: lambda recipe: True,
    another_rows_score: lambda recipe: not recipe.rows_inside,
}
"""What is broken, and the programs that have the thing."""


@pytest.mark.complete
@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.__name__)
def test_a_broken_objective_is_noticed(control, monkeypatch):
    noticed = []

    def check(recipe):
        assume(readable(recipe) is recipe)
        with monkeypatch.context() as patch:
            control(patch)
            noticed.append(error(recipe.program(), LeaveOneOut()) > 1e-6)

    over_programs(7, 10, check, such_that=CONTROLS[control], most=FEW_DRAWS)
    assert len(noticed) == 10
    assert sum(noticed) >= 9
