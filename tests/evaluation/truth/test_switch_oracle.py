"""The oracle of the three-way switch, against integrals and draws of another kind."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad
from scipy.stats import multivariate_normal

from lexppl.data import three_way_switch
from lexppl.inference.predictive import drawing
from tests.benchmark_modules import benchmark_module

ThreeWaySwitchOracle = benchmark_module("switch_oracle").ThreeWaySwitchOracle
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
