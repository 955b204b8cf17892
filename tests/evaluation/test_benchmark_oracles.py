"""The benchmarks' oracles and agreement of rankings, against integrals, enumeration and SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad, quad
from scipy.stats import friedmanchisquare, multivariate_normal, norm

from lexppl.data import synthetic
from lexppl.evaluation import Oracle
from lexppl.inference.predictive import drawing
from tests.benchmark_modules import benchmark_module

encode_oracle = benchmark_module("encode_oracle")
of_function, oracle_encode_meter = (encode_oracle.of_function, encode_oracle.oracle_encode_meter)
DATA = synthetic("Syn1", rows=1500, seed=5, dtype=torch.float64)
ORACLE = Oracle("Syn1")


def one_hot(x, place):
    return torch.zeros_like(x).scatter(1, place[:, None], 1.0)


def by_sign_of_second(x):
    """Keeps x1 where x2 > 0, else x3: of y = sigmoid(−x1 x2) the kept value tells nothing alone."""
    return one_hot(x, torch.where(x[:, 1] > 0, 0, 2))


def divergence_by_quadrature():
    """½ E KL(p(y | x1, x2 > 0) ‖ ½); of the rows that keep x3 nothing is told."""

    def p(value):
        integrand = lambda other: 2 * norm.pdf(other) / (1 + math.exp(value * other))  # noqa: E731
        return quad(integrand, 0, 9)[0]

    grid = np.linspace(-6, 6, 241)
    each = [sum(q * math.log(2 * q) for q in (p(v), 1 - p(v))) for v in grid]
    return 0.5 * float(np.trapezoid(np.array(each) * norm.pdf(grid), grid))


@pytest.mark.complete
def test_it_is_the_quadratures_of_a_choice_that_tells():
    masks = by_sign_of_second(DATA.x)
    found = oracle_encode_meter(
        of_function(by_sign_of_second), masks, ORACLE, DATA.x, DATA.y, least=100
    )
    wanted = divergence_by_quadrature()
    assert wanted > 0.02
    assert abs(found.value - wanted) / found.standard_error < 4.0
    labels = found.log_ratio
    error = float(labels.std()) / math.sqrt(len(labels))
    assert abs(float(labels.mean()) - wanted) / error < 4.0
    assert found.thin == 0.0


@pytest.mark.parametrize("name", ["S1", "S3"])
def test_truth_and_random_masks_tell_nothing(name):
    data, oracle = synthetic(name, rows=300, seed=1), Oracle(name)
    law = oracle.distribution
    truth = oracle_encode_meter(of_function(law.truth), data.truth, oracle, data.x)
    assert abs(truth.value) < 1e-9
    masks = torch.bernoulli(torch.full_like(data.x, 0.5))
    even = oracle_encode_meter(lambda x, _: x.new_ones(len(x)), masks, oracle, data.x, data.y)
    assert abs(even.value) < 4.0 * even.standard_error + 1e-9
    assert even.standard_error < 0.002


switch_oracle = benchmark_module("switch_oracle")
ThreeWaySwitch, three_way_switch = switch_oracle.ThreeWaySwitch, switch_oracle.three_way_switch
ThreeWaySwitchOracle = switch_oracle.ThreeWaySwitchOracle
SWITCH = ThreeWaySwitchOracle()
SWITCHED = three_way_switch(400, seed=2, dtype=torch.float64)


def masks(seed=0, share=0.5):
    generator = torch.Generator().manual_seed(seed)
    return torch.bernoulli(torch.full_like(SWITCHED.x, share), generator=generator)


def test_everything_kept_and_the_truth_kept_are_the_laws_own():
    law = SWITCH.distribution.probability(SWITCHED.x)
    for kept in (torch.ones_like(SWITCHED.x), SWITCHED.truth):
        torch.testing.assert_close(SWITCH.probability(SWITCHED.x, kept), law, rtol=1e-9, atol=1e-12)


def test_it_is_the_double_integral_over_the_switch_and_the_log_odds():
    """With x1 kept alone, and with x1 and x5: branch by branch, by adaptive quadrature."""
    for kept in ([0], [0, 4]):
        mask = torch.zeros(1, 12, dtype=torch.float64)
        mask[0, kept] = 1.0
        x = SWITCHED.x[:1]
        covariance = SWITCH.distribution.covariance.numpy()
        weights = SWITCH.distribution.weights.numpy()
        inverse = np.linalg.inv(covariance[np.ix_(kept, kept)])
        gain = covariance[:, kept] @ inverse
        mean = gain @ x[0, kept].numpy()
        left = covariance - gain @ covariance[kept]
        edges = [-9.0, -0.4307272992954576, 0.4307272992954576, 9.0]
        total = 0.0
        for b in range(3):
            asked = np.stack([np.eye(12)[11], weights[b]])
            law = multivariate_normal(asked @ mean, asked @ left @ asked.T)
            total += dblquad(
                lambda s, g: law.pdf([s, g]) / (1.0 + math.exp(-g)),  # noqa: B023
                -16.0, 16.0, edges[b], edges[b + 1], epsabs=1e-7,
            )[0]  # fmt: skip
        assert float(SWITCH.probability(x, mask)[0]) == pytest.approx(total, abs=1e-5)


@pytest.mark.smoke
def test_redrawn_rows_keep_what_is_kept_and_average_to_the_oracles():
    kept, x = masks()[:20], SWITCHED.x[:20]
    with drawing(0):
        again = SWITCH.redrawn(x, kept, 20_000)
    assert bool(((again == x) | (kept == 0)).all())
    said = SWITCH.distribution.probability(again)
    wanted = SWITCH.probability(x, kept)
    z = (said.mean(0) - wanted) / (said.std(0) / math.sqrt(len(again))).clamp_min(1e-12)
    assert float(z[kept.sum(1) < 12].abs().max()) < 5


@pytest.mark.complete
def test_a_pair_without_the_switch_tells_what_the_switch_is_worth():
    """An explainer that keeps its row's pair alone: the choice says the branch."""
    law = ThreeWaySwitch()

    def blind(x):
        found = law.truth(x)
        found[:, law.control] = 0.0
        return found

    kept = blind(SWITCHED.x)
    found = oracle_encode_meter(
        of_function(blind), kept, SWITCH, SWITCHED.x, SWITCHED.y, redraw=SWITCH.redrawn
    )
    apart = SWITCH.log_likelihood(SWITCHED.x, SWITCHED.y, SWITCHED.truth) - SWITCH.log_likelihood(
        SWITCHED.x, SWITCHED.y, kept
    )
    assert abs(float((found.log_ratio - apart).mean())) < 0.01
    assert found.value > 0.1
    honest = oracle_encode_meter(
        of_function(law.truth), SWITCHED.truth, SWITCH, SWITCHED.x, redraw=SWITCH.redrawn
    )
    assert abs(honest.value) < 1e-6


def test_the_rows_have_the_law_that_is_told():
    data, law = three_way_switch(40_000, seed=1, dtype=torch.float64), ThreeWaySwitch()
    found = torch.cov(data.x.T)
    # Standard errors: sqrt(2 / N) of variances, below that of covariances.
    assert float((found - law.covariance).abs().max()) < 5 * math.sqrt(2 / 40_000)
    index = law.branch_index(data.x)
    shares = index.bincount().double() / 40_000
    assert float((shares - 1 / 3).abs().max()) < 5 * math.sqrt(2 / 9 / 40_000)
    p = law.probability(data.x)
    z = float((data.y - p).sum() / (p * (1 - p)).sum().sqrt())
    assert abs(z) < 5


@pytest.mark.smoke
def test_the_log_odds_are_those_of_the_rows_pair():
    law = ThreeWaySwitch(slope=3.0)
    x = torch.randn(200, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row, which in zip(x, law.branch_index(x).tolist(), strict=True):
        first, second = switch_oracle.PAIRS[which]
        sign = -1.0 if which == 1 else 1.0
        wanted = sign * 3.0 * (row[first] + row[second]) / math.sqrt(2.0)
        assert torch.logit(law.probability(row[None]))[0] == pytest.approx(float(wanted))
        relevant = set(law.truth(row[None])[0].nonzero().flatten().tolist())
        assert relevant == {first, second, 11}


stability = benchmark_module("stability")
kendall_w, max_sensitivity = stability.kendall_w, stability.max_sensitivity
GENERATOR = np.random.default_rng(0)
X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_identical_rankings_agree_fully_and_opposite_ones_not():
    one = np.array([0.3, 2.0, -1.0, 0.5])
    same = kendall_w(np.stack([one, 10 * one, np.exp(one)]))
    assert same.w == pytest.approx(1.0, abs=1e-12)
    assert (same.chi_square, same.degrees) == (pytest.approx(9.0), 3)
    assert kendall_w(np.stack([one, -one])).w == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(kendall_w(np.ones((3, 4))).w)


@pytest.mark.parametrize("tied", [False, True])
def test_its_statistic_is_friedmans(tied):
    values = GENERATOR.integers(0, 5, (6, 9)) if tied else GENERATOR.normal(size=(6, 9))
    found = kendall_w(torch.from_numpy(values))
    exact = friedmanchisquare(*values.T)
    assert found.chi_square == pytest.approx(exact.statistic, rel=1e-10)
    assert found.p_value == pytest.approx(exact.pvalue, rel=1e-8)


def test_the_change_is_the_rows_own_maximum_divided_by_its_own_norm():
    inputs = []

    def importance(x):
        inputs.append(x.clone())
        return x.square()

    found = max_sensitivity(importance, X, radius=0.05, perturbations=6)
    own, near = inputs[0], inputs[1].reshape(6, 50, 3)
    assert torch.equal(own, X)
    assert 0.048 < float((near - X).abs().max()) <= 0.05 + 1e-12
    change = (near.square() - X.square()).norm(dim=-1).amax(0)
    assert found == pytest.approx(float((change / X.square().norm(dim=-1)).mean()), rel=1e-12)
    options = {"radius": 0.05, "perturbations": 6, "relative": False}
    undivided = max_sensitivity(lambda x: x.square(), X, **options)
    assert undivided == pytest.approx(float(change.mean()), rel=1e-12)
