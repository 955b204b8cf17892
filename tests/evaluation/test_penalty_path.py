"""A path of the penalties of one fit: what its table says, and the fit at the chosen one."""

import numpy as np
import pytest
import torch

from lexppl.evaluation import penalty_path, plateau, predictive_log_likelihood
from lexppl.evaluation.penalty_path import slopes
from lexppl.explanation import explain, mask_means
from lexppl.inference import fit
from lexppl.systems import lex

pytestmark = pytest.mark.filterwarnings("ignore::lexppl.inference.CollapseWarning")

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
    built = lex(3, classes=2, penalty=penalty, hidden=(8,), predictor_hidden=(8,))
    train = rows[0][:400], rows[1][:400]
    return fit(built, train, valid=None, **{**SHORT, **settings})


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
    with pytest.raises(ValueError, match=words):
        penalty_path(result, *rows, penalties=penalties)


def test_the_default_path_doubles_over_the_range_of_the_fit(rows):
    path = penalty_path(fitted(rows, penalty=(0.005, 0.08), epochs=1), *rows)
    np.testing.assert_allclose(path.table["penalty"], [0.005, 0.01, 0.02, 0.04, 0.08])
    with pytest.raises(ValueError, match=r"fitted for one alone: give the system a range"):
        penalty_path(fitted(rows, penalty=0.02, epochs=1), *rows)
