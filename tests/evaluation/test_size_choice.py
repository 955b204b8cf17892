"""The published rules on cases worked out by hand."""

import pytest

from lexppl.evaluation.plateau import best_validation, fewest_within

SIZES = [9.0, 6.0, 3.0, 1.0]
SCORES = [0.80, 0.77, 0.76, 0.60]


def test_within_is_relative_to_the_full_model():
    # 5 % of 0.8 is 0.04: 0.76 will do, and 0.75 would if it were five points.
    assert fewest_within(SIZES, SCORES, 0.80) == 2
    assert fewest_within(SIZES, [0.80, 0.77, 0.7599, 0.75], 0.80) == 1
    assert fewest_within(SIZES, SCORES, 0.80, tolerance=0.25) == 3
    assert fewest_within(SIZES, SCORES, 0.80, tolerance=0.0) == 0
    assert fewest_within(SIZES, SCORES, 0.90) is None


def test_better_than_the_full_model_is_within():
    assert fewest_within([2.0, 4.0], [0.99, 0.80], 0.80) == 0


def test_scores_below_zero_lose_a_share_of_their_size():
    assert fewest_within([1.0, 2.0, 3.0], [-0.43, -0.41, -0.40], -0.40) == 1


def test_ties():
    assert fewest_within([2.0, 2.0, 2.0], [0.78, 0.79, 0.79], 0.80) == 1
    assert best_validation([5.0, 2.0, 2.0], [0.8, 0.8, 0.8]) == 1


def test_the_best_score_whatever_its_size():
    assert best_validation(SIZES, SCORES) == 0
    assert best_validation(SIZES, [0.1, 0.2, 0.4, 0.3]) == 2


@pytest.mark.parametrize("rule", [lambda s, y: fewest_within(s, y, 0.5), best_validation])
@pytest.mark.parametrize(
    ("sizes", "scores", "words"),
    [
        ([], [], "one length, at least 1"),
        ([1.0], [0.1, 0.2], "they have 1 and 2"),
        ([float("nan")], [0.1], "sizes must be finite"),
        ([1.0], [float("inf")], "scores must be finite"),
        ([-1.0], [0.1], "must not be negative; the least is -1"),
    ],
)
def test_bad_tables_are_refused(rule, sizes, scores, words):
    with pytest.raises(ValueError, match=words):
        rule(sizes, scores)


def test_fewest_within_needs_the_full_models_score_and_a_share():
    for score in (None, float("nan")):
        with pytest.raises(ValueError, match="full_score must be a finite number"):
            fewest_within(SIZES, SCORES, score)
    with pytest.raises(ValueError, match="tolerance must be"):
        fewest_within(SIZES, SCORES, 0.5, tolerance=2.0)
