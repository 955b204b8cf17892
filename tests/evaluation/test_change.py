"""What differs between two models: closed forms, the null of refits, and what is refused."""

import numpy as np
import pytest
import torch
from scipy.stats import t, ttest_1samp

from lexppl.data import Dataset
from lexppl.evaluation import FeatureGroups, explain_change
from lexppl.evaluation.change import Change
from lexppl.models.predictor import table_predictor
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("three_folds")
DRAW = torch.Generator().manual_seed(0)
X = torch.randn(400, 3, generator=DRAW)
A = X @ torch.tensor([1.0, 0.5, 0.0])


def labels(log_odds):
    p = torch.sigmoid(log_odds.double())
    return torch.stack([1 - p, p], -1)


@pytest.mark.smoke
def test_of_a_linear_difference_the_gains_are_its_half_variances():
    """d = x2 − 2 x3: first is `½ Cov(d, x_j)² / (Var(x_j) Var(a))`, and last `½ w_j² Var(x_j given
    the others) / Var(a)`, of x1 nothing."""
    d = X[:, 1] - 2 * X[:, 2]
    change = explain_change(A, A + d, X)
    covariance, unit = np.cov(torch.cat([X, d[:, None]], -1).T), 0.5 / float(A.var())
    first = unit * covariance[3, :3] ** 2 / covariance.diagonal()[:3]
    alone = 1.0 / np.linalg.inv(covariance[:3, :3]).diagonal()
    np.testing.assert_allclose(change.first.mean(0), first, rtol=0.05, atol=0.02)
    np.testing.assert_allclose(
        change.last.mean(0), unit * np.array([0, 1, 4]) * alone, rtol=0.05, atol=0.02
    )
    assert change.direction[1] > 0.3
    assert change.direction[2] < -0.7


def test_a_column_that_both_models_read_alike_has_no_part_of_the_change():
    """The answers depend on x1 most; their log-odds differ by x3 alone, and in a product by both
    of its columns, of which each alone says nothing."""
    one = explain_change(labels(2 * A), labels(2 * A + X[:, 2]), X)
    assert one.last.mean(0)[2] > 0.03
    assert np.abs(one.last.mean(0)[:2]).max() < 0.02 * one.last.mean(0)[2] + 0.002
    switch = (X[:, 1] > 0) * 1.0 - 0.5
    product = explain_change(labels(A), labels(A + 3 * X[:, 2] * switch), X)
    assert product.last.mean(0)[1] > 0.1 < product.last.mean(0)[2]
    assert np.abs(product.first.mean(0)).max() < 0.03
    assert abs(product.last.mean(0)[0]) < 0.02


def test_the_size_is_the_divergence_of_one_answer_from_the_other():
    """`½ Σ w d²` is KL(b ‖ a) to the second order: of half a step, an error of a quarter."""
    a = torch.rand(50, 2, dtype=torch.float64, generator=DRAW).cumsum(-1)
    a = a / a.sum(-1, keepdim=True)
    for step, most in ((0.2, 0.02), (0.1, 0.01)):
        b = labels(a[:, 1].logit() + step)
        exact = (b * (b / a).log()).sum(-1).numpy()
        size = explain_change(a, b, X[:50]).size
        assert np.abs(size / exact - 1).max() < most * 5
        np.testing.assert_allclose(size, exact, rtol=5 * most)


def test_labels_are_added_and_two_of_them_count_once():
    p = torch.softmax(torch.stack([A, X[:, 1], X[:, 2]], -1).double(), -1)
    shifted = torch.softmax(p.log() + torch.stack([X[:, 2], 0 * A, 0 * A], -1), -1)
    three = explain_change(p, shifted, X)
    assert three.last.mean(0).argmax() == 2
    assert np.isnan(three.direction).all()
    two = explain_change(labels(A), labels(A + X[:, 2]), X)
    m = ((labels(A) + labels(A + X[:, 2])) / 2)[:, 1]
    exact = m * (1 - m) * X[:, 2].double() ** 2 / 2
    np.testing.assert_allclose(two.size, exact.numpy(), rtol=1e-4, atol=1e-8)


@pytest.mark.smoke
def test_models_of_the_same_answers_do_not_differ():
    refits = [labels(A + 0.1 * X @ torch.randn(3, generator=DRAW)) for _ in range(5)]
    for given in (refits, [labels(A)] * 5):
        change = explain_change(labels(A), labels(A), X, refits=given)
        assert not np.any(change.size)
        assert not change.table()["found"].any()
        assert change.share_of_rows == 0.0
        assert change.sentence().endswith("no column more than two refits of the first do.")


def changed(first, last, of_refits):
    """A change whose gains are `first` and `last` in every row but for a thousandth."""
    none = np.zeros((of_refits.shape[1], 40))
    names = tuple(f"x{g + 1}" for g in range(len(first)))
    rows = [np.outer([0.999, 1.001] * 20, values) for values in (first, last)]
    return Change(names, *rows, of_refits, np.zeros(40), none, np.full(len(first), np.nan))


def test_p_is_that_of_a_new_draw_from_the_refits_with_a_pooled_variance():
    rng = np.random.default_rng(0)
    of_refits = rng.exponential(size=(2, 6, 3)) * [0.01, 0.02, 0.005]
    first, last = np.array([0.02, 0.3, -0.01]), np.array([0.01, 0.2, 0.06])
    table = changed(first, last, of_refits).table().loc[["x1", "x2", "x3"]]
    by_name = []
    for value, refits in zip((first, last), of_refits, strict=True):
        root, roots = np.cbrt(value), np.cbrt(refits)
        own = roots.var(0, ddof=1)
        variance = (4 * own.mean() + 5 * own) / 9
        by_name.append(t.sf((root - roots.mean(0)) / np.sqrt(variance * (1 + 1 / 6)), 9))
    exact = np.minimum(1.0, 2 * np.minimum(*by_name))
    np.testing.assert_allclose(table["p"], exact, rtol=1e-9)
    assert table["found"].to_dict() == {"x1": False, "x2": True, "x3": True}


@pytest.mark.parametrize("refits", [5, 8])
def test_without_a_change_something_is_found_in_at_most_a_tenth(refits):
    """The gains of a new pair are drawn as those of refits are, `σ_g² χ²_k / k` of k degrees of
    freedom: that anything is found is then a false discovery. Their mean alone as the null, without
    its spread, finds something nearly always."""
    rng, tables, found, naive = np.random.default_rng(1), 400, 0, 0
    for _ in range(tables):
        scale = rng.lognormal(-5, 1, size=6)
        drawn = scale * rng.chisquare(3, size=(2, refits + 1, 6)) / 3
        new, old = drawn[:, 0], drawn[:, 1:]
        found += changed(*new, old).table()["found"].any()
        naive += (new > old.mean(1)).any()
    assert found / tables < 0.1 + 3 * (0.1 * 0.9 / tables) ** 0.5
    assert naive / tables > 0.9  # control


def test_a_planted_change_is_found_beside_refits_that_differ():
    def answers(weights):
        return labels(X @ weights)

    noise = 0.15 * torch.randn(8, 3, generator=DRAW)
    a, b, *refits = [answers(torch.tensor([1.0, 0.5, 0.0]) + shift) for shift in noise]
    same = explain_change(a, b, X, refits=refits)
    assert not same.table()["found"].any()
    moved = answers(torch.tensor([1.0, 0.5, 1.5]) + noise[1])
    change = explain_change(a, moved, X, refits=refits)
    assert change.table()["found"].to_dict() == {"x3": True, "x1": False, "x2": False}
    assert 0.1 < change.share_of_rows <= 1.0
    assert "depends on x3 more" in change.sentence()
    assert "without refits" in explain_change(a, moved, X).sentence()


def test_models_names_and_groups_are_taken():
    torch.manual_seed(0)
    model = table_predictor(2, 2, (4,))
    x = X[:60, :2]
    with torch.no_grad():
        p = model(x).probs
    state = torch.get_rng_state()
    data = Dataset(x, A[:60], ("age", "dose"), (0, 1), ("age", "dose"), "risk")
    groups = FeatureGroups(("both",), ((0, 1),))
    other = labels(x[:, 0])
    by_model = explain_change(model, other, data, groups=groups, seed=3)
    by_answers = explain_change(p.numpy(), other.numpy(), x, groups=groups, seed=3)
    assert by_model.names == ("both",)
    np.testing.assert_allclose(by_model.last.mean(0), by_answers.last.mean(0), rtol=1e-4)
    assert list(explain_change(p, other, data).table().index) in (["age", "dose"], ["dose", "age"])
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"b": A}, r"answers of b must have shape \(400, 2\), as a answers"),
        ({"a": labels(A)[:9]}, r"answers of a .* for the rows of x; the shape is \(9, 2\)"),
        ({"a": labels(A) * 2}, "probabilities that sum to 1"),
        ({"b": labels(A) * torch.nan}, "b must be finite"),
        ({"refits": [labels(A)] * 4}, "none, or 5 or more, not 4"),
        ({"refits": [labels(A)] * 4 + [A]}, r"answers of refits\[4\] must have shape \(400, 2\)"),
        ({"x": X[:, 0]}, "x must have shape"),
        ({"groups": FeatureGroups.alone(["x1"])}, "groups must be of 3 entries, not 1"),
        ({"a": torch.ones(400), "b": A}, "a gives the same response for every row"),
    ],
)
def test_bad_input_is_refused_in_one_line(how, message):
    given = {"a": labels(A), "b": labels(A + 1), "x": X} | how
    with pytest.raises(ValueError, match=message) as error:
        explain_change(given.pop("a"), given.pop("b"), given.pop("x"), **given)
    assert "\n" not in str(error.value)


def test_a_rate_outside_its_range_is_refused():
    refused("fdr must be", changed(np.ones(1), np.ones(1), np.ones((2, 5, 1))).table, 1.5)


def test_a_gain_that_the_rows_do_not_show_is_not_found():
    """However far it is from those of refits: `p` is at least that of a t-test over rows."""
    first = np.random.default_rng(2).normal(0.01, 1.0, (50, 1))
    refits = np.random.default_rng(3).exponential(1e-5, (2, 5, 1))
    none = np.zeros(50), np.zeros((5, 50)), np.zeros(1)
    change = Change(("x1",), first, first, refits, *none)
    assert change.table()["p"].item() >= 2 * min(
        0.5, ttest_1samp(first[:, 0], 0, alternative="greater").pvalue
    )
