"""Every method by name from the command line, and methods side by side."""

import json
import re

import joblib
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression

from lexppl import load
from lexppl.cli import main
from lexppl.summary import number_text
from lexppl.systems import METHODS
from tests.cli.tables import numbers, page_of, people, written

QUICK = ["--epochs", "2", "--quiet"]
EXPLAIN = [*QUICK, "--replicates", "2", "--draws", "5"]


SAID = {
    "fastshap": ("size of the feature's contribution", "probability"),
    "senn": ("size of the feature's contribution", "probability"),
    "q_fit": ("share of the importance", "probability"),
    "xtab": ("mask's value", "probability"),
}
"""What the report says and what it never says of importances, where masks are no selections."""


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("name", METHODS)
def test_each_method_explains_and_says_what_its_importances_are(name, tmp_path, capsys):
    size = ["--k", "2"] if METHODS[name].needs("k") else []
    words = ["explain", "wine", "--method", name, *size, "--out", str(tmp_path / "r"), *EXPLAIN]
    assert main(words) == 0
    printed, page = capsys.readouterr().out, page_of(tmp_path / "r")
    assert f"{name}: " in printed
    assert ("annealed nested bound" if name == "lex" else METHODS[name].summary) in page
    assert pd.read_csv(tmp_path / "r" / "importance.csv").shape[0] == 13
    assert load(tmp_path / "r" / "explainer").replicates == 2
    told, never = SAID.get(name, ("probability that a row keeps", "contribution"))
    ranked = printed.split("Held-out rows")[0].split("Ranked ")[1]
    shown = page[page.index("What matters") : page.index("Do the chosen features suffice?")]
    for text in (ranked, re.sub(r'src="data:[^"]*"', "", shown)):
        assert told in text and never not in text


@pytest.mark.complete
def test_a_method_that_explains_a_model_takes_a_black_box(tmp_path, capsys):
    data = load_wine(as_frame=True)
    joblib.dump(
        LogisticRegression(max_iter=5000).fit(data.data, data.target), tmp_path / "m.joblib"
    )
    table = written(data.frame, tmp_path)
    words = ["explain", str(table), "--target", "target", "--method", "q_fit"]
    words += ["--black-box", str(tmp_path / "m.joblib"), "--trust-black-box"]
    assert main([*words, "--out", str(tmp_path / "r"), *EXPLAIN]) == 0
    assert "agrees with the black box" in capsys.readouterr().out


def test_a_method_explains_a_response(tmp_path, capsys):
    table = written(people(), tmp_path)
    words = ["explain", str(table), "--target", "height", "--method", "xtab"]
    assert main([*words, "--out", str(tmp_path / "r"), *EXPLAIN]) == 0
    words = ["explain", str(table), "--target", "height", "--method", "meed", "--k", "1"]
    assert main([*words, "--out", str(tmp_path / "s"), *EXPLAIN]) == 1
    assert "meed explains labels" in capsys.readouterr().err


def test_methods_side_by_side(tmp_path, capsys):
    words = ["compare", "wine", "--methods", "lex,l2x,q_fit,permutation", "--sizes", "1,2"]
    assert main([*words, "--out", str(tmp_path / "f.json"), *QUICK]) == 0
    shown = capsys.readouterr().out
    told = json.loads((tmp_path / "f.json").read_text())
    names = [row["method"] for row in told["methods"]]
    assert names == ["lex", "l2x", "q_fit", "permutation", "random"]
    assert all(name in shown for name in names)
    assert {"accuracy@1", "accuracy@2"} <= set(told["methods"][0])
    for row in told["methods"]:
        assert row["accuracy@1_lower"] < row["accuracy@1_upper"]
        assert row["seconds_per_row"] > 0 and (row["fit_seconds"] > 0) == (
            row["method"] != "random"
        )
        # Each size has a table of its own, that 80 columns have room for.
        interval = f"({row['accuracy@1_lower']:.2f} to {row['accuracy@1_upper']:.2f})"
        assert f"{row['accuracy@1']:.3f} {interval}" in shown
    assert "seconds to fit" in shown and max(map(len, shown.splitlines())) <= 80
    assert told["command"][:3] == ["lexppl", "compare", "wine"]


def test_errors_of_responses_are_in_their_own_units(tmp_path, capsys):
    path, out = written(numbers(), tmp_path, "houses.csv"), tmp_path / "figures.json"
    words = ["--methods", "permutation", "--sizes", "1", "--epochs", "2", "--quiet"]
    assert main(["compare", str(path), *words, "--out", str(out)]) == 0
    line = json.loads(out.read_text())["methods"][0]
    # The price's standard deviation is 250.
    assert line["rmse@1_lower"] < line["rmse@1"] and 50.0 < line["rmse@1"] < 600.0
    assert f"{number_text(line['rmse@1'])} (" in capsys.readouterr().out
