"""An explainer that predicts worse than a predictor of all features goes on, and warns."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from lexppl.choices.settings import AUTO, Regime
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.prediction import is_behind, prediction_scores, predictive
from lexppl.inference import CollapseWarning
from lexppl.models import Grouping
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular import BehindWarning, ExplainerClassifier, ExplainerRegressor, table_fit
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.predictors import fit_full_predictor
from tests.refusals import over, refused

SMALL = {"hidden": (16,), "predictor_hidden": (32,), "random_state": 0}


def columns(rows, count=3, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, count))


@pytest.mark.smoke
@over(
    (-0.50, -0.40, True),
    (-0.50, -0.499, False),  # not by two standard errors
    (-0.80, -0.70, False),  # the predictor is no better than the base rate
    (-0.01, -0.0002, False),  # a fiftieth of what all features say
)
def test_worse_is_by_two_errors_of_a_predictor_that_has_learned(own, full, behind):
    draws = np.random.default_rng(0)
    noise = 0.02 * draws.normal(size=(2, 400))
    base = np.full(400, -0.69)
    assert is_behind(own + noise[0], full + noise[1], base) == behind
    # Rows in pairs: what both find hard says nothing of the difference.
    hard = draws.exponential(size=400)
    assert is_behind(-0.5 - hard, -0.49 - hard, -0.8 - hard)


def test_too_few_entries_are_said_before_a_collapse_with_both_figures():
    x = columns(600)
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ExplainerClassifier(k=1, epochs=60, learning_rate=0.01, **SMALL).fit(x, y)
    kinds = [w.category for w in caught if w.category in (BehindWarning, CollapseWarning)]
    assert kinds[0] is BehindWarning
    first = next(str(w.message) for w in caught if w.category is BehindWarning)
    for word in ("worse than", "of all features", "log-likelihood -0.", "accuracy 0."):
        assert word in first


def test_responses_have_their_share_of_variance_in_place_of_accuracy():
    x = columns(600)
    with pytest.warns(
        BehindWarning, match=r"log-likelihood .* against .*R² 0\.\d+ against \d\.\d+"
    ):
        explainer = ExplainerRegressor(k=1, epochs=60, learning_rate=0.01, **SMALL)
        explainer.fit(x, x[:, 0] + x[:, 1])


@pytest.mark.complete(but=2)
@pytest.mark.parametrize(("in_folds", "replicates"), [(False, 2), (True, 2), (False, 1)])
def test_a_fit_that_has_learned_nothing_goes_on_from_full_masks(monkeypatch, in_folds, replicates):
    """The first fit has one epoch; networks of all features learn an exclusive-or."""
    fits, fit_of = [], table_fit.fit

    def first_is_short(system, train, **settings):
        fits.append(system)
        return fit_of(system, train, **{**settings, **({"epochs": 1} if len(fits) == 1 else {})})

    monkeypatch.setattr(table_fit, "fit", first_is_short)
    x = torch.from_numpy(columns(1000)).float()
    y = (x[:, 0] * x[:, 1] > 0).long()
    train, valid = (x[:700], y[:700]), (x[700:], y[700:])
    folds = Folds.of(train[1], 2) if in_folds else None
    names = tuple("abc"), ("no", "yes")
    rows = EncodedRows(train, None if in_folds else valid, Grouping([0, 1, 2]), *names)
    rows = replace(rows, folds=folds)
    settings = {
        "epochs": 60,
        "hidden": (16,),
        "predictor_hidden": (32,),
        "replicates": replicates,
    }
    plan = plan_for(700, 3, penalty=AUTO, in_folds=in_folds, **settings)
    fitted = table_fit.fit_table(plan, rows)
    assert len(fits) == 2 and fitted.plan.regime is Regime.FIXED_IN_SITU
    assert fitted.result.replicates == replicates
    own, full = (
        prediction_scores(predictive(result, valid[0], masks=50)[0], valid[1]).accuracy
        for result in (fitted.result, fit_full_predictor(plan, rows).result)
    )
    assert full > 0.8 and own > full - 0.03


def test_a_given_penalty_stays(monkeypatch):
    """It is behind, and no second fit follows."""
    fits, fit_of = [], table_fit.fit
    monkeypatch.setattr(table_fit, "fit", lambda *a, **how: fits.append(1) or fit_of(*a, **how))
    x = columns(600)
    explainer = ExplainerClassifier(penalty=0.6, epochs=60, learning_rate=0.01, **SMALL)
    with pytest.warns(BehindWarning):
        explainer.fit(x, (x[:, 0] * x[:, 1] > 0).astype(int))
    assert fits == [1] and explainer.penalty_ == 0.6


def test_a_models_responses_have_no_noise_and_are_not_compared():
    """Their log-likelihood has no bound: R² is 1.000 by both, and one is nats ahead."""
    x = columns(300)

    class Model:
        def predict(self, rows):
            return 2.0 * rows[:, 0] + rows[:, 1]

    with warnings.catch_warnings():
        warnings.simplefilter("error", BehindWarning)
        ExplainerRegressor(model=Model(), epochs=20, **SMALL).fit(x, Model().predict(x))


@pytest.mark.parametrize("regime", [Regime.FIXED_IN_SITU, Regime.SELF_POST_HOC])
def test_no_fold_is_judged_by_a_predictor_that_has_learned_from_it(regime):
    """The best replicate's predictor in all folds has a held-out accuracy of .84 on noise."""
    x, y = torch.randn(60, 3), torch.arange(60) % 2
    folds = Folds.of(y, 2)
    rows = EncodedRows((x, y), None, Grouping(range(3)), tuple("abc"), ("0", "1"), folds=folds)
    plan = plan_for(60, 3, regime=regime, penalty=0.0, in_folds=True, replicates=2, epochs=1)
    refused("learned from rows that other replicates hold out", table_fit.fit_table, plan, rows)
