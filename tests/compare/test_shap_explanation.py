"""A posterior as a shap.Explanation: its figures by hand, and its way through SHAP's plots."""

import warnings

import matplotlib as mpl
import matplotlib.pyplot
import numpy as np
import pytest
import shap
import torch
import xarray as xr
from scipy.stats import t

from lexppl import explain, fit
from lexppl.arviz_compatibility import posterior_of
from lexppl.compare import shap_explanation
from lexppl.inference import CollapseWarning
from lexppl.models import Grouping
from lexppl.systems import lex

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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
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


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (posterior(draws(chains=1)), {"over": "chains"}, "bounds over chains need two or more"),
        (posterior(draws()), {"over": "seeds"}, "over must be"),
        (posterior(draws()), {"level": 1.0}, r"level must be a share in \(0, 1\)"),
        (draws(), {}, "posterior must be"),
        (posterior_of({"sample_stats": xr.Dataset({"a": 1.0})}, {}), {}, "give one that explain"),
    ],
)
def test_refused_inputs(given, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        shap_explanation(given, **options)
