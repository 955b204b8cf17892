"""`lexppl explain` ranks features by what keeping them is worth, and says which are not found."""

import html
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import lexppl
from lexppl.cli import main
from lexppl.cli.judged.judged_rows import folds_at
from lexppl.data import divided_frame
from lexppl.evaluation import gain_table
from tests.cli.tables import numbers, people, written

QUICK = ["--epochs", "3", "--replicates", "2", "--draws", "5", "--quiet"]
FIXED = [*QUICK, "--penalty", "0.02"]
COLUMNS = ["gain", "gain_lower", "gain_upper", "p", "found"]


def ran(out: Path, *words: object) -> tuple[pd.DataFrame, str]:
    """The table and the report of a run that must succeed."""
    assert main(["explain", *map(str, words), "--out", str(out), "--overwrite"]) == 0
    table = pd.read_csv(out / "importance.csv", index_col="feature")
    return table, html.unescape((out / "report.html").read_text(encoding="utf-8"))


def flat(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A table of which an explainer has learned what matters: age and job, and no more. Three
    replicates, as two say too little of their own spread."""
    folder = tmp_path_factory.mktemp("learned")
    words = ["--epochs", "60", "--replicates", "3", "--draws", "5", "--quiet", "--fdr", "0.05"]
    table = written(people(600), folder)
    words += ["--learning-rate", "0.003"]
    return ran(folder / "r", table, *words), folder


@pytest.mark.complete
def test_what_matters_is_found_and_noise_is_not(learned):
    (table, page), _ = learned
    assert table["found"].to_dict() == {
        "age": True, "job": True, "height": False, "<b>shoe</b>": False
    }  # fmt: skip
    assert set(table.index[:2]) == {"age", "job"} and (table["gain"].iloc[:2] > 0.1).all()
    assert (table.loc[["age", "job"], "gain_lower"] > 0).all()
    assert table["gain"].is_monotonic_decreasing
    assert page.count('<tr class="lost">') == 2
    assert "Not found at a false discovery rate of 0.05: " in page
    assert "They stand in grey." in page
    assert f"Worth most on held-out rows: {table.index[0]} and {table.index[1]}." in page


@pytest.mark.complete
def test_gains_are_those_of_the_saved_explainer_on_the_held_out_rows(learned):
    (table, _), folder = learned
    explainer = lexppl.load(folder / "r" / "explainer")
    parts = divided_frame(people(600), folds=explainer.replicates, seed=0)
    folds = folds_at(parts, parts.test_rows)
    gains = folds.gains(explainer, parts.test.x, parts.test.y, seed=0)
    again = gain_table(gains, 0.05)
    assert list(again.index) == list(table.index)
    # The table is told to four digits.
    np.testing.assert_allclose(table["gain"], again["gain"], rtol=6e-4, atol=1e-7)
    np.testing.assert_allclose(table["gain_lower"], again["lower"], rtol=6e-4, atol=1e-7)
    np.testing.assert_allclose(table["p"], again["p"], rtol=6e-4, atol=1e-12)


@pytest.mark.complete
def test_the_rate_is_the_one_typed(tmp_path, capsys):
    path = written(people(), tmp_path)
    strict, _ = ran(tmp_path / "r", path, *FIXED, "--fdr", "0.001")
    assert "false discovery rate of 0.001" in flat(capsys)
    loose, _ = ran(tmp_path / "r", path, *FIXED, "--fdr", "0.99")
    assert "false discovery rate of 0.99" in flat(capsys)
    assert list(strict["p"]) == list(loose["p"])
    assert loose["found"].sum() > strict["found"].sum()


@pytest.mark.parametrize("rate", ["0", "1", "x", "-0.1"])
def test_another_rate_is_refused(rate, tmp_path, capsys):
    assert main(["explain", "wine", "--out", str(tmp_path / "r"), f"--fdr={rate}"]) == 2
    told = capsys.readouterr().err
    assert "--fdr" in told and len(told.splitlines()) == 1


def test_no_more_rows_are_judged_than_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("lexppl.cli.judged.gains.GAIN_ROWS", 7)
    monkeypatch.setattr("lexppl.cli.judged.gains.EVALUATIONS", 10)
    table, _ = ran(tmp_path / "r", written(people(), tmp_path), *FIXED)
    assert "Mean over 7 held-out rows" in flat(capsys)
    assert table["gain"].notna().all()


@pytest.mark.complete
def test_masks_that_do_not_select_are_ranked_as_before(tmp_path, capsys):
    table, page = ran(tmp_path / "r", "wine", "--method", "xtab", *QUICK)
    assert not set(COLUMNS) & set(table.columns)
    assert table["mask_mean"].is_monotonic_decreasing
    assert "Gain:" not in capsys.readouterr().out
    assert "Gain:" not in page and 'class="lost"' not in page


@pytest.mark.complete
def test_of_a_black_box_the_gain_is_in_telling_what_it_says(tmp_path, capsys):
    frame = people(200)
    asked = frame[["age", "income"]].assign(noise=np.random.default_rng(0).normal(size=200))
    model = LogisticRegression(C=100.0).fit(asked[["age", "noise"]].to_numpy(), asked["income"])
    joblib.dump(model, tmp_path / "m.joblib")
    path = written(asked[["age", "noise", "income"]], tmp_path)
    words = [path, "--black-box", tmp_path / "m.joblib", "--trust-black-box", *FIXED]
    table, page = ran(tmp_path / "r", *words)
    assert "to predict what the black box says" in flat(capsys)
    assert "to predict what the black box says" in page
    explainer = lexppl.load(tmp_path / "r" / "explainer")
    named = asked[["age", "noise", "income"]]
    parts = divided_frame(named, folds=explainer.replicates, seed=0)
    folds = folds_at(parts, parts.test_rows)
    rows = parts.table.iloc[parts.test_rows.tolist()][["age", "noise"]].to_numpy()
    outputs = torch.as_tensor(model.predict_proba(rows), dtype=torch.float32)
    assert list(parts.data.class_names) == list(model.classes_)
    again = gain_table(folds.gains(explainer, parts.test.x, outputs, seed=0))
    np.testing.assert_allclose(table["gain"], again["gain"][table.index], rtol=6e-4, atol=1e-6)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize(
    ("words", "predicted"),
    [
        (["--regime", "self-post-hoc"], "what the predictor that was fitted before says"),
        (["--regime", "fixed-in-situ"], "income"),
        (["--method", "meed", "--k", "2"], "what the predictor that was fitted before says"),
    ],
)
def test_the_gain_is_in_predicting_what_is_explained(words, predicted, tmp_path, capsys):
    ran(tmp_path / "r", written(people(), tmp_path), *words, *QUICK)
    assert f"in nats, to predict {predicted}; the other" in flat(capsys)


def test_a_response_has_gains_too(tmp_path, capsys):
    table, _ = ran(tmp_path / "r", written(numbers(), tmp_path), *FIXED)
    assert table[COLUMNS].notna().all(axis=None)
    assert "to predict price;" in flat(capsys)


@pytest.mark.complete
def test_interrupted_gains_leave_the_rest(tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lexppl.cli.explain_command.judge_gains", interrupted)
    path = written(people(), tmp_path)
    assert main(["explain", str(path), "--out", str(tmp_path / "r"), *FIXED]) == 130
    captured = capsys.readouterr()
    assert "the gains were interrupted" in captured.err
    assert "EVAL-X" in captured.out and "Ranked features: the probability" in captured.out
    # A second Ctrl-C ends with the model alone.
    monkeypatch.setattr("lexppl.cli.explain_command.fit_judge", interrupted)
    assert main(["explain", str(path), "--out", str(tmp_path / "s"), *FIXED]) == 130
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == ["encoding.json", "explainer"]


@pytest.mark.complete
def test_gains_that_are_no_numbers_leave_the_rest(tmp_path, capsys, monkeypatch):
    def fails(*_, **__):
        raise FloatingPointError("log p(y | x̃) is NaN in 3 of 18 rows")

    monkeypatch.setattr("lexppl.cli.explain_command.judge_gains", fails)
    path = written(people(), tmp_path)
    assert main(["explain", str(path), "--out", str(tmp_path / "r"), *FIXED]) == 0
    captured = capsys.readouterr()
    assert "gains are not known: log p(y | x̃) is NaN in 3 of 18 rows" in captured.err
    assert "Ranked features: the probability" in captured.out
    table = pd.read_csv(tmp_path / "r" / "importance.csv", index_col="feature")
    assert table["selection_probability"].is_monotonic_decreasing and "gain" not in table
    assert "gains are not known" in (tmp_path / "r" / "report.html").read_text(encoding="utf-8")


@pytest.mark.complete
def test_few_of_a_label_are_warned_of(tmp_path, capsys):
    table = people(900)
    few = table[table.income == "low"].head(12)
    rare = pd.concat([few, table[table.income == "high"]]).sample(frac=1.0, random_state=0)
    _, page = ran(tmp_path / "rare", written(rare, tmp_path), *QUICK)
    said = "held-out rows have another label than the commonest: of so few, more of what is found"
    assert said in capsys.readouterr().err
    assert said in page
    _, page = ran(tmp_path / "even", written(table, tmp_path), *QUICK)
    assert said not in page + capsys.readouterr().err
