"""`lexppl change`: its figures are those of `explain_change`; models that do not serve."""

import json

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from lexppl.cli import main
from lexppl.data.divided_table import divided_frame
from lexppl.evaluation import explain_change
from tests.refusals import over

RNG = np.random.default_rng(1)


def table(rows, moved=0.0):
    frame = pd.DataFrame({"age": RNG.normal(50, 9, rows), "dose": RNG.normal(2, 1, rows)})
    odds = 0.1 * (frame["age"] - 50) + moved * (frame["dose"] - 2)
    frame["ill"] = np.where(RNG.random(rows) < 1 / (1 + np.exp(-odds)), "yes", "no")
    return frame


def fitted(frame):
    return LogisticRegression(max_iter=500).fit(frame[["age", "dose"]], frame["ill"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, old = tmp_path_factory.mktemp("models"), table(600)
    models = {"old": fitted(old), "new": fitted(table(600, 2.0))}
    for seed in range(5):
        models[f"refit{seed}"] = fitted(old.sample(frac=1, replace=True, random_state=seed))
    models["line"] = LinearRegression().fit(old[["age", "dose"]], old["ill"] == "yes")
    models["years"] = (
        fitted(old).set_params().fit(old[["age"]].set_axis(["years"], axis=1), old.ill)
    )
    for name, model in models.items():
        joblib.dump(model, folder / f"{name}.joblib")
    table(200).to_csv(folder / "rows.csv", index=False)
    return folder


def words(folder, old="old", new="new", refits=True):
    named = ["--old", folder / f"{old}.joblib", "--new", folder / f"{new}.joblib"]
    if refits:
        named += ["--refits", *(folder / f"refit{seed}.joblib" for seed in range(5))]
    return ["change", *map(str, [folder / "rows.csv", *named])]


def test_the_figures_are_those_of_python(folder, tmp_path, capsys):
    out = tmp_path / "change.json"
    trusted = ["--trust-black-box", "--quiet", "--out", str(out)]
    assert main([*words(folder), *trusted]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "The difference depends on dose more than that of two refits does." in shown.out
    frame = pd.read_csv(folder / "rows.csv")
    data = divided_frame(frame, "ill", test_share=0.2, valid_share=None, seed=0).data
    rows = frame[["age", "dose"]]
    old, new, *refits = (
        joblib.load(folder / f"{name}.joblib").predict_proba(rows)
        for name in ("old", "new", *(f"refit{seed}" for seed in range(5)))
    )
    expected = explain_change(old, new, data, refits=refits).table()
    written = json.loads(out.read_text())
    found = pd.DataFrame(written["columns"]).set_index("group")
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-4, atol=1e-6)
    assert found["found"].to_dict() == {"dose": True, "age": False}
    assert main([*words(folder), *trusted]) == 1  # It is there already.


def test_without_refits_nothing_is_found(folder, capsys):
    assert main([*words(folder, refits=False), "--trust-black-box", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "without refits of the first nothing shows by how much" in shown
    assert "found" not in shown


@over(
    ({}, "give --trust-black-box too", 2),
    ({"new": "lines"}, "there is no black box file", 1),
    ({"new": "line"}, "gives responses, which have no classes", 1),
    ({"new": "years"}, "was fitted on columns that the table lacks: 'years'", 1),
)
def test_a_model_that_does_not_serve_is_refused_in_one_line(changed, message, code, folder, capsys):
    trusted = ["--trust-black-box"] * bool(changed)
    assert main([*words(folder, **changed), *trusted, "--quiet"]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("lexppl: error: ")
    assert error.count("\n") == 1


def test_fewer_than_five_refits_are_refused_before_a_model_is_loaded(folder, capsys):
    few = words(folder, refits=False)
    assert main([*few, "--refits", few[3], "--trust-black-box"]) == 1
    assert capsys.readouterr().err == "lexppl: error: refits must be none, or 5 or more, not 1\n"
