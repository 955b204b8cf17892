"""Fits to randomly weighted rows beside the replicates, and the intervals that they tell."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, chi2, norm, t
from torch import nn

from lexppl import explain, load, save
from lexppl.arviz_compatibility import group_of
from lexppl.evaluation import FeatureGains, feature_gains, gain_table
from lexppl.explanation import selection_table
from lexppl.inference import NestedIWAE, ReplicateData, fit
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    KSubsetSelector,
    MarginalImputer,
    Predictor,
)
from tests.inference.test_row_weights import Mean

FAILURE = 1e-6
"""Probability that a right program fails one of the tests of chance here."""
X = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
SHORT = {"epochs": 2, "batch_size": 40, "progress": False}


def explainer(selector=BernoulliSelector, **options):
    return LEX(
        selector(MLP(3, 3, (4,), seed=0), **options),
        ConstantImputer(0.0),
        Predictor(MLP(3, 2, (4,), seed=1), CategoricalLikelihood()),
    )


def means(rows, **options):
    """A step of length 1 down the loss ends at the weighted mean."""
    return fit(
        Mean(),
        (torch.zeros(len(rows), 1).double(), rows),
        objective=NestedIWAE(1),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        epochs=1,
        batch_size=len(rows),
        valid=None,
        progress=False,
        **options,
    )


def of(result):
    return torch.stack([model.mean.detach() for model in result.models])


def test_the_replicates_have_all_rows_once_and_the_others_scatter_about_them():
    """Of `Σ w_n y_n / N` over Dirichlet weights: mean ȳ, variance `s² / (N + 1)`."""
    rows = 2.0 + 3.0 * torch.randn(60, generator=torch.Generator().manual_seed(0)).double()
    count = 400
    result = means(rows, replicates=3, bootstrap=count)
    torch.testing.assert_close(of(result), rows.mean().expand(3))
    assert result.replicates == 3 and result.row_weights is None
    others = result.bootstrap
    assert others.replicates == count and others.row_weights == "dirichlet"
    expected = float(rows.var(unbiased=False)) / 61
    z = float((of(others).mean() - rows.mean()) / math.sqrt(expected / count))
    assert abs(z) < norm.isf(FAILURE / 2)
    scaled = float(of(others).var()) * (count - 1) / expected
    least, most = chi2.isf([1 - FAILURE / 2, FAILURE / 2], count - 1)
    assert least < scaled < most


@pytest.mark.complete
def test_the_interval_covers_the_mean_of_new_rows():
    """mean ± t_{B−1} s over the fits of the bootstrap, of 300 samples: .95, less what chance takes;
    replicates on the same rows do not differ, and cover nothing."""
    draw = torch.Generator().manual_seed(1)
    count, samples = 4, 300
    covered = 0
    for seed in range(samples):
        rows = 1.0 + torch.randn(40, generator=draw).double()
        result = means(rows, bootstrap=count, seed=seed)
        half = t.ppf(0.975, count - 1) * float(of(result.bootstrap).std())
        covered += abs(float(of(result)[0]) - 1.0) <= half
    # A weighted spread is of N + 1 for N, which no test of this size sees.
    assert covered > binom.isf(1 - FAILURE, samples, 0.945)


def test_a_sample_s_weights_stand_in_both():
    rows = torch.tensor([1.0, 2.0, 6.0]).double()
    times = torch.tensor([2.0, 0.0, 2.0])
    result = means(rows, bootstrap=50, sample_weight=times)
    torch.testing.assert_close(of(result), torch.tensor([3.5]).double())
    drawn = of(result.bootstrap)
    assert result.row_weights == "given" and result.bootstrap.row_weights == "dirichlet"
    assert float(drawn.min()) >= 1.0 and float(drawn.max()) <= 6.0 and float(drawn.std()) > 0.3


def test_a_seed_gives_the_same_bits():
    one, other = (fit(explainer(), (X, Y), bootstrap=2, **SHORT) for _ in range(2))
    for first, second in ((one, other), (one.bootstrap, other.bootstrap)):
        for a, b in zip(first.models, second.models, strict=True):
            torch.testing.assert_close(a.state_dict(), b.state_dict(), rtol=0, atol=0)


@pytest.fixture(scope="module")
def result():
    return fit(explainer(), (X, Y), replicates=2, bootstrap=3, **SHORT)


@pytest.mark.smoke
def test_an_explanation_has_the_means_of_both_and_their_interval(result):
    rows = X[:20]
    posterior = explain(result, rows, draws=5)
    stats = group_of(posterior, "sample_stats")
    own = explain(result.bootstrap, rows, draws=0)
    theirs = group_of(own, "sample_stats")["selection_probability"].values
    np.testing.assert_array_equal(stats["bootstrap_selection_probability"].values, theirs)
    assert stats["bootstrap_selection_probability"].dims == ("bootstrap", "row", "feature")
    assert stats["selection_probability"].shape == (2, 20, 3)
    table = selection_table(posterior)
    by_row = stats["selection_probability"].values.astype(float).mean(0)
    spread = t.ppf(0.975, 2) * theirs.astype(float).mean(1).std(0, ddof=1)
    of_rows = t.ppf(0.975, 19) * by_row.std(0, ddof=1) / math.sqrt(20)
    for place, name in enumerate(stats["feature"].values):
        line, half = table.loc[name], math.hypot(spread[place], of_rows[place])
        assert line["selection_probability"] == pytest.approx(by_row[:, place].mean(), rel=1e-6)
        assert line["upper"] == pytest.approx(min(1.0, by_row[:, place].mean() + half), rel=1e-5)
        assert line["lower"] == pytest.approx(max(0.0, by_row[:, place].mean() - half), rel=1e-5)


def test_one_chain_has_an_interval_too():
    single = fit(explainer(), (X, Y), bootstrap=2, **SHORT)
    table = selection_table(explain(single, X[:20], draws=2))
    assert (table["upper"] > table["lower"]).all() and table["agreement"].isna().all()


def test_masks_of_another_law_and_masks_given_y():
    subsets = fit(explainer(KSubsetSelector, k=1), (X, Y), bootstrap=2, **SHORT)
    for y in (None, Y[:6]):
        posterior = explain(subsets, X[:6], y, draws=3)
        means = group_of(posterior, "sample_stats")["bootstrap_selection_probability"]
        np.testing.assert_allclose(means.sum("feature"), 1.0, rtol=1e-5)


def test_the_reference_of_gains_is_of_both():
    model = explainer()
    model.imputer = MarginalImputer(X)
    result = fit(model, (X, Y), bootstrap=2, **SHORT)
    far = X[:20] + 5.0
    found = feature_gains(result, X[:20], Y[:20], masks=3, seed=5, reference=far).bootstrap
    alone = feature_gains(result.bootstrap, X[:20], Y[:20], masks=3, seed=5, reference=far).gains
    torch.testing.assert_close(found, alone)
    near = feature_gains(result.bootstrap, X[:20], Y[:20], masks=3, seed=5).gains
    assert not torch.allclose(found, near)


def test_gains_are_of_both_and_have_their_interval(result):
    gains = feature_gains(result, X, Y, masks=3, seed=5)
    alone = feature_gains(result.bootstrap, X, Y, masks=3, seed=5)
    torch.testing.assert_close(gains.bootstrap, alone.gains)
    assert gains.gains.shape == (2, 120, 3) and gains.bootstrap.shape == (3, 120, 3)
    table = gain_table(gains)
    by_row = gains.gains.mean(0)
    squared = (t.ppf(0.975, 119) * by_row.std(0) / math.sqrt(120)) ** 2
    squared = squared + (t.ppf(0.975, 2) * gains.bootstrap.mean(1).std(0)) ** 2
    for place, name in enumerate(gains.entry_names):
        line = table.loc[name]
        assert line["gain"] == pytest.approx(float(by_row[:, place].mean()))
        assert line["upper"] - line["gain"] == pytest.approx(math.sqrt(squared[place]))


def test_gains_that_are_not_finite_are_refused_in_both():
    zeros = torch.zeros(1, 4, 1).double()
    with pytest.raises(ValueError, match="must be finite"):
        gain_table(FeatureGains(zeros, ("a",), bootstrap=torch.full((2, 4, 1), math.nan)))


def test_it_is_saved_and_loaded(result, tmp_path):
    save(result, tmp_path)
    back = load(tmp_path)
    assert back.bootstrap.replicates == 3 and back.bootstrap.row_weights == "dirichlet"
    before = selection_table(explain(result, X[:9], draws=2))
    assert selection_table(explain(back, X[:9], draws=2)).equals(before)
    save(fit(explainer(), (X, Y), **SHORT), tmp_path)
    assert load(tmp_path).bootstrap is None


def test_a_collapse_of_the_others_is_not_the_result_s(result):
    assert len(result.collapse) == 2 and len(result.bootstrap.collapse) == 3
    assert result.history.train.shape == (2, 2)


REFUSED = {
    "one fit": ({"bootstrap": 1}, "at least 2"),
    "half a fit": ({"bootstrap": 2.5}, "bootstrap"),
    "weights too": ({"bootstrap": 2, "row_weights": "dirichlet"}, "leave one of the two"),
    "several models": ({"bootstrap": 2, "model": [explainer(), explainer()]}, "for each replicate"),
    "several data sets": (
        {"bootstrap": 2, "train": ReplicateData([(X, Y), (X, Y)])},
        "for each replicate",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_does_not_go_with_is_refused(case):
    options, words = REFUSED[case]
    options = {"model": explainer(), "train": (X, Y), **SHORT, **options}
    model, train = options.pop("model"), options.pop("train")
    with pytest.raises((ValueError, TypeError), match=words):
        fit(model, train, **options)


def test_modules_of_the_parts_are_not_shared(result):
    first = {id(p) for m in result.models for p in m.parameters()}
    assert not first & {id(p) for m in result.bootstrap.models for p in m.parameters()}
    assert all(isinstance(module, nn.Module) for module in result.bootstrap.modules)
