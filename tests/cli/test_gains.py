"""`lexppl explain` ranks groups of features by what they are worth, and says which are found."""

import json
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import lexppl
from lexppl.cli import main
from lexppl.evaluation import Folds, importance
from lexppl.report import report
from tests.cli.tables import numbers, page_of, people, written
from tests.refusals import over

QUICK = ["--epochs", "3", "--replicates", "2", "--draws", "5", "--quiet"]
FIXED = [*QUICK, "--penalty", "0.02"]
LONGER = [*FIXED, "--epochs", "20"]  # Networks learn two columns, one with a p above .001
BOTH = [
    f"{of}{end}" for of in ("first", "gain") for end in ("", "_error", "_lower", "_upper", "_p")
]
COLUMNS = ["group", *BOTH, "p", "found"]


def ran(out: Path, *words: object) -> tuple[pd.DataFrame, str]:
    """The table and the report of a run that must succeed; nothing is found that has no p below
    a half."""
    assert main(["explain", *map(str, words), "--out", str(out), "--overwrite"]) == 0
    table = pd.read_csv(out / "importance.csv", index_col="feature")
    if "found" in table:
        assert (table[["first_p", "gain_p"]].min(axis=1)[table["found"]] < 0.5).all()
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
    told = "gains were not tested: only 3 of 120 held-out rows have a rarer label"
    assert told in capsys.readouterr().err and told in page
    assert "found" not in table and not (tmp_path / "r" / "groups.csv").exists()


@pytest.mark.complete
def test_what_matters_is_found_and_noise_is_not(learned):
    (table, page), _ = learned
    assert table["found"].to_dict() == {
        "age": True, "job": True, "height": False, "<b>shoe</b>": False
    }  # fmt: skip
    assert set(table.index[:2]) == {"age", "job"}
    assert (table[["first", "gain"]].iloc[:2] > 0.1).all(axis=None)
    assert (table.loc[["age", "job"], "gain_lower"] > 0).all()
    assert table[["first", "gain"]].max(axis=1).is_monotonic_decreasing
    assert page.count('<tr class="lost">') == 2
    assert "alone or beyond the others, at a false discovery rate of 0.05." in page
    assert "Groups that are not found stand in grey." in page
    first = page.partition("How sure is that?")[0]
    assert all(f"<strong>{name}</strong>" in first for name in table.index[:2])
    assert "more of 100 rows wrong" in first and "↓ less “low” where high" in first


def noted(patch):
    """What the gains of runs to come will be computed from."""
    seen, judge_gains = {}, report.judge_gains

    def noting(table, *rest):
        seen.update(table=table, found=judge_gains(table, *rest))
        return seen["found"]

    patch.setattr(report, "judge_gains", noting)
    return seen


@pytest.fixture
def judged(monkeypatch):
    """What the gains of a run were computed from."""
    return noted(monkeypatch)


def told_run(factory, frame, *words, **limits):
    """What the gains of a run were computed from, its table, its folder and what it printed."""
    folder, printed = factory.mktemp("run"), []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(f"lexppl.report.results.gains.{name}", value)
        patch.setattr("builtins.print", lambda *said, **_: printed.append(" ".join(said)))
        judged = noted(patch)
        table, _ = ran(folder / "r", written(frame, folder), *FIXED, *words)
    return judged, table, folder / "r", "\n".join(printed)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """A run on the people."""
    return told_run(tmp_path_factory, people())


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """A run with the gains of two groups of four, and of 60 rows."""
    return told_run(tmp_path_factory, people(), MOST_SETS=5, GAIN_ROWS=60)


def is_importance_of_the_table(judged, table, **how):
    """Whether the printed gains are `importance` of all rows in the folds of the fits, which no
    mask, penalty or epoch enters."""
    fitted = judged["table"]
    source, groups = fitted.source, fitted.groups
    folds = Folds(torch.from_numpy(source.fold), source.folds)
    worth = importance(source.data, groups=groups, folds=folds, **how)
    expected = worth.feature_table(level=None)
    for name in ("first", "last"):
        for end in ("", "_error", "_lower", "_upper", "_p"):
            printed = table.loc[expected.index, f"{name.replace('last', 'gain')}{end}"]
            # The table has four digits.
            np.testing.assert_allclose(printed, expected[f"{name}{end}"], rtol=6e-4, atol=1e-6)
    assert table.loc[expected.index, "found"].tolist() == expected["found"].tolist()
    assert table.loc[expected.index, "group"].tolist() == expected["group"].tolist()


def test_gains_of_labels_are_of_the_table_and_not_of_the_fit(usual, tmp_path):
    judged, table, _, told = usual
    assert table[COLUMNS].notna().all(axis=None)
    assert "how much worse income is predicted without the group" in " ".join(told.split())
    assert judged["table"].predicted == "income"
    is_importance_of_the_table(judged, table)
    words = [*QUICK, "--penalty", "0.5", "--epochs", "1"]
    other, _ = ran(tmp_path / "o", written(people(), tmp_path), *words)
    pd.testing.assert_frame_equal(table[COLUMNS].sort_index(), other[COLUMNS].sort_index())


def test_gains_of_a_response_are_of_the_table(judged, tmp_path, capsys):
    table, _ = ran(tmp_path / "r", written(numbers(), tmp_path), *FIXED)
    assert table[COLUMNS].notna().all(axis=None)
    assert "how much worse price is predicted without the group" in flat(capsys)
    is_importance_of_the_table(judged, table)


def test_masks_of_a_fold_keep_what_the_rows_outside_it_show(usual):
    judged, _, _, told = usual
    assert "of those that the rows of other folds show to matter" in " ".join(told.split())
    fitted, worth = judged["table"], judged["found"].each
    source, models = fitted.source, fitted.result.models
    shown = worth.shown_outside(Folds(torch.from_numpy(source.fold), source.folds))
    with torch.no_grad():
        kept = torch.stack([model.selector(source.data.x).mean.mean(0) for model in models])
    assert shown.any() and not shown.all()
    assert ((kept > 0).numpy() == shown).all()


def test_of_many_groups_those_kept_most_are_measured(limited):
    _, table, out, told = limited
    page = page_of(out)
    measured = table["gain"].notna()
    kept = table["selection_probability"]
    assert measured.sum() == 2 and kept[measured].min() >= kept[~measured].max()
    assert not table["found"][~measured].any()
    line = "Measured are the 2 of 4 groups that are kept most."
    assert line in page and line in " ".join(told.split()) and "nan" not in page.replace("nanm", "")


def test_gains_are_of_no_more_rows_than_stated(limited):
    assert "other rows than those that they judge, 60 in all" in " ".join(limited[-1].split())


def test_rows_of_a_group_column_count_as_one(grouped):
    judged = grouped[0]
    worth, fold = judged["found"].each, judged["table"].source.fold
    assert len(np.unique(worth.unit)) == 30
    assert all(len(np.unique(fold[worth.unit == unit])) == 1 for unit in range(30))


@pytest.mark.complete
def test_the_rate_is_the_one_typed(tmp_path, capsys):
    path = written(people(), tmp_path)

    def at(*rate):
        table, page = ran(tmp_path / "r", path, *LONGER, *rate)
        return table, flat(capsys), page

    loose, loose_told, _ = at("--fdr", "0.99")
    assert "false discovery rate of 0.99" in loose_told
    strict, strict_told, _ = at("--fdr", "1e-30")
    assert "false discovery rate of 1e-30" in strict_told
    family, *told = at("--fwer", "1e-30")
    for said in told:
        assert "a family-wise error of 1e-30" in said and "false discovery" not in said
    assert list(strict["p"]) == list(family["p"]) == list(loose["p"])
    assert loose["found"].sum() > max(strict["found"].sum(), family["found"].sum())
    assert (family["gain_lower"] < loose["gain_lower"]).all()


@pytest.mark.parametrize("option", ["--fdr", "--fwer"])
@pytest.mark.parametrize("rate", ["0", "1", "x", "-0.1"])
def test_another_rate_is_refused(option, rate, tmp_path, capsys):
    assert main(["explain", "wine", "--out", str(tmp_path / "r"), f"{option}={rate}"]) == 2
    told = capsys.readouterr().err
    assert option in told and len(told.splitlines()) == 1


@pytest.mark.complete
def test_masks_that_do_not_select_are_ranked_as_before(tmp_path, capsys):
    table, page = ran(tmp_path / "r", "wine", "--method", "xtab", *QUICK)
    assert not set(COLUMNS) & set(table.columns)
    assert table["mask_mean"].is_monotonic_decreasing
    assert "Gain:" not in capsys.readouterr().out
    assert "Gain:" not in page and 'class="lost"' not in page


@pytest.mark.complete
def test_of_a_black_box_the_gain_is_of_its_answers(judged, tmp_path, capsys):
    frame = people(200)
    asked = frame[["age", "income"]].assign(noise=np.random.default_rng(0).normal(size=200))
    model = LogisticRegression(C=100.0).fit(asked[["age", "noise"]].to_numpy(), asked["income"])
    joblib.dump(model, tmp_path / "m.joblib")
    path = written(asked[["age", "noise", "income"]], tmp_path)
    words = [path, "--black-box", tmp_path / "m.joblib", "--trust-black-box", *FIXED]
    table, page = ran(tmp_path / "r", *words)
    assert "how much worse what the black box says is predicted" in flat(capsys)
    assert "how much worse what the black box says is predicted" in page
    source = judged["table"].source
    rows = source.table[["age", "noise"]].to_numpy()
    outputs = torch.as_tensor(model.predict_proba(rows), dtype=torch.float32)
    assert list(source.data.class_names) == list(model.classes_)
    torch.testing.assert_close(judged["table"].targets(), outputs)
    is_importance_of_the_table(judged, table, outputs=outputs)


@pytest.mark.complete(but=1)
@over(
    ("self-post-hoc", "what the predictor that was fitted before says"),
    ("fixed-in-situ", "income"),
    ("meed", "what the predictor that was fitted before says"),
)
def test_the_gain_is_in_predicting_what_is_explained(regime, predicted, tmp_path, capsys):
    """Of both regimes all replicates have the one predictor that was fitted before."""
    words = ["--method" if regime == "meed" else "--regime", regime, "--k", "2", *QUICK]
    _, page = ran(tmp_path / "r", written(people(), tmp_path), *words)
    assert f"how much worse {predicted} is predicted without the group" in flat(capsys)
    if regime != "meed":
        models = lexppl.load(tmp_path / "r" / "explainer").models
        first, second = (model.predictor.state_dict() for model in models)
        assert all(torch.equal(first[name], second[name]) for name in first)
        assert regime.replace("-", " ", 1).split("-")[0] in page


# Groups


def with_years(rows=300):
    """Age a second time, in other units."""
    frame = people(rows)
    frame.insert(0, "years", 1.1 * frame["age"] + 0.01 * frame["height"])
    return frame


def test_columns_that_depend_are_one_group_with_its_members_below(tmp_path, capsys):
    table, page = ran(tmp_path / "r", written(with_years(), tmp_path), *FIXED)
    assert table.columns[-13:].tolist() == COLUMNS
    name = table.loc["age", "group"]
    assert name in ("age / years", "years / age") and table.loc["years", "group"] == name
    assert table.loc["job", "group"] == "job" and table.loc["job", "found"]
    out = capsys.readouterr().out
    lines = out[out.index("Ranked groups of features") :].splitlines()[1:]
    assert lines[0].split() == [
        *("group", "gain", "interval", "alone", "interval", "found"),
        *("probability", "range", "of", "fits", "agreement"),
    ]
    place = next(n for n, line in enumerate(lines) if line.startswith(f"  {name}  "))
    assert " yes " in lines[place]
    assert {line[4:].split()[0] for line in lines[place + 1 : place + 3]} == {"age", "years"}
    assert all(line.startswith("    ") for line in lines[place + 1 : place + 3])
    assert not any(line.startswith("    ") for line in lines[:place])
    assert page.count('<tr class="member">') == 2 and "one group; a member's gain" in page


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    """A run with groups of columns from a file, and of three rows each by a column."""
    folder, groups = tmp_path_factory.mktemp("grouped"), {"body <i>": ["height", "<b>shoe</b>"]}
    (folder / "g.json").write_text(json.dumps(groups), encoding="utf-8")
    frame = with_years(90).assign(clinic=np.arange(90) // 3)
    return told_run(tmp_path_factory, frame, "--group", "clinic", "--groups", folder / "g.json")


def test_groups_may_be_those_of_a_file(grouped):
    _, table, out, told = grouped
    assert table["group"].to_dict() == {
        "height": "body <i>", "<b>shoe</b>": "body <i>", "age": "age", "years": "years",
        "job": "job",
    }  # fmt: skip
    assert "\n  body <i>  " in told
    raw = (out / "report.html").read_text(encoding="utf-8")
    assert "body <i>" in page_of(out) and "body <i>" not in raw and "body &lt;i&gt;" in raw


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
