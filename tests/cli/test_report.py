"""The report as a reader has it: wide and narrow, light and dark, and by axe-core's checks."""

import re
from pathlib import Path

import arviz
import numpy as np
import pandas as pd
import pytest

import lexppl
from lexppl.arviz_compatibility import group_of
from lexppl.cli import main
from lexppl.data.divided_table import divided_frame
from lexppl.evaluation import direction_table, feature_effects, revealed_predictions
from lexppl.explanation.reading.feature_values import decoded_values, feature_values
from lexppl.explanation.reading.masks import masks_of
from lexppl.summary import number_text
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
