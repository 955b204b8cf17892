"""The registry: what a method takes is what its factory's signature says."""

import json

import numpy as np
import pandas as pd
import pytest

from lexppl import ExplainerClassifier
from lexppl.choices.methods import Registry
from lexppl.cli import main
from lexppl.inference import System
from lexppl.systems import METHODS, lex, system_for
from tests.refusals import refused


def test_every_method_needs_features_and_is_described():
    """What else a method takes is held against its signature in tests/test_choices.py."""
    for method in METHODS.values():
        assert method.summary and method.factory.__doc__ and method.needs("features")


def test_what_is_not_given_is_the_factorys_default():
    built = system_for("l2x", {"features": 5, "classes": 2, "k": 2}).program()
    assert built.selector.network.hidden == (100, 100)
    built = system_for("l2x", {"features": 5, "classes": 2, "k": 2, "hidden": (7,)}).program()
    assert built.selector.network.hidden == (7,)
    assert METHODS["real_x"].default("penalty") == 0.01
    assert METHODS["l2x"].default("k") is None and METHODS["l2x"].needs("k")


def narrow(features: int, *, classes: int | None, penalty: float = 0.05) -> System:
    """LEX with networks of four."""
    return lex(features, classes=classes, penalty=penalty, hidden=(4,), predictor_hidden=(4,))


@pytest.fixture
def registered():
    METHODS.register("LEX with networks of four")(narrow)
    yield "narrow"
    del METHODS._methods["narrow"]


def table():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(120, 3)), columns=["a", "b", "c"])
    frame["outcome"] = np.where(frame.a > 0, "yes", "no")
    return frame


@pytest.mark.complete
def test_a_method_of_ones_own_is_at_every_door(registered, tmp_path):
    frame = table()
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False)
    explainer = ExplainerClassifier(registered, epochs=2, random_state=0)
    explainer.fit(frame[["a", "b", "c"]], frame.outcome)
    assert explainer.importances(frame[["a", "b", "c"]]).shape == (120, 3)
    options = ["--target", "outcome", "--epochs", "2", "--draws", "5", "--quiet"]
    words = ["explain", str(path), "--method", registered, "--replicates", "1", *options]
    assert main([*words, "--out", str(tmp_path / "r")]) == 0
    compared = ["compare", str(path), "--methods", registered, "--sizes", "1", "--quiet"]
    out = ["--target", "outcome", "--epochs", "2", "--out", str(tmp_path / "c.json")]
    assert main([*compared, *out]) == 0
    told = json.loads((tmp_path / "c.json").read_text())
    assert told["methods"][0]["method"] == registered


def test_names_are_given_once():
    registry = Registry()
    registry.register("one")(narrow)
    refused("there is a method 'narrow' already", registry.register("two"), narrow)
    registry.register("two", name="wide", penalty=0.1)(narrow)
    assert not registry["wide"].takes("penalty") and list(registry) == ["narrow", "wide"]
    refused("must take features", registry.register("none", name="none"), lambda: None)


def test_the_printed_table_is_that_of_the_systems():
    from pathlib import Path
    from runpy import run_path

    docs = Path(__file__).parents[2] / "docs"
    table = run_path(str(docs / "systems_table.py"))["systems_table"]()
    assert (docs / "systems.md").read_text(encoding="utf-8").endswith("\n\n" + table)
    assert len(table.splitlines()) == 2 + len(METHODS)
