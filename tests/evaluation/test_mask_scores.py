"""The four fidelities by hand, by chance, and where fresh predictors are fooled."""

import pytest
import torch
from scipy.stats import binom
from sklearn.linear_model import LinearRegression
from torch import nn

from lexppl.evaluation.mask_scores import fidelity_scores
from lexppl.models import (
    BernoulliLikelihood,
    ConstantImputer,
    GaussianImputer,
    Grouping,
    Predictor,
    black_box,
)
from tests.refusals import refusals

FAILURE = 1e-6
"""Probability that a right program fails one of the binomial tests here."""

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(600, 4, generator=GENERATOR)
WEIGHTS = torch.tensor([2.0, -2.0, 0.0, 0.0])
Y = (X @ WEIGHTS > 0).long()
TRUTH = torch.tensor([1, 1, 0, 0]).expand(600, 4)
TRAINING = {"hidden": (16,), "epochs": 40, "batch_size": 50, "learning_rate": 1e-2}
QUICK = {**TRAINING, "progress": False}


def linear(bias=0.0):
    layer = nn.Linear(4, 1)
    layer.weight = nn.Parameter(WEIGHTS[None])
    layer.bias = nn.Parameter(torch.tensor([bias]))
    return Predictor(layer, BernoulliLikelihood())


def chance(rows):
    return binom.isf(FAILURE / 2, rows, 0.5) / rows


def test_the_truth_carries_all_and_the_rest_nothing():
    scores = fidelity_scores(linear(), X, TRUTH)
    assert scores.fs_m == 1.0
    assert 1 - chance(600) < scores.fu_m < chance(600)
    assert (scores.fs_a, scores.fu_a) == (None, None)
    opposite = fidelity_scores(linear(), X, 1 - TRUTH)
    assert (opposite.fs_m, opposite.fu_m) == (scores.fu_m, 1.0)


@pytest.mark.smoke
def test_by_hand_on_four_rows():
    model = black_box(lambda rows: (rows.sum(1) > 0).astype(float))
    x = torch.tensor([[2.0, -1.0], [-2.0, 1.0], [1.0, 1.0], [-1.0, 3.0]])
    # Labels of x: 1 0 1 1; of the first feature alone: 1 0 1 0; of the second: 0 1 1 1.
    first = torch.tensor([1, 0]).expand(4, 2)
    scores = fidelity_scores(model, x, first)
    assert (scores.fs_m, scores.fu_m) == (3 / 4, 2 / 4)
    both = fidelity_scores(model, x, torch.stack([first, 1 - first]))
    assert (both.fs_m, both.fu_m) == (5 / 8, 5 / 8)


def test_fresh_predictors_learn_from_what_they_see_and_nothing_from_the_rest():
    scores = fidelity_scores(
        linear(), X[:300], TRUTH[:300], train_x=X[300:], train_masks=TRUTH[300:], **QUICK
    )
    assert scores.fs_a > 0.93
    assert scores.fu_a < chance(300)


def test_draws_of_one_row_are_on_one_side_of_the_validation():
    draws = torch.stack([TRUTH, torch.ones(600, 4)])
    scores = fidelity_scores(
        linear(), X[:300], draws[:, :300], train_x=X[300:], train_masks=draws[:, 300:], **QUICK
    )
    assert scores.fs_a > 0.93 and scores.fs_m == 1.0


def test_masks_that_encode_the_prediction_fool_fs_a_but_not_fs_m():
    # Features 2 and 3 say nothing; which of them is shown tells the label.
    encoding = torch.zeros(600, 4)
    encoding[torch.arange(600), 2 + Y] = 1.0
    scores = fidelity_scores(
        linear(), X[:300], encoding[:300], train_x=X[300:], train_masks=encoding[300:], **QUICK
    )
    assert scores.fs_a > 0.9
    assert scores.fs_m < chance(300)


def test_responses_are_compared_by_their_share_of_variance():
    y = X @ torch.tensor([3.0, 1.0, 0.0, 0.0])
    model = LinearRegression(fit_intercept=False).fit(X.numpy(), y.numpy())
    first = torch.tensor([1, 0, 0, 0]).expand(600, 4)
    scores = fidelity_scores(model, X, first)
    left = (X[:, 1] ** 2).sum() / (y - y.mean()).square().sum()
    assert scores.fs_m == pytest.approx(float(1 - left), abs=1e-4)


def test_what_is_left_out_is_imputed():
    # With a bias the label of hidden features depends on the constant that stands in for them.
    hidden = torch.zeros(600, 4)
    for value, share in ((1.0, Y.eq(1)), (-1.0, Y.eq(0))):
        constant = ConstantImputer(torch.tensor([value, -value, 0.0, 0.0]))
        scores = fidelity_scores(linear(), X, hidden, imputer=constant)
        assert scores.fs_m == pytest.approx(float(share.double().mean()))
        assert scores.fu_m == 1.0
    random = [
        fidelity_scores(linear(), X, hidden, imputer=GaussianImputer(), seed=seed).fs_m
        for seed in (5, 5, 6)
    ]
    assert random[0] == random[1] != random[2]
    assert all(1 - chance(600) < value < chance(600) for value in random)


def test_groups_are_kept_together():
    grouping = Grouping([0, 0, 1, 2])
    scores = fidelity_scores(linear(), X, torch.tensor([1, 0, 0]).expand(600, 3), grouping=grouping)
    assert scores.fs_m == 1.0 and scores.fu_m < chance(600)


GOOD = {"model": linear(), "x": X, "masks": TRUTH}
TRAIN = {"train_x": X, "train_masks": TRUTH}


test_bad_questions_are_refused = refusals(
    ({"masks": TRUTH[:, :3]}, r"\(…, 600, 4\).*is \(600, 3\)"),
    ({"x": X / 0}, "x must be finite"),
    ({"model": nn.Linear(4, 2)}, "say what Linear returns"),
    ({"model": 3}, TypeError, "a black box must be"),
    ({"train_x": X}, "need train_x and train_masks; give both"),
    ({**TRAIN, "train_masks": TRUTH[:9]}, r"is \(9, 4\)"),
    ({**TRAIN, "train_x": X[:, :3]}, r"the shape of x's, \(4,\).*\(600, 3\)"),
    ({**TRAIN, "valid": 1.0}, "valid must be a share"),
    ({**TRAIN, "epoch": 1}, TypeError, "unexpected keyword argument .epoch."),
    ({"x": X.reshape(600, 2, 2)}, "need a grouping="),
    ({"grouping": Grouping([0, 0, 1])}, r"\(…, 600, 2\)"),
    of=lambda options: fidelity_scores(**{**GOOD, **options}),
)
