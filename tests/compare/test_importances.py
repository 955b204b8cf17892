"""Importances by other libraries: closed forms, and ranks where one feature decides."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import t
from sklearn.linear_model import LogisticRegression
from torch import nn

from lexppl.compare.importances import (
    GRADIENTS,
    gradient_importances,
    lime_importances,
    permutation_importances,
    shap_importances,
)
from lexppl.evaluation.evalx import FittedPredictor
from lexppl.models import MLP, CategoricalLikelihood, Grouping, NormalLikelihood, Predictor
from lexppl.models.black_box import black_box
from tests.refusals import refusals, refused

FAILURE = 1e-6
"""Probability that a right program fails one of the z-tests here."""
QUADRATURE = 1e-7
"""Captum's weights of integrated gradients are those of single precision."""
WEIGHTS = torch.tensor([1.0, -2.0, 0.0, 0.5], dtype=torch.float64)


def table(rows=60, features=4, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, features, generator=generator, dtype=dtype) + 0.5


def linear(rows):
    return rows @ WEIGHTS.numpy() + 3.0


LINEAR = black_box(linear, task="regression")


def linear_module(weights=WEIGHTS, training=True):
    network = nn.Linear(len(weights), 1, dtype=weights.dtype)
    network.weight.data.copy_(weights[None])
    return network.train(training)


saliency, gradient_x_input, integrated_gradients = (
    partial(gradient_importances, name) for name in GRADIENTS
)


def third_decides(rows):
    return 1 / (1 + np.exp(-4 * rows[:, 2]))


@pytest.mark.complete
def test_shap_explains_the_likeliest_class_of_several():
    x = table(features=2)
    network = nn.Linear(2, 3, dtype=torch.float64)
    network.weight.data.copy_(torch.tensor([[2.0, 1.0], [-1.0, 1.0], [0.5, -3.0]]))
    predictor = Predictor(network, CategoricalLikelihood())
    found = shap_importances(predictor, x[:5], x, background_rows=60, permutations=1)

    def value(kept, n, c):
        rows = torch.where(torch.tensor(kept), x[n], x)
        return network(rows).softmax(1)[:, c].mean()

    for n in range(5):
        c = int(network(x[n]).argmax())
        empty, both = value([False, False], n, c), value([True, True], n, c)
        one, two = value([True, False], n, c), value([False, True], n, c)
        exact = torch.stack([one - empty + both - two, two - empty + both - one]).abs() / 2
        torch.testing.assert_close(found[n], exact, rtol=0, atol=1e-10)
    assert len({int(c) for c in network(x[:5]).argmax(1)}) > 1


@pytest.mark.complete
def test_gradients_of_a_linear_model_are_exact():
    x = table(rows=503)
    model, baseline = linear_module(), table(seed=1)[0]
    options = {"output": "response"}
    exact = partial(torch.testing.assert_close, rtol=0, atol=1e-10)
    nearly = partial(torch.testing.assert_close, rtol=0, atol=QUADRATURE)
    exact(saliency(model, x, **options), WEIGHTS.abs().expand_as(x))
    exact(gradient_x_input(model, x, **options), (WEIGHTS * x).abs())
    nearly(
        integrated_gradients(model, x, baseline=baseline, **options),
        (WEIGHTS * (x - baseline)).abs(),
    )
    nearly(integrated_gradients(model, x, **options), (WEIGHTS * x).abs())
    assert model.training and all(p.grad is None for p in model.parameters())
    assert not x.requires_grad


def test_integrated_gradients_of_a_product_share_it():
    class Product(nn.Module):
        def forward(self, rows):
            return rows[:, 0] * rows[:, 1]

    x = table()
    found = integrated_gradients(Product(), x, output="response")
    half = (x[:, 0] * x[:, 1]).abs() / 2
    expected = torch.stack([half, half, 0 * half, 0 * half], 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=QUADRATURE)


def test_gradients_are_of_the_likeliest_class():
    x = table()
    p = torch.sigmoid(x @ WEIGHTS)
    model = linear_module()
    model.bias.data.zero_()
    expected = (p * (1 - p))[:, None] * WEIGHTS.abs()
    found = saliency(model, x, output="logits")
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    two = nn.Linear(4, 2, bias=False, dtype=torch.float64)
    two.weight.data.copy_(torch.stack([0 * WEIGHTS, WEIGHTS]))
    by_law = saliency(Predictor(two, CategoricalLikelihood()), x)
    torch.testing.assert_close(by_law, expected, rtol=0, atol=1e-10)
    normal = Predictor(linear_module(), NormalLikelihood().double())
    torch.testing.assert_close(saliency(normal, x), WEIGHTS.abs().expand_as(x))

    three = Predictor(MLP(4, 3, (8,), seed=0).double(), CategoricalLikelihood())
    rows = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(three(rows).probs.max(1).values.sum(), rows)
    torch.testing.assert_close(saliency(three, x), gradient.abs())


def test_groups_sum_the_absolute_attributions_of_their_columns():
    x, grouping = table(), Grouping([0, 1, 0, 1])
    each = (WEIGHTS * (x[:5] - x.mean(0))).abs()
    expected = torch.stack([each[:, 0] + each[:, 2], each[:, 1] + each[:, 3]], 1)
    found = shap_importances(LINEAR, x[:5], x, grouping=grouping)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    by_gradient = integrated_gradients(
        linear_module(), x[:5], baseline=x.mean(0), output="response", grouping=grouping
    )
    torch.testing.assert_close(by_gradient, expected, rtol=0, atol=QUADRATURE)


def z_of(samples, expected):
    samples = torch.stack(samples)
    error = samples.std(0) / len(samples) ** 0.5
    return (samples.mean(0) - expected) / error


@pytest.mark.complete
def test_permutation_importance_of_a_linear_model():
    x = table(rows=40)
    x[:, 1] += x[:, 3]
    y = torch.from_numpy(linear(x.numpy()))
    # Over all pairs of rows (i, j), E (f_i − f_j)² = 2 Var f, with the divisor N.
    varies = [0, 1, 3]
    samples = [
        permutation_importances(LINEAR, x[:2], (x, y), repeats=1, seed=seed)[1]
        for seed in range(200)
    ]
    level = t.ppf(1 - FAILURE / 6, len(samples) - 1)
    z = z_of([s[varies] for s in samples], (2 * WEIGHTS**2 * x.var(0, correction=0))[varies])
    assert float(z.abs().max()) < level
    assert all(abs(float(s[2])) < 1e-12 for s in samples)

    grouping = Grouping([0, 1, 2, 1])
    samples = [
        permutation_importances(LINEAR, x[:2], (x, y), repeats=1, seed=seed, grouping=grouping)[0]
        for seed in range(200)
    ]
    together = 2 * (x[:, [1, 3]] @ WEIGHTS[[1, 3]]).var(correction=0)
    apart = (2 * WEIGHTS**2 * x.var(0, correction=0))[[1, 3]].sum()
    of_group = [s[1] for s in samples]
    assert abs(float(z_of(of_group, together))) < level < abs(float(z_of(of_group, apart)))


def test_permutation_importance_of_labels_is_in_nats():
    x = table(rows=200)
    y = (torch.rand(200, generator=torch.Generator().manual_seed(0)) < 0.5).long()
    found = permutation_importances(lambda rows: np.full(len(rows), 0.3), x, (x, y))
    assert found.shape == (200, 4) and bool((found.abs() < 1e-12).all())
    decided = permutation_importances(third_decides, x, (x, (x[:, 2] > 0).long()))
    assert bool((decided == decided[0]).all()) and int(decided[0].argmax()) == 2
    assert decided[0, [0, 1, 3]].tolist() == [0.0, 0.0, 0.0]


def test_lime_finds_the_feature_that_decides():
    x = table(rows=200)
    found = lime_importances(third_decides, x[:8], x, samples=500)
    assert found.argmax(1).tolist() == [2] * 8
    assert float(found[:, 2].mean()) > 5 * float(found[:, [0, 1, 3]].mean(0).max())
    response = black_box(lambda rows: 4 * rows[:, 2], task="regression")
    assert lime_importances(response, x[:4], x, samples=500).argmax(1).tolist() == [2] * 4


def test_lime_takes_two_valued_columns_as_categories():
    x = table(rows=200)
    x[:, 2] = (x[:, 2] > 0.5).double()
    x[:, 3] = 1 - x[:, 2]

    def switch(rows):
        assert set(np.unique(rows[:, 2])) <= {0.0, 1.0}
        return 0.1 + 0.8 * rows[:, 2]

    found = lime_importances(switch, x[:4], x, samples=500, grouping=Grouping([0, 1, 2, 2]))
    assert found.shape == (4, 3) and found.argmax(1).tolist() == [2] * 4


def test_gradients_need_a_torch_predictor_and_its_output():
    x = table()
    fitted = LogisticRegression().fit(x.numpy(), (x[:, 1] > 0).numpy())
    refused(r"torch predictor.*LogisticRegression.*have shap", saliency, fitted, x, error=TypeError)
    likely = Predictor(linear_module(), NormalLikelihood())
    for model, output in ((linear_module(), None), (linear_module(), "odds"), (likely, "logits")):
        with pytest.raises(ValueError, match=r"output must be one of .*left out of a predictor"):
            saliency(model, x, output=output)


def test_one_column_and_constant_columns():
    x = table(rows=30)
    x[:, 1] = 2.0
    for method in (shap_importances, lime_importances):
        alone = method(lambda rows: 1 / (1 + np.exp(-rows[:, 0])), x[:2, :1], x[:, :1])
        assert alone.shape == (2, 1) and bool((alone > 0).all())
        found = method(third_decides, x[:2], x)
        assert found.argmax(1).tolist() == [2, 2] and bool((found[:, 1] < found[:, 2]).all())


X = table()
Y = (X[:, 2] > 0).long()
SHAP = partial(shap_importances, third_decides)


test_refused_inputs = refusals(
    (lambda: SHAP(X, X[:, :3]), r"background has 3 features.*x 4"),
    (lambda: SHAP(X, X.float()), r"background has .*float32, on.* and x .*float64"),
    (lambda: SHAP(X / 0, X), r"x must be finite; 240 of its 240"),
    (lambda: SHAP(X.numpy(), X), "x must be a floating-point tensor; it is ndarray"),
    (lambda: saliency(linear_module(), X[0], output="response"), r"shape \(N, D\)"),
    (lambda: SHAP(X, X, permutations=0), "permutations must be a whole number of at least 1"),
    (lambda: lime_importances(third_decides, X, X, samples=True), "samples must be"),
    (lambda: SHAP(X, X, grouping=Grouping([0, 1, 1])), "grouping is of 3 features; x has 4"),
    (lambda: SHAP(X, X, seed=-1), "seed must be a whole number"),
    (
        lambda: integrated_gradients(linear_module(), X, baseline=X, output="response"),
        "baseline must have shape .4,.",
    ),
    (lambda: permutation_importances(third_decides, X, (X, X[:, 0])), "must have labels"),
    (lambda: permutation_importances(LINEAR, X, (X, Y)), "scored must have responses"),
    (lambda: shap_importances(3, X, X), "a black box must be"),
    error=(TypeError, ValueError),
)


def test_full_models_are_unwrapped():
    class Result:
        model = type("Program", (), {"predictor": Predictor(linear_module(), NormalLikelihood())})

    x = table()
    full = FittedPredictor(Result())
    full.result.model.predictor.likelihood.double()
    found = shap_importances(full, x[:3], x, background_rows=60, permutations=1)
    torch.testing.assert_close(found, (WEIGHTS * (x[:3] - x.mean(0))).abs(), rtol=0, atol=1e-10)
    torch.testing.assert_close(saliency(full, x[:3]), WEIGHTS.abs().expand(3, -1))
