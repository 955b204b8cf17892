"""Remove and retrain, on rows whose label is in known features."""

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

from lexppl.evaluation import roar as public
from lexppl.evaluation.refits.roar import RoarScores, roar
from lexppl.models import ConstantImputer, GaussianImputer, Grouping

GENERATOR = torch.Generator().manual_seed(1)
X = torch.randn(1200, 4, generator=GENERATOR) + 3.0
WEIGHTS = torch.tensor([1.0, 0.0, 0.0, 0.0])
Y = (X[:, 0] > 3.0).long()
TRAIN, TEST = (X[:600], Y[:600]), (X[600:], Y[600:])
RIGHT = WEIGHTS.expand(600, 4)
OPTIONS = {"hidden": (16,), "epochs": 40, "batch_size": 100, "learning_rate": 1e-2}
QUICK = {**OPTIONS, "progress": False}
CHANCE = binom.isf(1e-6 / 20, 600, 0.5) / 600


@pytest.fixture(scope="module")
def right():
    return roar(TRAIN, TEST, RIGHT, RIGHT, fractions=(0.0, 0.25, 0.5), replicates=2, **QUICK)


@pytest.mark.complete
def test_the_right_ranking_removes_what_there_is_to_know(right):
    assert right.removed == (0, 1, 2)
    assert right.accuracy.shape == right.random_accuracy.shape == (3, 2)
    assert (right.accuracy[0] > 0.95).all()
    assert (right.accuracy[1:] < CHANCE).all()
    assert np.array_equal(right.accuracy[0], right.random_accuracy[0])


def test_a_random_ranking_leaves_some_of_it(right):
    # One of four is gone at random: three quarters of the rows keep what tells them.
    assert (right.random_accuracy[1] > 0.75).all()
    assert (right.random_accuracy[1] > right.random_accuracy[2]).all()
    assert right.advantage > 0.1
    assert not np.array_equal(right.accuracy[:, 0], right.accuracy[:, 1])


@pytest.mark.complete
def test_the_opposite_ranking_costs_nothing():
    opposite = roar(TRAIN, TEST, -RIGHT, -RIGHT, fractions=(0.25, 0.75), replicates=1, **QUICK)
    assert (opposite.accuracy > 0.95).all()
    assert opposite.advantage < -0.1


def test_areas_by_hand():
    accuracy = np.array([[1.0, 0.9], [0.6, 0.5], [0.5, 0.5]])
    scores = RoarScores((0.2, 0.3, 0.7), (1, 2, 4), accuracy, accuracy + 0.1)
    np.testing.assert_allclose(scores.area, [0.8 * 0.2 + 0.55 * 0.8, 0.7 * 0.2 + 0.5 * 0.8])
    np.testing.assert_allclose(scores.random_area, scores.area + 0.1)
    assert scores.advantage == pytest.approx(0.1)


class Seen(nn.Module):
    """A network that keeps the rows it was trained on."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.rows = []

    def __deepcopy__(self, memo):
        return self

    def forward(self, x):
        self.rows.append(x.detach().reshape(-1, 4).clone())
        return self.layer(x)


@pytest.mark.smoke
@pytest.mark.parametrize("imputer", [None, ConstantImputer(-9.0)])
def test_what_is_removed_is_the_rows_own_highest(imputer):
    rankings = torch.rand(2, 600, 4, generator=GENERATOR)
    network = Seen()
    roar(
        TRAIN, TEST, *rankings, fractions=(0.5, 1.0), replicates=1, imputer=imputer,
        network=network, epochs=1, batch_size=600, valid=0.01, progress=False,
    )  # fmt: skip
    constant = TRAIN[0].mean(0) if imputer is None else torch.full((4,), -9.0)
    expected = []
    for x, ranking in zip((TRAIN[0], TEST[0]), rankings, strict=True):
        altered = x.clone()
        for row, order in enumerate(ranking.argsort(1, descending=True)[:, :2].tolist()):
            altered[row, order] = constant[order]
        expected.append({tuple(row) for row in altered.tolist()})
    seen = {tuple(row) for rows in network.rows for row in rows.tolist()}
    assert expected[0] <= seen and expected[1] <= seen
    assert tuple(constant.tolist()) in seen


def test_where_everything_is_removed_one_fit_serves_both_rankings():
    scores = roar(TRAIN, TEST, RIGHT, RIGHT, fractions=(0.9, 1.0), replicates=1, **QUICK)
    assert scores.removed == (4, 4)
    assert (scores.accuracy < CHANCE).all()
    assert np.array_equal(scores.accuracy, scores.random_accuracy)


def test_groups_fall_together_and_responses_have_their_variance():
    x = X - 3.0
    y = x[:, 0] + x[:, 1]
    grouping = Grouping([0, 0, 1, 2])
    ranking = torch.tensor([3.0, 2.0, 1.0]).expand(600, 3)
    scores = roar(
        (x[:600], y[:600]), (x[600:], y[600:]), ranking, ranking, fractions=(0.0, 1 / 3),
        replicates=1, grouping=grouping, **QUICK,
    )  # fmt: skip
    assert scores.accuracy[0, 0] > 0.95 and scores.accuracy[1, 0] < 0.1


def test_the_seed_decides_and_no_global_state_moves():
    torch.manual_seed(2)
    state = torch.get_rng_state()
    found = [
        roar(
            TRAIN, TEST, RIGHT, RIGHT, fractions=(0.0, 0.5), replicates=1, seed=seed,
            imputer=GaussianImputer(), hidden=(4,), epochs=2, progress=False,
        )
        for seed in (0, 0, 1)
    ]  # fmt: skip
    assert np.array_equal(found[0].random_accuracy, found[1].random_accuracy)
    assert not np.array_equal(found[0].random_accuracy, found[2].random_accuracy)
    assert torch.equal(state, torch.get_rng_state())
    assert public is roar


GOOD = {"train": TRAIN, "test": TEST, "train_ranking": RIGHT, "test_ranking": RIGHT}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"train_ranking": RIGHT[:, :3]}, ValueError, r"train_ranking must have shape \(600, 4\)"),
        ({"test_ranking": RIGHT[:7]}, ValueError, r"test_ranking.*it has \(7, 4\)"),
        ({"test_ranking": RIGHT / 0 * 0}, ValueError, "test_ranking must be numbers; it has NaN"),
        ({"fractions": (0.5,)}, ValueError, "two or more shares from 0 to 1, rising"),
        ({"fractions": (0.5, 0.1)}, ValueError, "rising; they are"),
        ({"fractions": (0.5, 1.1)}, ValueError, "from 0 to 1"),
        ({"fractions": (0.0, float("nan"))}, ValueError, "from 0 to 1"),
        ({"train": X}, TypeError, r"train must be a tuple \(x, y\)"),
        ({"train": (X.numpy(), Y)}, TypeError, "train must hold tensors"),
        ({"test": (TEST[0], Y)}, ValueError, r"as many labels.*\(600, 4\) and \(1200,\)"),
        ({"test": (TEST[0] / 0, TEST[1])}, ValueError, "x of test must be finite"),
        ({"test": (TEST[0][:, :3], TEST[1])}, ValueError, r"shape of train's, \(4,\)"),
        ({"replicates": 0}, ValueError, "replicates must be"),
    ],
)
def test_bad_questions_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        roar(**{**GOOD, "epochs": 1, "progress": False, **options})
