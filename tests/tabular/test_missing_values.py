"""Estimators on rows of which some values are missing."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils import get_tags

from lexppl import ExplainerClassifier, ExplainerRegressor, load, save
from lexppl.models import ConstantImputer, MarginalImputer
from lexppl.systems import METHODS, l2x
from lexppl.tabular.missing_values import IMPUTERS_OF_MISSING, METHODS_OF_MISSING, with_missing
from tests.refusals import refused
from tests.tabular.small import small

QUICK = small(epochs=25, learning_rate=1e-2, hidden=(16,), prediction_masks=20, hide_missing=True)


@pytest.fixture(scope="module")
def table():
    """The label follows a; a fifth of a and of the levels are missing, whatever they are."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": draw.normal(size=400),
            "b": draw.normal(size=400),
            "job": draw.choice(["u", "v"], 400),
        }
    )
    y = (frame.a > 0).astype(int).to_numpy()
    frame.loc[draw.random(400) < 0.2, "a"] = None
    frame.loc[draw.random(400) < 0.2, "job"] = None
    return frame, y


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("method", METHODS_OF_MISSING)
def test_what_is_missing_is_never_kept_and_predicted_without(method, table):
    frame, y = table
    explainer = ExplainerClassifier(method, **QUICK).fit(frame, y)
    missing = frame.a.isna().to_numpy()
    kept = explainer.importances(frame)
    assert kept[missing, 0].max() == 0.0 and kept[~missing, 0].mean() > 0.5
    assert kept[frame.job.isna(), 2].max() == 0.0
    likelihood = np.log(explainer.predict_proba(frame)[np.arange(400), y])
    assert likelihood[~missing].mean() > -0.35
    # Without a nothing is known of the label: a coin's toss, not a claim.
    assert likelihood[missing].mean() == pytest.approx(-np.log(2), abs=0.1)
    # The same rows alone, and with another stand-in for what is not there.
    alone = explainer.predict_proba(frame[5:9])
    np.testing.assert_allclose(alone, explainer.predict_proba(frame)[5:9], atol=1e-9)


@pytest.mark.complete
def test_the_indicator_is_an_entry_that_may_be_kept(table):
    frame, _ = table
    # Here absence is all that tells.
    y = frame.a.isna().astype(int).to_numpy()
    without = ExplainerClassifier(**QUICK).fit(frame, y)
    beside = ExplainerClassifier(**QUICK, missing_indicator=True).fit(frame, y)
    names = list(beside.result_.entry_names)
    assert names == ["a", "a is missing", "b", "job", "job is missing"]
    assert beside.feature_importances_[1] > 0.9
    assert beside.score(frame, y) == 1.0
    assert without.score(frame, y) == pytest.approx(1 - y.mean(), abs=0.02)
    assert len(beside.get_support()) == 3


@pytest.mark.complete
def test_trees_k_and_responses(table):
    frame, y = table
    trees = ExplainerClassifier(**QUICK, predictor="trees").fit(frame, y)
    assert trees.score(frame, y) > 0.85
    fixed = ExplainerClassifier(k=2, **QUICK).fit(frame, y)
    both = frame.a.isna() & frame.job.isna()
    kept = fixed.importances(frame)
    there = frame.notna().sum(1).to_numpy()
    np.testing.assert_allclose(kept.sum(1), np.minimum(2, there), atol=1e-6)
    assert both.any() and kept[both][:, [0, 2]].max() == 0.0
    response = ExplainerRegressor(**QUICK).fit(frame, frame.b * 3.0 + 1.0)
    assert response.score(frame, frame.b * 3.0 + 1.0) > 0.8
    posterior = fixed.explain(frame[:9], y[:9], draws=4)
    masks = posterior["posterior"]["mask"].values
    assert not masks[..., frame.a[:9].isna().to_numpy(), 0].any()


def test_arrays_with_nan(table):
    frame, y = table
    array = frame[["a", "b"]].to_numpy()
    explainer = ExplainerClassifier(**QUICK).fit(array, y)
    assert get_tags(explainer).input_tags.allow_nan
    assert not get_tags(ExplainerClassifier()).input_tags.allow_nan
    assert explainer.importances(array)[np.isnan(array[:, 0]), 0].max() == 0.0
    refused("columns that had none in fit: 'x1'", explainer.predict, np.array([[0.0, np.nan]]))
    refused("contains infinity", explainer.predict, np.array([[np.inf, 0.0]]))
    refused("NaN", ExplainerClassifier(**{**QUICK, "hide_missing": False}).fit, array, y)
    for given in (frame, frame[["a", "b"]]):
        with pytest.raises(ValueError, match=r"Input X contains NaN.*or give hide_missing=True"):
            ExplainerClassifier(**{**QUICK, "hide_missing": False}).fit(given, y)
    with pytest.raises(ValueError, match="missing_indicator=True is for hide_missing=True"):
        ExplainerClassifier(missing_indicator=True).fit(array, y)


def test_a_group_is_hidden_where_all_of_it_is_missing(table):
    frame, y = table
    explainer = ExplainerClassifier(groups=["g", "h", "g"], **QUICK).fit(frame, y)
    kept = explainer.importances(frame)
    assert list(explainer.result_.entry_names) == ["g", "h"]
    every = (frame.a.isna() & frame.job.isna()).to_numpy()
    assert kept[every, 0].max() == 0.0 and kept[frame.a.isna() & ~every, 0].mean() > 0.3


def test_a_saved_explainer_reads_what_is_missing(table, tmp_path):
    frame, y = table
    explainer = ExplainerClassifier(**{**QUICK, "epochs": 2}).fit(frame, y)
    save(explainer.result_, tmp_path)
    loaded = load(tmp_path)
    x = explainer.encoding_.encode(frame)
    with torch.no_grad():
        first, second = (r.models[0].selector(x).mean for r in (explainer.result_, loaded))
    assert torch.equal(first, second)
    assert isinstance(loaded.models[0].imputer.imputer, MarginalImputer)


def test_the_marginal_pool_has_values_that_were_there_alone(table):
    frame, y = table
    explainer = ExplainerClassifier(**{**QUICK, "epochs": 1}).fit(frame, y)
    pool = explainer.result_.models[0].imputer.imputer.reference
    column = explainer.encoding_.columns[0]
    known = torch.tensor(((frame.a.dropna() - column.mean) / column.scale).to_numpy()).float()
    assert bool(torch.isin(pool[:, 0], known).all())
    assert bool((pool[:, 2:].sum(1) == 1).all())


def test_what_has_no_form_is_refused_by_name(table):
    frame, y = table
    refused = sorted(set(METHODS) - set(METHODS_OF_MISSING))
    assert len(refused) > 5
    for method in refused:
        with pytest.raises(ValueError, match=f"{method} has no form for missing values"):
            ExplainerClassifier(method, **QUICK).fit(frame, y)
    for imputer in ("conditional-gaussian", "mixture-means"):
        assert imputer not in IMPUTERS_OF_MISSING
        with pytest.raises(ValueError, match=f"{imputer}.*is fitted on whole rows"):
            ExplainerClassifier(imputer=imputer, **QUICK).fit(frame, y)
    own = ExplainerClassifier(imputer=ConstantImputer(), **{**QUICK, "epochs": 1}).fit(frame, y)
    assert isinstance(own.result_.models[0].imputer.imputer, ConstantImputer)
    with pytest.raises(TypeError, match=r"missing values are known to masks of.*MaxConcrete"):
        program = with_missing(l2x(2, classes=2, k=1, hidden=(4,)), [-1, 2, 2]).program()
        program.selector(torch.zeros(1, 3))
