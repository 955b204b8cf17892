"""Accuracy at each size, against the same figures worked out by hand."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from lexppl.evaluation.judges import EvalXScores, accuracy_by_size
from lexppl.models import BernoulliLikelihood, NormalLikelihood
from tests.evaluation.fitted_by_hand import judge_of, linear

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(400, 4, generator=GENERATOR, dtype=torch.float64)
WEIGHTS = torch.tensor([3.0, -2.0, 1.0, 0.0]).double()
Y = (X @ WEIGHTS > 0).long()
RANKING = (X * WEIGHTS).abs()


class Recorder:
    """A judge that keeps the masks it is given."""

    entries = 4

    def __init__(self):
        self.masks = []

    def scores(self, x, y, masks, **options):
        self.masks.append(masks)
        return EvalXScores(accuracy=0.5, auroc=0.5, log_likelihood=-1.0, mean_size=1.0)


LABELS = judge_of(linear(WEIGHTS), likelihood=BernoulliLikelihood(), columns=4)


def by_hand(k):
    """Accuracy of the linear judge where each row keeps its k largest."""
    kept = torch.zeros_like(X)
    for row, order in enumerate(np.argsort(-RANKING.numpy(), axis=1)):
        kept[row, order[:k]] = 1.0
    return float(((X * kept) @ WEIGHTS > 0).eq(Y == 1).double().mean())


def test_each_row_keeps_its_highest():
    sizes, found = accuracy_by_size(LABELS, RANKING, X, Y)
    assert sizes == (1, 2, 3, 4)
    np.testing.assert_allclose(found, [by_hand(k) for k in sizes], rtol=0, atol=1e-12)
    assert found[0] > 0.8 and found[-1] == 1.0
    chosen, again = accuracy_by_size(LABELS, RANKING, X, Y, sizes=[3, 0])
    assert chosen == (3, 0) and again[0] == found[2]
    assert again[1] == pytest.approx(float((Y == 0).double().mean()))


@pytest.mark.smoke
def test_a_ranking_is_above_chance_and_its_opposite_below():
    _, found = accuracy_by_size(LABELS, RANKING, X, Y)
    _, chance = accuracy_by_size(LABELS, None, X, Y, random_ranking=True)
    _, opposite = accuracy_by_size(LABELS, -RANKING, X, Y)
    options = {"random_ranking": True, "seed": 1}
    assert accuracy_by_size(LABELS, None, X, Y, **options)[1] != chance
    for k in range(3):
        assert found[k] > chance[k] + 0.05
        assert opposite[k] < chance[k] - 0.02
    assert found[3] == chance[3] == opposite[3]


def test_of_equal_entries_the_first_is_kept():
    judge = Recorder()
    accuracy_by_size(judge, torch.tensor([[0.5, 1.0, 0.5, 0.5]]).expand(400, 4), X, Y, [1, 2, 3])
    kept = [[0, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    for masks, expected in zip(judge.masks, kept, strict=True):
        assert bool((masks.long() == torch.tensor(expected)).all())


def test_responses_have_their_share_of_variance():
    given = {"likelihood": NormalLikelihood(), "labels": None}
    judge = judge_of(linear(WEIGHTS), columns=4, **given)
    y = X @ WEIGHTS
    sizes, found = accuracy_by_size(judge, WEIGHTS.abs().expand(400, 4), X, y)
    for k in sizes:
        left = (X[:, k:] @ WEIGHTS[k:]).square().sum() / (y - y.mean()).square().sum()
        assert found[k - 1] == pytest.approx(float(1 - left), abs=1e-9)


def test_a_random_ranking_keeps_each_entry_as_often():
    judge = Recorder()
    accuracy_by_size(judge, RANKING, X, Y, random_ranking=True)
    for k, (smaller, larger) in enumerate(pairwise([torch.zeros(400, 4), *judge.masks])):
        assert bool((larger.sum(1) == k + 1).all())
        assert bool((larger.long() >= smaller.long()).all())
    counts = judge.masks[0].sum(0).double()
    assert float(((counts - 100) ** 2 / 100).sum()) < chi2.isf(1e-6, 3)
    by_rank = Recorder()
    accuracy_by_size(by_rank, WEIGHTS.expand(400, 4), X, Y)
    counts = by_rank.masks[0].sum(0).double()
    assert float(((counts - 100) ** 2 / 100).sum()) > chi2.isf(1e-6, 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ranking": None}, r"give a ranking \(N, G\), or random_ranking=True"),
        ({"ranking": RANKING[:, :3]}, r"\(400, 4\).*\(400, 3\)"),
        ({"ranking": RANKING * float("nan")}, "or NaN"),
        ({"sizes": []}, "sizes must have at least one"),
        ({"sizes": [1, 5]}, "sizes must be a whole number from 0 to 4, the mask entries; it is 5"),
        ({"y": Y[1:]}, "x has 400 rows and y has 399"),
    ],
)
def test_bad_questions_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        accuracy_by_size(**{"evalx": LABELS, "ranking": RANKING, "x": X, "y": Y, **options})
