"""Models that are given: torch modules in the table's own units, and estimators by its columns."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from lexppl import ExplainerClassifier
from lexppl.data import TableEncoding
from lexppl.data.encoding import TargetColumn
from lexppl.models import CategoricalLikelihood, NormalLikelihood, Predictor
from lexppl.tabular.given_model import box_of_table, predictor_on_standardised_rows, same_of_all
from tests.tabular.small import small

WIDTHS = {"hidden": (16,), "predictor_hidden": (32,), "prediction_masks": 20}
QUICK = small(epochs=60, batch_size=100, learning_rate=2e-2, **WIDTHS)


@pytest.fixture(scope="module")
def patients():
    """The dose in milligrams decides, and the group; the age in years does not."""
    draw = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": draw.uniform(20, 80, 400),
            "dose": draw.uniform(1000, 3000, 400),
            "group": draw.choice(["a", "b"], 400),
        }
    )
    high = (table["dose"] > 2000) ^ (table["group"] == "b")
    return pd.get_dummies(table), high.to_numpy()


class Net(nn.Module):
    """Takes milligrams and years, and has a dropout that must be off."""

    def __init__(self, columns, outputs, dtype=torch.float64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(columns, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, outputs)
        ).to(dtype)
        self.register_buffer("scale", torch.tensor([50.0, 2000.0, 1.0, 1.0]).to(dtype))

    def forward(self, x):
        return self.layers(x / self.scale)


def trained(x, y, loss, outputs, dtype=torch.float64):
    """A module trained on raw units, left in training mode."""
    torch.manual_seed(0)
    net = Net(x.shape[1], outputs, dtype)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        loss(net(x.to(dtype)), y).backward()
        optimizer.step()
    return net


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_classifier_in_raw_units(patients, dtype):
    frame, high = patients
    x = torch.tensor(frame.to_numpy(float))
    net = trained(x, torch.tensor(high).long(), nn.functional.cross_entropy, 2, dtype)
    groups = ["age", "dose", "group", "group"]
    names = np.where(high, "yes", "no")
    shuffled = np.random.default_rng(1).permutation(names)
    explainer = ExplainerClassifier(model=net, model_output="logits", groups=groups, **QUICK)
    explainer.fit(frame, shuffled)
    assert net.training
    with torch.no_grad():
        said = net.eval()(x.to(dtype)).argmax(1).numpy()
    assert (said == high).mean() > 0.95
    assert (explainer.predict(frame) == np.where(said, "yes", "no")).mean() > 0.9
    kept = dict(zip(explainer.entry_names_, explainer.feature_importances_, strict=True))
    assert kept["age"] < 0.5 * min(kept["dose"], kept["group"])
    odds = nn.Sequential(net, Difference(), nn.Sigmoid())
    of_logits, of_odds = (
        box.targets(rows)
        for box, rows in (
            box_of_table(given, frame, classes=["no", "yes"], output=output)
            for given, output in ((net, "logits"), (odds, "probabilities"))
        )
    )
    torch.testing.assert_close(of_odds, of_logits, atol=1e-5, rtol=1e-4)


class Difference(nn.Module):
    def forward(self, logits):
        return logits[:, 1] - logits[:, 0]


def test_methods_that_explain_a_model_imitate_a_module_and_mask_a_predictor(patients):
    frame, high = patients
    net = Net(4, 2, torch.float32).eval()
    short = {**QUICK, "epochs": 1}
    imitated = ExplainerClassifier("q_fit", model=net, model_output="logits", **short)
    assert imitated.fit(frame, high).predict_proba(frame).shape == (400, 2)
    masked = ExplainerClassifier("q_fit", model=Predictor(net, CategoricalLikelihood()), **short)
    masked.fit(frame, high)
    inner = predictor_on_standardised_rows(masked.model, masked.encoding_)
    raw = torch.tensor(frame.to_numpy(float), dtype=torch.float32)
    with torch.no_grad():
        # A boolean column is 0 or 1 to the module, and two indicators to the explainer.
        told = inner(masked.encoding_.encode(frame)).probs
        torch.testing.assert_close(told, masked.model(raw).probs, atol=1e-4, rtol=1e-3)
    assert masked.encoding_.encode(frame).shape[1] == 6


@pytest.fixture(scope="module")
def incomes():
    """Twice the logarithm of an income decides; two fortunes hide all others from a scale."""
    draw = np.random.default_rng(0)
    income, age = draw.lognormal(3.0, 2.0, 300), draw.normal(40.0, 10.0, 300)
    fortune = draw.normal(50.0, 10.0, 300)
    fortune[[7, 201]] = 1e12
    member = draw.random(300) < 0.5
    table = pd.DataFrame({"member": member, "income": income, "age": age, "fortune": fortune})
    return table, np.log(income) > 3.0


class Log(nn.Module):
    """Takes an income, and fails where it is none."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))
        self.seen = []

    def forward(self, x):
        self.seen.append(x.detach())
        logit = 2.0 * self.weight * (x[..., 1].clamp(min=1e-6).log() - 3.0)
        return torch.stack([torch.zeros_like(logit), logit], -1)


@pytest.mark.filterwarnings("ignore:column .* has a heavy tail")
def test_a_given_model_has_the_values_of_a_heavy_tail_in_their_own_units(incomes):
    frame, high = incomes
    own = frame.to_numpy(float)
    asked = []

    def predict_proba(rows):
        asked.append(np.asarray(rows, dtype=float))
        above = 1.0 / (1.0 + (np.exp(3.0) / asked[-1][:, 1]) ** 2)
        return np.stack([1.0 - above, above], 1)

    model = SimpleNamespace(predict_proba=predict_proba, classes_=[False, True])
    ExplainerClassifier(model=model, **{**QUICK, "epochs": 1}).fit(frame, high)
    assert {row.tobytes() for row in np.concatenate(asked)} == {row.tobytes() for row in own}

    net = Log()
    masked = ExplainerClassifier(
        "q_fit", model=Predictor(net, CategoricalLikelihood()), **{**QUICK, "epochs": 1}
    ).fit(frame, high)
    assert sum(bool(getattr(c, "asinh", None)) for c in masked.encoding_.columns) == 2
    inner = predictor_on_standardised_rows(masked.model, masked.encoding_)
    x = masked.encoding_.encode(frame).requires_grad_()
    probabilities = inner(x).probs
    np.testing.assert_allclose(net.seen[-1].numpy(), own, rtol=1e-4, atol=1e-3)
    expected = predict_proba(own)
    np.testing.assert_allclose(probabilities.detach().numpy(), expected, atol=1e-3)
    probabilities[:, 1].sum().backward()
    assert bool(x.grad.isfinite().all()) and float(x.grad.abs().max()) > 0.1


@pytest.mark.filterwarnings("ignore:column .* has a heavy tail")
def test_a_given_regressor_is_asked_of_a_row_in_its_own_units(incomes):
    frame = incomes[0].drop(columns="member")
    encoding = TableEncoding.fit(frame, TargetColumn("y", None, 100.0, 7.0))
    inner = predictor_on_standardised_rows(Predictor(Sum(), NormalLikelihood(2.0)), encoding)
    found = inner(encoding.encode(frame, torch.float64).float())
    expected = (frame.sum(axis=1).to_numpy() - 100.0) / 7.0
    np.testing.assert_allclose(found.mean.numpy(), expected, rtol=1e-4, atol=1e-3)


class Sum(nn.Module):
    def forward(self, x):
        return x.sum(-1, keepdim=True)


def test_words_are_refused_with_what_to_do(patients):
    frame, high = patients
    words = frame[["age", "dose"]].assign(group=np.where(frame["group_a"], "a", "b"))
    with pytest.raises(ValueError, match=r"'group' hold others.*pandas.get_dummies"):
        ExplainerClassifier(model=Net(4, 2), model_output="logits", **QUICK).fit(words, high)


TABLE = pd.DataFrame({"ward": ["x", "y"] * 60, "age": np.arange(120.0), "dose": 1.0})


def model(names, columns=slice(None)):
    """An object with `predict` alone, the sum of its columns, fitted on columns of these names."""
    return SimpleNamespace(
        predict=lambda table: np.asarray(table)[:, columns].astype(float).sum(1),
        feature_names_in_=names,
    )


def test_an_object_that_only_predicts_is_a_regressor_whatever_scikit_learn_knows_of_it():
    asked = SimpleNamespace(predict=lambda table: table["age"].to_numpy() * 2)
    box, x = box_of_table(asked, TABLE, classes=None)
    assert torch.equal(box.targets(x), torch.arange(120).double() * 2)
    with pytest.raises(ValueError, match="gives responses, which have no classes"):
        box_of_table(asked, TABLE, classes=["0", "1"])


def test_columns_are_those_of_the_fit_in_its_order():
    box, x = box_of_table(model(["dose", "age"], slice(1, None)), TABLE, classes=None)
    assert torch.equal(box.targets(x), torch.arange(120).double())
    with pytest.raises(ValueError, match="lacks: 'weight'; it has 'ward', 'age', 'dose'"):
        box_of_table(model(["age", "weight"]), TABLE, classes=None)


def test_lightgbms_names_of_an_arrays_columns_are_no_names():
    numbers = TABLE[["age", "dose"]]
    box, x = box_of_table(model(["Column_0", "Column_1"]), numbers, classes=None)
    assert torch.equal(box.targets(x), torch.arange(120).double() + 1)
    with pytest.raises(ValueError, match="lacks: 'Column_0'; it has 'age', 'dose'"):
        box_of_table(model(["Column_0", "age"]), numbers, classes=None)


def test_a_black_box_that_says_one_thing_is_told():
    same = torch.tensor([[0.3, 0.7]]).expand(5, 2)
    assert "the same of every row" in same_of_all(same, ["no", "yes"])
    assert same_of_all(torch.tensor([[0.3, 0.7], [0.7, 0.3]]), ["no", "yes"]) is None
    assert "the label 'yes'" in same_of_all(torch.tensor([[0.3, 0.7], [0.4, 0.6]]), ["no", "yes"])
    assert same_of_all(torch.tensor([1.0, 2.0]), None) is None
