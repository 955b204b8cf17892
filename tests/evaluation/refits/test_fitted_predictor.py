"""The predictor that sees everything, its replicates and what its fit refuses."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from lexppl.evaluation.judges import FittedPredictor, fit_predictor
from lexppl.evaluation.prediction import predictive
from lexppl.models.black_box import black_box

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(40, 3, generator=GENERATOR, dtype=torch.float64)
Y = torch.randint(2, (40,), generator=GENERATOR)


@pytest.mark.smoke
def test_it_scores_as_its_law_says():
    full = FittedPredictor(fit_predictor((X, Y), hidden=(4,), epochs=1, progress=False).result)
    with torch.no_grad():
        distribution = full.predictor(X)
    torch.testing.assert_close(full.predict(X), distribution.probs)
    scores = full.scores(X, Y)
    assert scores.log_likelihood == pytest.approx(float(distribution.log_prob(Y).mean()), abs=1e-12)
    assert scores.accuracy == pytest.approx(
        float((distribution.probs.argmax(1) == Y).double().mean())
    )
    torch.testing.assert_close(black_box(full.predictor).targets(X), distribution.probs)


def test_it_finds_logistic_coefficients():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4000, 2, generator=generator).double()
    truth = torch.tensor([1.0, -0.5]).double()
    y = (torch.rand(4000, generator=generator) < torch.sigmoid(x @ truth)).long()
    full = fit_predictor(
        (x, y), valid=None, hidden=(), epochs=150, learning_rate=1e-2, weight_decay=0.0,
        patience=None, batch_size=4000, progress=False,
    )  # fmt: skip
    weight = full.predictor.network.layers[0].weight.detach()
    found = weight[1] - weight[0]
    p = torch.sigmoid(x @ truth)
    information = (x * (p * (1 - p))[:, None]).T @ x
    # Wald's statistic, with the intercept fitted beside, which is independent of the slopes here.
    statistic = float((found - truth) @ information @ (found - truth))
    assert statistic < chi2.isf(1e-6, 2)
    assert float((found - 2 * truth) @ information @ (found - 2 * truth)) > chi2.isf(1e-6, 2)


def test_of_several_replicates_the_best_predicts():
    full = fit_predictor((X, Y), hidden=(4,), epochs=2, replicates=3, progress=False)
    each = predictive(full.result, X, masks=1)
    assert each.shape == (3, 40, 2)
    assert torch.equal(full.predict(X), each[int(np.argmin(full.result.best_valid))])
    assert not torch.equal(each[0], each[1])


@pytest.mark.parametrize(
    ("train", "options", "error", "words"),
    [
        (X, {}, ValueError, "it has no y"),
        ((X / 0, Y), {}, ValueError, "x of train must be finite"),
        ((X.reshape(40, 3, 1), Y), {}, ValueError, "need a network="),
        ((X, Y), {"replicates": 0}, ValueError, "replicates must be a whole number"),
        ((X, Y), {"stages": []}, ValueError, "either a model or stages"),
    ],
)
def test_bad_training_is_refused(train, options, error, words):
    with pytest.raises(error, match=words):
        fit_predictor(train, **{"epochs": 1, "progress": False, **options})
