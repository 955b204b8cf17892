"""The benchmarks' agreement of rankings and sensitivity, against SciPy and by hand."""

import numpy as np
import pytest
import torch
from scipy.stats import friedmanchisquare

from tests.benchmark_modules import benchmark_module

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
