"""The gain over the base rate against what it is by hand, and on fits that learned nothing."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from lexppl.evaluation.prediction import (
    BaseRateGain,
    gain_over_base_rate,
    predictive_log_likelihood,
)
from lexppl.inference import fit
from lexppl.systems import lex

X = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
LABELS = (X[:, 0] > 0).long()
RESPONSE = X[:, 0] - 0.5 * X[:, 1]
SMALL = {"k": 1, "hidden": (6,), "predictor_hidden": (6,)}
QUICK = {"epochs": 4, "batch_size": 50, "replicates": 2, "progress": False}


@pytest.mark.parametrize("kind", ["labels", "responses", "probabilities"])
def test_it_is_its_formula(kind):
    y = {"labels": LABELS, "responses": RESPONSE}.get(kind)
    if kind == "probabilities":
        p = torch.sigmoid(X[:, :1])
        y = torch.cat([1 - p, p], 1)
    classes = None if kind == "responses" else 2
    result = fit(lex(3, classes=classes, **SMALL), (X[:200], y[:200]), **QUICK)
    found = gain_over_base_rate(result, y[:200], X[200:], y[200:], masks=10, seed=3)
    own = predictive_log_likelihood(result, X[200:], y[200:], masks=10, seed=3).numpy().mean(0)
    train, held = y[:200].numpy(), y[200:].numpy()
    if kind == "labels":
        share = (np.bincount(train) + 1) / 202
        base = np.log(share)[held]
    elif kind == "responses":
        base = stats.norm(train.mean(), train.std(ddof=1)).logpdf(held)
    else:
        base = held @ np.log((train.sum(0) + 1) / 202)
    gained = own - base
    assert found.nats == pytest.approx(gained.mean(), rel=1e-5)
    assert found.error == pytest.approx(stats.sem(gained), rel=1e-5)
    assert found.rows == 100


@pytest.mark.complete
def test_labels_of_noise_are_not_learned():
    """Of fits to labels that x says nothing of, about one in forty may look learned."""
    shown = []
    for seed in range(8):
        draws = torch.Generator().manual_seed(seed)
        y = torch.randint(2, (300,), generator=draws)
        result = fit(lex(3, classes=2, **SMALL), (X[:200], y[:200]), **QUICK, seed=seed)
        shown.append(gain_over_base_rate(result, y[:200], X[200:], y[200:], masks=10).shown)
    assert sum(shown) <= 2
    learned = fit(
        lex(3, classes=2, **SMALL),
        (X[:200], LABELS[:200]),
        **{**QUICK, "epochs": 30, "learning_rate": 1e-2},
    )
    assert gain_over_base_rate(learned, LABELS[:200], X[200:], LABELS[200:]).shown


@pytest.mark.smoke
def test_one_row_shows_nothing():
    result = fit(lex(3, classes=2, **SMALL), (X[:200], LABELS[:200]), **QUICK)
    found = gain_over_base_rate(result, LABELS[:200], X[:1], LABELS[:1])
    assert math.isnan(found.error)
    assert not found.shown
    assert BaseRateGain(0.3, 0.1, 50).shown
    assert not BaseRateGain(0.3, 0.2, 50).shown


def test_another_kind_of_y_is_refused():
    result = fit(lex(3, classes=2, **SMALL), (X[:200], LABELS[:200]), **QUICK)
    with pytest.raises(ValueError, match="of one kind"):
        gain_over_base_rate(result, LABELS[:200], X[200:], RESPONSE[200:])
