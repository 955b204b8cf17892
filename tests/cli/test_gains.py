"""`lexppl explain` ranks groups of features by what they are worth, and says which are found."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import lexppl
from lexppl.cli import explain_table, main
from lexppl.cli.results import gains
from lexppl.cli.results.scores import folds_at
from lexppl.evaluation import feature_gains, gain_table
from lexppl.evaluation.prediction import predictive_log_likelihood
from lexppl.explanation import explain
from lexppl.explanation.reading.masks import masks_of
from lexppl.tabular.predictors import own_judge
from tests.cli.tables import explained, numbers, page_of, people, written

QUICK = ["--epochs", "3", "--replicates", "2", "--draws", "5", "--quiet"]
FIXED = [*QUICK, "--penalty", "0.02"]
LONGER = [*FIXED, "--epochs", "20"]  # Networks learn two columns, one with a p above .001
COLUMNS = ["group", "gain", "gain_lower", "gain_upper", "p", "found"]


def ran(out: Path, *words: object) -> tuple[pd.DataFrame, str]:
    """The table and the report of a run that must succeed; nothing is found whose interval is not
    above 0."""
    assert main(["explain", *map(str, words), "--out", str(out), "--overwrite"]) == 0
    table = pd.read_csv(out / "importance.csv", index_col="feature")
    if "found" in table:
        assert not (table["found"] & (table["gain_lower"] <= 0)).any()
    return table, page_of(out)


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


def test_nothing_is_found_by_a_handful_of_rows_of_a_label(tmp_path, capsys):
    frame = people(120).assign(income=["low"] * 117 + ["high"] * 3)
    table, page = ran(tmp_path / "r", written(frame, tmp_path), *FIXED)
    told = "nothing is found: 3 of 120 held-out labels are rare"
    assert told in capsys.readouterr().err and told in page
    assert "found" not in table and not (tmp_path / "r" / "groups.csv").exists()


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
    assert "given the fits, at a false discovery rate of 0.05." in page
    assert "Groups that are not found stand in grey." in page
    first = page.partition("How sure is that?")[0]
    assert all(f"<strong>{name}</strong>" in first for name in table.index[:2])
    assert "would be predicted wrong" in first


@pytest.fixture
def judged(monkeypatch):
    """What the gains of a run were computed from."""
    seen, judge_gains = {}, explain_table.judge_gains

    def noted(table, judge, *rest):
        seen.update(judge=judge, source=table.source, networks=table.networks)
        seen.update(targets=table.targets(), predicted=table.predicted)
        seen["found"] = judge_gains(table, judge, *rest)
        return seen["found"]

    monkeypatch.setattr(explain_table, "judge_gains", noted)
    return seen


def again(judged, folder):
    """The gains of all held-out rows by the masks of the saved explainer, each row by the fits that
    hold it out."""
    explainer, source = lexppl.load(folder / "explainer"), judged["source"]
    folds = folds_at(source, source.test_rows)
    x, y = source.test.x, judged["targets"][source.test_rows]
    masks = masks_of(folds.values(explain, explainer, x, draws=20, seed=0))["mask"].values
    masks = torch.as_tensor(masks).flatten(0, 1).float()
    entries, itself = judged["judge"].entries, judged["found"].each.judge is None
    own = own_judge(judged["networks"] or explainer, entries)
    if itself:
        own = own_judge(explainer, entries, of_any=True)
    by_own, random = (
        feature_gains(judge, x, y, masks, groups=judged["found"].each.groups, folds=folds)
        for judge in (own or judged["judge"], judged["judge"])
    )
    single = by_own.gains.clone()
    for group in judged["found"].each.groups.members:
        if len(group) > 1:
            single[:, group] = random.gains[:, group]
    return replace(by_own, gains=single)


@pytest.mark.parametrize(("frame", "target"), [(people, "income"), (numbers, "price")])
def test_gains_are_by_the_saved_explainers_masks_on_rows_held_out_of_both(
    frame, target, judged, tmp_path, capsys
):
    table, _ = ran(tmp_path / "r", written(frame(), tmp_path), *FIXED)
    assert table[COLUMNS].notna().all(axis=None)
    assert f"how much worse {target} is predicted without the group" in flat(capsys)
    gains, source = again(judged, tmp_path / "r"), judged["source"]
    assert judged["predicted"] == target and torch.equal(judged["targets"], source.data.y)
    fits = judged["judge"].result
    assert fits.replicates == 2 and fits.event_shape == (source.data.n_features,)
    # Networks of what is drawn judge, also those that trees replaced, which read it as missing.
    assert judged["found"].each.judge in (None, "the network that trees replaced")
    assert (judged["networks"] is None) == (target == "price")
    found = gain_table(gains, 0.1)
    assert list(found.index) == list(table.index)
    # The table is told to four digits.
    for column, of in (("gain", "gain"), ("gain_lower", "lower"), ("gain_upper", "upper")):
        np.testing.assert_allclose(table[column], found[of], rtol=6e-4, atol=1e-6)
    np.testing.assert_allclose(table["p"], found["p"], rtol=6e-4, atol=1e-12)
    assert table["found"].tolist() == found["found"].tolist()
    assert table["group"].tolist() == found["group"].tolist()


@pytest.mark.parametrize("itself", [True, False])
def test_gains_by_a_judge_that_predicts_worse_are_not_printed(
    itself, monkeypatch, tmp_path, capsys
):
    """Of members, whom EVAL-X judges; and of all, where the explainer itself cannot judge."""

    def likelier(*args, **how):
        return predictive_log_likelihood(*args, **how) + 10.0

    monkeypatch.setattr("lexppl.cli.results.gains.predictive_log_likelihood", likelier)
    if not itself:
        monkeypatch.setattr("lexppl.cli.results.gains.own_judge", lambda *_, **__: None)
    frame = people(200)
    frame.insert(0, "years", frame["age"] + 0.01)
    table, page = ran(tmp_path / "r", written(frame, tmp_path), *FIXED)
    told, what = capsys.readouterr(), "members of groups" if itself else "features"
    line = re.search(
        rf"EVAL-X predicts worse than the explainer, by [^:]*: what {what} gain", told.err
    )
    assert line is not None and line.group(0) in page and "invalid value" not in told.err
    members = table["group"].duplicated(keep=False)
    assert members.sum() == 2 and not table["found"][members].any()
    assert table["gain"].isna().equals(members if itself else members | True)
    assert ("Ranked by gain" in page) == itself and "nan" not in page.replace("nanm", "")
    assert "nan" not in told.out


def test_the_judge_learns_nothing_from_the_labels_that_it_judges(monkeypatch, tmp_path):
    """Other labels of one fold change every fit of the judge but the one that holds it out."""
    given = {}
    fit_judge = explain_table.fit_judge
    monkeypatch.setattr(
        explain_table,
        "fit_judge",
        lambda plan, source, *rest: (
            given.update(at=(plan, source, *rest[:1])) or fit_judge(plan, source, *rest)
        ),
    )
    ran(tmp_path / "r", written(people(), tmp_path), *FIXED)
    plan, rows, *rest = given["at"]
    x, y = rows.train
    held_out = rows.folds.part == 1
    fits = [
        fit_judge(plan, replace(rows, train=(x, torch.where(held_out & flip, 1 - y, y))), *rest)
        for flip in (False, True)
    ]
    for number in range(2):
        pairs = zip(*(fit.result.models[number].parameters() for fit in fits), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs) == (number == 1)


@pytest.mark.complete
def test_the_rate_is_the_one_typed(tmp_path, capsys):
    path = written(people(), tmp_path)
    strict, _ = ran(tmp_path / "r", path, *LONGER, "--fdr", "1e-30")
    assert "false discovery rate of 1e-30" in flat(capsys)
    loose, _ = ran(tmp_path / "r", path, *LONGER, "--fdr", "0.99")
    assert "false discovery rate of 0.99" in flat(capsys)
    assert list(strict["p"]) == list(loose["p"])
    assert loose["found"].sum() > strict["found"].sum()


@pytest.mark.parametrize("option", ["--fdr", "--fwer"])
@pytest.mark.parametrize("rate", ["0", "1", "x", "-0.1"])
def test_another_rate_is_refused(option, rate, tmp_path, capsys):
    assert main(["explain", "wine", "--out", str(tmp_path / "r"), f"{option}={rate}"]) == 2
    told = capsys.readouterr().err
    assert option in told and len(told.splitlines()) == 1


def test_no_more_rows_are_judged_than_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("lexppl.cli.results.gains.GAIN_ROWS", 7)
    monkeypatch.setattr("lexppl.cli.results.gains.EVALUATIONS", 10)
    table, _ = ran(tmp_path / "r", written(people(), tmp_path), *FIXED)
    how = "weighted as rare labels are judged first, over 7 rows, each by fits that have not"
    assert how in flat(capsys)
    assert table["gain"].notna().all()


def test_of_many_rows_rare_labels_are_judged_first_and_weigh_less(monkeypatch):
    """Weighted means of any value are those of all rows; 1 % positives are all judged."""
    monkeypatch.setattr(gains, "GAIN_ROWS", 300)
    draw = np.random.default_rng(0)
    y = torch.from_numpy((draw.random(9000) < 0.01).astype(int))
    value = 3.0 * y + torch.from_numpy(draw.normal(size=9000))
    means = []
    for seed in range(200):
        rows, weight = gains._judged_rows(y, seed, labels=True)
        assert len(rows) == len(rows.unique()) == 300 and y[rows].sum() == y.sum()
        torch.testing.assert_close(y[rows].bincount(weight), y.bincount(), check_dtype=False)
        means.append(float((weight * value[rows]).sum() / weight.sum()))
    z = (np.mean(means) - float(value.mean())) / (np.std(means) / math.sqrt(len(means)))
    assert abs(z) < 4.5
    plain = gains._judged_rows(y, 0)
    assert plain[1] is None and y[plain[0]].sum() < 15 < y.sum()


@pytest.mark.complete
def test_masks_that_do_not_select_are_ranked_as_before(tmp_path, capsys):
    table, page = ran(tmp_path / "r", "wine", "--method", "xtab", *QUICK)
    assert not set(COLUMNS) & set(table.columns)
    assert table["mask_mean"].is_monotonic_decreasing
    assert "Gain:" not in capsys.readouterr().out
    assert "Gain:" not in page and 'class="lost"' not in page


@pytest.mark.complete
def test_of_a_black_box_the_gain_is_in_telling_what_it_says(judged, tmp_path, capsys):
    frame = people(200)
    asked = frame[["age", "income"]].assign(noise=np.random.default_rng(0).normal(size=200))
    model = LogisticRegression(C=100.0).fit(asked[["age", "noise"]].to_numpy(), asked["income"])
    joblib.dump(model, tmp_path / "m.joblib")
    path = written(asked[["age", "noise", "income"]], tmp_path)
    words = [path, "--black-box", tmp_path / "m.joblib", "--trust-black-box", *FIXED]
    table, page = ran(tmp_path / "r", *words)
    assert "how much worse what the black box says is predicted" in flat(capsys)
    assert "how much worse what the black box says is predicted" in page
    source = judged["source"]
    rows = source.table[["age", "noise"]].to_numpy()
    outputs = torch.as_tensor(model.predict_proba(rows), dtype=torch.float32)
    assert list(source.data.class_names) == list(model.classes_)
    torch.testing.assert_close(judged["targets"], outputs)
    found = gain_table(again(judged, tmp_path / "r"))
    known = table["gain"].dropna()
    # EVAL-X, after ten epochs, does not judge members of a group.
    assert len(known) == len(table) or "what members of groups gain is not known" in page
    np.testing.assert_allclose(known, found["gain"][known.index], rtol=6e-4, atol=1e-6)


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
    assert f"how much worse {predicted} is predicted without the group" in flat(capsys)


@pytest.mark.complete
def test_interrupted_gains_leave_the_rest(tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lexppl.cli.explain_table.judge_gains", interrupted)
    explained(tmp_path, *FIXED, code=130)
    captured = capsys.readouterr()
    assert "the gains were interrupted" in captured.err
    assert "EVAL-X" in captured.out and "Ranked features: the probability" in captured.out
    # A second Ctrl-C ends with the model alone.
    monkeypatch.setattr("lexppl.cli.explain_table.details_of", interrupted)
    out = explained(tmp_path, *FIXED, "--overwrite", code=130)
    assert sorted(p.name for p in out.iterdir()) == ["encoding.json", "explainer"]


@pytest.mark.complete
def test_a_judge_of_outputs_that_was_interrupted_judges_no_gains(tmp_path, capsys, monkeypatch):
    fit_judge, fits = explain_table.fit_judge, []

    def cut_short(*given):
        judge = fit_judge(*given)
        fits.append(judge)
        judge.result.interrupted = len(fits) == 2
        return judge

    monkeypatch.setattr(explain_table, "fit_judge", cut_short)
    explained(tmp_path, *FIXED, "--regime", "self-post-hoc", code=130)
    captured = capsys.readouterr()
    assert "the gains were interrupted" in captured.err and "EVAL-X" in captured.out


@pytest.mark.complete
def test_gains_that_are_no_numbers_leave_the_rest(tmp_path, capsys, monkeypatch):
    def fails(*_, **__):
        raise FloatingPointError("log p(y | x̃) is NaN in 3 of 18 rows")

    monkeypatch.setattr("lexppl.cli.explain_table.judge_gains", fails)
    out = explained(tmp_path, *FIXED)
    captured = capsys.readouterr()
    assert "gains are not known: log p(y | x̃) is NaN in 3 of 18 rows" in captured.err
    assert "Ranked features: the probability" in captured.out
    table = pd.read_csv(out / "importance.csv", index_col="feature")
    assert table["selection_probability"].is_monotonic_decreasing and "gain" not in table
    assert "gains are not known" in page_of(out)


# Groups


def with_years(rows=300):
    """Age a second time, in other units."""
    frame = people(rows)
    frame.insert(0, "years", 1.1 * frame["age"] + 0.01 * frame["height"])
    return frame


def test_columns_that_depend_are_one_group_with_its_members_below(tmp_path, capsys):
    words = ["--epochs", "60", "--replicates", "3", "--draws", "5", "--quiet"]
    words += ["--penalty", "0.02", "--learning-rate", "0.003"]
    table, page = ran(tmp_path / "r", written(with_years(), tmp_path), *words)
    assert [*table.columns[-6:]] == [*COLUMNS[1:], "group"]
    name = table.loc["age", "group"]
    assert name in ("age / years", "years / age") and table.loc["years", "group"] == name
    assert table.loc["job", "group"] == "job" and table.loc["job", "found"]
    out = capsys.readouterr().out
    lines = out[out.index("Ranked groups of features") :].splitlines()[1:]
    assert lines[0].split() == [
        *("group", "gain", "interval", "found", "probability", "range", "of", "fits", "agreement")
    ]
    place = next(n for n, line in enumerate(lines) if line.startswith(f"  {name}  "))
    assert " yes " in lines[place]
    assert {line[4:].split()[0] for line in lines[place + 1 : place + 3]} == {"age", "years"}
    assert all(line.startswith("    ") for line in lines[place + 1 : place + 3])
    assert not any(line.startswith("    ") for line in lines[:place])
    assert page.count('<tr class="member">') == 2 and "one group; a member's gain" in page


def test_groups_may_be_those_of_a_file(tmp_path, capsys):
    groups = {"body <i>": ["height", "<b>shoe</b>"]}
    (tmp_path / "g.json").write_text(json.dumps(groups), encoding="utf-8")
    path = written(with_years(90), tmp_path)
    table, page = ran(tmp_path / "r", path, *FIXED, "--groups", tmp_path / "g.json")
    assert table["group"].to_dict() == {
        "height": "body <i>", "<b>shoe</b>": "body <i>", "age": "age", "years": "years",
        "job": "job",
    }  # fmt: skip
    assert "\n  body <i>  " in capsys.readouterr().out
    raw = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert "body <i>" in page and "body <i>" not in raw and "body &lt;i&gt;" in raw


BAD = {
    "no JSON": ("age, years", "it is no JSON file"),
    "no text": (b"\xff\xfe", "it is no JSON file"),
    "too deep": ("[" * 100_000, "it is no JSON file"),
    "a list": ('["age"]', "it must be names and columns"),
    "a number": ('{"a": 3}', "group 'a' must be a list of columns; it is 3"),
    "a name": ('{"a": "age"}', "group 'a' must be a list of columns; it is 'age'"),
    "nothing": ('{"a": []}', "group 'a' must be a list of columns"),
    "unknown": ('{"a": ["agee"]}', "group 'a' has the column 'agee', which the data does not have"),
    "the target": ('{"a": ["income"]}', "group 'a' has the column 'income', which the data does"),
    "twice": ('{"a": ["age"], "b": ["age"]}', "column 'age', which is in the group 'a' too"),
    "a column's name": ('{"job": ["age"]}', "which no column outside them has"),
    "missing": (None, "No such file"),
}


@pytest.mark.parametrize("case", BAD)
def test_groups_that_do_not_fit_are_refused_in_a_line_before_any_work(case, tmp_path, capsys):
    content, told = BAD[case]
    file = tmp_path / "g.json"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    words = ["explain", str(written(people(), tmp_path)), "--out", str(tmp_path / "r")]
    assert main([*words, "--groups", str(file)]) == (1 if content is None else 2)
    captured = capsys.readouterr()
    assert told in captured.err and str(file) in captured.err
    assert len(captured.err.splitlines()) == 1 and not (tmp_path / "r").exists()


@pytest.mark.complete
def test_a_family_wise_error_rate_in_its_place(tmp_path, capsys):
    path = written(people(), tmp_path)
    loose, _ = ran(tmp_path / "r", path, *LONGER, "--fdr", "0.99")
    capsys.readouterr()
    strict, page = ran(tmp_path / "r", path, *LONGER, "--fwer", "1e-30")
    for said in (flat(capsys), page):
        assert "a family-wise error of 1e-30" in said and "false discovery" not in said
    assert strict["p"].tolist() == loose["p"].tolist()
    assert strict["found"].sum() < loose["found"].sum()
    assert (strict["gain_lower"] < loose["gain_lower"]).all()
