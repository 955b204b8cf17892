"""Reports from Python: what the command writes, of estimators, `fit_table`, images and texts."""

import json
import pickle
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl import ExplainerClassifier, ExplainerRegressor
from lexppl.choices.settings import AUTO, USUAL_PREDICTOR
from lexppl.cli import main
from lexppl.data import divided_folder, texts_of
from lexppl.data.divided_table import divided_frame
from lexppl.data.images import ImageDataset
from lexppl.evaluation import predictive
from lexppl.explanation.reading.feature_values import feature_values
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference import entropy_unit
from lexppl.inference.training.diagnostics import ALL_ON
from lexppl.models import GaussianImputer
from lexppl.report import Report, report
from lexppl.report import rows as rows_report
from lexppl.report.divided_rows import divided_rows
from lexppl.report.fit_warnings import copied_message
from lexppl.report.report import encoded_rows
from lexppl.report.results.gains import FittedTable
from lexppl.report.results.scores import BASE
from lexppl.report.rows import ReportOfRows, plan_of_rows
from lexppl.report.sentences import first_screen
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular.encoded_rows import judged_groups
from lexppl.tabular.table_fit import fit_table
from tests import needs
from tests.cli.shaped import folder_of_images
from tests.cli.tables import explained, page_of, people
from tests.refusals import refused

ROWS, HELD_OUT = 160, 40
SMALL = {"epochs": 3, "replicates": 2, "random_state": 0, "hide_missing": True}
FILES = {
    *("directions.csv", "encoding.json", "explainer", "groups.csv", "importance.csv"),
    *("penalty_path.csv", "posterior.nc", "report.html", "rows.csv"),
}


def with_gaps(rows: int = ROWS) -> pd.DataFrame:
    """A table of people, in some of which the height is missing."""
    frame = people(rows)
    frame.loc[::9, "height"] = np.nan
    frame["wage"] = 1000.0 + 20.0 * frame.age + 300.0 * (frame.job == "smith")
    return frame


def written(kind: type, target: str, folder):
    """An estimator's held-out rows, the rows of its fit, and its report, as written."""
    frame = with_gaps()
    X, y = frame.drop(columns=["income", "wage"]), frame[target]
    explainer = kind(**SMALL).fit(X[HELD_OUT:], y[HELD_OUT:])
    with pytest.warns(UserWarning, match="give more epochs="):
        results = Report(explainer, X[:HELD_OUT], y[:HELD_OUT], draws=5, row=[3]).write(folder)
    return explainer, X, y, results


KINDS = {"income": ExplainerClassifier, "wage": ExplainerRegressor}


@pytest.fixture(scope="module", params=KINDS)
def of_estimator(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "r"
    return folder, *written(KINDS[request.param], request.param, folder)


def test_an_estimator_has_every_file_of_the_command(of_estimator):
    folder, _, _, y, results = of_estimator
    assert {path.name for path in folder.iterdir()} == FILES
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert f"What predicts {y.name} in data" in page and "Row 3" in page
    assert "40 held out" in page and 'id="dial-at"' in page
    assert not re.search(r"\s--(row|epochs|imputer|penalty)\b", page.partition("<body>")[2])
    assert "missing values of the held-out rows" in " ".join(results.warnings)


def test_rows_of_an_estimator_are_those_held_out(of_estimator):
    _, _, X, y, results = of_estimator
    assert masks_of(results.posterior)["row"].values.tolist() == list(range(HELD_OUT))
    age = feature_values(results.posterior)["age"].numbers
    np.testing.assert_allclose(age, X.age[:HELD_OUT], rtol=1e-5)
    (row,) = results.rows
    assert (row.number, row.values["job"]) == (3, X.job[3])
    base, fitted = results.judgement.of(BASE).figures, y[HELD_OUT:]
    # The base rate is of the rows of the fit that are not its validation rows.
    source = results.source
    learned = pd.concat([y[:HELD_OUT], fitted]).iloc[source.train_rows]
    assert set(source.train_rows) | set(source.valid_rows) == set(range(HELD_OUT, ROWS))
    if y.name == "income":
        expected = (y[:HELD_OUT] == learned.mode()[0]).mean()
        assert base["accuracy"] == pytest.approx(expected)
        assert row.observed == y[3]
    else:
        error = y[:HELD_OUT] - learned.mean()
        assert base["rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-4)


def test_gains_are_those_of_the_estimator_by_all_rows(of_estimator):
    _, explainer, X, y, results = of_estimator
    alone = explainer.gains(X, y)
    ours = results.gains.groups
    assert set(ours.index) == set(alone.index)
    for name, ours_name in {"first": "first", "last": "gain", "p": "p"}.items():
        np.testing.assert_allclose(ours.loc[alone.index, ours_name], alone[name])


def test_new_rows_are_explained_by_what_was_written(of_estimator, tmp_path, monkeypatch):
    folder, _, X, _, _ = of_estimator
    monkeypatch.chdir(tmp_path)
    X[:5].to_csv("new.csv", index=False)
    assert main(["explain", "new.csv", "--with", str(folder), "--out", "out"]) == 0
    assert len(pd.read_csv("out/predictions.csv")) == 5


@pytest.mark.parametrize("target", ["income", "wage"])
def test_the_command_writes_the_report_of_its_fit(target, tmp_path):
    frame = with_gaps(120).drop(columns={"income": "wage", "wage": "income"}[target])
    words = ["--epochs", "3", "--replicates", "1", "--draws", "5", "--row", "7", "--quiet"]
    out = explained(tmp_path, *words, "--test-share", "0.25", "--valid-share", "0.2", frame=frame)
    shares = {"valid_share": 0.2, "test_share": 0.25}
    source = divided_frame(frame, target, **shares, hide_missing=True, seed=0, name="people")
    data = source.data
    unit = entropy_unit(data.y[source.train_rows], len(data.class_names or ()))
    chosen = {"penalty": AUTO, "predictor": USUAL_PREDICTOR, "unit": unit}
    plan = plan_for(len(source.train_rows), data.n_entries, epochs=3, replicates=1, **chosen)
    fit = fit_table(plan, encoded_rows(source))
    table = FittedTable(fit, source, judged_groups(data))
    Report(table, draws=5, row=[7]).write(tmp_path / "python")
    for path in out.glob("*.csv"):
        assert path.read_bytes() == (tmp_path / "python" / path.name).read_bytes(), path.name
    first, second = (page_data(folder) for folder in (out, tmp_path / "python"))
    assert first == second
    assert first["numbers"]["rows"] and len(first["lines"]) > 20


def test_images_have_the_report_of_the_command(tmp_path):
    needs.torchvision()
    folder, out = folder_of_images(tmp_path / "squares"), tmp_path / "out"
    words = ["--epochs", "2", "--replicates", "1", "--draws", "5", "--row", "3", "--quiet"]
    assert main(["explain", str(folder), "--out", str(out), *words]) == 0
    parts = divided_folder(folder, valid_share=0.2, test_share=0.2, seed=0)
    rows = divided_rows(parts.train, parts.valid, parts.test)
    explained = ReportOfRows(rows, plan_of_rows(rows, epochs=2), draws=5, row=[3]).fit()
    with pytest.warns(UserWarning, match="give more epochs="):
        results = explained.write(tmp_path / "python")
    explained.result.collapse[:] = [ALL_ON]
    _, answer = first_screen(results).answers()[0]
    assert "(all on): every row keeps every feature" in answer.partition("To predict class")[0]
    assert [row.number for row in results.rows] == [3]
    for path in out.glob("*.csv"):
        assert path.read_bytes() == (tmp_path / "python" / path.name).read_bytes(), path.name
    assert {path.name for path in out.iterdir()} == {
        path.name for path in (tmp_path / "python").iterdir()
    }


def test_parts_that_are_not_of_one_set_are_refused():
    words, other = (texts_of([f"{word} film", "bad film"] * 2, [1, 0, 1, 0]) for word in "ab")
    pixels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    images = ImageDataset(pixels, torch.tensor([1, 0, 1, 0]), ("0", "1"))
    for parts, error, named in (
        ((words, None, images), TypeError, "all images or all texts"),
        ((words, words, other), ValueError, "one vocabulary"),
        ((images, None, replace(images, class_names=("a", "b"))), ValueError, "one class_names"),
        ((images, replace(images, pixels=pixels[..., :4]), images), ValueError, "one event_shape"),
    ):
        with pytest.raises(error, match=named):
            divided_rows(*parts)
    with pytest.raises(ValueError, match="patches must be at most 8"):
        divided_rows(images, None, images, patches=9)
    with pytest.raises(ValueError, match="row must be a whole number from 0 to 3"):
        ReportOfRows(divided_rows(images, None, images), row=[4])


@pytest.mark.parametrize("given", [False, True])
def test_an_explainer_behind_all_words_is_fitted_at_a_quarter_of_the_penalty(given):
    """A word that decides is worth .69 nats: at a penalty of 1 none is kept."""
    written = ["a good film", "a bad film", "good and long", "long and bad"] * 30
    parts = texts_of(written, ["good", "bad", "good", "bad"] * 30).split(0.5, 0.25, 0.25, seed=0)
    rows, said = divided_rows(*parts), []
    plan = replace(plan_of_rows(rows, epochs=30), penalty=1.0, penalty_given=given)
    report = ReportOfRows(rows, plan, say=said.append).fit()
    best = predictive(report.result, parts[2].x, masks=5).mean(0).argmax(-1)
    fits = [float(line.split()[7]) for line in said if "at a lower penalty" in line]
    assert fits == ([] if given else [0.25, 0.0625][: len(fits)]) and bool(fits) is not given
    assert report.plan.penalty == [1.0, *fits][-1]
    assert bool((best == parts[2].y).all()) is not given


def test_copies_of_what_was_fitted_are_said():
    pixels = torch.arange(60, dtype=torch.uint8).reshape(60, 1, 1, 1).expand(-1, 1, 4, 4)
    images = ImageDataset(pixels.contiguous(), torch.arange(60) % 2, ("even", "odd"))
    train, valid, test = images.split(0.4, 0.3, 0.3, seed=0)
    assert copied_message(divided_rows(train, valid, test)) == []
    for part in (train, valid):
        (line,) = copied_message(divided_rows(train, valid, part.subset(slice(9))))
        assert line.startswith("9 of 9 held-out images are copies of images of the fit")
    words = np.random.default_rng(0).choice(["a", "b", "c"], 60)
    of_one_word = texts_of(words, (words > "a").astype(int)).split(0.4, 0.3, 0.3, seed=0)
    assert copied_message(divided_rows(*of_one_word)) == []


@pytest.mark.complete
def test_words_of_copied_texts_are_measured_with_one_of_each():
    generator = np.random.default_rng(0)
    # With all ten copies of each, most of these words are found.
    texts = [" ".join(generator.choice(list("abcdefgh"), 6)) for _ in range(40)] * 10
    data = texts_of(texts, generator.integers(0, 2, 40).tolist() * 10)
    rows = divided_rows(*data.split(0.6, 0.2, 0.2, seed=0))
    explained = ReportOfRows(rows, plan_of_rows(rows, epochs=1), draws=5).fit()
    with pytest.warns(UserWarning, match="80 of 80 held-out texts are copies"):
        words = explained.results().words
    assert words.texts == 40 and not words.table["found"].any()


def test_rows_that_are_sorted_by_label_are_explained_of_every_label(monkeypatch):
    monkeypatch.setattr(rows_report, "EXPLAINED_ROWS", 10)
    ends = [f"{first} {second}" for first in "abcdefgh" for second in "stuvwxyz"]
    texts = [f"{verdict} {end}" for verdict in ("bad", "good") for end in ends]
    data = texts_of(texts, [text.partition(" ")[0] for text in texts])
    rows = divided_rows(*data.split(0.4, 0.2, 0.4, seed=0))
    explained = ReportOfRows(rows, plan_of_rows(rows, epochs=1, replicates=1), draws=2).fit()
    labels = dict(zip(rows.part_numbers[2].tolist(), rows.test.y.tolist(), strict=True))
    assert sum(labels[number] for number in explained.results().numbers[0]) == 5
    monkeypatch.setattr(report, "EXPLAINED_ROWS", 60)
    X, y = people(120).drop(columns="income"), np.repeat(["high", "low"], 60)
    explainer = ExplainerClassifier("l2x", k=1, epochs=1, random_state=0).fit(X, y)
    first = Report(explainer, X, y).source.test_rows[:60] - 120  # Behind the rows of the fit
    assert 20 < (y[first] == "high").sum() < 40


def page_data(folder) -> dict:
    """The page's data: the dial as JSON, and all lines of tables."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    dial = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    lines = re.findall(r"<(?:td|th|p class=\"answer\")[^>]*>(.*?)</", page, re.DOTALL)
    return {"numbers": json.loads(dial[1]), "lines": lines}


def test_what_has_no_report_is_refused_before_any_work():
    X, y = people(60).drop(columns="income"), people(60).income
    explainer = ExplainerClassifier("l2x", k=1, epochs=1, random_state=0).fit(X, y)
    refused("of held-out rows: give X and y", Report, explainer)
    refused("were not seen in fit", Report, explainer, X, ["other"] * 60)
    refused("of a search, best_estimator_", Report, explainer.result_, X, y, error=TypeError)
    refused("drawn", Report, explainer, X, y, drawn=3, error=TypeError)
    for options, told in (
        ({"row": [60 + 60]}, "from 0 to 119, rows of the table"),
        ({"fdr": 1.5}, "fdr must be"),
        ({"draws": 1}, "draws must be"),
        ({"guarantee": 0.9}, "give it of a fit with penalty='auto'"),
    ):
        refused(told, Report, explainer, X, y, **options)
    weighted = ExplainerClassifier("l2x", k=1, epochs=1, random_state=0, class_weight="balanced")
    for other in (pickle.loads(pickle.dumps(explainer)), weighted.fit(X, y)):
        refused("from a file, with weights or with model=", Report, other, X, y)


def test_an_interrupted_section_is_left_out(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "judge_gains", interrupted)
    X, y = people(60).drop(columns="income"), people(60).income
    explainer = ExplainerClassifier(penalty=0.02, epochs=2, random_state=0).fit(X[20:], y[20:])
    with pytest.warns(UserWarning, match="the gains were interrupted"):
        results = Report(explainer, X[:20], y[:20], draws=2).write(tmp_path / "r")
    assert results.gains is None and results.rows
    assert (tmp_path / "r" / "report.html").exists()
    with pytest.raises(FileExistsError):
        Report(explainer, X[:20], y[:20], draws=2).write(tmp_path / "r")


def test_groups_of_columns_and_an_imputer_of_ones_own(tmp_path):
    X, y = people(60).drop(columns="income"), people(60).income
    of_user = {"groups": ["body", "body", "work", "shoe"], "imputer": GaussianImputer()}
    explainer = ExplainerClassifier(k=1, epochs=2, random_state=0, **of_user).fit(X[20:], y[20:])
    results = Report(explainer, X[:20], y[:20], draws=2).write(tmp_path / "r")
    assert set(results.ranking.index) == {"body", "work", "shoe"}
    assert "replaces the others with draws of GaussianImputer" in page_of(tmp_path / "r")
    assert all(not row.values for row in results.rows)
