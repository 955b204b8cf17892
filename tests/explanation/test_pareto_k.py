"""The shape of the tail of importance weights, against ArviZ's."""

import arviz as az
import numpy as np
import pytest

from lexppl.arviz_compatibility import pareto_smoothed
from lexppl.explanation.row_draws import pareto_k


def of_arviz(log_weights):
    """k̂ of one row's weights by the installed ArviZ."""
    if hasattr(az, "psislw"):
        return float(az.psislw(log_weights.copy())[1])
    from arviz_stats.base import array_stats

    return float(array_stats.psislw(-log_weights)[1])


@pytest.mark.smoke
@pytest.mark.parametrize("count", [30, 100, 400])
def test_it_is_that_of_arviz(count):
    random = np.random.default_rng(count)
    weights = random.standard_t(3, size=(count, 40)) * random.uniform(0.1, 4.0, 40)
    found = pareto_k(weights)
    np.testing.assert_allclose(found, [of_arviz(column) for column in weights.T], rtol=1e-6)
    np.testing.assert_allclose(pareto_k(weights + 7.0), found, rtol=1e-6)


def test_ties_and_few_weights():
    same = np.zeros((100, 1))
    assert pareto_k(same) == -np.inf
    one = same.copy()
    one[3] = 5.0
    assert pareto_k(one) == np.inf
    assert pareto_k(np.zeros((4, 1)) + np.arange(4.0)[:, None]) == np.inf
    nothing = np.full((100, 1), -np.inf)
    nothing[:30] = np.random.default_rng(0).normal(size=(30, 1))
    assert np.isfinite(pareto_k(nothing)).all()


def test_weights_of_zero_do_not_hide_the_tail():
    weights = 3.0 * np.random.default_rng(1).standard_t(2, size=400)
    smoothed, expected = pareto_smoothed(weights)
    weights[weights.argmin()] = -np.inf
    found, k = pareto_smoothed(weights)
    assert k == pytest.approx(expected) and k > 0.7
    np.testing.assert_allclose(np.exp(found), np.exp(smoothed), atol=1e-9)
    one, none = np.full((2, 400), -np.inf)
    one[5] = 0.0
    assert (pareto_smoothed(np.stack([one, none]))[1] == np.inf).all()
    assert pareto_smoothed(np.zeros(400))[1] == -np.inf
