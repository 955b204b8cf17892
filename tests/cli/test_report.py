"""The report as a reader has it: wide and narrow, light and dark, and by axe-core's checks."""

import json
import math
import re
from pathlib import Path

import arviz
import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import lexppl
from lexppl import fit
from lexppl.arviz_compatibility import group_of
from lexppl.cli import main
from lexppl.data.divided_table import divided_frame
from lexppl.evaluation import (
    FeatureGroups,
    Folds,
    direction_table,
    feature_effects,
    importance,
    revealed_predictions,
)
from lexppl.evaluation.encode_meter import EncodeMeter
from lexppl.evaluation.prediction import LEAST_RARE, BaseRateGain
from lexppl.explanation.reading.feature_values import decoded_values, feature_values
from lexppl.explanation.reading.masks import masks_of
from lexppl.models import BernoulliSelector
from lexppl.report import report
from lexppl.report.fit_warnings import (
    collapse_messages,
    early_message,
    fidelity_message,
    learned_messages,
    path_message,
    table_warnings,
)
from lexppl.report.results.encoded_choice import LEAST_ROWS, QUESTION, EncodedChoice, encoded_choice
from lexppl.report.results.gains import FittedTable
from lexppl.report.results.scores import judge_explainer
from lexppl.summary import number_text
from lexppl.systems import lex
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.table_fit import fit_table
from tests.cli.accessibility import DARK, LIGHT, checked
from tests.cli.tables import explained, numbers, page_of, people, written
from tests.refusals import over

LEARNED = ["--epochs", "60", "--replicates", "2", "--draws", "5", "--quiet", "--penalty", "0.02"]
LEARNED += ["--learning-rate", "0.003"]
QUICK = ["--epochs", "3", "--replicates", "2", "--draws", "5", "--quiet", "--penalty", "0.02"]
ROWS = (5, 41)
LONG = pytest.mark.complete


def classes(rows: int = 300) -> pd.DataFrame:
    """Three classes, of age and job."""
    frame = people(rows)
    score = (frame.age - 40.0) / 12.0 + 1.5 * (frame.job == "smith")
    frame["income"] = np.where(score > 1.0, "high", np.where(score < 0.0, "low", "middle"))
    return frame


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    words = [word for row in ROWS for word in ("--row", row)]
    return explained(folder, *LEARNED, *words, frame=people(300))


@pytest.fixture(scope="module")
def of_classes(tmp_path_factory) -> Path:
    return explained(tmp_path_factory.mktemp("classes"), *LEARNED, frame=classes())


# Accessibility


@pytest.mark.parametrize(("width", "scheme"), [(400, DARK), (1280, LIGHT)])
def test_it_passes_axe(results, tmp_path, width, scheme):
    found = checked(results / "report.html", tmp_path, width, scheme)
    assert found["violations"] == []
    assert {"color-contrast", "svg-img-alt", "heading-order", "document-title"} <= set(
        found["passes"]
    )
    assert found["dark"] == (scheme == DARK)
    assert (found["paper"] == "rgb(255, 255, 255)") == (scheme == LIGHT)
    assert found["reach"] <= width


@pytest.mark.complete
def test_classes_pass_axe_too(of_classes, tmp_path):
    assert checked(of_classes / "report.html", tmp_path, 400, DARK)["violations"] == []


def test_a_page_that_is_hard_to_read_does_not_pass(results, tmp_path):
    page = (results / "report.html").read_text(encoding="utf-8")
    worse = re.sub(r'role="img" aria-label="[^"]*"', 'role="img"', page).replace(
        "--soft: #55626f", "--soft: #c5ccd2"
    )
    worse = worse.replace("<h2>What matters</h2>", "<h5>What matters</h5>")
    (tmp_path / "worse.html").write_text(worse, encoding="utf-8")
    found = checked(tmp_path / "worse.html", tmp_path, 1280, LIGHT)
    assert {one["id"] for one in found["violations"]} >= {
        "svg-img-alt", "color-contrast", "heading-order"
    }  # fmt: skip


# What it says


def test_the_table_and_the_pictures_say_it_in_one_order(results):
    page = page_of(results)
    ranked = pd.read_csv(results / "importance.csv")["feature"].tolist()
    table = page.partition("What matters")[2]
    rows = re.findall(r'<th scope="row">((?:(?!</th>).)*?)<span class="bar">', table)
    assert rows == ranked
    # One table, and no picture, of how often features are kept over all rows.
    assert page.count('<table class="ranking">') == 1 and "Ranked features with" not in page


def test_folds_have_no_validation_loss_and_the_page_speaks_of_none(results):
    page = page_of(results)
    assert "<dt>epoch kept</dt><dd>the last</dd>" in page and "How the fit went" in page
    assert "alidation loss" not in page


def test_figures_have_the_digits_that_can_be_read(results):
    for name in ("importance.csv", "directions.csv", "rows.csv"):
        lines = (results / name).read_text(encoding="utf-8").splitlines()[1:]
        cells = [cell for line in lines for cell in line.split(",") if "." in cell]
        assert cells
        for cell in cells:
            mantissa = cell.split("e")[0].lstrip("-").replace(".", "").lstrip("0")
            assert mantissa.isdigit() and len(mantissa) <= 4, cell


def test_directions_are_those_of_the_saved_explainer(results):
    table = pd.read_csv(results / "directions.csv", dtype={"class": str, "level": str})
    parts = divided_frame(people(300), folds=2, seed=0)
    effects = feature_effects(lexppl.load(results / "explainer"), parts.test.x, seed=0)
    again = direction_table(effects, decoded_values(parts.test.x, parts.data.encoding))
    assert len(table) == len(again) == 2 * (3 + 3)
    np.testing.assert_allclose(table["slope"], again["slope"], rtol=1e-3)
    of_age = table[(table["feature"] == "age") & (table["class"] == "high")].iloc[0]
    of_smith = table[(table["level"] == "smith") & (table["class"] == "high")].iloc[0]
    assert of_age["direction"] > 0.7 and of_age["slope"] > 0.5 and of_smith["effect"] > 0.5
    # The rarer label is low.
    picture, _, ranking = page_of(results).partition("What matters")
    assert "direction (low)" in ranking
    line = re.search(r'<th scope="row">age <.*?</tr>', picture, re.DOTALL).group(0)
    assert "↓ less “low” where high" in line
    line = re.search(r'<th scope="row">age<.*?</tr>', ranking, re.DOTALL).group(0)
    assert "↓\xa0−0." in line


def test_dependence_is_shown_of_the_first_three_features_that_are_kept(results, of_classes):
    for folder, labels in ((results, ()), (of_classes, ("high", "low", "middle"))):
        page = page_of(folder)
        ranked = pd.read_csv(folder / "importance.csv")["feature"]
        kept = pd.read_csv(folder / "directions.csv").groupby("feature")["kept"].max()
        expected = [name for name in ranked if kept[name] >= 3.0][:3]
        pictures = re.findall(r'aria-label="Effect of (.*?) on the pred.*?</svg>', page, re.DOTALL)
        assert pictures == expected and "<h2>Which way, by value</h2>" in page
        first = re.search(r'aria-label="Effect of .*?</svg>', page, re.DOTALL).group(0)
        texts = re.findall(r"<text[^>]*>(.*?)</text>", first)
        height = "each label" if labels else "low"
        assert f"effect on the log-odds of {height}" in texts and set(labels) <= set(texts)


def test_rows_that_are_asked_for_add_up(results, capsys):
    lines = pd.read_csv(results / "rows.csv")
    assert lines["row"].unique().tolist() == list(ROWS)
    page = page_of(results)
    parts = divided_frame(people(300), folds=2, seed=0)
    explainer = lexppl.load(results / "explainer")
    for number in ROWS:
        own = lines[lines["row"] == number]
        steps = own["step"].fillna(0.0)
        assert own["total"].iloc[0] + steps.sum() == pytest.approx(own["total"].iloc[-1], abs=2e-3)
        assert f"Row {number}: predicted " in page
        age = own[own["feature"] == "age"]["value"].item()
        assert float(age) == pytest.approx(people(300).age[number], rel=1e-3)
        by = explainer.subset([int(parts.fold[number])])
        found = revealed_predictions(by, parts.data.x[[number]], masks=100, seed=0)
        assert own["total"].iloc[-1] == pytest.approx(found.steps(0).predicted, abs=1e-3)
        observed = people(300).income[number]
        assert f"Observed: {observed}. Asked for" in page


@pytest.mark.complete
def test_three_rows_are_shown_where_none_is_asked_for(of_classes):
    page = page_of(of_classes)
    for why in ("Predicted best", "In the middle", "Predicted worst"):
        assert f"{why} of 300 held-out rows" in page
    assert page.count('<table class="steps">') == 3
    assert "By class: " in page and "Which way, by class" in page
    posterior = arviz.from_netcdf(of_classes / "posterior.nc")
    rows = pd.read_csv(of_classes / "rows.csv")["row"].unique()
    assert set(rows) <= set(masks_of(posterior)["row"].values.tolist())
    p = group_of(posterior, "predictions")["y_probability"].mean("chain")
    own = classes().income[p["row"].values]
    score = np.array([float(p.sel(row=row, **{"class": own[row]})) for row in p["row"].values])
    # The file has four digits of a probability.
    shown = [score[p["row"].values == row].item() for row in (rows[0], rows[2])]
    np.testing.assert_allclose(shown, [score.max(), score.min()], atol=1e-3)


def test_the_posterior_has_values_and_gains_of_its_rows(results):
    posterior = arviz.from_netcdf(results / "posterior.nc")
    rows = masks_of(posterior)["row"].values
    values, frame = feature_values(posterior), people(300)
    np.testing.assert_allclose(values["age"].numbers, frame.age[rows], rtol=1e-5, atol=1e-4)
    assert [values["job"].text(i) for i in range(len(rows))] == frame.job[rows].tolist()
    gain = group_of(posterior, "sample_stats")["gain"]
    table = pd.read_csv(results / "importance.csv", index_col="feature")
    for feature in table.index:
        mean = gain.sel(feature=feature).values.mean()
        assert mean == pytest.approx(table["gain"][feature], rel=2e-3)


@pytest.mark.complete
def test_a_response_is_told_in_its_own_units(tmp_path, capsys):
    out = explained(tmp_path, *LEARNED, "--row", 7, frame=numbers(200))
    page = page_of(out)
    assert "direction (price)" in page and "mean of the rows fitted on" in page
    table = pd.read_csv(out / "directions.csv").set_index("feature")
    assert 150.0 < table["slope"]["a"] < 350.0 and table["direction"]["a"] > 0.9
    printed = capsys.readouterr().out
    price = numbers(200).price[7]
    assert "Row 7 (asked for" in printed and f"observed {number_text(price)}" in printed
    last = pd.read_csv(out / "rows.csv")["total"].iloc[-1]
    assert abs(last - price) < 150.0
    (line,) = [line for line in printed.splitlines() if "sees everything" in line]
    size, likelihood, rmse, r2 = (c.split(" ± ")[0] for c in re.split(r"\s{2,}", line.strip())[-4:])
    # The noise's standard deviation is 10, that of the price 250.
    assert (
        size == "3" and 8.0 < float(rmse) < 100.0 and float(r2) > 0.8 and float(likelihood) < -3.0
    )
    encoding = json.loads((out / "encoding.json").read_text())
    assert 150.0 < encoding["target"]["scale"] < 350.0


@pytest.mark.complete
def test_rare_classes_have_their_average_precision_and_base_rate(tmp_path, capsys):
    frame = people(300)
    frame["income"] = np.where(np.arange(300) % 10 == 0, "rare", "usual")
    explained(tmp_path, *QUICK, frame=frame)
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if line.strip().startswith("the base rate"))
    assert line.split()[3:7] == ["0", "0.900", "0.500", "0.100"]
    assert "avg precision" in printed


@pytest.mark.parametrize(("row", "code"), [("300", 2), ("-1", 2), ("x", 2), ("1.5", 2)])
def test_rows_that_are_not_there_are_refused_before_the_fit(row, code, tmp_path, capsys):
    path = written(people(300), tmp_path)
    assert main(["explain", str(path), "--out", str(tmp_path / "r"), f"--row={row}"]) == code
    told = capsys.readouterr().err
    assert "--row" in told and len(told.splitlines()) == 1
    assert not (tmp_path / "r").exists()


@pytest.mark.complete
def test_masks_that_do_not_select_have_no_steps_and_that_is_said(tmp_path, capsys):
    out = tmp_path / "r"
    words = ["explain", "wine", "--method", "xtab", "--out", str(out), *QUICK[:-2], "--row", "3"]
    assert main(words) == 0
    assert "masks that do not select have no steps by feature" in capsys.readouterr().err
    assert not (out / "rows.csv").exists() and '<table class="steps">' not in page_of(out)


GAINS, DETAILS = "lexppl.report.report.judge_gains", "lexppl.report.report.details_of"
EFFECTS = "lexppl.report.results.single_rows.feature_effects"
NO_NUMBER = FloatingPointError("some log-odds are not finite")


@over(
    (DETAILS, KeyboardInterrupt(), "single rows and directions were interrupted"),
    pytest.param(GAINS, KeyboardInterrupt(), "the gains were interrupted", marks=LONG),
    pytest.param(GAINS, NO_NUMBER, "gains are not known: some log-odds are not", marks=LONG),
    pytest.param(EFFECTS, NO_NUMBER, "directions are not known: some log-odds are", marks=LONG),
)
def test_what_is_interrupted_or_no_number_leaves_the_rest(
    place, error, told, tmp_path, capsys, monkeypatch
):
    def fails(*_, **__):
        raise error

    code = 130 if isinstance(error, KeyboardInterrupt) else 0
    monkeypatch.setattr(place, fails)
    out = explained(tmp_path, *QUICK, code=code)
    captured, page = capsys.readouterr(), page_of(out)
    assert told in captured.err and "EVAL-X" in captured.out
    table = pd.read_csv(out / "importance.csv", index_col="feature")
    assert (out / "rows.csv").exists() == (place != DETAILS)
    if place != GAINS:
        assert not (out / "directions.csv").exists() and "direction (" not in page
        assert "Ranked by gain or" in page and (told in page or place == EFFECTS)
        return
    assert "Ranked features: the probability" in captured.out and "gain" not in table
    assert table["selection_probability"].is_monotonic_decreasing and told in page
    if code:
        # A second Ctrl-C ends with the model alone.
        monkeypatch.setattr(DETAILS, fails)
        out = explained(tmp_path, *QUICK, "--overwrite", code=code)
        assert sorted(path.name for path in out.iterdir()) == ["encoding.json", "explainer"]


@pytest.mark.complete
def test_directions_cost_no_more_than_said(tmp_path, monkeypatch):
    monkeypatch.setattr("lexppl.report.results.single_rows.EVALUATIONS", 2 * 8 * 5 * 7)
    monkeypatch.setattr("lexppl.report.results.single_rows.LEAST_ROWS", 3)
    table = pd.read_csv(explained(tmp_path, *QUICK) / "directions.csv")
    # Seven rows of 18 are judged, and no more can keep a feature.
    assert 3.0 < table.loc[table["level"].isna(), "kept"].max() <= 7.0


def test_pictures_are_of_the_posterior(results):
    page, posterior = page_of(results), arviz.from_netcdf(results / "posterior.nc")
    count = len(masks_of(posterior)["row"])
    names = pd.read_csv(results / "importance.csv")["feature"].tolist()
    (swarm,) = re.findall(r'aria-label="A line of points.*?</svg>', page, re.DOTALL)
    texts = re.findall(r"<text[^>]*>(.*?)</text>", swarm)
    assert [text for text in texts if text in names] == names
    heat = re.search(r'aria-label="Heat map.*?</svg>', page, re.DOTALL).group(0)
    assert f">50 of {count} rows, similar ones together<" in heat
    # Points and cells are pixels; what is read is text, in the colours of the page.
    assert swarm.count("<image") == heat.count("<image") == 2  # and the colours beside them
    assert ">training, schedules as they stood<" in page
    assert "var(--ink)" in swarm and "<metadata" not in page


# `lexppl explain` ranks groups of features by what they are worth, and says which are found.


OF_DATA = ["--epochs", "3", "--replicates", "2", "--draws", "5", "--quiet"]
FIXED = [*OF_DATA, "--penalty", "0.02"]
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
    words = [*OF_DATA, "--penalty", "0.5", "--epochs", "1"]
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
    fitted, worth = judged["table"], judged["found"].worth
    source, models = fitted.source, fitted.result.models
    shown = worth.shown_outside()
    assert (worth.fold == source.fold).all()
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
    worth, fold = judged["found"].worth, judged["table"].source.fold
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
    table, page = ran(tmp_path / "r", "wine", "--method", "xtab", *OF_DATA)
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
    words = ["--method" if regime == "meed" else "--regime", regime, "--k", "2", *OF_DATA]
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


@over(**BAD)
def test_groups_that_do_not_fit_are_refused_in_a_line_before_any_work(
    content, told, tmp_path, capsys
):
    file = tmp_path / "g.json"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    words = ["explain", str(written(people(), tmp_path)), "--out", str(tmp_path / "r")]
    assert main([*words, "--groups", str(file)]) == (1 if content is None else 2)
    captured = capsys.readouterr()
    assert told in captured.err and str(file) in captured.err
    assert len(captured.err.splitlines()) == 1 and not (tmp_path / "r").exists()


# What `lexppl explain` says of a fit: a line an epoch, and where nothing shows that it learned.


ABOVE_BASE = BaseRateGain(0.2, 0.02, 100)


TWO_FITS = ["--replicates", "2", "--draws", "5", "--quiet"]


def warned(folder, table, capsys, *words):
    """What a run warns of."""
    explained(folder, *TWO_FITS, "--overwrite", *words, frame=table)
    return capsys.readouterr().err


def columns(rows, seed=0):
    draws = np.random.default_rng(seed)
    return {name: draws.normal(size=rows) for name in ("a", "b", "c")}, draws


@pytest.mark.complete
@pytest.mark.parametrize("rows", [12, 300])
def test_labels_that_nothing_tells_are_not_explained(tmp_path, capsys, rows):
    x, draws = columns(rows)
    x["outcome"] = np.where(draws.permutation(np.arange(rows) % 2), "yes", "no")
    told = warned(tmp_path, pd.DataFrame(x), capsys, "--epochs", "20")
    assert "no better than the base rate" in told
    assert "do not rely on its selection of features" in told


@pytest.mark.complete
@pytest.mark.parametrize(("epochs", "few"), [(2, True), (40, False)])
def test_masks_that_have_not_settled_are_warned_of(tmp_path, capsys, epochs, few):
    x, _ = columns(400)
    x["outcome"] = np.where(x["a"] > 0, "yes", "no")
    warnings = warned(tmp_path, pd.DataFrame(x), capsys, "--epochs", str(epochs))
    assert ("masks have not settled: the fit had 6 steps" in warnings) == few


@pytest.mark.complete
def test_one_mask_for_all_rows_is_no_alarm_where_it_is_right(tmp_path, capsys):
    """A response that two columns of three make, everywhere."""
    x, draws = columns(600)
    x["outcome"] = 2.0 * x["a"] - 1.5 * x["b"] + 0.1 * draws.normal(size=600)
    words = ["--epochs", "80", "--learning-rate", "0.003"]
    told = warned(tmp_path, pd.DataFrame(x), capsys, *words)
    assert "collapse" not in told
    assert "base rate" not in told
    kept = pd.read_csv(tmp_path / "r" / "importance.csv", index_col="feature")
    assert set(kept.index[kept["found"]]) == {"a", "b"}


def test_a_mask_of_nothing_is_right_where_nothing_was_learned():
    found = ["all off", "all off", None]
    (learned,) = collapse_messages(found)
    (idle,) = collapse_messages(found, learned=False)
    assert learned.endswith("give a lower --penalty, or --k")
    assert "as should be where none says anything" in idle
    assert collapse_messages(["all on"], learned=False) == collapse_messages(["all on"])
    assert collapse_messages([None, None]) == []


@over(
    (learned_messages(ABOVE_BASE, 350), ""),
    (
        learned_messages(BaseRateGain(0.01, 0.05, 100), None),
        "on held-out rows the explainer p",
    ),
    (early_message([150, 190], 200, True), ""),
    (early_message([10, 190], 200, True), "the best epoch of 1 of 2 replicates came before"),
    (path_message([0.01, 0.02, 0.04], 1), ""),
    (path_message([0.01, 0.02, 0.04], 0), "the penalty chosen, 0.01 nats, is the smallest"),
    (collapse_messages(["all off", None]), "collapse in 1 of 2 replicates (all off): no r"),
)
def test_warnings_are_given_where_they_are_due(found, begin):
    assert len(found) == bool(begin) and "".join(found).startswith(begin)


def copied(frame, rows, **options):
    """What is warned of a frame of which these rows are taken."""
    table = frame.iloc[rows].reset_index(drop=True)
    return table_warnings(divided_frame(table, "y", folds=2, seed=0, **options), None)


def test_copied_rows_are_warned_of():
    x, draws = columns(100)
    frame = pd.DataFrame(x).assign(case=np.arange(100), y=np.arange(100) % 2)
    rows = draws.integers(0, 100, 400)
    assert copied(frame, range(100), drop=["case"]) == []
    [message] = copied(frame, rows, drop=["case"])
    assert message.startswith("301 of 400 rows are copies of others, and fits have seen")
    assert copied(frame, rows, group="case") == []
    # Few values meet again by chance.
    few = pd.DataFrame(draws.integers(0, 30, (2000, 1)), columns=["a"]).assign(y=[0, 1] * 1000)
    assert copied(few, range(2000)) == []


def test_a_column_that_gives_the_target_alone_is_warned_of():
    """Its copy, a name for each label, its order in other units or nearly; not a strong cause."""
    x, draws = columns(200)
    label = np.where(x["a"] + draws.normal(size=200) > 0.0, "yes", "no")
    frame = pd.DataFrame(x).assign(y=label)
    assert copied(frame, range(200)) == []
    coded = frame.assign(number=(label == "yes") * 2, word=np.char.add("was ", label))
    noisy = coded.assign(noisy=coded["number"] + 0.1 * draws.normal(size=200), case=range(200))
    [message] = copied(noisy[["a", "number", "word", "noisy", "y"]], range(200))
    assert message.startswith("each of the columns 'number', 'word', 'noisy' gives 'y' alone")
    # Of a rare label a few intervals are pure by chance.
    rare = pd.DataFrame(x).assign(y=(np.arange(200) % 67 == 5).astype(int))
    assert copied(rare, range(200)) == []
    response = x["a"] + draws.normal(size=200)
    frame = pd.DataFrame(x).assign(y=response, strong=response + 0.2 * draws.normal(size=200))
    assert copied(frame[["a", "b", "strong", "y"]], range(200)) == []
    frame["leak"] = 7.0 - 3.0 * response + 1e-6 * draws.normal(size=200)
    [message] = copied(frame[["a", "leak", "y"]], range(200))
    assert message == (
        "column 'leak' gives 'y' alone, or nearly: if it is made from the target, or known only "
        "after it, leave it out with --drop"
    )


@over(
    (0.96, 0.5, False),
    (0.918, 0.5, True),
    # Always its commonest label agrees in .97 of the rows.
    (0.97, 0.03, True),
    (0.995, 0.03, False),
    (0.94, None, True),
    (0.96, None, False),
)
def test_an_explainer_that_differs_from_its_black_box_is_warned_of(agreement, others, warned):
    lines = fidelity_message(agreement, others)
    assert bool(lines) == warned
    for line in lines:
        figure = "R²" if others is None else "agreement"
        assert f"{figure} {agreement:.3f} on rows that it has not seen" in line


# Held-out scores of a table's folds.


def judged_folds(frame, classes, **options):
    """A table in three folds, and the scores of a small fit."""
    source = divided_frame(frame, "y", folds=3, seed=0, **options)
    system = lex(source.data.n_features, classes=classes, hidden=(4,), predictor_hidden=(4,))
    result = fit(system, source.data, epochs=2, replicates=3, progress=False)
    return source, judge_explainer(result, source, seed=0)


def test_folds_that_differ_in_size_have_the_accuracy_of_all_rows():
    draw = np.random.default_rng(0)
    case = np.repeat(np.arange(6), [40, 20, 12, 8, 6, 4])
    frame = pd.DataFrame({"case": case, "x": draw.normal(size=90)})
    frame["y"] = np.where(draw.random(90) < np.where(case == 0, 0.9, 0.5), "a", "b")
    source, row = judged_folds(frame, 2, group="case")
    fold = source.fold[source.test_rows]
    by_fold = [1.0 - row.losses[fold == part].mean() for part in range(3)]
    assert abs(1.0 - row.losses.mean() - np.mean(by_fold)) > 0.01
    assert row.figures["accuracy"] == pytest.approx(1.0 - row.losses.mean())
    assert row.figures["log_likelihood"] == pytest.approx(row.by_row.mean())


def test_folds_that_differ_in_their_means_have_the_share_of_variance_of_all_rows():
    draw = np.random.default_rng(0)
    level = np.repeat([-9.0, 0.0, 9.0], 30)
    frame = pd.DataFrame({"when": np.arange(90), "x": level + draw.normal(size=90)})
    frame["y"] = 2.0 * frame.x
    _, row = judged_folds(frame, None, time="when")
    error = row.losses.mean()
    assert row.figures["r2"] == pytest.approx(1.0 - error / np.var(frame.y), rel=1e-4)
    assert row.figures["rmse"] == pytest.approx(math.sqrt(error), rel=1e-4)


# `lexppl explain` and `compare` say whether the choice of features encodes the answer.


SHORT = ["--epochs", "3", "--replicates", "1", "--draws", "5", "--quiet", "--penalty", "0.02"]


def meter(value, half):
    return EncodeMeter(value, value - half, value + half, -0.6, -0.6 + value, torch.zeros(1))


@over(
    (0.12, 0.04, "Yes: that a feature was kept, whatever it holds, encodes 0.120 nats a row "),
    (0.005, 0.01, "No sign of it: which features are kept encodes 0.005 nats a row (95 % "),
    (0.03, 0.05, "Too few rows to say: which features are kept may encode up to 0.080 nats"),
    (0.004, 0.003, "No sign of it"),
    (0.03, 0.01, "Too few rows to say"),
)
def test_the_three_answers(value, half, said):
    told = EncodedChoice(meter(value, half), 400, -0.7, "price", "constant")
    assert told.answer().startswith(said)
    assert "400 held-out rows" in told.answer()
    assert told.alarm == said.startswith("Yes")
    assert len(told.warnings()) == told.alarm
    if told.alarm:
        assert "of price, of the 0.220 that values and choice tell together" in told.answer()
        assert "a constant here" in told.warnings()[0]


def test_what_was_not_asked_is_not_told():
    assert EncodedChoice().answer() is None
    assert EncodedChoice().warnings() == []
    few = EncodedChoice(rows=80)
    rows = "80 held-out rows of one fit"
    assert few.answer() == f"Too few rows to say: {rows}, and it takes {LEAST_ROWS}."
    rare = EncodedChoice(rows=400, rare=LEAST_RARE - 1)
    assert "of 400 held-out rows of one fit 19 have another label" in rare.answer()
    assert EncodedChoice(rows=400, rare=LEAST_RARE).answer() is None


def test_few_positives_are_not_asked_and_end_nothing():
    draws = np.random.default_rng(0)
    frame = pd.DataFrame(draws.normal(size=(1500, 4)), columns=list("abcd"))
    frame["outcome"] = np.where(np.arange(1500) < 30, "yes", "no")
    rare = asked(divided_frame(frame, valid_share=0.2, test_share=0.2, seed=0))
    assert rare.meter is None
    assert rare.rare == 6


class ByTheAnswer(nn.Module):
    """Keeps c where a is positive and d elsewhere, and neither a nor b."""

    def forward(self, x):
        told = 20.0 * x[..., :1].sign()
        off = torch.full_like(told, -20.0)
        return torch.cat([off, off, told, -told], -1)


@pytest.fixture(scope="module")
def table():
    draws = np.random.default_rng(0)
    frame = pd.DataFrame(draws.normal(size=(1500, 4)), columns=list("abcd"))
    frame["outcome"] = np.where(frame.a + 0.5 * draws.normal(size=1500) > 0, "yes", "no")
    return divided_frame(frame, valid_share=0.2, test_share=0.2, seed=0)


def asked(table, network=None):
    plan = plan_for(900, 4, epochs=1, replicates=2, penalty=0.02, hidden=(8,))
    rows = EncodedRows.of(table.data, table.train_rows, table.valid_rows)
    fit = fit_table(plan, rows)
    if network is not None:
        fit.result.models[fit.result.best].selector = BernoulliSelector(network)
    groups = FeatureGroups.alone(table.data.entry_names)
    return encoded_choice(FittedTable(fit, table, groups))


@pytest.mark.complete
def test_a_choice_by_the_answer_is_told_and_one_by_lot_is_not(table):
    cheat, honest = asked(table, ByTheAnswer()), asked(table)
    assert cheat.rows == honest.rows == 300
    assert cheat.alarm
    assert cheat.meter.value > 0.2
    assert "Yes" in cheat.answer() and "marginal" not in cheat.answer()
    assert not honest.alarm
    assert "No sign of it" in honest.answer() or "Too few rows" in honest.answer()


@pytest.mark.complete
@pytest.mark.parametrize(("rows", "make"), [(300, people), (1000, numbers)])
def test_it_stands_in_the_terminal_and_on_the_page(tmp_path, capsys, rows, make):
    page = page_of(explained(tmp_path, *SHORT, frame=make(rows)))
    told = " ".join(capsys.readouterr().out.split())
    assert f"<h2>{QUESTION}</h2>" in page
    answer = told.partition(QUESTION)[2].partition(" Written to ")[0].strip()
    assert answer and f"<p>{answer}</p>" in page
    assert answer.startswith("Too few rows to say: 60 held-out rows") == (rows == 300)


def test_compare_has_a_column_where_it_is_asked_for(tmp_path, capsys):
    table = str(written(people(250), tmp_path))
    words = ["compare", table, "--methods", "l2x", "--sizes", "1", "--epochs", "2", "--quiet"]
    assert main([*words, "--leaks"]) == 0
    assert "encoded@1" in capsys.readouterr().out
    assert main(words) == 0
    assert "encoded" not in capsys.readouterr().out


def test_compare_refuses_few_of_a_label_before_any_work(tmp_path, capsys):
    table = people(900)
    target = table.columns[-1]
    common = table[target].mode()[0]
    few = table[table[target] != common].head(35)
    rest = table[table[target] == common]
    path = str(written(pd.concat([few, rest]).sample(frac=1.0, random_state=0), tmp_path))
    assert main(["compare", path, "--methods", "l2x", "--sizes", "1", "--leaks"]) == 1
    told = capsys.readouterr().err
    assert "the held-out target, which --leaks asks, has 7" in told
    assert "fitting" not in told
