"""Proportional hazards with a known baseline: against quadrature, closed forms and draws."""

import math

import pytest
import torch
from scipy.integrate import quad

from lexppl.models.survival import BaselineHazard, ProportionalHazards
from tests.refusals import refusals

F64 = torch.float64
BASELINE = BaselineHazard(
    torch.tensor([[1.0, 2.0, 4.0], [0.5, 3.0, 3.0]], dtype=F64),
    torch.tensor([[0.2, 0.3, 1.0], [0.1, 2.0, 2.0]], dtype=F64),
    [0.0, 7.0],
    [5.0, 3.5],
)
"""Two strata; the second has two events."""


def rate(t, stratum):
    """h₀ by its definition."""
    if stratum == 0:
        return 0.2 if t <= 1 else 0.1 if t <= 2 else 0.35
    return 0.2 if t <= 0.5 else 1.9 / 2.5


@pytest.mark.parametrize("stratum", [0.0, 7.0])
@pytest.mark.parametrize("time", [0.25, 0.5, 1.0, 1.7, 2.0, 3.0, 3.9, 4.0, 6.0])
def test_hazard_and_cumulative_hazard_are_rate_and_integral(stratum, time):
    at, of = torch.tensor([time], dtype=F64), torch.tensor([stratum], dtype=F64)
    exact = quad(lambda t: rate(t, stratum), 0.0, time, points=[0.5, 1.0, 2.0], limit=200)[0]
    assert math.isclose(float(BASELINE.cumulative_at(at, of)), exact, rel_tol=1e-9)
    assert math.isclose(float(BASELINE.log_hazard_at(at, of).exp()), rate(time, stratum))
    assert math.isclose(
        float(BASELINE.time_of(BASELINE.cumulative_at(at, of), of)), time, rel_tol=1e-12
    )


@pytest.mark.parametrize("stratum", [0.0, 7.0])
def test_the_density_of_events_has_integral_one_minus_those_that_live_on(stratum):
    f = torch.tensor([0.4], dtype=F64)
    distribution = ProportionalHazards(f, BASELINE, stratified=True)

    def log_prob(time, event):
        row = torch.tensor([[time, event, stratum]], dtype=F64)
        return float(distribution.log_prob(row))

    died = quad(lambda t: math.exp(log_prob(t, 1.0)), 0.0, 6.0, points=[0.5, 1.0, 2.0, 3.0, 4.0])
    assert math.isclose(died[0] + math.exp(log_prob(6.0, 0.0)), 1.0, rel_tol=1e-6)


def test_draws_follow_the_survival_curve_and_end_with_the_rows():
    first = BaselineHazard([1.0, 2.0, 4.0], [0.2, 0.3, 1.0], last=[5.0])
    distribution = ProportionalHazards(torch.tensor([0.7, -0.3]), first)
    draws, times = 20_000, torch.tensor([0.5, 1.5, 3.0, 4.9])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = distribution.sample((draws,))
    assert drawn.shape == (draws, 2, 2)
    expected = distribution.survival(times)
    found = (drawn[..., 0] > times.reshape(-1, 1, 1)).float().mean(1)
    error = (expected * (1 - expected) / draws).sqrt()
    assert float(((found - expected).abs() / error).max()) < 4.5
    assert float(((found - expected.flip(1)).abs() / error).max()) > 20.0
    censored = drawn[..., 1] == 0
    assert bool((drawn[censored][:, 0] == 5.0).all()) and bool(censored.any())


@pytest.mark.smoke
def test_survival_curves_by_their_formula():
    f = torch.randn(2, 3, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    strata = torch.tensor([0.0, 7.0, 7.0, 0.0], dtype=F64)
    times = torch.tensor([0.3, 2.5], dtype=F64)
    found = ProportionalHazards(f, BASELINE, True).survival(times, strata)
    assert found.shape == (2, 2, 3, 4)
    for place, time in enumerate(times):
        reached = BASELINE.cumulative_at(time.expand(4), strata)
        assert torch.allclose(found[place], (-f.exp() * reached).exp())


def test_of_several_models_density_and_survival_are_means():
    f = torch.tensor([[0.5, -1.0], [2.0, 0.3]], dtype=F64)
    rows = torch.tensor([[1.5, 1.0, 0.0], [3.0, 0.0, 7.0]], dtype=F64)
    each = [ProportionalHazards(g, BASELINE, True) for g in f]
    mean = ProportionalHazards.mean_of(each)
    densities = torch.stack([d.log_prob(rows) for d in each]).exp().mean(0)
    assert torch.allclose(mean.log_prob(rows).exp(), densities)
    times = torch.tensor([2.0], dtype=F64)
    curves = torch.stack([d.survival(times, rows[:, 2]) for d in each]).mean(0)
    assert torch.allclose(mean.survival(times, rows[:, 2]), curves)
    joined = ProportionalHazards.joined([ProportionalHazards(g, BASELINE, True) for g in f])
    assert joined.batch_shape == (4,)
    assert mean.expand((3, 2)).log_prob(rows).shape == (3, 2)


test_what_is_no_cumulative_hazard_is_refused = refusals(
    (([1.0, 2.0], [0.1]), r"cumulative must have shape \(1, 2\)"),
    (([2.0, 1.0], [0.1, 0.2]), "times must be finite, positive and rising"),
    (([1.0, 2.0], [0.2, 0.1]), "cumulative must be finite, positive and rising"),
    (([0.0, 2.0], [0.1, 0.2]), "times must be finite, positive"),
    (([1.0], [0.1], [0.0, 1.0]), r"must have shape \(1,\)"),
    of=lambda arguments: BaselineHazard(*arguments),
)
