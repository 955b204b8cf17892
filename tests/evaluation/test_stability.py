"""Agreement of rankings and sensitivity against closed forms, SciPy and enumeration."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import friedmanchisquare, norm, rankdata, spearmanr

from tests.benchmark_modules import benchmark_module

stability = benchmark_module("stability")
kendall_w, max_sensitivity = stability.kendall_w, stability.max_sensitivity
GENERATOR = np.random.default_rng(0)
FAILURE = 1e-6
"""Probability that a right program fails one of the z-tests here."""
Z = norm.isf(FAILURE / 2)


@pytest.mark.smoke
def test_identical_rankings_agree_fully_and_opposite_ones_not():
    one = np.array([0.3, 2.0, -1.0, 0.5])
    same = kendall_w(np.stack([one, 10 * one, np.exp(one)]))
    assert same.w == pytest.approx(1.0, abs=1e-12)
    assert (same.chi_square, same.degrees) == (pytest.approx(9.0), 3)
    assert kendall_w(np.stack([one, -one])).w == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("tied", [False, True])
def test_of_two_rankings_it_is_half_of_one_and_spearman(tied):
    values = GENERATOR.integers(0, 4, (2, 12)) if tied else GENERATOR.normal(size=(2, 12))
    ranks = rankdata(values, axis=1)
    if tied:
        # With ties of different sizes the relation weighs the two variances.
        variance = ranks.var(1)
        covariance = np.cov(ranks, ddof=0)[0, 1]
        expected = (variance.sum() + 2 * covariance) / (2 * variance.sum())
    else:
        expected = (1 + spearmanr(*values).statistic) / 2
    assert kendall_w(values).w == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("tied", [False, True])
def test_its_statistic_is_friedmans(tied):
    values = GENERATOR.integers(0, 5, (6, 9)) if tied else GENERATOR.normal(size=(6, 9))
    found = kendall_w(torch.from_numpy(values))
    exact = friedmanchisquare(*values.T)
    assert found.chi_square == pytest.approx(exact.statistic, rel=1e-10)
    assert found.p_value == pytest.approx(exact.pvalue, rel=1e-8)


def test_independent_rankings_have_one_over_their_number_in_expectation():
    # Exactly, by all orders of 3 features in the second and third ranking.
    orders = list(itertools.permutations(range(3)))
    every = [
        kendall_w(np.array([orders[0], a, b], dtype=float)).w
        for a, b in itertools.product(orders, orders)
    ]
    assert np.mean(every) == pytest.approx(1 / 3, abs=1e-12)
    p = np.array([kendall_w(GENERATOR.normal(size=(10, 15))).p_value for _ in range(400)])
    assert abs((p < 0.5).mean() - 0.5) < Z * 0.5 / 20
    agreeing = GENERATOR.normal(size=15) + GENERATOR.normal(size=(10, 15))
    assert kendall_w(agreeing).p_value < 1e-6


def test_all_ties_have_no_concordance():
    nothing = kendall_w(np.ones((3, 4)))
    assert np.isnan([nothing.w, nothing.chi_square, nothing.p_value]).all()
    # One silent ranking among others takes no part in the correction but in the count.
    assert 0 < kendall_w(np.array([[1.0, 2, 3], [1, 2, 3], [0, 0, 0]])).w < 1


TABLE = GENERATOR.normal(size=(3, 4))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: kendall_w(TABLE[0]), r"shape \(R, G\).*they have \(4,\)"),
        (lambda: kendall_w(TABLE[:1]), "2 or more replicates"),
        (lambda: kendall_w(TABLE[:, :1]), "2 or more replicates and features"),
        (lambda: kendall_w(TABLE[None]), r"they have \(1, 3, 4\)"),
        (lambda: kendall_w(TABLE * np.nan), "importances must be finite"),
    ],
)
def test_bad_rankings_are_refused(ask, words):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=words):
        ask()


X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_an_explanation_that_ignores_its_row_has_none():
    weights = torch.tensor([1.0, -2.0, 0.0]).double()
    assert max_sensitivity(weights.expand_as, X) == 0.0


@pytest.mark.smoke
def test_the_largest_change_of_a_linear_explanation_is_approached_from_below():
    x = torch.ones(200, 2).double()
    # ‖δ‖₂ is largest in the corners of the box, r √2; ‖Φ(x)‖ is √2.
    found = [max_sensitivity(lambda r: r, x, radius=0.1, perturbations=p) for p in (1, 10, 2000)]
    assert found[0] < found[1] < found[2] <= 0.1
    assert found[2] > 0.097
    # One draw: E √(u² + v²) / √2 for u, v uniform on [0, 0.1].
    exact = 0.1 * (math.sqrt(2) + math.log(1 + math.sqrt(2))) / 3 / math.sqrt(2)
    deviation = 0.1 / math.sqrt(2) * math.sqrt(2 / 3 - (exact * math.sqrt(2) / 0.1) ** 2)
    assert abs(found[0] - exact) < 4.9 * deviation / math.sqrt(200)


def test_the_change_is_the_rows_own_maximum_divided_by_its_own_norm():
    seen = []

    def importance(x):
        seen.append(x.clone())
        return x.square()

    found = max_sensitivity(importance, X, radius=0.05, perturbations=6)
    given, near = seen[0], seen[1].reshape(6, 50, 3)
    assert torch.equal(given, X)
    moved = near - X
    assert float(moved.abs().max()) <= 0.05 + 1e-12
    assert float(moved.min()) < -0.048 and float(moved.max()) > 0.048
    change = (near.square() - X.square()).norm(dim=-1).amax(0)
    assert found == pytest.approx(float((change / X.square().norm(dim=-1)).mean()), rel=1e-12)
    undivided = max_sensitivity(
        lambda x: x.square(), X, radius=0.05, perturbations=6, relative=False
    )
    assert undivided == pytest.approx(float(change.mean()), rel=1e-12)


def test_a_steeper_explanation_is_more_sensitive():
    smooth, steep = (
        max_sensitivity(lambda x, s=s: torch.sigmoid(s * x), X, radius=0.1) for s in (1.0, 20.0)
    )
    assert steep > 3 * smooth


def test_perturbations_are_asked_for_together():
    sizes = []

    def importance(x):
        sizes.append(len(x))
        return x.abs() + 1

    max_sensitivity(importance, X, perturbations=4, rows_per_chunk=20)
    assert sizes == [20, 80, 20, 80, 10, 40]


def test_the_seed_decides_and_no_global_state_moves():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    found = [max_sensitivity(lambda x: x.exp(), X, seed=seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    # A random explanation is reproducible too, and moves by its own noise.
    noisy = [max_sensitivity(lambda x: 1 + torch.rand_like(x), X, seed=0) for _ in range(2)]
    assert noisy[0] == noisy[1] > 0.1
    assert torch.equal(state, torch.get_rng_state())


def test_gradients_can_be_explanations_and_groups_have_fewer_entries():
    def gradient(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad((x**3).sum(), x)[0]

    assert max_sensitivity(gradient, X, radius=1e-3) > 0.0
    assert max_sensitivity(lambda x: x[:, :2].exp(), X.float().reshape(50, 3)) > 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x": X[0]}, r"shape \(N, \*event\)"),
        ({"x": X[:0]}, "N >= 1"),
        ({"x": X / 0}, "x must be finite"),
        ({"x": X.long()}, "x must be floating"),
        ({"radius": 0.0}, "radius must be a finite number above 0"),
        ({"radius": float("nan")}, "radius must be a finite number above 0"),
        ({"perturbations": 0}, "perturbations must be a whole number"),
        ({"rows_per_chunk": 0}, "rows_per_chunk must be"),
        ({"importance": lambda x: x.sum(1)}, r"a tensor \(50, G\).*it gave \(50,\)"),
        ({"importance": lambda x: x[:3]}, r"it gave \(3, 3\)"),
        ({"importance": lambda x: x.numpy()}, "it gave ndarray"),
        ({"importance": lambda x: x / 0}, "importance must give finite values"),
        ({"importance": lambda x: x * 0}, "50 rows are all 0.*relative=False"),
    ],
)
def test_bad_questions_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        max_sensitivity(**{"importance": lambda x: x, "x": X, **options})
