"""A path of the penalties of one fit, and the plateau of paths made by hand."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.evaluation import Folds, penalty_path, predictive_log_likelihood
from lexppl.evaluation.penalty_path import best_validation, plateau, slopes
from lexppl.explanation import explain, mask_means
from lexppl.inference import fit
from lexppl.models import GaussianImputer
from lexppl.systems import lex
from tests.refusals import refusals, refused

RANGE = (0.005, 0.8)
PENALTIES = (0.005, 0.06, 0.8)
SHORT = {"epochs": 60, "batch_size": 100, "learning_rate": 1e-2, "progress": False, "seed": 2}


@pytest.fixture(scope="module")
def rows():
    """Labels of which the first column tells .2 nats."""
    x, draw = (torch.Generator().manual_seed(seed) for seed in (0, 1))
    x = torch.randn(500, 3, generator=x)
    return x, (torch.rand(500, generator=draw) < torch.sigmoid(2.0 * x[:, 0])).long()


def fitted(rows, penalty=RANGE, **settings):
    sizes = {"hidden": (8,), "predictor_hidden": (8,), "imputer": GaussianImputer()}
    built = lex(3, classes=2, penalty=penalty, **sizes)
    train = rows[0][:400], rows[1][:400]
    return fit(built, train, valid=None, weight_decay=1e-3, **{**SHORT, **settings})


@pytest.fixture(scope="module")
def result(rows):
    return fitted(rows, replicates=2)


@pytest.fixture(scope="module")
def path(result, rows):
    return penalty_path(result, rows[0][400:], rows[1][400:], penalties=PENALTIES)


def test_table(path, result, rows):
    x, y = rows[0][400:], rows[1][400:]
    table = path.table
    assert table["penalty"].tolist() == list(PENALTIES)
    models = [result.at(penalty).models for penalty in PENALTIES]
    with torch.no_grad():
        each = [[model.selector(x).mean.sum(-1).mean() for model in some] for some in models]
    sizes = torch.tensor(each).double()
    np.testing.assert_allclose(table["size"], sizes.mean(1), rtol=1e-5)
    np.testing.assert_allclose(table["size_error"], sizes.std(1) / 2**0.5, rtol=1e-3, atol=1e-6)
    by_row = torch.stack(
        [predictive_log_likelihood(result.at(p), x, y, seed=2).double().mean(0) for p in PENALTIES]
    )
    np.testing.assert_allclose(table["log_likelihood"], by_row.mean(1), rtol=1e-9)
    behind = by_row[int(by_row.mean(1).argmax())] - by_row
    np.testing.assert_allclose(table["error"], behind.std(1) / 10.0, rtol=1e-9)
    assert table["slope"].tolist() == slopes(PENALTIES, table["size"].tolist())


def test_the_plateau_of_its_own_table_is_chosen(path):
    given = [path.table[name].tolist() for name in ("size", "log_likelihood", "error")]
    assert path.index == plateau(PENALTIES, *given, entries=3)
    assert path.table["chosen"].tolist() == [place == path.index for place in range(3)]
    assert path.penalty == 0.06
    assert path.table["size"][2] < 0.6 < path.table["size"][1] < 2.0


def test_the_result_is_the_fit_at_the_chosen_penalty(path, result, rows):
    x = rows[0][400:]
    assert all(model.selector.penalty == 0.06 for model in path.result.models)
    assert result.model.selector.penalty == pytest.approx((0.005 * 0.8) ** 0.5)
    one, other = (
        mask_means(explain(*given, draws=0, **options)).values
        for given, options in (((path.result, x), {}), ((result, x), {"penalty": 0.06}))
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.smoke
def test_another_rule_sees_the_table(rows):
    seen = []

    def last(*given):
        seen.append(given)
        return 2

    path = penalty_path(fitted(rows, epochs=1), *rows, penalties=PENALTIES, rule=last)
    ((penalties, sizes, scores, errors, entries),) = seen
    assert tuple(penalties) == PENALTIES and entries == 3
    assert sizes == path.table["size"].tolist() and scores == path.table["log_likelihood"].tolist()
    assert errors == path.table["error"].tolist()
    assert path.penalty == 0.8 and path.table["size_error"].isna().all()


def test_rows_count_by_their_weights(result, rows):
    weights = np.repeat([3.0, 0.0], [60, 40])
    x, y = rows[0][400:], rows[1][400:]
    weighted = penalty_path(result, x, y, penalties=PENALTIES, sample_weight=weights).table
    assert weighted["size"].tolist() == pytest.approx(
        penalty_path(result, x[:60], y[:60], penalties=PENALTIES).table["size"].tolist()
    )


def test_a_fold_may_have_one_row(rows):
    """A place alone would read one weight, and not a list of one."""
    x, y = rows[0][:40], rows[1][:40]
    folds = Folds((torch.arange(40) > 0).long(), 2)
    system = lex(3, classes=2, penalty=(0.01, 0.1), hidden=(4,), predictor_hidden=(4,))
    short = {**SHORT, "epochs": 1, "batch_size": 20}
    result = fit(system, (x, y), valid=None, row_weights=folds.weights, **short)
    options = {"penalties": (0.01, 0.1), "folds": folds}
    found = penalty_path(result, x, y, sample_weight=np.full(40, 2.0), **options).table
    plain = penalty_path(result, x, y, **options).table
    pd.testing.assert_frame_equal(found, plain, check_dtype=False)


@pytest.mark.parametrize(
    ("penalties", "words"),
    [
        ((0.02, 0.01), "penalties must rise"),
        ((0.02,), "at least 2"),
        ((0.1, 9.0), r"from 0\.005 to 0\.8 nats; 9 is outside"),
        ((0.0, 0.1), "above 0"),
    ],
)
def test_refused_penalties(result, rows, penalties, words):
    refused(words, penalty_path, result, *rows, penalties=penalties)


def test_the_default_path_doubles_over_the_range_of_the_fit(rows):
    path = penalty_path(fitted(rows, penalty=(0.005, 0.08), epochs=1), *rows)
    np.testing.assert_allclose(path.table["penalty"], [0.005, 0.01, 0.02, 0.04, 0.08])
    with pytest.raises(ValueError, match=r"fitted for one alone: give the system a range"):
        penalty_path(fitted(rows, penalty=0.02, epochs=1), *rows)


PATH = [0.005, 0.01, 0.02, 0.04, 0.08]
DOUBLE = math.log(2.0)
FLAT, SURE = [-0.5] * 5, [0.0] * 5


def chosen(sizes, scores=FLAT, errors=SURE, entries=11, path=PATH, **options):
    return plateau(path, sizes, scores, errors, entries, **options)


def test_slopes_are_central_differences_where_sizes_fall():
    found = slopes(PATH, [9.0, 5.0, 4.0, 3.5, 0.5])
    by_hand = [4.0 / DOUBLE, 5.0 / (2 * DOUBLE), 1.5 / (2 * DOUBLE), 3.5 / (2 * DOUBLE)]
    assert found == pytest.approx([*by_hand, 3.0 / DOUBLE], rel=1e-12)
    # Steps of other lengths: 2 entries over log 2 + log 5.
    assert slopes([0.01, 0.02, 0.1], [5.0, 4.0, 3.0])[1] == pytest.approx(2.0 / math.log(10.0))


def test_a_fall_and_a_rise_are_no_plateau():
    sizes = [6.0, 3.0, 6.0, 5.5, 5.0]
    central = [abs(after - before) for before, after in zip(sizes, sizes[2:], strict=False)]
    assert central[0] == 0.0
    assert slopes(PATH, sizes)[1] == pytest.approx(6.0 / (2 * DOUBLE))
    assert chosen(sizes) == 3


def test_where_the_size_stands_still():
    assert chosen([9.0, 5.0, 4.0, 3.5, 0.5]) == 2
    assert chosen([9.0, 5.0, 1.2, 1.0, 0.7]) == 3
    assert chosen([9.0, 8.9, 8.5, 4.0, 1.0]) == 1


def test_it_is_not_the_rules_of_scores():
    """The best score is elsewhere."""
    sizes, scores = [6.0, 4.3, 4.2, 2.0, 1.8], [-0.500, -0.502, -0.503, -0.505, -0.600]
    errors = [0.0, 0.004, 0.004, 0.0051, 0.01]
    assert chosen(sizes, scores, errors) == 1
    assert best_validation(sizes, scores) == 0


def test_a_size_that_stands_still_where_the_score_is_lost_is_none():
    sizes, scores = [7.0, 5.0, 3.0, 1.0, 1.0, 1.0], [-0.50, -0.49, -0.50, -0.60, -0.60, -0.60]
    path, errors = [*PATH, 0.16], [0.01] * 6
    assert chosen(sizes, scores, errors, path=path) == 2
    assert chosen(sizes, scores, [0.06] * 6, path=path) == 4


def test_errors_are_counted_from_the_best():
    sizes, scores = [9.0, 7.0, 5.0, 4.5, 4.4], [-0.50, -0.49, -0.50, -0.52, -0.60]
    assert chosen(sizes, scores, [0.0, 0.0, 0.01, 0.016, 0.02]) == 3
    assert chosen(sizes, scores, [0.0, 0.0, 0.01, 0.014, 0.02]) == 2
    assert chosen(sizes, scores, [0.0, 0.0, 0.01, 0.016, 0.02], within=1.0) == 2
    # On the limit is within it, whatever its last bit.
    assert chosen(sizes, [-0.5, -0.4, -0.5, -0.1 - 0.2 - 0.2, -0.6], [0.05] * 5) == 3
    assert chosen(sizes, scores, [math.nan] * 5) == 1


@pytest.mark.parametrize("entries", [3, 11])
def test_all_off_and_all_on_are_no_plateau(entries):
    on, off = float(entries), 0.0
    assert chosen([on, on, 2.0, off, off], entries=entries) == 2
    assert chosen([on - 0.5, on - 0.5, 2.0, 0.5, 0.5], entries=entries) == 2


def test_only_collapsed_sizes_are_chosen_by_score_and_slope():
    assert chosen([0.2, 0.1, 0.0, 0.0, 0.0]) == 4
    assert chosen([11.0, 11.0, 11.0, 11.0, 10.8], scores=[-0.5] * 4 + [-0.9]) == 2


def test_ends_are_chosen_only_where_nothing_else_may_be():
    sizes = [6.0, 6.0, 5.0, 4.0, 4.0]
    assert chosen(sizes) == 3
    assert chosen(sizes, scores=[-0.4, -0.5, -0.5, -0.5, -0.5]) == 0


def test_of_equal_slopes_the_larger_penalty():
    assert chosen([9.0, 7.0, 5.0, 3.0, 1.0]) == 3
    assert chosen([5.0, 5.0, 5.0, 5.0, 5.0]) == 3
    assert plateau([0.01, 0.02], [5.0, 5.0], [-1.0, -1.0], [0.0, 0.0], 8) == 1


test_mistakes = refusals(
    ({"path": [0.01, 0.005, 0.02, 0.04, 0.08]}, "penalties must rise"),
    ({"path": [0.0, 0.01, 0.02, 0.04, 0.08]}, "a penalty of a path must be .* above 0"),
    ({"path": PATH[1:]}, "as many as sizes, at least 2; .* with 5 sizes"),
    ({"errors": [0.0] * 4 + [-0.1]}, "errors must be .* and not negative"),
    ({"entries": 4}, "sizes at most the 4 entries"),
    ({"entries": 0}, "entries must be a whole number"),
    ({"within": -1.0}, "within must be"),
    of=lambda change: chosen([5.0, 4.0, 3.0, 2.0, 1.0], **change),
)


def test_the_usual_penalty_is_kept_where_nothing_speaks_against_it():
    path, sizes, errors = [0.01, 0.02, 0.04, 0.08], [5.0, 3.0, 2.9, 2.8], [0.01] * 4

    def chosen(scores, sizes=sizes, **options):
        return path[plateau(path, sizes, scores, errors, entries=8, **options)]

    within = [-0.500, -0.519, -0.505, -0.51]
    assert chosen(within) == 0.04
    assert chosen(within, usual=0.02) == 0.02
    # Worse than the best by more than two standard errors, none of the path, or no selection.
    assert chosen([-0.500, -0.521, -0.505, -0.51], usual=0.02) == 0.04
    assert chosen(within, usual=0.03) == 0.04
    assert chosen(within, sizes=[8.0, 8.0, 2.9, 2.8], usual=0.02) == 0.04


def test_the_usual_penalty_may_keep_nothing_where_nothing_predicts():
    path, sizes = [0.005, 0.01, 0.02, 0.04, 0.08], [7.0, 3.0, 0.4, 0.2, 0.0]

    def chosen(scores, errors, **options):
        return path[plateau(path, sizes, scores, errors, entries=8, **options)]

    errors = [0.01, 0.0, 0.01, 0.01, 0.01]
    assert chosen([-0.70, -0.69, -0.699, -0.699, -0.699], errors, usual=0.02) == 0.02
    assert chosen([-0.70, -0.69, -0.699, -0.699, -0.699], errors) == 0.01
    # By more than an error the smaller one predicts better; no error is known of one row.
    assert chosen([-0.70, -0.69, -0.701, -0.701, -0.701], errors, usual=0.02) == 0.01
    assert chosen([-0.70, -0.69, -0.69, -0.69, -0.69], [math.nan] * 5, usual=0.02) == 0.01
    # What keeps everything has found nothing either.
    everything = [8.0, 8.0, 7.8, 3.0, 2.5]
    assert path[plateau(path, everything, [-0.7] * 5, errors, entries=8, usual=0.02)] == 0.04


def test_the_best_score_whatever_its_size():
    sizes = [9.0, 6.0, 3.0, 1.0]
    assert best_validation(sizes, [0.80, 0.77, 0.76, 0.60]) == 0
    assert best_validation(sizes, [0.1, 0.2, 0.4, 0.3]) == 2
    assert best_validation([5.0, 2.0, 2.0], [0.8, 0.8, 0.8]) == 1


test_tables_without_a_best_score_are_refused = refusals(
    ([], [], "one length, at least 1"),
    ([1.0], [0.1, 0.2], "of one length"),
    ([float("nan")], [0.1], "must be finite"),
    ([1.0], [float("inf")], "must be finite"),
    ([-1.0], [0.1], r"not negative.* \[-1.0\]"),
    of=best_validation,
)
