"""Imputers for SHAP and Captum against laws in closed form, and a posterior as SHAP has it."""

from itertools import combinations
from math import factorial

import matplotlib as mpl
import matplotlib.pyplot
import numpy as np
import pytest
import torch
import xarray as xr
from scipy.cluster.hierarchy import linkage
from scipy.stats import norm, t
from torch import nn

from lexppl import explain, fit
from lexppl.arviz_compatibility import posterior_of
from lexppl.compare import (
    ImputerMasker,
    conditional_baselines,
    shap_explanation,
)
from lexppl.models import Grouping
from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer
from lexppl.models.imputers.simple import ConstantImputer, GaussianImputer, MarginalImputer
from lexppl.systems import lex
from tests.refusals import over, refusals, refused

shap = pytest.importorskip("shap", reason="the extra 'compare' is not installed")
attribution = pytest.importorskip("captum.attr", reason="the extra 'compare' is not installed")

FAILURE = 1e-6
"""Probability that a right program fails one of the z-tests."""
MEAN = torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)
COVARIANCE = torch.tensor(
    [[1.0, 0.8, 0.2], [0.8, 2.0, -0.3], [0.2, -0.3, 0.5]], dtype=torch.float64
)
WEIGHTS = np.array([1.0, 2.0, -3.0])
ROWS = np.array([[2.0, 0.0, 0.0], [-1.0, 1.0, 1.5]])


def gaussian():
    return ConditionalGaussianImputer(MEAN, COVARIANCE)


def conditional_mean(row, kept):
    """E[x̃ | the kept columns of a row] under the Gaussian."""
    mean, covariance, on = MEAN.numpy(), COVARIANCE.numpy(), sorted(kept)
    gain = covariance[:, on] @ np.linalg.inv(covariance[np.ix_(on, on)])
    return mean + gain @ (row[on] - mean[on])


X, SLOPES = torch.from_numpy(ROWS), torch.from_numpy(WEIGHTS)[None]


def linear_network():
    network = nn.Linear(3, 1, bias=False, dtype=torch.float64)
    network.weight.data.copy_(SLOPES)
    return network


def mean_of(row, hidden):
    kept = [d for d in range(3) if d not in hidden]
    return torch.from_numpy(conditional_mean(row.numpy(), kept))[hidden]


def z_of_ablation(attributions, expected):
    error = attributions.std(0) / len(attributions) ** 0.5
    return ((attributions.mean(0) - expected) / error).abs()


def test_ablation_of_one_feature_is_conditional():
    baselines = conditional_baselines(gaussian(), X, draws=400)
    assert baselines.shape == (400, 2, 3)
    method = attribution.FeatureAblation(linear_network())
    found = torch.stack([method.attribute(X, b) for b in baselines])
    mean = torch.stack([torch.cat([mean_of(r, [d]) for d in range(3)]) for r in X])
    limit = norm.isf(FAILURE / 12)
    assert float(z_of_ablation(found, SLOPES * (X - mean)).max()) < limit
    assert float(z_of_ablation(found, SLOPES * (X - MEAN)).max()) > 5 * limit


def test_ablation_of_a_group_is_conditional_on_the_others():
    grouping = Grouping([0, 1, 0])
    baselines = conditional_baselines(gaussian(), X, draws=400, grouping=grouping)
    method = attribution.FeatureAblation(linear_network())
    found = torch.stack(
        [method.attribute(X, b, feature_mask=grouping.index[None]) for b in baselines]
    )
    pair = torch.stack([mean_of(r, [0, 2]) for r in X])
    of_pair = ((X[:, [0, 2]] - pair) * SLOPES[0, [0, 2]]).sum(1)
    of_single = (X[:, 1] - torch.cat([mean_of(r, [1]) for r in X])) * SLOPES[0, 1]
    limit = norm.isf(FAILURE / 8)
    assert float(z_of_ablation(found[..., 0], of_pair).max()) < limit
    assert float(z_of_ablation(found[..., 1], of_single).max()) < limit
    # The two columns of the group are drawn together.
    centred = baselines[:, 0][:, [0, 2]] - baselines[:, 0][:, [0, 2]].mean(0)
    own = COVARIANCE[[0, 2]][:, [0, 2]]
    cross = COVARIANCE[[0, 2], 1]
    expected = (own - torch.outer(cross, cross) / COVARIANCE[1, 1])[0, 1]
    product = centred[:, 0] * centred[:, 1]
    assert abs(float((product.mean() - expected) / (product.std() / 20))) < limit


@over(
    (X, X, {}, "imputer must be an Imputer"),
    (gaussian(), [[1.0, 2.0, 3.0]], {}, "x must be a floating-point tensor; it is list"),
    (gaussian(), X, {"draws": 0}, "draws must be"),
    (gaussian(), X, {"seed": None}, "seed must be"),
    (gaussian(), X[:0], {}, "none of them 0"),
    (gaussian(), X[:, :2], {}, "x must have shape"),
)
def test_refused_baselines(imputer, x, options, words):
    refused(words, conditional_baselines, imputer, x, error=(TypeError, ValueError), **options)
    with pytest.raises(ValueError, match="grouping is of 2 features; x has 3"):
        conditional_baselines(gaussian(), X, grouping=Grouping([0, 1]))


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

    masker = ImputerMasker(gaussian(), 30, seed=3)
    for explainer in (shap.explainers.Permutation, shap.explainers.Exact):
        first = explainer(curved, masker)(ROWS, max_evals=21, silent=True)
        assert len(set(first.base_values)) == 1
        np.testing.assert_allclose(
            first.values.sum(1) + first.base_values, curved(ROWS), atol=1e-12
        )
    again = shap.explainers.Exact(curved, masker)(ROWS[::-1].copy(), silent=True)
    np.testing.assert_array_equal(again.values[::-1], first.values)


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


test_refused_imputers = refusals(
    (ROWS, {}, "imputer must be an Imputer; it is ndarray"),
    (gaussian(), {"imputations": 0}, "imputations must be"),
    (gaussian(), {"seed": -2}, "seed must be"),
    (gaussian(), {"grouping": Grouping([0, 1])}, "with the features of the grouping"),
    (ConstantImputer(torch.zeros(1, 2, 2)), {}, r"rows \(D,\).* its rows are \(1, 2, 2\)"),
    of=lambda given, options: ImputerMasker(given, **options),
    error=(TypeError, ValueError),
)


def test_refused_rows_and_masks():
    masker = ImputerMasker(gaussian())
    refused(r"x must have shape \(3,\)", masker, True, ROWS)
    for mask in (np.array([True, False]), np.array([0, 1, 1]), np.full(3, 0.5)):
        refused(r"mask must be boolean, \(3,\)", masker, mask, ROWS[0])
    with pytest.raises(ValueError, match=r"x must have shape \(2,\)"):
        ImputerMasker(ConstantImputer(), grouping=Grouping([0, 1]))(True, ROWS[0])


DIMS = ("chain", "draw", "row", "feature")


def posterior(mask, ess=None, x=None):
    stats = {"selection_probability": (("chain", "row", "feature"), mask.mean(1), {"site": "mask"})}
    if ess is not None:
        stats["weight_ess"] = (("chain", "row"), ess)
    names = [f"g{i}" for i in range(mask.shape[-1])]
    masks = xr.Dataset({"mask": (DIMS, mask)}, {"feature": names})
    groups = {"predictions": masks, "sample_stats": xr.Dataset(stats)}
    if ess is not None:
        groups["posterior"] = masks
    if x is not None:
        groups["constant_data"] = xr.Dataset({"x": (("row", "input"), x)})
    return posterior_of(groups, {})


def draws(chains=3, count=40, rows=5, entries=2, seed=0):
    generator = np.random.default_rng(seed)
    p = generator.uniform(0.0, 1.0, (chains, 1, rows, entries))
    return (generator.uniform(size=(chains, count, rows, entries)) < p).astype(np.int8)


def test_over_chains():
    mask, x = draws(), np.arange(10.0).reshape(5, 2)
    found = shap_explanation(posterior(mask, x=x), level=0.9)
    means = mask.mean(1)
    error = means.std(0, ddof=1) / np.sqrt(3)
    half = t.ppf(0.95, 2) * error
    np.testing.assert_allclose(found.values, means.mean(0))
    np.testing.assert_allclose(found.error_std, error)
    np.testing.assert_allclose(found.lower_bounds, np.maximum(means.mean(0) - half, 0))
    np.testing.assert_allclose(found.upper_bounds, np.minimum(means.mean(0) + half, 1))
    np.testing.assert_array_equal(found.data, x)
    assert list(found.feature_names) == ["g0", "g1"]


def test_over_draws():
    mask = draws(chains=1, count=200)
    mask[:, :, 0, 0], mask[:, :, 0, 1] = 1, 0
    mask[0, 0, 0] = 1 - mask[0, 0, 0]
    found = shap_explanation(posterior(mask))
    p = mask.mean((0, 1))
    np.testing.assert_allclose(found.values, p)
    np.testing.assert_allclose(found.error_std, np.sqrt(p * (1 - p) / 200))
    assert (found.lower_bounds[0] == [1, 0]).all() and (found.upper_bounds[0] == [1, 0]).all()
    np.testing.assert_array_equal(found.lower_bounds, (p > 0.975))
    np.testing.assert_array_equal(found.upper_bounds, (p > 0.025))
    assert np.isnan(found.data).all()


def test_few_effective_proposals_widen_the_error():
    mask, ess = draws(chains=2, count=50), np.array([[4.0, 50, 50, 50, 1], [6.0, 50, 50, 50, 1]])
    found = shap_explanation(posterior(mask, ess), over="draws", given_y=True)
    p = mask.mean((0, 1))
    expected = np.sqrt(p * (1 - p) * (1 / 100 + 1 / ess.sum(0)[:, None]))
    np.testing.assert_allclose(found.error_std, expected)


def test_from_explain_to_plots():
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    grouping = Grouping([0, 1, 1], names=["age", "job"])
    program = lex(3, classes=2, hidden=(4,), predictor_hidden=(4,), grouping=grouping)
    result = fit(program, (x, y), epochs=1, replicates=2, progress=False)
    grouped = shap_explanation(explain(result, x[:8], draws=10))
    assert grouped.values.shape == (8, 2) and list(grouped.feature_names) == ["age", "job"]
    assert np.isnan(grouped.data).all() and grouped[2].lower_bounds.shape == (2,)
    given = explain(result, x[:8], y[:8], draws=10)
    assert (shap_explanation(given, over="draws").error_std >= 0).all()
    with mpl.rc_context({"backend": "agg"}):
        shap.plots.bar(grouped, show=False)
        shap.plots.bar(grouped[0], show=False)
        shap.plots.beeswarm(shap_explanation(posterior(draws(), x=x[:5, :2].numpy())), show=False)
        mpl.pyplot.close("all")


test_refused_inputs = refusals(
    (posterior(draws(chains=1)), {"over": "chains"}, "bounds over chains need two"),
    (posterior(draws()), {"over": "seeds"}, "over must be"),
    (posterior(draws()), {"level": 1.0}, r"level must be a share in \(0, 1\)"),
    (draws(), {}, "posterior must be"),
    (posterior_of({"sample_stats": xr.Dataset({"a": 1.0})}, {}), {}, "give one that explain"),
    of=lambda given, options: shap_explanation(given, **options),
    error=(TypeError, ValueError),
)
