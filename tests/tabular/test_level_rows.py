"""Rows with codes in place of indicators: the same function, the same gradients, the same fit."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl import ExplainerClassifier
from lexppl.models import MLP, Grouping
from lexppl.tabular import table_fit
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.fit_plan import plan_for
from lexppl.tabular.level_rows import CodedFit, LevelColumns, LevelsLinear
from lexppl.tabular.table_fit import fit_table

pytestmark = pytest.mark.filterwarnings("ignore::lexppl.inference.CollapseWarning")

GROUPS = (0, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3)


def rows(count=60):
    draw = np.random.default_rng(0)
    x = np.zeros((count, 11))
    x[:, [0, 6]] = draw.normal(size=(count, 2))
    x[np.arange(count), 1 + draw.integers(0, 5, count)] = 1.0
    x[np.arange(count), 7 + draw.integers(0, 4, count)] = 1.0
    x = torch.tensor(x, dtype=torch.float32)
    return x, ((x[:, 0] > 0) | (x[:, 2] == 1)).long()


def encoded(**options):
    x, y = rows()
    names = tuple(f"f{n}" for n in range(11))
    given = {"train": (x, y), "valid": (x[:20], y[:20]), **options}
    return EncodedRows(
        given["train"], given["valid"], Grouping(GROUPS, list("abcd")), names, ("no", "yes"),
        given.get("weights"),
    )  # fmt: skip


@pytest.mark.smoke
def test_the_layer_and_its_gradients_are_those_of_indicators():
    x, _ = rows()
    columns = LevelColumns.of(x, GROUPS)
    assert columns.numbers == (0, 6) and columns.blocks == ((1, 2, 3, 4, 5), (7, 8, 9, 10))
    linear = MLP(11, 3, (), seed=0).layers[0]
    coded = LevelsLinear(linear, columns)
    outputs = [linear(x), coded(columns.coded(x))]
    torch.testing.assert_close(*outputs)
    for output in outputs:
        (output * torch.arange(3.0)).square().sum().backward()
    levels = [f for block in columns.blocks for f in block]
    torch.testing.assert_close(coded.numbers.grad, linear.weight.grad[:, [0, 6]])
    torch.testing.assert_close(coded.levels.grad.T, linear.weight.grad[:, levels])
    torch.testing.assert_close(coded.bias.grad, linear.bias.grad)
    plain = coded.plain()
    assert torch.equal(plain.weight, linear.weight) and torch.equal(plain.bias, linear.bias)


def test_what_is_no_level_is_no_block():
    x, _ = rows()
    for change in (0.5, 0.0):
        other = x.clone()
        other[3, 1:6] = change
        assert LevelColumns.of(other, GROUPS).blocks == ((7, 8, 9, 10),)
    assert LevelColumns.of(x[:, :7], GROUPS[:7]).numbers == (0, 6)
    assert LevelColumns.of(x[:, :4], (0, 1, 1, 1)).blocks == ()


@pytest.mark.parametrize("replicates", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_fit_is_that_on_indicators(weighted, replicates, monkeypatch):
    weights = (torch.linspace(0.5, 1.5, 60), torch.ones(20)) if weighted else None
    settings = {"epochs": 3, "hidden": (6,), "predictor_hidden": (6,), "replicates": replicates}
    plan = plan_for(60, 4, penalty=0.02, **settings)
    table = encoded(weights=weights)
    coded = fit_table(plan, table).result
    monkeypatch.setattr(CodedFit, "of", lambda *_: None)
    plain = fit_table(plan, table).result
    assert coded.event_shape == plain.event_shape == (11,)
    for mine, theirs in zip(coded.models, plain.models, strict=True):
        states = mine.state_dict(), theirs.state_dict()
        assert states[0].keys() == states[1].keys()
        for name in states[0]:
            torch.testing.assert_close(states[0][name], states[1][name], rtol=1e-3, atol=1e-5)
        assert type(mine.predictor.predictors[0].network.layers[0]) is torch.nn.Linear
    np.testing.assert_allclose(coded.history.train, plain.history.train, rtol=1e-4)


@pytest.mark.parametrize("change", ["imputer", "k", "posterior"])
def test_other_programs_read_indicators(change, monkeypatch):
    plans = {
        "imputer": plan_for(60, 4, imputer="gaussian", epochs=1, penalty=0.02),
        "k": plan_for(60, 4, k=2, epochs=1),
        "posterior": replace(plan_for(60, 4, penalty=0.02, epochs=1), penalties=None),
    }
    seen, fit = [], table_fit.fit

    def fits(system, train, **settings):
        seen.append(train[0].shape[1])
        return fit(system, train, **settings)

    monkeypatch.setattr(table_fit, "fit", fits)
    fit_table(plans[change], encoded())
    assert seen == [11]


def test_rows_of_other_levels_are_explained():
    """An explainer that was fitted on codes reads indicators, levels of its table that no row has
    among them."""
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({"a": draw.normal(size=80), "job": draw.choice(list("uvwxyz"), 80)})
    y = np.where(frame.job.isin(["u", "v"]), "high", "low")
    short = {"epochs": 100, "learning_rate": 1e-2, "hidden": (8,), "predictor_hidden": (8,)}
    explainer = ExplainerClassifier(random_state=0, **short).fit(frame, y)
    assert explainer.score(frame, y) > 0.8
    assert explainer.importances(frame.iloc[[5]]).shape == (1, 2)
