"""A row's prediction, feature by feature: it adds up, and each step is what a hand would write."""

import math

import numpy as np
import pytest
import torch

from lexppl.evaluation import predictive, revealed_predictions
from lexppl.models import (
    LEX,
    BernoulliSelector,
    ConstantImputer,
    GaussianImputer,
    NormalLikelihood,
    Predictor,
)
from tests.evaluation.fitted_by_hand import Fixed, Linear, linear_model, model_of, result_of

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(3)).double()
BASE = [0.7, 0.3]


def sure(weights, logits):
    """Log-odds w · x of features that are kept surely (40) or never (−40)."""
    return linear_model(weights, ConstantImputer(0.0), logits=logits)


def test_steps_by_hand():
    """All kept: log σ(w · x) is reached by one feature after another, x3 before x1 and x2."""
    weights, logits = (1.5, -0.7, 0.4), [41.0, 40.0, 42.0]
    found = revealed_predictions(result_of(sure(weights, logits)), X, masks=4)
    steps = found.steps(2, label=1, base=BASE)
    # Sure as the logits are, every draw keeps all three: equal, so as they come.
    assert steps.table.index.tolist() == ["x1", "x2", "x3"]
    terms = torch.tensor(weights).double() * X[2]
    odds = torch.cat([torch.zeros(1).double(), terms.cumsum(0)])
    logs = torch.nn.functional.logsigmoid(odds).numpy()
    np.testing.assert_allclose(steps.table["step"], np.diff(logs))
    np.testing.assert_allclose(steps.table["total"], logs[1:])
    assert steps.base == pytest.approx(math.log(0.3)) and steps.hidden == pytest.approx(
        -math.log(2)
    )
    assert steps.predicted == pytest.approx(logs[-1]) and steps.label == "1"
    assert (steps.table["kept"] == 1).all()


@pytest.mark.smoke
@pytest.mark.parametrize("imputer", [ConstantImputer(0.3), GaussianImputer()])
@pytest.mark.parametrize("replicates", [1, 3])
def test_steps_add_up_to_the_prediction(imputer, replicates):
    models = [
        linear_model((1.5, -0.7 * r, 0.4), imputer, logits=[0.5, -0.2, 1.0 - r])
        for r in range(replicates)
    ]
    result = result_of(*models)
    found = revealed_predictions(result, X, masks=500, imputations=2, seed=4)
    for row in range(5):
        for label in range(2):
            steps = found.steps(row, label, BASE)
            total = steps.base + steps.first_step + steps.table["step"].sum()
            assert total == pytest.approx(steps.predicted, abs=1e-12)
            assert math.exp(steps.predicted) == pytest.approx(float(found.predicted[row, label]))
    own = predictive(result, X, masks=4000, seed=9).mean(0)
    assert float((found.predicted - own).abs().max()) < 6 * 0.5 / math.sqrt(500)


def test_the_most_kept_comes_first_and_what_no_draw_keeps_adds_nothing():
    result = result_of(linear_model((1.0, 1.0, 1.0), GaussianImputer(), logits=[-40.0, 0.0, 2.0]))
    steps = revealed_predictions(result, X, masks=200).steps(0, 1)
    assert steps.table.index.tolist() == ["x3", "x2", "x1"]
    assert steps.table["kept"].is_monotonic_decreasing
    assert steps.table["step"]["x1"] == 0.0 and (steps.table["step"][:2] != 0.0).all()
    assert math.isnan(steps.base)


def test_the_likeliest_label_is_the_default():
    result = result_of(model_of(), labels=(0, 1, 2))
    found = revealed_predictions(result, X[:2])
    for row in range(2):
        likeliest = int(found.predicted[row].argmax())
        steps = found.steps(row)
        assert steps.label == str(likeliest)
        assert steps.predicted == pytest.approx(float(found.predicted[row].max().log()))
    np.testing.assert_allclose(found.predictions.sum(-1), 1.0, atol=1e-9)


def test_of_a_response_the_mean_moves_in_its_own_units():
    model = LEX(
        BernoulliSelector(Fixed([40.0, 40.0, -40.0])),
        ConstantImputer(0.0),
        Predictor(Linear(2.0, -1.0, 5.0), NormalLikelihood()),
    ).double()
    steps = revealed_predictions(result_of(model), X, masks=3).steps(1, base=0.1)
    expected = (torch.tensor([2.0, -1.0, 0.0]).double() * X[1]).numpy()
    np.testing.assert_allclose(steps.table["step"], expected)
    own = steps.in_units(10.0, 100.0)
    np.testing.assert_allclose(own.table["step"], 10 * expected)
    assert (own.base, own.hidden) == (101.0, 100.0)
    assert own.base + own.first_step + own.table["step"].sum() == pytest.approx(own.predicted)
    assert own.predicted == pytest.approx(100 + 10 * expected.sum()) and own.label is None


def test_the_spread_is_that_of_the_replicates_own_steps():
    one, two = (sure((w, 0.0, 0.0), [40.0, 40.0, 40.0]) for w in (1.0, 3.0))
    steps = revealed_predictions(result_of(one, two), X, masks=2).steps(0, 1)
    x = float(X[0, 0])
    each = [math.log(1 / (1 + math.exp(-w * x))) - math.log(0.5) for w in (1.0, 3.0)]
    assert steps.table["spread"]["x1"] == pytest.approx(np.std(each, ddof=1))
    mean = np.mean([1 / (1 + math.exp(-w * x)) for w in (1.0, 3.0)])
    assert steps.table["step"]["x1"] == pytest.approx(math.log(mean) - math.log(0.5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda found: found.steps(5), "row must be"),
        (lambda found: found.steps(0, 2), "label must be"),
        (lambda found: found.steps(0, 1, [0.2, 0.3, 0.5]), "2 frequencies"),
        (lambda found: found.steps(0, 1, [1.0, 0.0]), "above 0"),
    ],
)
def test_mistakes(call, message):
    found = revealed_predictions(result_of(sure((1.0, 0.0, 0.0), [0.0] * 3)), X, masks=2)
    with pytest.raises(ValueError, match=message):
        call(found)
