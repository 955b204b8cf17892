"""`lexppl explain` from the words that are typed to the files that are written."""

import html
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import arviz
import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import lexppl
from lexppl import explain, load
from lexppl.arviz_compatibility import group_names, group_of
from lexppl.cli import main
from lexppl.data import TableEncoding
from lexppl.data.divided_table import divided_frame
from lexppl.explanation import mask_means
from lexppl.explanation.reading.masks import masks_of
from lexppl.models import MLP
from lexppl.report.results.scores import Judgement
from lexppl.report.results.single_rows import Details
from lexppl.summary import number_text
from lexppl.systems import METHODS
from tests.cli.tables import epoch_lines, explained, numbers, page_of, people, written
from tests.refusals import over

QUICK = ["--epochs", "3", "--replicates", "2", "--draws", "10", "--quiet"]
SMALLEST = ["--epochs", "1", "--replicates", "1", "--draws", "3", "--quiet"]
FIXED = [*SMALLEST, "--penalty", "0.02"]


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    return written(people(), tmp_path_factory.mktemp("table"))


@pytest.fixture(scope="module")
def results(table) -> Path:
    """What one run on a table with numbers and words has written."""
    out = table.parent / "results"
    assert main(["explain", str(table), "--out", str(out), *QUICK]) == 0
    return out


def run(capsys, *words: str) -> str:
    """Run a command that must succeed: its output."""
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def test_files(results):
    tables = ("directions", "groups", "importance", "penalty_path", "rows")
    assert {path.name for path in results.iterdir()} == {
        "encoding.json", "explainer", "posterior.nc", "report.html", *(f"{n}.csv" for n in tables)
    }  # fmt: skip
    assert [path.name for path in results.parent.iterdir() if "partial" in path.name] == []


def test_importance(results):
    table = pd.read_csv(results / "importance.csv", index_col="feature")
    assert set(table.index) == {"age", "height", "job", "<b>shoe</b>"}
    assert table[["first", "gain"]].max(axis=1).is_monotonic_decreasing
    assert table["selection_probability"].between(0, 1).all()
    assert (table["lower"] <= table["upper"]).all()
    assert (table["gain_lower"] <= table["gain"]).all()
    assert (table["gain"] <= table["gain_upper"]).all()


def test_posterior_names_rows_and_features(results, table):
    posterior = arviz.from_netcdf(results / "posterior.nc")
    mask = masks_of(posterior)["mask"]
    assert mask.dims == ("chain", "draw", "row", "feature")
    assert mask.shape == (1, 10, 90, 4)
    assert mask["feature"].values.tolist() == ["age", "height", "job", "<b>shoe</b>"]
    rows = mask["row"].values
    frame = pd.read_csv(table).iloc[rows]
    x = group_of(posterior, "constant_data")["x"]
    ages = x.sel(input="age").values
    assert sorted(rows.tolist()) == list(range(90))
    learned = people().age
    expected = (frame.age - learned.mean()) / learned.std(ddof=0)
    np.testing.assert_allclose(ages, expected, rtol=1e-5, atol=1e-5)


def test_each_row_is_explained_by_the_saved_replicate_that_has_not_seen_it(results, table):
    posterior = arviz.from_netcdf(results / "posterior.nc")
    rows = masks_of(posterior)["row"].values
    explainer = lexppl.load(results / "explainer")
    encoding = TableEncoding.from_json(json.loads((results / "encoding.json").read_text()))
    x = encoding.encode(pd.read_csv(table).iloc[rows])
    again = explain(explainer, x, draws=0)
    assert masks_of(again)["mask"]["feature"].values.tolist() == list(encoding.entry_names)
    every = mask_means(again).values
    of_folds = group_of(posterior, "sample_stats")["fold_selection_probability"].values
    np.testing.assert_allclose(of_folds, every, atol=1e-6)
    fold = divided_frame(people(), folds=2, seed=0).fold[rows]
    own = mask_means(posterior).values[0]
    np.testing.assert_allclose(own, every[fold, np.arange(len(rows))], atol=1e-6)


def test_report_stands_alone(results):
    page = (results / "report.html").read_text(encoding="utf-8")
    addresses = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^\"'#)>\s]{4})", page)
    assert {*addresses} <= {"data"} and page.count("<svg") == 6
    assert "<script src" not in page and "@import" not in page
    assert "http:" not in page.replace("http://www.w3.org/", "")  # Names of SVG's elements
    assert "fetch(" not in page and "import(" not in page and len(page) < 2_000_000
    assert "<b>shoe</b>" not in page and html.escape("<b>shoe</b>") in page
    assert "{{" not in page and "{%" not in page


def test_report_tells_what_was_run(results, table):
    page = page_of(results)
    for told in (
        "What predicts income in people",
        "How to read this",
        "The agreement compares the spread of the draws within a replicate",
        "EVAL-X on the explainer's features",
        "Ranked by gain or by what they say alone",
        "learn from other rows than those that they judge",
        f"torch {version('torch')}",
        f"lexppl explain {table} --out",
        "90 rows to fit on, each explained by a fit that has not seen it (2 fits, each to the rows",
        "'income' (high, low)",
    ):
        assert told in page


def test_the_penalty_is_from_the_data(results):
    path = pd.read_csv(results / "penalty_path.csv")
    assert len(path) == 8 and path["chosen"].sum() == 1
    penalty = path["penalty"][path["chosen"]].item()
    explainer = lexppl.load(results / "explainer")
    selectors = [part for m in explainer.models for part in m.modules()]
    penalties = [part.penalty for part in selectors if hasattr(part, "row_penalties")]
    assert penalties == pytest.approx([penalty] * 2)
    page = page_of(results)
    assert f"λ = {penalty:.3g} nats, from the data" in page
    assert f"In use is λ = {penalty:.3g}" in page and "penalty_path.csv" in page


@pytest.mark.complete(but=1)
@over((["--penalty", "0.02"], "λ = 0.02 nats<"), (["--method", "real_x"], "λ = 0.01 nats<"))
def test_nothing_is_chosen_that_was_typed_or_cannot_be(
    words, told, table, tmp_path, capsys, monkeypatch
):
    """There is no dial then, and no other penalty is looked at for one."""
    monkeypatch.setattr("lexppl.report.report.at_each_penalty", None)
    out = tmp_path / "r"
    printed = run(capsys, "explain", table, "--out", out, *SMALLEST, *words)
    assert "penalty_path.csv" not in printed and not (out / "penalty_path.csv").exists()
    page = page_of(out)
    assert told in page and 'id="dial-at"' not in page


def test_printed_table_and_progress(results, table, tmp_path, capsys):
    out = tmp_path / "printed"
    loud = [word for word in QUICK if word != "--quiet"]
    assert main(["explain", str(table), "--out", str(out), *loud, "--epoch-lines"]) == 0
    captured = capsys.readouterr()
    assert "epoch" in captured.err and "fitting EVAL-X" in captured.err
    # The first fit is the explainer's; the judges have epochs of their own.
    assert epoch_lines(captured.err)[:3] == ["1", "2", "3"]
    assert "fitting EVAL-X" not in captured.out
    lines = captured.out.splitlines()
    assert lines[0] == "people: 90 rows, 4 features, target 'income' (high, low)"
    ranked = pd.read_csv(Path(out) / "importance.csv")["feature"].tolist()
    start = next(i for i, line in enumerate(lines) if "probability" in line and "agreement" in line)
    assert [line.split()[0] for line in lines[start + 1 : start + 5]] == ranked
    for who in ("the explainer", "a predictor that sees everything", "EVAL-X on the explainer's"):
        (line,) = [line for line in lines if line.strip().startswith(who)]
        assert re.search(r"\d\.\d{3}", line)
    # The same seed gives the same numbers.
    for name in ("importance.csv", "encoding.json"):
        assert (Path(out) / name).read_bytes() == (results / name).read_bytes()
    again, before = (load_file(place / "explainer/weights.safetensors") for place in (out, results))
    assert again.keys() == before.keys()
    assert all(torch.equal(again[name], before[name]) for name in again)


def test_overwriting(table, tmp_path, capsys):
    out = tmp_path / "r"
    out.mkdir()
    (out / "report.html").write_text("earlier")
    words = ("explain", table, "--out", out, *SMALLEST)
    (out / "penalty_path.csv").write_text("earlier")
    run(capsys, *words, "--overwrite", "--k", "2")
    assert not (out / "penalty_path.csv").exists()
    assert (out / "report.html").stat().st_size > 10_000
    posterior = arviz.from_netcdf(out / "posterior.nc")
    mask = masks_of(posterior)["mask"]
    assert mask.sizes["chain"] == 1
    assert (mask.sum("feature") == 2).all()
    page = page_of(out)
    assert "exactly 2 of the features" in page and "There is one replicate only" in page


def test_too_few_rows_of_a_class_to_validate_on(tmp_path, capsys):
    """A fit refuses validation rows of one class, so none are set apart, and that is said."""
    frame = people()
    frame["income"] = ["rare", "rare", *["usual"] * 88]
    out = explained(tmp_path, "--test-share", "0.2", *QUICK, "--epoch-lines", frame=frame)
    captured = capsys.readouterr()
    assert epoch_lines(captured.err) == [], "of --quiet"
    assert "72 rows to fit on, 0 to choose the best epoch on, 18 held out" in captured.out
    assert "there are too few rows of each class" in captured.err
    # 2 rows of 72: three of 74 where each class has one more.
    entropy = -(3 / 74 * np.log(3 / 74) + 71 / 74 * np.log(71 / 74)) / np.log(2.0)
    assert f"not chosen from the data: it is {0.02 * entropy:.3g} nats" in captured.err
    assert "too few rows of each class" in page_of(out)


@pytest.mark.complete
def test_synthetic_set_needs_no_encoding(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("lexppl.report.report.EXPLAINED_ROWS", 20)
    words = ["--epochs", "1", "--replicates", "1", "--draws", "3", "--quiet"]
    printed = run(capsys, "explain", "Syn1", "--out", tmp_path / "r", *words)
    assert "encoding.json" not in printed
    assert not (tmp_path / "r" / "encoding.json").exists()
    mask = masks_of(arviz.from_netcdf(tmp_path / "r" / "posterior.nc"))["mask"]
    assert mask.sizes["row"] == 20


def dumped(model: object, folder: Path) -> list[str]:
    joblib.dump(model, folder / "model.joblib")
    return ["--black-box", str(folder / "model.joblib"), "--trust-black-box"]


def test_black_box_sees_the_table_as_it_was(tmp_path, capsys):
    frame = people(120)
    path = written(frame, tmp_path)
    model = make_pipeline(
        make_column_transformer(
            (StandardScaler(), ["age"]), (OneHotEncoder(), ["job"]), remainder="drop"
        ),
        LogisticRegression(C=100.0),
    ).fit(frame.drop(columns="income"), frame["income"])
    printed = run(
        capsys, "explain", path, "--out", tmp_path / "r", *FIXED, *dumped(model, tmp_path)
    )
    assert "explains the black box" in printed
    assert "agrees with the black box" in printed
    line = next(line for line in printed.splitlines() if line.strip().startswith("the black box"))
    # Asked on standardised ages it would be right as often as by chance.
    name, _, figures = line.partition("on rows it may have learned from")
    assert name.strip() == "the black box," and float(figures.split()[2]) > 0.85
    assert "Rows held out from the explainer: 24" in printed and "Held-out rows" not in printed
    first, page = printed.index("It agrees with the black box on "), page_of(tmp_path / "r")
    assert first < printed.index("What does the prediction rest on?")
    assert "if the black box was fitted on them, its own scores say nothing of new rows" in page
    assert "surrogate post-hoc" in page and "model.joblib" in page


@pytest.mark.complete
def test_black_box_of_numbers(tmp_path, capsys):
    frame = numbers()
    path = written(frame, tmp_path, "houses.csv")
    model = LinearRegression().fit(frame[["a", "b", "c"]].to_numpy(), frame["price"])
    printed = run(
        capsys, "explain", path, "--out", tmp_path / "r", *FIXED, *dumped(model, tmp_path)
    )
    line = next(line for line in printed.splitlines() if line.strip().startswith("the black box"))
    assert float(line.split()[-2]) > 0.95


@pytest.mark.complete
def test_black_box_that_is_a_module(tmp_path, capsys):
    words = dumped(MLP(13, 3, (4,), seed=0), tmp_path)
    out = ["--out", tmp_path / "r"]
    assert main(["explain", "wine", *map(str, out), *FIXED, *words]) == 1
    assert "--black-box-output" in capsys.readouterr().err
    for seen in ("table", "encoded"):
        printed = run(
            capsys, "explain", "wine", *out, "--overwrite", *FIXED, *words,
            "--black-box-output", "logits", "--black-box-input", seen,
        )  # fmt: skip
        assert "explains the black box" in printed


@pytest.mark.complete
def test_module_runs_the_same(table, tmp_path):
    command = [sys.executable, "-m", "lexppl", "explain", str(table), "--out", str(tmp_path / "r")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    # A terminal that knows neither λ nor ± must not be the end of it.
    done = subprocess.run(
        [*command, *FIXED], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Ranked groups of features" in done.stdout


# Every method by name from the command line, and methods side by side.


TWO_EPOCHS = ["--epochs", "2", "--quiet"]
EXPLAIN = [*TWO_EPOCHS, "--replicates", "2", "--draws", "5"]


SAID = {
    "fastshap": ("size of the feature's contribution", "probability"),
    "senn": ("size of the feature's contribution", "probability"),
    "q_fit": ("share of the importance", "probability"),
    "q_fit_global": ("share of the importance", "probability"),
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
    assert main([*words, "--out", str(tmp_path / "f.json"), *TWO_EPOCHS]) == 0
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


# The posterior file, as a statistician without lexppl reads it.


THIRTY_DRAWS = ["--epochs", "3", "--replicates", "2", "--draws", "30", "--quiet"]
THIRTY_DRAWS += ["--penalty", "0.01", "--predictor", "network"]

READ = """
import sys, warnings

sys.modules["lexppl"] = None  # importing it is an error
warnings.simplefilter("ignore")
import matplotlib

matplotlib.use("Agg")
import arviz as az
import numpy as np

first, second = (az.from_netcdf(path) for path in sys.argv[1:])


def group(posterior, name):
    found = posterior[name]
    return found.to_dataset() if hasattr(found, "to_dataset") else found


def total(elpd):
    return float(getattr(elpd, "elpd_loo", getattr(elpd, "elpd", None)))


names = list(group(first, "posterior")["feature"].values)
for of in ("posterior", "predictions"):
    summary = az.summary(first, var_names=["importance"], group=of)
    assert list(summary.index) == [f"importance[{name}]" for name in names]
    means = group(first, of)["importance"].mean(("chain", "draw")).values
    assert np.allclose(summary["mean"].astype(float), means, atol=0.006)
az.plot_forest(first, var_names=["importance"])
az.plot_rank(first, var_names=["importance"])
scores = []
for posterior in (first, second):
    evidence = group(posterior, "sample_stats")["log_evidence"].values.astype(float)
    scores.append(np.log(np.exp(evidence).mean(0)).sum())
    assert abs(total(az.loo(posterior)) - scores[-1]) < 1e-3, "loo is no held-out log score"
table = az.compare({"first": first, "second": second})
best = "first" if scores[0] > scores[1] else "second"
assert table.index[0] == best
difference = np.abs(table["elpd_diff"].astype(float)).max()
assert abs(difference - abs(scores[0] - scores[1])) < 0.6, "ArviZ 1.x rounds to whole nats"
try:
    import lexppl
except ImportError:
    print("read without lexppl")
"""


@pytest.fixture
def no_report(monkeypatch):
    monkeypatch.setattr("lexppl.report.page.write_report", lambda *_: None)
    monkeypatch.setattr("lexppl.report.report.Report.judged", lambda *_: (Judgement(()), None))
    monkeypatch.setattr("lexppl.cli.explain_command.print_report", lambda *_: None)
    monkeypatch.setattr("lexppl.report.report.Report.gains", lambda *_: None)
    monkeypatch.setattr("lexppl.report.report.Report._details", lambda *_: Details())


@pytest.mark.complete
@pytest.mark.parametrize("frame", [people(), numbers()], ids=["classes", "numbers"])
def test_plain_arviz_reads_and_compares_two_explainers(tmp_path, no_report, frame):
    table = written(frame, tmp_path)
    files = []
    for epochs in ("3", "12"):
        out = tmp_path / epochs
        words = [*THIRTY_DRAWS, "--epochs", epochs]
        assert main(["explain", str(table), "--out", str(out), *words]) == 0
        files.append(str(out / "posterior.nc"))
    done = subprocess.run(
        [sys.executable, "-c", READ, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "read without lexppl"
    posterior = arviz.from_netcdf(files[0])
    assert {"predictions", "posterior", "log_likelihood", "observed_data"} <= set(
        group_names(posterior)
    )
    if "price" in frame:
        observed = group_of(posterior, "observed_data")["y"].values
        assert set(np.round(observed)) <= set(np.round(frame["price"]))
