"""Agreement of rankings against closed forms, SciPy and enumeration."""

import itertools

import numpy as np
import pytest
import torch
import xarray as xr
from scipy.stats import friedmanchisquare, norm, rankdata, spearmanr

from lexppl.arviz_compatibility import posterior_of
from lexppl.evaluation.robustness.stability import (
    bootstrap_ranks,
    importance_agreement,
    kendall_w,
    top_k_agreement,
)

GENERATOR = np.random.default_rng(0)
FAILURE = 1e-6
"""Probability that a right program fails one of the z-tests here."""
Z = norm.isf(FAILURE / 2)


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


def test_top_k_by_sets():
    values = GENERATOR.normal(size=(5, 7, 10))
    for k in (1, 3, 10):
        jaccard, overlap = [], []
        for first, second in itertools.combinations(values, 2):
            for a, b in zip(first, second, strict=True):
                one, other = (set(np.argsort(-each)[:k].tolist()) for each in (a, b))
                jaccard.append(len(one & other) / len(one | other))
                overlap.append(len(one & other) / k)
        found = top_k_agreement(torch.from_numpy(values), k)
        assert found.jaccard == pytest.approx(np.mean(jaccard), abs=1e-12)
        assert found.overlap == pytest.approx(np.mean(overlap), abs=1e-12)
        assert found.chance == k / 10
    assert top_k_agreement(values, 10).jaccard == 1.0


def test_of_equal_features_the_first_is_taken():
    assert top_k_agreement(np.array([[1.0, 1, 1], [3, 2, 1]]), 2).jaccard == 1.0
    assert top_k_agreement(np.array([[1.0, 1, 1], [1, 2, 3]]), 1).overlap == 0.0


def test_the_overlap_of_random_sets_is_chance():
    values = GENERATOR.normal(size=(2, 4000, 10))
    found = top_k_agreement(values, 3)
    # Hypergeometric: variance k/G (1 − k/G) (G − k)/(G − 1) / k of the share.
    deviation = np.sqrt(0.3 * 0.7 * 7 / 9 / 3 / 4000)
    assert abs(found.overlap - found.chance) < Z * deviation


def posterior(values):
    names = [f"f{g}" for g in range(values.shape[2])]
    draws = xr.Dataset({"importance": (("chain", "draw", "feature"), values)}, {"feature": names})
    return posterior_of({"prior": draws}, {})


def test_agreement_is_one_for_chains_alike_and_small_for_others():
    values = GENERATOR.normal(size=(4, 500, 3))
    values[1, :, 1] += 5.0
    values[..., 2] = 1.0
    found = importance_agreement(posterior(values))
    assert list(found.index) == ["f0", "f1", "f2"]
    assert found["f0"] > 0.96 and found["f1"] < 0.5 and np.isnan(found["f2"])


@pytest.mark.smoke
def test_bootstrap_ranks_by_enumeration():
    values = np.array([[0.9, 0.5, 0.1], [0.1, 0.8, 0.3], [0.2, 0.1, 0.6]])
    every = [
        rankdata(-values[list(chosen)].mean(0)) for chosen in itertools.product(range(3), repeat=2)
    ]
    mean, deviation = np.mean(every, 0), np.std(every, 0)
    draws = 4000
    found = bootstrap_ranks(values, size=2, draws=draws, names="abc").loc[list("abc")]
    assert (np.abs(found["mean_rank"] - mean) < Z * deviation / np.sqrt(draws)).all()
    np.testing.assert_allclose(found["sd"], deviation, rtol=0.05)
    # Averages of 40 are steadier than averages of 2.
    steadier = bootstrap_ranks(values, size=40, draws=draws, names="abc").loc[list("abc")]
    assert (steadier["sd"] < found["sd"]).all()


def test_its_interval_holds_the_share_of_draws_it_says():
    values = GENERATOR.normal(size=(200, 40))
    found = bootstrap_ranks(values, size=1, draws=4000, level=0.9)
    names = [f"x{g + 1}" for g in range(40)]
    lower, upper = (found.loc[names, side].to_numpy() for side in ("lower", "upper"))
    ranks = rankdata(-values, axis=1)
    inside = ((ranks >= lower) & (ranks <= upper)).mean()
    # Ranks are whole numbers: of 40 of them an interval holds up to two more than it should.
    assert 0.88 < inside < 0.95
    assert list(found["mean_rank"]) == sorted(found["mean_rank"])
    best = bootstrap_ranks(values + 9.0 * (np.arange(40) == 7), size=1)
    assert best.index[0] == "x8" and tuple(best.iloc[0]) == (1.0, 0.0, 1.0, 1.0)


def test_equal_features_share_their_rank_and_the_seed_decides():
    table = bootstrap_ranks(np.tile(GENERATOR.normal(size=(5, 1)), 4))
    assert (table["mean_rank"] == 2.5).all() and (table["sd"] == 0.0).all()
    values = GENERATOR.normal(size=(5, 6))
    found = [bootstrap_ranks(values, seed=seed) for seed in (0, 0, 1)]
    assert found[0].equals(found[1]) and not found[0].equals(found[2])


TABLE = GENERATOR.normal(size=(3, 4))
WITHOUT = posterior_of({"posterior": xr.Dataset({"mask": 1})}, {})


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: kendall_w(TABLE[0]), r"shape \(R, G\).*they have \(4,\)"),
        (lambda: kendall_w(TABLE[:1]), "2 or more replicates"),
        (lambda: kendall_w(TABLE[:, :1]), "2 or more replicates and features"),
        (lambda: kendall_w(TABLE[None]), r"they have \(1, 3, 4\)"),
        (lambda: kendall_w(TABLE * np.nan), "importances must be finite"),
        (lambda: top_k_agreement(TABLE, 5), "k must be a whole number from 1 to 4.*it is 5"),
        (lambda: top_k_agreement(TABLE, 0), "it is 0"),
        (lambda: top_k_agreement(TABLE, 1.5), "it is 1.5"),
        (lambda: top_k_agreement(TABLE[:, None][:, :0], 1), r"\(R, G\) or \(R, B, G\)"),
        (lambda: bootstrap_ranks(TABLE / 0.0), "importances must be finite"),
        (lambda: bootstrap_ranks(TABLE, size=0), "size must be a whole number of at least 1"),
        (lambda: bootstrap_ranks(TABLE, draws=1), "draws must be a whole number of at least 2"),
        (lambda: bootstrap_ranks(TABLE, level=1.0), r"level must be a share in \(0, 1\)"),
        (lambda: bootstrap_ranks(TABLE, names="abc"), "names must be 4"),
        (lambda: importance_agreement(posterior(np.ones((1, 9, 2)))), "it needs 2 chains"),
        (lambda: importance_agreement(posterior(np.ones((2, 3, 2)))), "4 draws"),
        (
            lambda: importance_agreement(posterior_of({"posterior": xr.Dataset({"mask": 1})}, {})),
            "no masks",
        ),
    ],
)
def test_bad_questions_are_refused(ask, words):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=words):
        ask()


def test_other_things_than_posteriors_are_refused():
    with pytest.raises(TypeError, match="posterior must be"):
        importance_agreement(TABLE)
