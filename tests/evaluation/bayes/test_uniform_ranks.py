"""Tests of uniform ranks keep their false alarm rate, and find what is not uniform."""

import numpy as np
import pytest
from scipy import stats

from lexppl.evaluation.bayes.calibration import UniformRanks

SETS = 2000


def random_ranks(draws, count, sets=SETS, seed=1):
    return np.random.default_rng(seed).integers(0, draws + 1, (sets, count))


@pytest.mark.parametrize(("count", "draws"), [(200, 99), (50, 9), (500, 1)])
def test_uniform_ranks_raise_an_alarm_no_more_often_than_stated(count, draws):
    null = UniformRanks(count, draws)
    values = np.array([null.p_value(ranks) for ranks in random_ranks(draws, count)])
    for level in (0.01, 0.05, 0.2):
        found = (values <= level).sum()
        assert stats.binom.sf(found - 1, SETS, level) > 1e-4
    if draws == 99:
        # The statistic has so many values that its level is also reached.
        found = (values <= 0.2).sum()
        assert stats.binom.cdf(found, SETS, 0.2) > 1e-4


def test_the_band_holds_whole_distribution_functions_as_often_as_it_says():
    null = UniformRanks(300, 49)
    low, high = null.band(0.9)
    inside = 0
    for ranks in random_ranks(49, 300):
        reached = null.reached(ranks)
        inside += bool(((reached >= low - 1e-12) & (reached <= high + 1e-12)).all())
    assert stats.binom.cdf(inside, SETS, 0.9) > 1e-4
    assert stats.binom.sf(inside - 1, SETS, 0.95) > 1e-4


def test_the_statistic_is_the_smallest_tail():
    ranks = np.array([0, 0, 1, 3, 2, 3, 3, 0])
    null = UniformRanks(8, 3)
    tails = []
    for i in range(3):
        z, reached = (i + 1) / 4, int((ranks <= i).sum())
        tails += [stats.binom.cdf(reached, 8, z), stats.binom.sf(reached - 1, 8, z)]
    statistic = null._statistic(null._counts(ranks)[None])[0]
    assert statistic == pytest.approx(2 * min(tails))


def test_distances_have_their_usual_size():
    null = UniformRanks(400, 99)
    apart = np.array([null.distance(ranks) for ranks in random_ranks(99, 400)])
    above = (apart > null.usual_distance()).sum()
    assert stats.binom.sf(above - 1, SETS, 0.05) > 1e-4
    assert null.usual_distance() == pytest.approx(stats.kstwobign.isf(0.05) / 20, rel=0.1)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (np.zeros(4, int), "shape"),
        (np.array([0, 1, 2, 3, 10]), "from 0 to 9"),
        (np.array([0.0, 1.0, 2.0, 3.0, 4.0]), "whole numbers"),
    ],
)
def test_what_are_no_ranks_is_refused(ranks, words):
    with pytest.raises(ValueError, match=words):
        UniformRanks(5, 9).p_value(ranks)
