"""One table of many methods: what is in it, against the parts that it is made of."""

import math
import sys
from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from torch import nn

from lexppl import effects, explain, fit
from lexppl.compare import compare
from lexppl.compare.compare import METHODS
from lexppl.compare.figures import top_masks
from lexppl.compare.importances import (
    gradient_importances,
    lime_importances,
    shap_importances,
)
from lexppl.data import Dataset
from lexppl.evaluation import fit_evalx, fit_predictor, selection_scores
from lexppl.evaluation.evalx import accuracy_by_size
from lexppl.inference import NestedIWAE
from lexppl.inference.objective.objective import Linear
from lexppl.models import Grouping
from lexppl.systems import lex
from tests.refusals import refused

BOUNDS = ("_lower", "_upper")
FAILURE = 1e-6
"""Probability that a right program fails one of the z-tests here."""
QUICK = {"epochs": 30, "hidden": (16,), "batch_size": 100, "learning_rate": 1e-2}
SHORT = {
    "shap": {"background_rows": 10, "permutations": 1},
    "lime": {"samples": 200},
}


def data(rows=500, seed=0, response=False):
    """The entry "job", of two columns, decides; the other three do not."""
    x = torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed))
    x[:, 3] = torch.where(x[:, 2] > 0, 1.0, -1.0)
    score = x[:, 2] + x[:, 3]
    truth = torch.zeros(rows, 4)
    truth[:, 2] = 1.0
    return Dataset(
        x=x,
        y=score if response else (score > 0).long(),
        feature_names=("a", "b", "job=1", "job=2", "c"),
        groups=(0, 1, 2, 2, 3),
        entry_names=("a", "b", "job", "c"),
        target_name="y",
        class_names=None if response else ("no", "yes"),
        truth=truth,
    )


@pytest.mark.complete
def test_every_method_beats_the_control():
    train, test = data(), data(40, seed=1)
    table = compare(list(METHODS), train, test, sizes=[1, 3], options=SHORT, fit_options=QUICK)
    assert list(table.index) == [*METHODS, "random"] and table.index.name == "method"
    names = ("accuracy", "auroc", "fixed", "choice", "tpr", "fdr")
    figures = [f"{name}@{k}" for k in (1, 3) for name in names]
    figures.append("tpr@truth")
    bounds = [f"{name}_{bound}" for name in figures for bound in ("lower", "upper")]
    assert list(table.columns) == ["fit_seconds", "seconds_per_row", *figures, *bounds]
    for name in figures:
        low, high = table[f"{name}_lower"], table[f"{name}_upper"]
        assert ((low >= 0) & (low <= table[name]) & (table[name] <= high) & (high <= 1)).all()
        # Nothing is certain on forty rows, also where all are right.
        assert not name.startswith("accuracy") or (high - low > 0.05).all()
    methods = table.drop("random")
    assert (methods["tpr@1"] > 0.9).all(), methods["tpr@1"]
    assert (methods["accuracy@1"] > 0.85).all()
    margin = norm.isf(FAILURE / 2) * math.sqrt(0.25 * 0.75 / 40)
    assert abs(table.loc["random", "tpr@1"] - 0.25) < margin
    np.testing.assert_allclose(table["fdr@1"], 1 - table["tpr@1"])
    np.testing.assert_allclose(table["tpr@1"], table["tpr@truth"])
    assert (table["seconds_per_row"] > 0).all()
    # The model that a method explains is fitted before it can explain.
    assert (methods["fit_seconds"] > 0.01).all() and table.loc["random", "fit_seconds"] == 0.0


@pytest.fixture
def no_fit(monkeypatch):
    """A fit is a failure: what is wrong is refused before."""
    # The function hides its module's name in the package.
    module = sys.modules["lexppl.compare.compare"]
    for name in ("fit_predictor", "fit_evalx"):
        monkeypatch.setattr(module, name, pytest.fail)


@pytest.fixture(scope="module")
def judge():
    return fit_evalx(data(), progress=False, **QUICK)


def test_figures_are_those_of_the_parts(judge):
    train, test = data(), data(80, seed=1)
    ranking = torch.rand(80, 4, generator=torch.Generator().manual_seed(5))
    table = compare({"mine": lambda x: ranking}, train, test, sizes=(1, 2), judge=judge)
    _, accuracy = accuracy_by_size(judge, ranking, test.x, test.y, (1, 2))
    for k, expected in zip((1, 2), accuracy, strict=True):
        masks = (ranking >= ranking.sort(1).values[:, -k, None]).float()
        row, selection = table.loc["mine"], selection_scores(masks, test.truth)
        assert row[f"accuracy@{k}"] == expected
        assert row[f"auroc@{k}"] == judge.scores(test.x, test.y, masks).auroc
        assert row[f"tpr@{k}"] == selection.tpr and row[f"fdr@{k}"] == selection.fdr


def test_fits_rank_by_their_selection_probabilities(judge):
    train, test = data(), data(40, seed=1)

    program = lex(5, classes=2, k=1, hidden=(8,), grouping=Grouping(train.groups))
    how = {"epochs": 2, "replicates": 2, "progress": False}
    result = fit(program, train, **how)
    weighted = fit(program, train, row_weights="dirichlet", **how)
    stats = explain(result, test.x, draws=2)["sample_stats"]
    mean = torch.from_numpy(stats["selection_probability"].values.mean(0))
    methods = {"fit": result, "by_hand": lambda x: mean}
    table = compare(methods, train, test, judge=judge)
    pair = table[[name for name in table if "@" in name and name[-6:] not in BOUNDS]]
    assert len(pair.columns) == 13 and pair.loc["fit"].equals(pair.loc["by_hand"])
    assert table.loc["fit", "fit_seconds"] == pytest.approx(result.history.seconds.sum())
    assert math.isnan(table.loc["by_hand", "fit_seconds"])
    stated = compare(methods, train, test, judge=judge, seconds={"by_hand": 3.5})
    assert stated.loc["by_hand", "fit_seconds"] == 3.5
    drawn = compare({"fit": weighted}, train, test, judge=judge, sizes=[1])
    assert drawn.loc["fit", "tpr@1_lower"] <= drawn.loc["fit", "tpr@1"]
    # Rows alone are behind the interval of what has no replicates.
    wide = table["tpr@1_upper"] - table["tpr@1_lower"]
    assert wide["fit"] > wide["by_hand"]
    assert "accuracy@3" in table and "accuracy@5" not in table


def test_a_given_model_is_explained_and_names_are_the_users(judge):
    train, test = data(), data(30, seed=1)
    full = fit_predictor(train, progress=False, **QUICK)
    fitted = LogisticRegression().fit(train.x.numpy(), (train.x[:, 0] > 0).numpy())
    methods = {"by gradients": "saliency", "shuffled": "permutation"}
    of_full = compare(methods, train, test, judge=judge, model=full)
    assert list(of_full.index) == ["by gradients", "shuffled", "random"]
    assert (of_full["tpr@1"].drop("random") > 0.9).all()
    wrong = compare(["permutation"], train, test, judge=judge, model=fitted)
    assert wrong.loc["permutation", "tpr@1"] == 0.0


@pytest.mark.complete
def test_responses_pairs_and_reproducibility():
    train, test = data(response=True), data(40, seed=1, response=True)
    pairs = [(part.x, part.y) for part in (train, test)]
    runs = [
        compare(["gradient_x_input"], *pairs, sizes=[2], fit_options=QUICK, seed=3)
        for _ in range(2)
    ]
    figures = ["r2@2", "rmse@2", "fixed@2", "choice@2"]
    bounds = [f"{name}{bound}" for name in figures for bound in BOUNDS]
    assert {"fit_seconds", "seconds_per_row", *figures, *bounds} == {*runs[0].columns}
    assert runs[0].loc["gradient_x_input", "r2@2"] > 0.8
    figures = [run.drop(columns=["fit_seconds", "seconds_per_row"]) for run in runs]
    assert figures[0].equals(figures[1])


def test_ties_are_broken_by_lot():
    importances = torch.zeros(4000, 5)
    importances[:, 3] = 1.0
    kept = top_masks(importances, 2)
    assert bool((kept.sum(1) == 2).all()) and bool((kept[:, 3] == 1).all())
    share = kept.mean(0)[[0, 1, 2, 4]]
    z = (share - 0.25).abs() / math.sqrt(0.25 * 0.75 / 4000)
    assert float(z.max()) < norm.isf(FAILURE / 8)
    assert torch.equal(kept, top_masks(importances, 2))
    assert not torch.equal(kept, top_masks(importances, 2, seed=1))
    each = top_masks(torch.tensor([[3.0, 1.0, 2.0]] * 3), torch.tensor([0, 1, 3]))
    assert each.tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 1]]


@pytest.mark.smoke
@pytest.mark.usefixtures("no_fit")
def test_refused_before_any_fit():
    pytest.importorskip("shap", reason="the extra 'compare' is not installed")

    train, test = data(), data(20, seed=1)

    def refused(error, match, methods=("shap",), first=train, second=test, **options):
        with pytest.raises(error, match=match):
            compare(methods, first, second, **options)

    refused(ValueError, "methods.'shapley'. must be one of .*: did you mean 'shap'", ["shapley"])
    for methods in (["random"], [], ["shap", "shap"]):
        refused(ValueError, "different names, one at least.* the control", methods)
    refused(TypeError, "one string, 'shap'", "shap")
    refused(TypeError, r"methods\['mine'\] must be a name", {"mine": 3})
    refused(ValueError, "sizes must be .* from 0 to 4, the mask entries; it is 5", sizes=[5])
    refused(ValueError, "sizes must have at least one size", sizes=[])
    refused(ValueError, r"options has \['lime'\]", options={"lime": {}})
    refused(ValueError, r"seconds has \['lime'\]", seconds={"lime": 1.0})
    refused(ValueError, "draws must be", draws=0)
    refused(ValueError, r"test has 2 features.*train 5", second=(test.x[:, :2], test.y))
    refused(TypeError, "test must be a Dataset or a pair of tensors", second=(test.x, [0] * 20))
    refused(ValueError, "one task is needed", second=(test.x, test.y.float()))
    refused(ValueError, r"y of test must have shape \(20,\)", second=(test.x, test.y[:3]))
    refused(TypeError, "train must be a Dataset or a pair", first=test.x)
    of_sklearn = LogisticRegression().fit(train.x.numpy(), train.y.numpy())
    refused(TypeError, "'saliency' needs a model with gradients", ["saliency"], model=of_sklearn)
    refused(TypeError, "a black box must be", model=3)
    moved = replace(test, groups=(0, 1, 1, 2, 3), truth=None)
    refused(ValueError, "must have the same groups", second=moved)


def test_importances_are_checked_by_name(judge):
    train, test = data(), data(20, seed=1)
    with pytest.raises(ValueError, match=r"'mine' must have shape \(20, 4\).*\(20, 5\)"):
        compare({"mine": lambda x: x}, train, test, judge=judge)
    with pytest.raises(ValueError, match="importances of 'mine' must be numbers"):
        compare({"mine": lambda x: x[:, :4] * math.nan}, train, test, judge=judge)
    with pytest.raises(ValueError, match="judge has 4 mask entries; the data have 5"):
        compare({"mine": lambda x: x}, (train.x, train.y), (test.x, test.y), judge=judge)


@pytest.mark.complete
def test_a_choice_by_the_answer_is_seen_and_one_by_lot_is_not():
    x = torch.randn(700, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()

    def cheat(rows):
        choice = (rows[:, 0] > 0).float()
        return torch.stack([0 * choice, 0 * choice, choice, 1 - choice], 1)

    quick = {
        "epochs": 20,
        "hidden": (16,),
        "batch_size": 300,
        "learning_rate": Linear(2e-2, 0.0, begin=0.2),
    }
    train, test = (x[:100], y[:100]), (x[100:], y[100:])
    table = compare({"cheat": cheat}, train, test, sizes=[1], leaks=True, fit_options=quick)
    assert table.loc["cheat", "encoded@1_lower"] > 0.3
    assert table.loc["cheat", "accuracy@1"] < 0.65
    assert table.loc["random", "encoded@1_lower"] < 0.0


def test_few_of_a_label_are_refused_before_any_fit():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(200, dtype=torch.long)
    y[:50] = 1
    y[100:107] = 1

    def never(rows):
        raise AssertionError("the method has run")

    with pytest.raises(ValueError, match="y of test, which leaks=True reads, has 7"):
        compare({"never": never}, (x[:100], y[:100]), (x[100:], y[100:]), leaks=True)


ROWS_OF_THREE = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
HALVES = [
    (ROWS_OF_THREE[some], (ROWS_OF_THREE[some][:, 2] > 0).long())
    for some in (slice(0, 100), slice(100, 200))
]


class Against(PyroModule):
    """Gives the feature that decides a large negative attribution."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(2))

    def reset_parameters(self):
        torch.nn.init.zeros_(self.bias)

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), effects.mask_particles():
            attribution = torch.tensor([0.1, 0.2, -5.0]).expand(len(x), 3)
            pyro.sample("mask", dist.Delta(attribution, event_dim=1))
            return pyro.sample("y", dist.Categorical(logits=self.bias.expand(len(x), 2)), obs=y)


def test_the_largest_by_size_is_kept_first():
    result = fit(Against, HALVES[0], objective=NestedIWAE(1, samples=2), epochs=1, progress=False)
    table = compare(
        {"against": result},
        *HALVES,
        sizes=[1],
        fit_options={"epochs": 20, "hidden": (16,), "batch_size": 20, "learning_rate": 1e-2},
    )
    assert table.loc["against", "accuracy@1"] > 0.85
    assert table.loc["random", "accuracy@1"] < 0.75


LIBRARIES = ("shap", "lime", "captum")
X = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def first(rows):
    return 1 / (1 + np.exp(-rows[:, 0]))


NEEDING = {
    "shap": lambda: shap_importances(first, X, X),
    "lime": lambda: lime_importances(first, X, X),
    "captum": lambda: gradient_importances("saliency", nn.Linear(2, 2), X, output="logits"),
}


@pytest.fixture
def without_libraries(monkeypatch):
    """Imports of the libraries fail, as where they are not installed."""
    for name in list(sys.modules):
        if name.partition(".")[0] in LIBRARIES:
            monkeypatch.delitem(sys.modules, name)
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("library", NEEDING)
@pytest.mark.usefixtures("without_libraries")
def test_the_message_says_what_to_install(library):
    refused(rf"{library}.*pip install \"lexppl\[compare\]\"", NEEDING[library], error=ImportError)


@pytest.mark.usefixtures("without_libraries", "no_fit")
def test_compare_refuses_before_any_fit():
    for name in ("shap", "lime", "saliency"):
        refused(r"lexppl\[compare\]", compare, [name], (X, Y), (X, Y), error=ImportError)


@pytest.mark.parametrize("response", [False, True])
def test_a_choice_that_carries_the_label_is_far_above_the_same_choice_for_all(response):
    """Entry "a" is kept where y is above 0, and "b" elsewhere: neither says anything of y."""
    train, test = data(response=response), data(200, seed=1, response=response)

    def cheat(x):
        places = (x[:, 2] <= 0).long()
        return torch.nn.functional.one_hot(places, 4).float()

    def honest(x):
        return torch.tensor([0.0, 0.0, 1.0, 0.0]).expand(len(x), 4)

    methods = {"cheat": cheat, "honest": honest}
    table = compare(methods, train, test, sizes=[1], fit_options=QUICK)
    score = "r2@1" if response else "accuracy@1"
    least = 0.6 if response else 0.99
    assert table.loc["cheat", "choice@1"] > least
    assert table.loc["honest", "fixed@1"] == table.loc["honest", score] > 0.8
    assert table.loc["honest", "choice@1"] < 0.65
    assert table.loc["cheat", "fixed@1"] < 0.65
