"""Rows of the three-way switch: their law, their truth, their seed."""

import math

import pytest
import torch

from lexppl.data import ThreeWaySwitch, three_way_switch
from lexppl.data.synthetic import PAIRS

ROWS = 40_000


def test_the_rows_have_the_law_that_is_told():
    data, law = three_way_switch(ROWS, seed=1, dtype=torch.float64), ThreeWaySwitch()
    found = torch.cov(data.x.T)
    # Standard errors: sqrt(2 / N) of variances, below that of covariances.
    assert float((found - law.covariance).abs().max()) < 5 * math.sqrt(2 / ROWS)
    index = law.branch_index(data.x)
    shares = index.bincount().double() / ROWS
    assert float((shares - 1 / 3).abs().max()) < 5 * math.sqrt(2 / 9 / ROWS)
    p = law.probability(data.x)
    z = float((data.y - p).sum() / (p * (1 - p)).sum().sqrt())
    assert abs(z) < 5


@pytest.mark.smoke
def test_the_log_odds_are_those_of_the_rows_pair():
    law = ThreeWaySwitch(slope=3.0)
    x = torch.randn(200, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row, which in zip(x, law.branch_index(x).tolist(), strict=True):
        first, second = PAIRS[which]
        sign = -1.0 if which == 1 else 1.0
        wanted = sign * 3.0 * (row[first] + row[second]) / math.sqrt(2.0)
        assert torch.logit(law.probability(row[None]))[0] == pytest.approx(float(wanted))
        relevant = set(law.truth(row[None])[0].nonzero().flatten().tolist())
        assert relevant == {first, second, 11}


def test_the_seed_gives_the_same_and_leaves_the_global_state():
    state = torch.get_rng_state()
    first, again, other = (three_way_switch(50, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.y, again.y)
    assert not torch.equal(first.x, other.x)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"correlation": 1.0}, "correlation"),
        ({"correlation": -0.1}, "correlation"),
        ({"rows": 0}, "rows"),
    ],
)
def test_wrong_input_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        three_way_switch(**given)
