"""Predictions of a row: exact distributions of the shared random numbers, and the same row by row.

Each z-test fails by chance with probability below 1e-5 (|z| > 4.5 of a normal).
"""

import numpy as np
import pytest
import torch
from scipy.stats import gamma, kstest
from sklearn.datasets import make_blobs

from lexppl import ExplainerClassifier, fit
from lexppl.choices.imputers import IMPUTERS
from lexppl.evaluation import predictive
from lexppl.systems import METHODS, lex
from lexppl.tabular.row_predictions import (
    CommonRandomNumbers,
    row_importances,
    row_predictions,
    standard_gamma,
)

Z = 4.5
DRAWS = 40_000
X, Y = make_blobs(60, n_features=3, centers=3, random_state=0)
QUICK = {"epochs": 2, "hidden": (4,), "predictor_hidden": (4,), "prediction_masks": 8}


def under_vmap(draw, *parameters):
    def one(*row):
        with CommonRandomNumbers():
            return draw(*row)

    torch.manual_seed(0)
    return torch.func.vmap(one, randomness="same")(*parameters)


def test_bernoulli_and_categorical_have_their_law():
    p = torch.tensor([[0.1, 0.9], [0.6, 0.4]], dtype=torch.float64)
    on = under_vmap(lambda q: torch.bernoulli(q.expand(DRAWS, 2)), p)
    z = (on.mean(1) - p) / (p * (1 - p) / DRAWS).sqrt()
    assert z.abs().max() < Z
    q = torch.tensor([[0.2, 0.5, 0.3], [0.7, 0.0, 0.3]], dtype=torch.float64)
    drawn = under_vmap(lambda w: torch.multinomial(3.0 * w, DRAWS, True), q)
    share = torch.stack([(drawn == c).double().mean(1) for c in range(3)], 1)
    z = (share - q) / (q * (1 - q) / DRAWS).sqrt().clamp(min=1e-12)
    assert z.abs().max() < Z


@pytest.mark.parametrize("alpha", [0.3, 1.0, 7.0])
def test_gamma_has_its_law(alpha):
    torch.manual_seed(1)
    drawn = standard_gamma(torch.full((5000,), alpha, dtype=torch.float64)).numpy()
    assert kstest(drawn, gamma(alpha).cdf).pvalue > 1e-5
    assert kstest(drawn, gamma(1.1 * alpha).cdf).pvalue < 1e-5


def test_normal_has_its_law():
    mean, sd = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0])
    drawn = under_vmap(lambda m, s: torch.normal(m.expand(DRAWS), s.expand(DRAWS)), mean, sd)
    assert ((drawn.mean(1) - mean) / (sd / DRAWS**0.5)).abs().max() < Z
    assert ((drawn.std(1) - sd) / (sd / (2 * DRAWS) ** 0.5)).abs().max() < Z


@pytest.fixture(scope="module")
def small():
    x = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    model = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
    data = (x, (x[:, 0] > 0).long())
    return fit(model, data, epochs=3, replicates=2, progress=False), x.double()


def test_prediction_is_the_mean_over_masks_and_replicates(small):
    """Hoeffding's bound on the spread of what lies in [0, 1] makes the z-score a safe one."""
    result, x = small
    told = torch.stack([row_predictions(result, x[:6], 2000, seed) for seed in range(12)]).mean(0)
    other = predictive(result, x[:6].float(), masks=40_000, seed=99).mean(0).double()
    spread = (0.25 / 24_000 + 0.25 / 40_000) ** 0.5
    assert (told - other).abs().max() < Z * spread
    assert (told - other.flip(0)).abs().max() > Z * spread


def test_importance_is_the_laws_mean(small):
    result, x = small
    exact = torch.stack([m.selector(x[:5].float()).mean for m in result.models]).mean(0)
    exact = exact.reshape(-1, 5, 3).mean(0).double()
    torch.testing.assert_close(row_importances(result, x[:5], 1, 0), exact, atol=1e-6, rtol=0.0)


@pytest.mark.complete(but=5)
@pytest.mark.parametrize("method", METHODS)
def test_a_row_alone_is_predicted_as_among_others(method):
    explainer = ExplainerClassifier(method, random_state=0, **QUICK).fit(X, Y)
    p = explainer.predict_proba(X)
    assert p.shape == (60, 3) and np.allclose(p.sum(1), 1.0)
    np.testing.assert_allclose(explainer.predict_proba(X[7:8]), p[7:8], atol=1e-10)
    np.testing.assert_allclose(explainer.predict_proba(X[::-1]), p[::-1], atol=1e-10)
    z = explainer.importances(X)
    assert z.shape == (60, 3)
    np.testing.assert_allclose(explainer.importances(X[::-1]), z[::-1], atol=1e-10)
    np.testing.assert_allclose(explainer.feature_importances_, np.abs(z).mean(0), atol=1e-10)


def test_draws_of_their_own_would_differ(small):
    result, x = small
    rows = x[:6].float()
    first = predictive(result, rows, masks=8)[0, -1]
    assert (predictive(result, rows.flip(0), masks=8)[0, 0] - first).abs().max() > 1e-4


@pytest.mark.parametrize("imputer", IMPUTERS)
def test_every_imputer_can_be_named(imputer):
    explainer = ExplainerClassifier("lex", imputer=imputer, random_state=0, **QUICK).fit(X, Y)
    p = explainer.predict_proba(X)
    np.testing.assert_allclose(explainer.predict_proba(X[3:5]), p[3:5], atol=1e-10)
