"""The published rules on cases worked out by hand."""

from functools import partial

import pytest

from lexppl.evaluation.size_choice import best_validation, choose, fewest_within

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
    assert best_validation(SIZES, SCORES, 0.9) == 0
    assert best_validation(SIZES, [0.1, 0.2, 0.4, 0.3]) == 2


def test_every_candidate_is_fitted_once_and_listed():
    fitted = []

    def fit_one(penalty):
        fitted.append(penalty)
        return dict(zip((0.05, 0.1, 0.15, 0.2), zip(SIZES, SCORES, strict=True), strict=True))[
            penalty
        ]

    found = choose([0.05, 0.1, 0.15, 0.2], fit_one, 0.79)
    assert fitted == [0.05, 0.1, 0.15, 0.2]
    assert (found.candidate, found.index) == (0.15, 2)
    assert list(found.table["candidate"]) == fitted
    assert list(found.table["size"]) == SIZES and list(found.table["score"]) == SCORES
    assert list(found.table["chosen"]) == [False, False, True, False]
    assert choose(fitted[:4], fit_one, rule=best_validation).candidate == 0.05
    wider = partial(fewest_within, tolerance=0.3)
    assert choose(fitted[:4], fit_one, 0.8, rule=wider).candidate == 0.2


def test_no_candidate_within_leaves_the_table():
    found = choose([1, 2], lambda k: (k, 0.5), 0.9)
    assert found.candidate is None and found.index is None
    assert len(found.table) == 2 and not found.table["chosen"].any()


def test_mistakes_are_found_before_the_fits():
    def never(candidate):
        raise AssertionError("a fit was started")

    for options, words in (
        ({"full_score": None}, "full_score must be a finite number; it is None"),
        ({"full_score": float("nan")}, "full_score must be"),
        ({"rule": partial(fewest_within, tolerance=2.0), "full_score": 0.5}, "tolerance must be"),
        ({"candidates": []}, "candidates must have at least one"),
    ):
        with pytest.raises(ValueError, match=words):
            choose(**{"candidates": [1, 2], "fit_one": never, **options})


def test_a_fit_that_failed_ends_the_choice_at_once():
    fitted = []

    def fit_one(k):
        fitted.append(k)
        return k, float("nan")

    with pytest.raises(ValueError, match=r"for 1 it gave 1\.0 and nan"):
        choose([1, 2], fit_one, 0.9)
    assert fitted == [1]


@pytest.mark.parametrize("rule", [fewest_within, best_validation])
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
        rule(sizes, scores, 0.5)
