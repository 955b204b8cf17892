"""What is printed of what a user holds: ten lines at most, escaped, and nothing of its insides."""

import random
import re
from html import unescape

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl import ExplainerClassifier, fit, load, save
from lexppl.data import load as load_set
from lexppl.data.divided_table import DividedTable, divided_frame, divided_set
from lexppl.evaluation import fit_predictor
from lexppl.inference import CollapseWarning, NestedIWAE, System
from lexppl.summary import MOST_LINES, WIDEST, Summary, some_of
from lexppl.systems import METHODS, lex, system_for
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.table_fit import TableFit, fit_table

SMALL = {"hidden": (4,), "predictor_hidden": (4,)}


@pytest.fixture(scope="module")
def wine():
    return divided_set("wine", valid_share=0.2, test_share=0.2, seed=0)


@pytest.fixture(scope="module")
def table_fit(wine):
    rows = EncodedRows.of(wine.data, wine.train_rows, wine.valid_rows)
    return fit_table(plan_for(107, 13, epochs=2, replicates=2, **SMALL), rows)


def plain(thing):
    """Its text, once it has been found to be short, and the same as its table's."""
    text, page = repr(thing), thing._repr_html_()
    lines = text.splitlines()
    assert 2 <= len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDEST + 20
    for inside in (
        "Tensor",
        "tensor(",
        " at 0x",
        "mappingproxy",
        "array(",
        "<function",
        "_modules",
    ):
        assert inside not in text
    assert page.count("<tr>") == len(lines) - 1 and len(page) < 3000
    words = unescape(re.sub(r"<[^>]*>", "", page))
    assert lines[0] in words and lines[1].split(maxsplit=1)[1] in words
    return text


def test_a_result_says_what_was_fitted_to_what(table_fit, tmp_path):
    result = table_fit.result
    text = plain(result)
    for part in (
        "FitResult: LEX, 2 replicates, seed 0",
        "selector PenaltyConditioned",
        "predictor CrossFitted",
        "107 to learn from, none held out",
        "13 features: alcohol, malic_acid, ash, alcalinity_of_ash, magnesium and 8 more",
        "3 classes: class_0, class_1, class_2",
        "NestedIWAE(masks=4",
    ):
        assert part in text
    best = [int(epoch) + 1 for epoch in result.best_epoch]
    assert f"best {best[0]}, {best[1]}" in text
    assert "held-out loss" not in text
    save(result, tmp_path / "fitted")
    assert repr(load(tmp_path / "fitted")) == text


def test_a_result_says_what_went_wrong():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    shut = lex(3, classes=2, penalty=20.0, **SMALL)
    options = {"epochs": 60, "batch_size": 10, "learning_rate": 0.1, "valid": None}
    with pytest.warns(CollapseWarning):
        result = fit(
            shut, (x, (x[:, 0] > 0).long()), row_weights="dirichlet", progress=False, **options
        )
    text = plain(result)
    assert "warnings" in text and f"collapse, {result.collapse[0]} (1 of 1 replicate)" in text
    assert "none held out, dirichlet weights in each replicate" in text
    assert "held-out loss" not in text
    result.interrupted = True
    assert repr(result).endswith("; interrupted")
    result.collapse, result.interrupted = [None], False
    assert "warnings" not in repr(result)


@pytest.mark.parametrize(("epochs", "short"), [(24, True), (25, False)])
def test_a_result_of_few_steps_says_so(epochs, short):
    """Four steps an epoch."""
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    given = {"epochs": epochs, "batch_size": 10, "valid": None, "progress": False}
    result = fit(lex(3, classes=2, k=1, **SMALL), (x, (x[:, 0] > 0).long()), **given)
    assert result.steps == 4 * epochs
    assert ("96 steps: too few to settle" in plain(result)) == short


@pytest.mark.parametrize("name", METHODS)
def test_a_system_says_its_parts_by_role(name):
    black_box = lex(4, classes=2, **SMALL).program().predictor
    method = METHODS[name]
    small = {n: w for n, w in SMALL.items() if method.takes(n)} | {"black_box": black_box}
    given = {"features": 4, "classes": 2, "k": 2 if method.needs("k") else None, **small}
    system = system_for(name, given)
    before = torch.get_rng_state()
    text = plain(system)
    assert torch.equal(torch.get_rng_state(), before)
    program = system.program()
    assert text.startswith(f"System: {type(program).__name__}")
    term = system.build()[-1].terms[0]
    assert f"NestedIWAE(masks={term.objective.masks}" in text
    assert type(term.objective.estimator).__name__ in text
    for role, part in program.named_children():
        assert not list(part.parameters()) or f"  {role} " in text
        assert isinstance(part, torch.nn.ModuleList) or type(part).__name__ in text


def test_the_numbers_of_a_system_are_told():
    text = repr(lex(4, classes=2, penalty=0.07, **SMALL))
    assert "SizePenalty (weight=0.07)" in text and "2 predictors" in text
    assert "KSubsetSelector (k=3, 40)" in repr(lex(4, classes=2, k=3, **SMALL))


def test_a_system_of_one_s_own_needs_no_modules():
    text = repr(System(lex(3, classes=2, **SMALL).build, {"epochs": 5, "objective": NestedIWAE}))
    assert "epochs=5" in text


def test_a_data_set_says_what_is_in_it(wine):
    assert plain(load_set("wine")).splitlines() == [
        "Dataset 'wine': 178 rows",
        "  x        13 features, torch.float32, cpu",
        "  entries  13 mask entries: alcohol, malic_acid, ash, alcalinity_of_ash, magnesium and 8 "
        "more",
        "  y        cultivar, 3 classes: class_0 (59), class_1 (71), class_2 (48)",
    ]
    text = plain(wine)
    assert "107 to fit on, 35 to choose the best epoch on, 36 to judge" in text
    assert text.startswith("DividedTable 'wine': 178 rows")
    assert isinstance(wine, DividedTable)
    assert "truth" in plain(load_set("S1"))
    assert "a response from" in plain(load_set("diabetes"))
    assert "of a larger table" in plain(wine.train)


def test_a_fit_of_a_table_says_its_settings(table_fit):
    text = plain(table_fit)
    assert text.startswith("TableFit by lex: LEX, 2 replicates")
    assert f"penalty={table_fit.penalty:.4g}, imputer copula, predictor network" in text
    assert isinstance(table_fit, TableFit)


def test_what_holds_a_result_is_short_too(wine):
    fitted = fit_predictor(wine.train, valid=wine.valid, hidden=(4,), epochs=1, progress=False)
    assert len(repr(fitted).splitlines()) <= MOST_LINES
    explainer = ExplainerClassifier(epochs=1, hidden=(4,), predictor_hidden=(4,), random_state=0)
    explainer.fit(wine.train.x.numpy(), wine.train.y.numpy())
    assert len(repr(explainer)) < 700 and "Tensor" not in repr(explainer)


def test_names_are_escaped_and_cut():
    frame = pd.DataFrame(
        np.random.default_rng(0).normal(size=(30, 2)), columns=["<b>x</b>", "y" * 300]
    ).assign(target=[random.Random(0).choice("ab") for _ in range(29)] + ["a"])
    frame["target"] = np.where(np.arange(30) % 2, "<script>alert(1)</script>", "b")
    data = divided_frame(frame, valid_share=0.2, test_share=0.2, seed=0)
    page = data._repr_html_()
    assert "<b>" not in page and "<script>" not in page and "&lt;b&gt;x" in page
    assert "y" * 30 not in page and "y" * 30 not in repr(data)
    assert "<script>alert(1)</scrip… (15), b (15)" in plain(data)
    many = Summary("a\nheading", {str(n): "text" for n in range(40)})
    assert len(str(many).splitlines()) == MOST_LINES and str(many).startswith("a heading\n")
    assert some_of(range(7), most=2) == "0, 1 and 5 more"
