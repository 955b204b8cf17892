"""An imputer as SHAP's masker, against Shapley values by enumeration."""

from itertools import combinations
from math import factorial

import numpy as np
import pytest
import shap
import torch
from scipy.cluster.hierarchy import linkage
from scipy.stats import norm, t

from lexppl.compare import ImputerMasker
from lexppl.models import Grouping
from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer
from lexppl.models.imputers.simple import ConstantImputer, GaussianImputer, MarginalImputer
from tests.compare.gaussian import FAILURE, MEAN, ROWS, WEIGHTS, conditional_mean, gaussian


def linear(rows):
    return rows @ WEIGHTS + 0.25


def conditional_value(row, kept):
    return float(linear(conditional_mean(row, kept)))


def shapley(value, players):
    """Shapley values of a set function, by its definition."""
    found = np.zeros(players)
    for i in range(players):
        others = [j for j in range(players) if j != i]
        for size in range(players):
            weight = factorial(size) * factorial(players - size - 1) / factorial(players)
            for chosen in combinations(others, size):
                found[i] += weight * (value({*chosen, i}) - value(set(chosen)))
    return found


def worst_z(samples, exact):
    samples = np.stack(samples)
    error = samples.std(0, ddof=1) / np.sqrt(len(samples))
    return float(np.abs((samples.mean(0) - exact) / error).max())


def level(samples, comparisons):
    return t.ppf(1 - FAILURE / (2 * comparisons), samples - 1)


@pytest.mark.complete
def test_conditional_shapley_values_of_a_linear_model():
    exact = np.stack([shapley(lambda s, row=row: conditional_value(row, s), 3) for row in ROWS])
    samples = [
        shap.explainers.Exact(linear, ImputerMasker(gaussian(), 20, seed=seed))(
            ROWS, silent=True
        ).values
        for seed in range(60)
    ]
    assert worst_z(samples, exact) < level(60, exact.size)
    interventional = WEIGHTS * (ROWS - MEAN.numpy())
    assert worst_z(samples, interventional) > 5 * level(60, exact.size)


def test_two_features_in_closed_form():
    rho, (w1, w2), x = 0.6, (1.0, 2.0), np.array([[1.5, -0.5]])
    imputer = ConditionalGaussianImputer(torch.zeros(2), torch.tensor([[1.0, rho], [rho, 1.0]]))
    x1, x2 = x[0]
    alone1, alone2 = (w1 + w2 * rho) * x1, (w2 + w1 * rho) * x2
    both = w1 * x1 + w2 * x2
    exact = np.array([[alone1 + both - alone2, alone2 + both - alone1]]) / 2

    def model(rows):
        return rows @ np.array([w1, w2])

    # Both orders of two features are in one permutation, so that this explainer is exact here.
    for explainer in (shap.explainers.Permutation, shap.explainers.Exact):
        samples = [
            explainer(model, ImputerMasker(imputer, 50, seed=seed))(
                x, max_evals=5, silent=True
            ).values
            for seed in range(40)
        ]
        assert worst_z(samples, exact) < level(40, 2)


@pytest.mark.complete
def test_marginal_shapley_values_are_those_of_the_drawn_background():
    reference = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)).double() + MEAN
    masker = ImputerMasker(MarginalImputer(reference), 400, seed=1)
    background = masker(False, ROWS[0])
    assert background.shape == (400, 3)
    expected = WEIGHTS * (ROWS - background.mean(0))
    clustering = linkage(reference.T.numpy(), "single")
    owen = ImputerMasker(MarginalImputer(reference), 400, seed=1, clustering=clustering)
    for explainer in (
        shap.explainers.Permutation(linear, masker),
        shap.explainers.Exact(linear, masker),
        shap.explainers.Exact(linear, owen),
        shap.explainers.Partition(linear, owen),
    ):
        found = explainer(ROWS, max_evals=21, silent=True).values
        np.testing.assert_allclose(found, expected, atol=1e-10)
    centre = reference.numpy()
    z = (background.mean(0) - centre.mean(0)) / (centre.std(0) / np.sqrt(400))
    assert np.abs(z).max() < norm.isf(FAILURE / 6)


@pytest.mark.smoke
def test_values_add_up_from_one_base_value_and_are_reproducible():
    def curved(rows):
        return np.tanh(rows).prod(1)

    masker, state = ImputerMasker(gaussian(), 30, seed=3), torch.get_rng_state()
    for explainer in (shap.explainers.Permutation, shap.explainers.Exact):
        first = explainer(curved, masker)(ROWS, max_evals=21, silent=True)
        assert len(set(first.base_values)) == 1
        np.testing.assert_allclose(
            first.values.sum(1) + first.base_values, curved(ROWS), atol=1e-12
        )
    again = shap.explainers.Exact(curved, masker)(ROWS[::-1].copy(), silent=True)
    np.testing.assert_array_equal(again.values[::-1], first.values)
    assert torch.equal(torch.get_rng_state(), state)
    other = ImputerMasker(gaussian(), 30, seed=4)
    assert not np.array_equal(
        shap.explainers.Exact(curved, other)(ROWS, silent=True).values, first.values
    )


def test_kept_values_are_the_rows_own_whatever_the_imputers_type():
    masker = ImputerMasker(GaussianImputer(), 4)
    row = np.array([0.1, 0.2, 0.3])
    drawn = masker(np.array([True, False, True]), row)
    assert (drawn[:, [0, 2]] == row[[0, 2]]).all() and len(np.unique(drawn[:, 1])) == 4


def test_groups_are_players():
    grouping = Grouping([0, 1, 0], names=["pair", "single"])
    columns = {0: {0, 2}, 1: {1}}

    def value(row, kept):
        return conditional_value(row, set().union(*(columns[g] for g in kept)))

    exact = np.stack([shapley(lambda s, row=row: value(row, s), 2) for row in ROWS])
    samples = []
    for seed in range(60):
        masker = ImputerMasker(gaussian(), 20, grouping=grouping, seed=seed)
        explained = shap.explainers.Exact(linear, masker, feature_names=list(grouping.names))(
            ROWS, silent=True
        )
        samples.append(explained.values)
    assert worst_z(samples, exact) < level(60, exact.size)
    assert explained.feature_names == ["pair", "single"]
    data = np.stack(explained.data)
    assert np.isnan(data[:, 0]).all() and (data[:, 1] == ROWS[:, 1]).all()


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (ROWS, {}, "imputer must be an Imputer; it is ndarray"),
        (gaussian(), {"imputations": 0}, "imputations must be"),
        (gaussian(), {"seed": -2}, "seed must be"),
        (gaussian(), {"grouping": Grouping([0, 1])}, "with the features of the grouping"),
        (ConstantImputer(torch.zeros(1, 2, 2)), {}, r"rows \(D,\).* its rows are \(1, 2, 2\)"),
    ],
)
def test_refused_imputers(given, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        ImputerMasker(given, **options)


def test_refused_rows_and_masks():
    masker = ImputerMasker(gaussian())
    with pytest.raises(ValueError, match="x must be one row of 3 features"):
        masker(True, ROWS)
    for mask in (np.array([True, False]), np.array([0, 1, 1]), np.full(3, 0.5)):
        with pytest.raises(ValueError, match=r"mask must be boolean of shape \(3,\)"):
            masker(mask, ROWS[0])
    with pytest.raises(ValueError, match="x must be one row of 2 features"):
        ImputerMasker(ConstantImputer(), grouping=Grouping([0, 1]))(True, ROWS[0])
