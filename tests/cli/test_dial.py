"""The report's dial and its row picker, in headless Chromium."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

import lexppl
from lexppl.data import TableEncoding
from lexppl.data.divided_table import divided_frame
from lexppl.evaluation.prediction import predictive
from lexppl.explanation import explain, mask_means
from lexppl.report.results.scores import PREDICTED_MASKS
from tests.cli.accessibility import keyboard
from tests.cli.tables import explained, numbers, page_of, people
from tests.refusals import over

OPTIONS = ["--epochs", "60", "--replicates", "3", "--draws", "5", "--quiet"]
OPTIONS += ["--groups", "none", "--learning-rate", "0.01", "--row", "17"]
MASKS = 50
"""By which a row is predicted at a penalty that is not in use."""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return explained(tmp_path_factory.mktemp("dial"), *OPTIONS)


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
            setting, shown = data["settings"][place], keys.read(text("scores"))
            assert shown.startswith(f"right{right:.1f} %")
            assert shown == "".join(f"{n}{v} {s}" for n, v, s in setting["scores"])
            says = keys.read(text("says"))
            assert says.startswith(f"{setting['size']:.1f} features a row")
            assert keys.read("document.getElementById('dial-at').ariaValueText") == says
            assert ("in use" in says) == in_use
            assert keys.read(text("sentence")) == setting["sentence"]
        options = "[...document.getElementById('dial-row').options].map(o => o.textContent)"
        assert len(keys.read(options)) == len(data["rows"])
        keys.press("Tab", *"17")
        assert keys.read("document.activeElement.id") == "dial-search"
        found = keys.read(options)
        assert len(found) == 1 and found[0].startswith("17 (")
        keys.press("Tab", *"17 (")
        assert keys.read("document.activeElement.id") == "dial-row"
        observed = people()["income"][17]
        assert keys.read(text("row-says")).startswith(f"Row 17: observed {observed}, predicted ")
        place = [row["number"] for row in data["rows"]].index(17)
        row = data["settings"][last - 1]["rows"][place]
        steps = keys.read(cells.replace("groups", "steps"))
        assert [line[:2] for line in steps] == row["steps"]
        kept = {name: f"{share:.3f}" for name, share in row["kept"]}
        assert all(line[2] == kept.get(line[0], "") for line in steps)
        near = [data["rows"][other] for other in row["closest"]]
        assert near and all(other["observed"] != observed for other in near)
        closest = keys.read(text("closest"))
        assert all(str(other["number"]) in closest for other in near)


@over(
    ("", [0, 1, 2], "3 of the 3 shown, of 569 rows."),
    ("300", [], "Row 300 is not among the 3 shown, of 569 rows: give --row 300."),
    ("500", [1], "1 of the 3 shown, of 569 rows."),
    ("age=300", [0], "1 of the 3 shown, of 569 rows."),
    ("nothing", [], "Such a row is not among the 3 shown, of 569 rows."),
)
def test_a_number_is_that_of_a_row(typed, places, said, results, tmp_path):
    """300 stands in a value of the first row, and 500 in one of the third."""
    data = data_of(results)
    for setting in data["settings"]:
        setting["rows"] = [{**row, "closest": []} for row in setting["rows"][:3]]
    data["rows"], data["total"] = data["rows"][:3], 569
    for row, number, age in zip(data["rows"], (7, 500, 8), ("300", "41", "1500"), strict=True):
        row["number"], row["values"] = number, {"age": age}
    page, other = (results / "report.html").read_text(encoding="utf-8"), tmp_path / "page.html"
    start, end = r'(id="dial-data">).*?(</script>)', json.dumps(data).replace("\\", "\\\\")
    other.write_text(re.sub(start, rf"\g<1>{end}\g<2>", page, flags=re.DOTALL), encoding="utf-8")
    with keyboard(other, tmp_path) as keys:
        keys.read("document.getElementById('dial-search').focus()")
        keys.press(*typed)
        options = "[...document.getElementById('dial-row').options].map(o => Number(o.value))"
        assert keys.read(options) == places
        assert keys.read("document.getElementById('dial-listed').textContent") == said
        row = keys.read("document.getElementById('dial-row-says').textContent")
        assert row.startswith(f"Row {data['rows'][places[0]]['number']}:" if places else "")
        assert bool(row) == bool(places)


def test_steps_of_a_row_end_at_its_prediction(results):
    for setting in data_of(results)["settings"]:
        for row in setting["rows"]:
            label, probability = re.fullmatch(r"(\w+) \((.*)\)", row["predicted"]).groups()
            assert label in ("high", "low") and row["steps"][-1][1] == probability
            assert row["steps"][0][0] == "base rate" and not math.isnan(float(probability))


def test_groups_are_read_also_where_their_gains_are_not_known(tmp_path, monkeypatch):
    def unknown(*_):
        raise FloatingPointError("a gain is not finite")

    monkeypatch.setattr("lexppl.report.report.Report.gains", unknown)
    frame = people()
    frame.insert(0, "years", frame["age"] + 0.01)
    words = ["--epochs", "20", "--replicates", "2", "--draws", "3", "--quiet"]
    for setting in data_of(explained(tmp_path, *words, frame=frame))["settings"]:
        (group,) = (name for name, *_ in setting["groups"] if {"age", "years"} <= set(name.split()))
        assert dict((n, k) for n, k, *_ in setting["groups"])[group] >= 0.05
        assert group in setting["sentence"]


def test_a_response_is_in_its_own_units(tmp_path, capsys):
    frame = numbers(60)
    frame["price"] = np.where(frame.a > 0.0, 125_000.0, 0.0)
    words = ["--epochs", "5", "--replicates", "1", "--draws", "3", "--quiet"]
    out = explained(tmp_path, *words, frame=frame)
    assert "its 2 values are classes, give --task classification" in capsys.readouterr().err
    data, path = data_of(out), pd.read_csv(out / "penalty_path.csv")
    assert {row["observed"] for row in data["rows"]} == {"0", "125000"}
    scores = {name: value for name, value, _ in data["settings"][data["chosen"]]["scores"]}
    own = float(scores["log-likelihood, nats a row"].replace("−", "-"))
    # Of a standardised response it is greater by log 62,500 = 11.
    assert path["log_likelihood"][path["chosen"]].item() == pytest.approx(own, abs=2.0)
    assert "e+0" not in page_of(out)
    assert "range of fits" not in page_of(out)  # One fit has no range
    assert all(len(group) == 2 for setting in data["settings"] for group in setting["groups"])
