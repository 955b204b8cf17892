"""Black boxes of every make, against what they say themselves."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import nn

from lexppl.models import (
    MLP,
    BernoulliLikelihood,
    CategoricalLikelihood,
    NormalLikelihood,
    Predictor,
)
from lexppl.models.black_box import black_box
from tests.refusals import refusals, refused

ROWS = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
ARRAY = ROWS.numpy()
CLASS = (ARRAY[:, 0] > 0).astype(int) + (ARRAY[:, 1] > 0.5)


class WithNoise(nn.Module):
    """Dropout and batch norm, which act otherwise in training."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(3, 4)

    def forward(self, x):
        return self.last(self.drop(self.norm(x)))


def test_a_predictor_gives_its_law():
    network = MLP(3, 4, (8,), seed=0)
    box = black_box(Predictor(network, CategoricalLikelihood()), classes=4)
    assert (box.task, box.classes, box.name) == ("classification", 4, "Predictor")
    torch.testing.assert_close(box.targets(ROWS), network(ROWS).softmax(1).detach())
    assert torch.equal(box(ROWS), box.targets(ROWS))
    network = MLP(3, 1, (8,), seed=0)
    given = black_box(Predictor(network, BernoulliLikelihood())).targets(ROWS)
    one = network(ROWS).sigmoid().detach()
    torch.testing.assert_close(given, torch.cat([1 - one, one], 1))
    box = black_box(Predictor(network, NormalLikelihood(3.0)))
    assert box.task == "regression"
    torch.testing.assert_close(box.targets(ROWS), network(ROWS).squeeze(1).detach())


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("outputs", "output", "expected"),
    [
        (4, "logits", lambda f: f.softmax(1)),
        (1, "logits", lambda f: torch.cat([(-f).sigmoid(), f.sigmoid()], 1)),
        (1, "response", lambda f: f.squeeze(1)),
    ],
)
def test_a_module_gives_what_its_outputs_mean(outputs, output, expected):
    network = MLP(3, outputs, (8,), seed=0)
    for module in (network, nn.Sequential(network, nn.Flatten(0)) if outputs == 1 else network):
        given = black_box(module, output=output).targets(ROWS)
        torch.testing.assert_close(given, expected(network(ROWS)).detach())


def test_probabilities_of_a_module_are_not_taken_for_logits():
    module = nn.Sequential(MLP(3, 4, (8,), seed=0), nn.Softmax(1))
    given = black_box(module, output="probabilities").targets(ROWS)
    torch.testing.assert_close(given, module(ROWS).detach())
    flattened = black_box(module, output="logits").targets(ROWS)
    assert float((given - flattened).abs().max()) > 0.01


def test_a_module_runs_in_evaluation_mode_and_is_put_back():
    module = WithNoise().train()
    module.norm.eval()
    statistics = module.norm.running_mean.clone()
    given = black_box(module, output="logits").targets(ROWS)
    assert [module.training, module.norm.training, module.drop.training] == [True, False, True]
    assert torch.equal(module.norm.running_mean, statistics)
    assert not given.requires_grad
    with pytest.raises(ValueError, match="WithNoise fails on row 0: RuntimeError: "):
        black_box(module, output="logits").targets(ROWS[:, :2])
    assert module.training and not module.norm.training
    torch.testing.assert_close(given, module.eval()(ROWS).softmax(1).detach())


def test_batches_give_what_one_batch_gives_and_each_row_is_predicted_once():
    seen = []

    def sigmoid(array):
        seen.append(len(array))
        return 1 / (1 + np.exp(-array[:, 0]))

    whole = black_box(sigmoid).targets(ROWS)
    in_parts = black_box(sigmoid, batch_size=8).targets(ROWS)
    assert seen == [50] + [8] * 6 + [2]
    torch.testing.assert_close(in_parts, whole)
    torch.testing.assert_close(in_parts[:, 1], ROWS[:, 0].sigmoid())
    assert black_box(sigmoid).targets(ROWS.double()).dtype == torch.float64


def test_a_classifier_gives_its_probabilities():
    fitted = LogisticRegression().fit(ARRAY, CLASS)
    box = black_box(fitted)
    assert (box.name, box.task, box.classes) == ("LogisticRegression", "classification", 3)
    np.testing.assert_allclose(box.targets(ROWS), fitted.predict_proba(ARRAY), atol=1e-6)


def test_labels_are_put_in_the_order_of_the_classes():
    names = np.array(["low", "middle", "high"])
    fitted = LogisticRegression().fit(ARRAY, names[CLASS])
    assert list(fitted.classes_) == ["high", "low", "middle"]
    by_number = LogisticRegression().fit(ARRAY, CLASS)
    given = black_box(fitted, classes=("low", "middle", "high")).targets(ROWS)
    np.testing.assert_allclose(given, by_number.predict_proba(ARRAY), atol=1e-4)
    unordered = fitted.predict_proba(ARRAY)
    assert np.abs(given.numpy() - unordered).max() > 0.1


def test_a_regressor_gives_its_prediction():
    response = ARRAY @ np.array([1.0, -2.0, 0.5]) + 3.0
    for target in (response, response[:, None]):
        fitted = make_pipeline(StandardScaler(), LinearRegression()).fit(ARRAY, target)
        box = black_box(fitted)
        assert (box.task, box.classes) == ("regression", None)
        np.testing.assert_allclose(box.targets(ROWS), response, atol=1e-4)


def test_a_model_of_named_columns_gets_them_without_a_warning():
    frame = pd.DataFrame(ARRAY, columns=["a", "b", "c"])
    # By name it reads the columns in another order than the rows have them.
    columns = make_column_transformer((StandardScaler(), ["c", "a"]))
    fitted = make_pipeline(columns, LogisticRegression()).fit(frame, CLASS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = black_box(fitted).targets(ROWS)
    np.testing.assert_allclose(given, fitted.predict_proba(frame), atol=1e-6)


def test_a_function_may_give_responses_and_tensors():
    given = black_box(lambda a: torch.from_numpy(a[:, :1]) * 2, task="regression").targets(ROWS)
    torch.testing.assert_close(given, ROWS[:, 0] * 2)


def test_half_precision_is_probabilities():
    def softmax(rows):
        return torch.from_numpy(rows).softmax(1)

    for kind in (torch.float16, torch.float64):
        given = black_box(lambda rows, kind=kind: softmax(rows).to(kind)).targets(ROWS)
        torch.testing.assert_close(given, ROWS.softmax(1), atol=1e-3, rtol=1e-3)


def constant(value):
    def named(array):
        return np.ma.concatenate([np.ma.asarray(value)[None]] * len(array))

    return named


test_bad_outputs_are_refused = refusals(
    (constant([0.5, np.nan]), "named must give finite values; 50 of its 100"),
    (constant(np.ma.masked_less([0.2, 0.8], 0.5)), "50 of its 100"),
    (constant([1.5, -0.5]), r"in \[0, 1\]; it gave -0.5 to 1.5"),
    (constant([0.5, 0.6]), "sum to 1 in each row, of one output; they sum to 1.1 to 1.1"),
    (constant([[0.5, 0.5]]), r"\(N, C\) or \(N,\); it gave \(50, 1, 2\)"),
    (constant([0.2, 0.3, 0.5]), r"shape \(50, 2\); the shape is \(50, 3\)"),
    (lambda a: a[:-1, :2], r"shape \(50, 2\); the shape is \(49, 2\)"),
    (lambda a: np.float64(1.0), r"it gave \(\)"),
    (lambda a: ["yes"] * len(a), TypeError, "an array of numbers; it gave list"),
    of=lambda function: black_box(function, classes=2).targets(ROWS),
)


def test_classes_that_change_between_batches_are_refused():
    def changing(array):
        classes = 2 if len(array) >= 8 else 3
        return np.full((len(array), classes), 1 / classes)

    assert black_box(changing).targets(ROWS).shape == (50, 2)
    with pytest.raises(ValueError, match=r"of changing must have .* \(2, 2\); .* \(2, 3\)"):
        black_box(changing, batch_size=8).targets(ROWS)


test_bad_rows_are_refused = refusals(
    (ARRAY, TypeError, "x must be a torch.Tensor; it is a ndarray"),
    (ROWS[:0], r"none of them 0; the shape is \(0, 3\)"),
    (ROWS[0], r"\(N, \*event\), none of them 0; the shape is \(3,\)"),
    (ROWS / 0, "x must be finite"),
    of=lambda x: black_box(LogisticRegression().fit(ARRAY, CLASS)).targets(x),
)


PREDICTOR = Predictor(MLP(3, 2, (4,), seed=0), CategoricalLikelihood())
FITTED = LogisticRegression().fit(ARRAY, CLASS)


test_bad_arguments_are_refused = refusals(
    (3.0, {}, TypeError, "it is float"),
    (nn.Linear(3, 2), {}, "say what Linear returns: output='logits'"),
    (nn.Linear(3, 2), {"output": "odds"}, "it is 'odds'"),
    (nn.Linear(3, 2), {"output": "response", "task": "classification"}, "means"),
    (PREDICTOR, {"output": "logits"}, "has a likelihood"),
    (PREDICTOR, {"task": "regression"}, "Predictor is for classification"),
    (FITTED, {"output": "logits"}, "called by predict_proba"),
    (FITTED, {"task": "regression"}, "is for classification"),
    (FITTED, {"task": "ranking"}, "task must be one of"),
    (FITTED, {"classes": 2}, r"must have labels 0 to 1; it has \[0, 1, 2\]"),
    (FITTED, {"classes": 1}, "classes must be a whole number of at least 2"),
    (FITTED, {"classes": "abc"}, "a number or several"),
    (FITTED, {"classes": ("a", "a")}, "several different labels"),
    (FITTED, {"classes": ("2", "1", "0")}, "the two disagree"),
    (LinearRegression().fit(ARRAY, CLASS), {"classes": 2}, "have no classes"),
    (SVC().fit(ARRAY, CLASS), {}, "SVC has no predict_proba"),
    of=lambda model, options: black_box(model, **options),
)


def test_labels_that_are_no_numbers_need_their_order():
    fitted = LogisticRegression().fit(ARRAY, np.array(["b", "a", "c"])[CLASS])
    refused(r"labels 0 to 2; it has \['a', 'b', 'c'\]. Give its", black_box, fitted)
    refused(r"labels among \['a', 'b', 'd'\]", black_box, fitted, classes=("a", "b", "d"))
