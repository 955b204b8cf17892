"""The report's dial and its row picker, in headless Chromium."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

import lexppl
from lexppl.cli import main
from lexppl.cli.results.scores import PREDICTED_MASKS
from lexppl.data import TableEncoding, divided_frame
from lexppl.evaluation.prediction import predictive
from lexppl.explanation import explain, mask_means
from tests.cli.accessibility import RESULT, keyboard, run_in
from tests.cli.tables import people, written

OPTIONS = ["--epochs", "60", "--replicates", "3", "--draws", "5", "--quiet"]
OPTIONS += ["--groups", "none", "--learning-rate", "0.01", "--row", "17"]
MASKS = 50
"""By which a row is predicted at a penalty that is not in use."""
READ = """
<script>
const slider = document.getElementById("dial-at"), seen = [];
const cells = id => [...document.querySelectorAll("#dial-" + id + " tr")]
  .map(line => [...line.children].map(cell => cell.textContent));
const text = id => document.getElementById("dial-" + id).textContent;
const move = () => slider.dispatchEvent(new Event("input", {bubbles: true}));
for (let at = 0; at <= Number(slider.max); at++) {
  slider.value = String(at); move();
  seen.push({says: text("says"), scores: text("scores"), groups: cells("groups"),
    sentence: text("sentence"), spoken: slider.getAttribute("aria-valuetext")});
}
const search = document.getElementById("dial-search"), row = document.getElementById("dial-row");
const all = row.options.length;
search.value = "17"; search.dispatchEvent(new Event("input", {bubbles: true}));
const found = [...row.options].map(option => option.textContent);
row.value = [...row.options].find(option => option.textContent.startsWith("17 ")).value;
row.dispatchEvent(new Event("change", {bubbles: true}));
const left = document.createElement("pre");
left.id = "RESULT";
left.textContent = JSON.stringify({seen, all, found, row: text("row-says"),
  steps: cells("steps"), closest: text("closest")});
document.body.appendChild(left);
</script>
""".replace("RESULT", RESULT)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dial")
    table = written(people(), folder)
    assert main(["explain", str(table), "--out", str(folder / "results"), *OPTIONS]) == 0
    return folder / "results"


@pytest.fixture(scope="module")
def encoded(results):
    """The saved explainer, x, y and the fold of each row."""
    encoding = TableEncoding.from_json(json.loads((results / "encoding.json").read_text()))
    source = divided_frame(people(), folds=3, seed=0)
    x = torch.as_tensor(encoding.encode(people())).to(source.data.x)
    return lexppl.load(results / "explainer"), x, source


def data_of(results):
    page = (results / "report.html").read_text(encoding="utf-8")
    return json.loads(re.search(r'id="dial-data">(.*?)</script>', page, re.DOTALL).group(1))


def test_numbers_are_those_of_explain_at_each_penalty(results, encoded):
    explainer, x, source = encoded
    data = data_of(results)
    path = pd.read_csv(results / "penalty_path.csv")
    penalties = [setting["penalty"] for setting in data["settings"]]
    np.testing.assert_allclose(penalties, path["penalty"].tolist()[::-1], rtol=1e-3)
    assert path["chosen"].tolist()[::-1].index(True) == data["chosen"]
    fold = torch.as_tensor(source.fold)
    for setting in data["settings"]:
        posterior = explain(explainer, x, draws=0, penalty=setting["penalty"])
        every = mask_means(posterior).values
        own = every[fold.numpy(), np.arange(len(x))].mean(0)
        kept = dict(zip(source.data.entry_names, own, strict=True))
        for name, share, low, high in setting["groups"]:
            assert share == pytest.approx(kept[name], abs=1e-3)
            assert low <= high
        assert setting["size"] == pytest.approx(own.sum(), abs=2e-3)
        shares = [share for _, share, *_ in setting["groups"]]
        assert shares == sorted(shares, reverse=True)


def accuracy_at(encoded, penalty, masks, seed=0):
    """Of the saved explainer at a penalty, each row by the fit that has not seen it."""
    explainer, x, source = encoded
    right = []
    for number in range(3):
        rows = source.test_rows[source.fold[source.test_rows] == number]
        own = explainer.at(penalty).subset([number])
        found = predictive(own, x[rows], masks=masks, seed=seed).mean(0).argmax(-1)
        right.append(float((found == source.data.y[rows]).double().mean()))
    return 100 * np.mean(right)


def test_accuracy_does_not_hang_on_the_draws(results, encoded):
    for setting in data_of(results)["settings"]:
        (name, value, spread), *_ = setting["scores"]
        assert name == "right" and spread.startswith("±")
        # Masks are drawn: a row or two near the border may fall on the other side.
        right = accuracy_at(encoded, setting["penalty"], masks=200, seed=1)
        assert float(value.removesuffix(" %")) == pytest.approx(right, abs=4.0)


def test_the_slider_shows_each_setting_and_a_row_is_picked(results, tmp_path):
    data, page = data_of(results), results / "report.html"
    found = run_in(page, tmp_path, READ)
    for at, (setting, shown) in enumerate(zip(data["settings"], found["seen"], strict=True)):
        assert shown["says"].startswith(f"{setting['size']:.1f} features a row")
        assert shown["spoken"] == shown["says"]
        assert ("in use" in shown["says"]) == (at == data["chosen"])
        assert shown["sentence"] == setting["sentence"]
        assert "".join(f"{n}{v} {s}" for n, v, s in setting["scores"]) == shown["scores"]
        for (name, kept, *_), line in zip(setting["groups"], shown["groups"], strict=True):
            assert line[0] == name and float(line[1]) == pytest.approx(kept, abs=0.000501)
    rows = [row["number"] for row in data["rows"]]
    assert found["all"] == len(rows) and 17 in rows
    assert any(text.startswith("17 (") for text in found["found"])
    assert len(found["found"]) < found["all"]
    place, last = rows.index(17), data["settings"][-1]["rows"]
    assert found["row"].startswith(f"Row 17: observed {people()['income'][17]}, predicted ")
    assert [line[:2] for line in found["steps"]] == last[place]["steps"]
    kept = dict(last[place]["kept"])
    assert all(
        line[2] == (f"{kept[line[0]]:.3f}" if line[0] in kept else "") for line in found["steps"]
    )
    near = [data["rows"][other] for other in last[place]["closest"]]
    assert near and all(other["observed"] != people()["income"][17] for other in near)
    assert all(str(other["number"]) in found["closest"] for other in near)


def test_keys_move_the_slider_and_pick_a_row(results, encoded, tmp_path):
    explainer, x, source = encoded
    data = data_of(results)
    last = len(data["settings"]) - 1
    cells = "[...document.querySelectorAll('#dial-groups tr')].map(tr => [...tr.cells].map("
    cells += "cell => cell.textContent))"
    text = "document.getElementById('dial-{}').textContent".format
    with keyboard(results / "report.html", tmp_path) as keys:
        keys.read("document.getElementById('dial-at').focus()")
        places = {"Home": 0, "ArrowRight": 1, "End": last, "ArrowLeft": last - 1}
        for pressed, place in places.items():
            keys.press(pressed)
            assert keys.read("document.getElementById('dial-at').value") == str(place)
            penalty, in_use = data["settings"][place]["penalty"], place == data["chosen"]
            posterior = explain(explainer, x, draws=0, penalty=penalty)
            every = mask_means(posterior).values[source.fold, np.arange(len(x))].mean(0)
            order = np.argsort(-every, kind="stable")
            lines = keys.read(cells)
            assert [line[0] for line in lines] == [source.data.entry_names[g] for g in order]
            kept = [float(line[1]) for line in lines]
            np.testing.assert_allclose(kept, every[order], atol=0.00051)
            right = accuracy_at(encoded, penalty, PREDICTED_MASKS if in_use else MASKS)
            assert keys.read(text("scores")).startswith(f"right{right:.1f} %")
        keys.press("Tab", *"17")
        assert keys.read("document.activeElement.id") == "dial-search"
        keys.press("Tab", *"17 (")
        assert keys.read("document.activeElement.id") == "dial-row"
        observed = people()["income"][17]
        assert keys.read(text("row-says")).startswith(f"Row 17: observed {observed}, predicted ")
        place = [row["number"] for row in data["rows"]].index(17)
        steps = keys.read(cells.replace("groups", "steps"))
        assert [line[:2] for line in steps] == data["settings"][last - 1]["rows"][place]["steps"]


def test_steps_of_a_row_end_at_its_prediction(results):
    for setting in data_of(results)["settings"]:
        for row in setting["rows"]:
            label, probability = re.fullmatch(r"(\w+) \((.*)\)", row["predicted"]).groups()
            assert label in ("high", "low") and row["steps"][-1][1] == probability
            assert row["steps"][0][0] == "base rate" and not math.isnan(float(probability))


def test_groups_are_read_also_where_their_gains_are_not_known(tmp_path, monkeypatch):
    def unknown(*_):
        raise FloatingPointError("a gain is not finite")

    monkeypatch.setattr("lexppl.cli.explain_table.TableRun.gains", unknown)
    frame = people()
    frame.insert(0, "years", frame["age"] + 0.01)
    words = ["--epochs", "20", "--replicates", "2", "--draws", "3", "--quiet"]
    out = tmp_path / "results"
    assert main(["explain", str(written(frame, tmp_path)), "--out", str(out), *words]) == 0
    for setting in data_of(out)["settings"]:
        (group,) = (name for name, *_ in setting["groups"] if {"age", "years"} <= set(name.split()))
        assert dict((n, k) for n, k, *_ in setting["groups"])[group] >= 0.05
        assert group in setting["sentence"]


def test_a_fit_of_one_penalty_has_no_dial_and_looks_at_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr("lexppl.cli.explain_table.at_each_penalty", None)
    words = ["--epochs", "2", "--replicates", "2", "--draws", "3", "--quiet", "--penalty", "0.02"]
    out = tmp_path / "results"
    assert main(["explain", str(written(people(), tmp_path)), "--out", str(out), *words]) == 0
    assert 'id="dial-at"' not in (out / "report.html").read_text(encoding="utf-8")
