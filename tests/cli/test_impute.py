"""`lexppl impute`, `evaluate` and `change`: their figures are those of Python."""

import json
import re

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression

from lexppl.choices.imputers import HOLDING_ROWS, IMPUTERS, LEARNED
from lexppl.cli import main
from lexppl.data.divided_table import divided_frame, divided_set
from lexppl.evaluation import explain_change, imputation
from lexppl.models.imputers import REFERENCE_ROWS, imputer_of
from tests.cli.tables import explained, page_of, people, written
from tests.refusals import over, refused

QUICK = ["--rates", "0.3,0.7", "--draws", "10", "--quiet"]


@pytest.mark.smoke
def test_the_figures_are_those_of_python(capsys, tmp_path):
    out = tmp_path / "scores.json"
    words = ["--imputers", "gaussian,conditional-gaussian,marginal", "--out", str(out)]
    assert main(["impute", "wine", *words, *QUICK]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    parts = divided_set("wine", valid_share=None, test_share=0.2, seed=0)
    x = parts.train.x
    names = ("gaussian", "conditional-gaussian", "marginal")
    given = {name: imputer_of(name, x, 0) for name in names}
    expected = imputation(given, parts.test.x, rates=[0.3, 0.7], draws=10).table
    told = json.loads(out.read_text())
    assert told["command"][:3] == ["lexppl", "impute", "wine"]
    found = pd.DataFrame(told["scores"]).set_index(["imputer", "rate"])
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert found.loc["marginal", "log_likelihood"].isna().all()
    for name, crps in expected["crps"].items():
        line = next(text for text in shown.out.splitlines() if text.startswith(f"  {name[0]}  "))
        assert f"{crps:.3f} ± " in line
    assert shown.out.count("conditional-gaussian") == 2
    assert "without a density: marginal" in shown.out
    assert main(["impute", "wine", "--out", str(out), *QUICK]) == 1  # it is there already


def test_all_but_the_slow_are_scored_where_none_is_named(capsys):
    assert main(["impute", "wine", "--rates", "0.5", "--draws", "2", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in IMPUTERS)
    assert not any(name in shown for name in LEARNED)


def test_tables_with_categories_are_told_to_trust_the_crps(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("lexppl.cli.impute_command.STEPS_OF_VAEAC", 5)
    table = written(people(), tmp_path)
    assert main(["impute", str(table), "--imputers", "vaeac,constant", *QUICK]) == 0
    shown = capsys.readouterr().out
    assert "columns of categories have no density" in shown
    assert shown.count("  vaeac  ") == 2
    assert max(map(len, shown.splitlines())) <= 100


def rows(count=60):
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.smoke
@pytest.mark.parametrize("name", IMPUTERS)
def test_each_name_is_an_imputer_of_the_rows(name):
    x = rows()
    imputer = imputer_of(name, x, seed=0)
    assert imputer(x, torch.tensor([1.0, 0.0, 0.0])).sample().shape == x.shape
    assert hasattr(imputer, "reference") == (name in HOLDING_ROWS)
    few = rows(5)  # fewer than the components of a mixture
    assert imputer_of(name, few, seed=0)(few, torch.zeros(3)).sample().isfinite().all()


@pytest.mark.parametrize("name", sorted(HOLDING_ROWS))
def test_no_more_rows_are_held_than_said(name, monkeypatch):
    monkeypatch.setattr("lexppl.models.imputers.REFERENCE_ROWS", 50)
    assert REFERENCE_ROWS > 50
    assert len(imputer_of(name, rows(), seed=0).reference) == 50


def test_a_name_that_is_none_is_refused():
    refused("imputer must be one of", imputer_of, "mice", rows(), seed=0)


@pytest.mark.complete(but=1)
@over("gaussian-mixture", "mixture-means", "mixture-data", "kmeans-data")
def test_the_report_says_what_hidden_features_are(name, tmp_path):
    words = ["--epochs", "1", "--replicates", "1", "--draws", "3", "--quiet", "--imputer", name]
    words += ["--penalty", "0.02", "--predictor", "network"]
    report = page_of(explained(tmp_path, *words))
    assert IMPUTERS[name] in report
    assert ("it holds rows of the training data" in report) == (name in HOLDING_ROWS)


# `lexppl evaluate`: a synthetic set against its truth.


FEW_ROWS = ["--rows", "300", "--epochs", "2", "--draws", "4", "--quiet"]
FIGURES = ["tpr", "fdr", "fpr", "mcc", "control_flow", "mean_size"]


def run(capsys, *words: str) -> str:
    code = main(list(words))
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def test_figures(tmp_path, capsys):
    out = tmp_path / "deep" / "scores.json"
    printed = run(capsys, "evaluate", "S3", *FEW_ROWS, "--replicates", "2", "--out", str(out))
    for name in ("TPR", "FDR", "FPR", "MCC", "control flow", "log-likelihood", "oracle", "gap"):
        assert name in printed
    scores = json.loads(out.read_text())
    assert scores["set"] == "S3" and scores["penalty"] == 0.0225 and scores["epochs"] == 2
    figures = scores["by_replicate"]
    assert len(figures["mask_draws"]) == len(figures["likely_masks"]) == 2
    for each in figures["mask_draws"]:
        assert list(each) == FIGURES
        assert 0.0 <= each["tpr"] <= 1.0 and 0.0 <= each["fdr"] <= 1.0
    for each in figures["prediction"]:
        difference = each["oracle_log_likelihood"] - each["log_likelihood"]
        assert each["gap"] == pytest.approx(difference, abs=1e-6)
        assert each["gap"] > 0.0
    assert main(["evaluate", "S3", *FEW_ROWS, "--out", str(out)]) == 1
    assert "--overwrite" in capsys.readouterr().err


@pytest.mark.smoke
def test_fixed_size_has_no_threshold(capsys):
    printed = run(capsys, "evaluate", "Syn1", *FEW_ROWS, "--k", "2")
    assert "p > ½" not in printed
    assert re.search(r"mean number of selected features +2\.000", printed)
    assert "control flow" not in printed


def test_same_seed_same_figures(capsys):
    first, second, other = (
        run(capsys, "evaluate", "S1", *FEW_ROWS, "--seed", seed).split("\n", 1)[1]
        for seed in ("3", "3", "4")
    )
    assert first == second != other


# `lexppl change`: its figures are those of `explain_change`; models that do not serve.


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


def test_the_change_is_that_of_python(folder, tmp_path, capsys):
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
