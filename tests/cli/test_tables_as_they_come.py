"""A table as it comes: what is decided for it is listed, and can be changed or refused."""

import json
import re
import shlex
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import lexppl
from lexppl.cli import main
from lexppl.cli.program import parse
from lexppl.cli.table_rows import read_source
from lexppl.cli.terminal import UsageError, message_of, one_line, short_warnings, text_table
from lexppl.data import TableEncoding, TableError, read_table
from lexppl.data.problems import Problem
from lexppl.explanation.reading.masks import masks_of
from tests.cli.tables import explained, page_of
from tests.refusals import over, refused

QUICK = ["--epochs", "3", "--replicates", "2", "--draws", "5", "--penalty", "0.02", "--quiet"]


def written(path, rows=240, seed=0):
    """An identifier, dates, numbers of which 8 % are missing, a constant column, 66 levels with
    accents and commas; decimal commas, semicolons and a byte-order mark."""
    draw = np.random.default_rng(seed)
    towns = [f"{'Süd' if i % 2 else 'São João'}, {i}" for i in range(66)]
    first = pd.Timestamp("2019-01-01")
    frame = pd.DataFrame(
        {
            "Kunde": [f"K-{i:05d}" for i in draw.permutation(rows)],
            "seit": [first + pd.Timedelta(days=int(d)) for d in draw.integers(0, 1500, rows)],
            "größe": draw.normal(1.7, 0.1, rows),
            "betrag": draw.exponential(100.0, rows),
            "Ort": [*towns, *draw.choice(towns, rows - 66)],
            "Land": "DE",
        }
    )
    frame["kauft"] = np.where(frame.betrag > 80, "ja", "nein")
    for column in ("größe", "betrag"):
        frame.loc[draw.random(rows) < 0.08, column] = np.nan
    frame.to_csv(path, sep=";", decimal=",", index=False, encoding="utf-8-sig")
    return frame


def test_from_nothing_to_a_report_in_two_strict_commands(tmp_path, capsys):
    file, out = tmp_path / "kunden.csv", tmp_path / "r"
    frame = written(file)
    command = ["explain", str(file), "--out", str(out), "--strict", *QUICK]
    assert main(command) == 1 and not out.exists()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "lexppl: error: the table has 5 problems:"
    for line, words in zip(
        lines[1:-1],
        (
            ["missing values in 2 of 5 columns", "--drop-missing", "--hide-missing"],
            ["constant columns explain nothing: 'Land'", "--drop-constant"],
            ["'Kunde' has 240 levels in 240 rows", "--drop Kunde", "--rare 10"],
            ["'größe' holds numbers with decimal commas", "--decimal ,"],
            ["'betrag' holds numbers with decimal commas", "--decimal ,"],
        ),
        strict=True,
    ):
        assert line.startswith("  - ") and all(word in line for word in words), line
    label, _, mends = lines[-1].partition(": ")
    assert label == "all at once"

    assert main([*command, *shlex.split(mends), "--rare", "5"]) == 0
    captured = capsys.readouterr()
    assert "kunden: 240 rows, 4 features, target 'kauft' (ja, nein)" in captured.out
    assert re.search(
        r"missing values of the held-out rows \('größe' in \d+ rows, 'be", captured.err
    )
    assert re.search(r"\d+ rare levels of 'Ort' are pooled as 'other levels'", captured.err)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "hidden from the explainer" in page and "other levels" in page
    ranked = pd.read_csv(out / "importance.csv", index_col="feature")
    assert sorted(ranked.index) == ["Ort", "betrag", "größe", "seit"]

    # The encoding carries all of it, so that the saved model reads new rows alike.
    encoding = TableEncoding.from_json(json.loads((out / "encoding.json").read_text("utf-8")))
    data = read_table(file, encoding=encoding)
    posterior = lexppl.explain(lexppl.load(out / "explainer"), data.x, draws=3)
    selected = masks_of(posterior)["mask"].sel(feature="betrag")
    missing = frame.betrag.isna().to_numpy()
    assert not selected.values[..., missing].any() and selected.values[..., ~missing].any()
    new = frame.iloc[:2].assign(Ort="Nirgends", betrag=[np.nan, 12.5])
    assert encoding.encode(new).shape == (2, data.n_features)


def planted(rows=300, seed=0):
    """A number that gives the target, and much that a table should not be refused for."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"id": range(1, rows + 1), "code": [f"K-{i}" for i in range(rows)]})
    frame["site"], frame["flag"] = "north", np.where(draw.random(rows) < 0.5, "yes", None)
    frame["town"] = [*(f"t{i % 5}" for i in range(100)), *(f"r{i // 2}" for i in range(rows - 100))]
    frame["a"], frame["b"] = draw.normal(size=(2, rows))
    frame["y"] = np.where(frame.a > 0, "u", "v")
    frame.loc[draw.random(rows) < 0.1, "b"] = np.nan
    frame.loc[3:6, "y"] = None
    return frame


DECIDED = {
    "constant columns explain nothing: 'site', 'flag'": ["--strict", "--missing-indicator"],
    "column 'id' numbers the rows": ["--include id"],
    "categorical column 'code' has 300 levels in 300 rows": ["--include code"],
    "categorical column 'town' has 105 levels in 300 rows": ["--include town"],
    "missing values in 1 of 3 columns: 'b' (": ["--drop-missing"],
    "target 'y' is missing in 4 rows": ["--strict"],
}
"""What is decided for the planted table, in order, with the options that change it."""


def decided_in(text):
    return [line.partition("decided: ")[2] for line in text.splitlines() if "decided: " in line]


@pytest.mark.smoke
def test_a_table_is_explained_as_if_the_options_were_typed_and_decisions_are_named(
    tmp_path, capsys
):
    file, out, typed = tmp_path / "t.csv", tmp_path / "r", tmp_path / "typed"
    planted().to_csv(file, index=False)
    command = ["explain", str(file), *QUICK]
    assert main([*command, "--out", str(out)]) == 0
    printed = capsys.readouterr().err
    lines = decided_in(printed)
    assert [line for line in printed.splitlines()[: len(lines)] if "decided: " not in line] == []
    assert len(lines) == len(DECIDED)
    for line, (fact, options) in zip(lines, DECIDED.items(), strict=True):
        assert line.startswith(fact) and all(option in line for option in options), line
    page = page_of(out)
    assert page.index("decided for this table") < page.index("How to read this")
    assert all(f"<li>{line}</li>" in page for line in lines)

    words = "--drop id code site flag --rare 10 --hide-missing --strict"
    assert main([*command, "--out", str(typed), *words.split()]) == 0
    assert decided_in(capsys.readouterr().err) == []
    assert "decided for this table" not in page_of(typed)
    for name in ("importance.csv", "rows.csv", "directions.csv"):
        assert (out / name).read_text() == (typed / name).read_text()
    assert {"a", "b", "town"} == set(pd.read_csv(out / "importance.csv").feature)

    # A saved explainer reads by the decisions of its fit.
    new = planted(seed=1).drop(columns="y")
    new.loc[0, "town"] = "never seen"
    new.to_csv(file, index=False)
    words = ["--with", str(out), "--out", str(tmp_path / "w"), "--quiet", "--draws", "5"]
    assert main(["explain", str(file), *words]) == 0
    assert set(pd.read_csv(tmp_path / "w" / "importance.csv").feature) == {"a", "b", "town"}


def test_strict_refuses_what_would_be_decided(tmp_path, capsys):
    file = tmp_path / "t.csv"
    planted().to_csv(file, index=False)
    command = ["explain", str(file), "--out", str(tmp_path / "r"), *QUICK]
    assert main([*command, "--strict"]) == 1
    first, *problems, last = capsys.readouterr().err.splitlines()
    assert first == "lexppl: error: the table has 6 problems:"
    for fact in DECIDED:
        fact = fact.replace("1 of 3", "1 of 5")
        assert any(problem.startswith(f"  - {fact}") for problem in problems), fact
    mends = shlex.split(last.removeprefix("all at once: "))
    assert mends[0] == "--hide-missing" and not (tmp_path / "r").exists()
    source = read_source(parse([*command, "--strict", *mends]), torch.device("cpu"))
    assert source.data.entry_names == ("town", "a", "b") and source.decisions == ()


@over(
    ("", "town a b", 296),
    ("--include id", "id town a b", 296),
    ("--include code", "code town a b", 296),
    ("--include town", "town a b", 296),
    ("--rare 5", "town a b", 296),
    ("--missing-indicator", "flag is missing|town|a|b|b is missing", 296),
    ("--drop-missing", "town a b", None),
    ("--drop b", "town a", 296),
    ("--method l2x", "town a b", None),
    ("--imputer kmeans-data", "town a b", None),
    ("--regime self-post-hoc", "town a b", None),
)
def test_each_decision_can_be_changed_by_an_option(words, entries, rows, tmp_path):
    file, frame = tmp_path / "t.csv", planted()
    frame.to_csv(file, index=False)
    command = ["explain", str(file), "--out", "r", *shlex.split(words)]
    source = read_source(parse(command), torch.device("cpu"))
    assert source.data.entry_names == tuple(entries.split("|" if "|" in entries else " "))
    assert len(source.data) == (rows or frame[["b", "y"]].notna().all(axis=1).sum())
    town = next((c for c in source.data.encoding.columns if c.name == "town"), None)
    assert len(town.levels) == 105 if words == "--include town" else town.pooled is not None


def test_all_commands_decide_alike(tmp_path, capsys):
    file, written = tmp_path / "t.csv", tmp_path / "f.json"
    planted().to_csv(file, index=False)
    found = []
    for words in (["impute", "--imputers", "marginal", "--draws", "2"],):
        words = [words[0], str(file), *words[1:], "--out", str(written), "--quiet"]
        assert main(words) == 0
        found.append(decided_in(capsys.readouterr().err))
        assert json.loads(written.read_text())["decisions"] == found[-1]
    compared = read_source(parse(["compare", str(file), "--methods", "lex"]), torch.device("cpu"))
    assert found == [list(compared.decisions)]
    assert "their rows are left out; --drop leaves a column out" in found[0][4]


def test_methods_and_commands_without_a_form_for_missing_values_say_so(tmp_path, capsys):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.normal(size=80), "y": draw.integers(0, 2, 80)})
    frame.loc[::9, "a"] = None
    path, out = tmp_path / "t.csv", tmp_path / "r"
    frame.assign(b=draw.normal(size=80))[["a", "b", "y"]].to_csv(path, index=False)
    command = ["explain", str(path), "--out", str(out), "--hide-missing", *QUICK[:-3], "--quiet"]
    for words, error in (
        (["--method", "l2x"], "l2x has no form for missing values that are hidden: use base_x, "),
        (["--imputer", "kmeans-data"], "the imputer 'kmeans-data' is fitted on whole rows"),
        (["--regime", "self-post-hoc"], "need a predictor that learns from what is shown"),
    ):
        assert main([*command, *words]) == 1
        assert error in capsys.readouterr().err
    assert main(["compare", str(path), "--methods", "lex", "--hide-missing"]) == 2
    assert "no option --hide-missing; did you mean '--drop-missing'" in capsys.readouterr().err
    assert main([*command, "--drop-missing"]) == 2
    assert "not allowed with argument --hide-missing" in capsys.readouterr().err
    assert not out.exists()


def test_warnings_of_the_table_are_in_the_report_too(tmp_path, capsys):
    """Once each, with the column's name escaped."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"<b>a</b>": draw.normal(size=60), "b": draw.normal(size=60)})
    frame.loc[::7, "<b>a</b>"] = -999
    frame["y"] = draw.integers(0, 2, 60)
    out = explained(tmp_path, *QUICK, frame=frame)
    warned = "column '<b>a</b>' holds -999, far from its other values"
    assert capsys.readouterr().err.count(warned) == 1
    assert page_of(out).count(f"Mind:</strong> {warned}") == 1
    raw = (out / "report.html").read_text(encoding="utf-8")
    assert "<b>a</b>" not in raw and "&lt;b&gt;a&lt;/b&gt;&#39; holds -999" in raw


@pytest.mark.complete
def test_a_black_box_that_says_one_thing_is_told(tmp_path, capsys):
    import joblib
    from sklearn.dummy import DummyClassifier

    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(90, 2)), columns=["a", "b"])
    frame["y"] = np.where(frame.a > 0, "u", "v")
    joblib.dump(DummyClassifier().fit(frame[["a", "b"]], frame.y), tmp_path / "m.joblib")
    words = ["--black-box", str(tmp_path / "m.joblib"), "--trust-black-box", *QUICK]
    out = explained(tmp_path, *words, frame=frame)
    assert "the black box says the same of every row" in capsys.readouterr().err
    assert "the same of every row" in page_of(out)


@over(
    ("leave it out with drop=['the id', 'b']", "leave it out with --drop 'the id' b"),
    ("give missing=('?',)", "give --missing '?'"),
    ("give missing=(…)", "give --missing CELL"),
    ("give text_encoding='cp1252' if", "give --encoding cp1252 if"),
    ("give decimal=',' or drop_missing=True", "give --decimal , or --drop-missing"),
    ("the drop is steep", "the drop is steep"),
    ("with drop=['x[1]', \"it's\"], or", """with --drop 'x[1]' 'it'"'"'s', or"""),
    ("give missing=('(0.5)',)", "give --missing '(0.5)'"),
    ("give missing=('--',)", "give --missing=--"),
    ("with drop=['-x y', 'b']", "with --drop='-x y' --drop=b"),
)
def test_arguments_are_told_as_they_are_typed(message, typed):
    assert one_line(ValueError(message)) == typed


@pytest.mark.smoke
def test_all_mends_at_once_are_words_to_type():
    problems = [
        Problem("a", {"drop": ["a, b"], "hide_missing": True}),
        Problem("b", {"drop": ["it's"], "missing": ["?", "-"]}),
    ]
    last = message_of(TableError(problems)).splitlines()[-1]
    assert shlex.split(last.removeprefix("all at once: ")) == [
        "--drop", "a, b", "it's", "--hide-missing", "--missing", "?", "--missing", "-",
    ]  # fmt: skip


def test_words_that_begin_with_a_dash_can_be_typed():
    message = one_line(ValueError("give missing=('--',) or drop=['--out', 'b']"))
    words = shlex.split(message.replace("give", "explain t.csv --out o").replace(" or ", " "))
    options = parse(words)
    assert options.missing == ["--"] and options.drop == ["--out", "b"]
    refused("--rows", parse, ["explain", "t.csv", "--out", "o", "--rows=--"], error=UsageError)


def test_warnings_have_options_and_names_stand_in_one_line(capsys):
    with short_warnings() as printed:
        warnings.warn("leave it out with drop=['the id']", stacklevel=1)
    assert printed == ["leave it out with --drop 'the id'"]
    assert capsys.readouterr().err == "lexppl: warning: leave it out with --drop 'the id'\n"
    assert text_table(["a"], [["two\nlines"], ["b"]]) == "  a\n  two lines\n  b"
