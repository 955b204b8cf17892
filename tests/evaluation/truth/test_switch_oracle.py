"""The oracle of the three-way switch, against integrals and draws of another kind."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad
from scipy.stats import multivariate_normal

from lexppl.inference.predictive import drawing
from tests.benchmark_modules import benchmark_module

encode_oracle = benchmark_module("encode_oracle")
of_function, oracle_encode_meter = (encode_oracle.of_function, encode_oracle.oracle_encode_meter)
switch_oracle = benchmark_module("switch_oracle")
ThreeWaySwitch, three_way_switch = switch_oracle.ThreeWaySwitch, switch_oracle.three_way_switch
ThreeWaySwitchOracle = switch_oracle.ThreeWaySwitchOracle
ORACLE = ThreeWaySwitchOracle()
DATA = three_way_switch(400, seed=2, dtype=torch.float64)


def masks(seed=0, share=0.5):
    generator = torch.Generator().manual_seed(seed)
    return torch.bernoulli(torch.full_like(DATA.x, share), generator=generator)


def test_everything_kept_and_the_truth_kept_are_the_laws_own():
    law = ORACLE.distribution.probability(DATA.x)
    for kept in (torch.ones_like(DATA.x), DATA.truth):
        torch.testing.assert_close(ORACLE.probability(DATA.x, kept), law, rtol=1e-9, atol=1e-12)


def test_it_is_the_double_integral_over_the_switch_and_the_log_odds():
    """With x1 kept alone, and with x1 and x5: branch by branch, by adaptive quadrature."""
    for kept in ([0], [0, 4]):
        mask = torch.zeros(1, 12, dtype=torch.float64)
        mask[0, kept] = 1.0
        x = DATA.x[:1]
        covariance = ORACLE.distribution.covariance.numpy()
        weights = ORACLE.distribution.weights.numpy()
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
        assert float(ORACLE.probability(x, mask)[0]) == pytest.approx(total, abs=1e-5)


@pytest.mark.smoke
def test_redrawn_rows_keep_what_is_kept_and_average_to_the_oracles():
    kept, x = masks()[:20], DATA.x[:20]
    with drawing(0):
        again = ORACLE.redrawn(x, kept, 20_000)
    assert bool(((again == x) | (kept == 0)).all())
    said = ORACLE.distribution.probability(again)
    wanted = ORACLE.probability(x, kept)
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

    kept = blind(DATA.x)
    found = oracle_encode_meter(
        of_function(blind), kept, ORACLE, DATA.x, DATA.y, redraw=ORACLE.redrawn
    )
    apart = ORACLE.log_likelihood(DATA.x, DATA.y, DATA.truth) - ORACLE.log_likelihood(
        DATA.x, DATA.y, kept
    )
    assert abs(float((found.log_ratio - apart).mean())) < 0.01
    assert found.value > 0.1
    honest = oracle_encode_meter(
        of_function(law.truth), DATA.truth, ORACLE, DATA.x, redraw=ORACLE.redrawn
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
