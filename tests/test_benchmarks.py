"""The benchmarks' scripts start, run at a small size, and make the tables that are printed."""

import argparse
import importlib
import json
import os
import re
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import log_softmax

FOLDER = Path(__file__).parent.parent / "benchmarks"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"python benchmarks/(\w+)\.py", README)))
MODULES = {path.stem for path in FOLDER.glob("*.py")}


@pytest.fixture(autouse=True)
def the_scripts_folder_first(monkeypatch):
    """As when a script is run; what it imports from there is forgotten after the test."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


def run(monkeypatch, name, *arguments):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")


def test_the_page_names_every_script_and_no_other():
    mains = {name for name in MODULES if "__main__" in (FOLDER / f"{name}.py").read_text()}
    assert set(NAMED) == mains


@pytest.mark.parametrize("name", [name for name in NAMED if name != "tables"])
def test_every_script_takes_the_common_options(monkeypatch, capsys, name):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, name, "--help")
    assert stopped.value.code == 0
    told = capsys.readouterr().out
    assert {"--small", "--results", "--again"} <= set(re.findall(r"--\w+", told))


def test_the_committed_records_make_the_printed_tables():
    tables = importlib.import_module("tables")
    assert tables.written(README) == README
    assert "A small run" not in README
    spoilt = README.replace("0.965 ± 0.005", "0.999 ± 0.005")
    assert spoilt != README
    assert tables.written(spoilt) == README


def test_a_small_run_is_recorded_in_its_own_folder(monkeypatch, capsys, tmp_path):
    committed = (FOLDER / "results" / "step.json").read_bytes()
    run(monkeypatch, "step", "--small", "--results", tmp_path)
    records = json.loads((tmp_path / "step.json").read_text())
    assert [(r["loop"], r["law"], r["small"]) for r in records] == [
        ("step", "k-subset", True),
        ("step", "bernoulli", True),
        ("fit", "bernoulli", True),
    ]
    assert (FOLDER / "results" / "step.json").read_bytes() == committed
    run(monkeypatch, "step", "--small", "--results", tmp_path)
    printed = capsys.readouterr().out
    assert "2 of 2 are recorded" in printed
    assert "1 of 1 are recorded" in printed
    assert json.loads((tmp_path / "step.json").read_text()) == records
    run(monkeypatch, "tables", "--results", tmp_path)
    printed = capsys.readouterr().out
    assert f"| {records[0]['library_ms']:.1f} | {records[0]['by_hand_ms']:.1f} |" in printed
    assert "A small run: the figures mean nothing." in printed


@pytest.mark.complete
def test_large_tables_are_explained_in_a_process_of_their_own(monkeypatch, capsys, tmp_path):
    run(monkeypatch, "large_table", "--small", "--results", tmp_path)
    (record,) = json.loads((tmp_path / "large_table.json").read_text())
    assert record["rows"] == 300 and record["true"] == 5
    assert record["cpu_seconds"] > 0.5 and 100 < record["megabytes"] < 10_000
    capsys.readouterr()
    run(monkeypatch, "tables", "--results", tmp_path)
    assert f"| 300 | {record['seconds']:.0f} |" in capsys.readouterr().out


@pytest.mark.complete
def test_masks_of_thousands_of_entries_are_timed_and_weighed(monkeypatch, capsys, tmp_path):
    run(monkeypatch, "k_subset", "--small", "--results", tmp_path)
    one, four = json.loads((tmp_path / "k_subset.json").read_text())
    assert (one["draws"], four["draws"]) == (1, 4)
    assert min(one[f"{name}_ms"] for name in ("draw", "density", "reference")) > 0
    few = ["--rows", 4, "--steps"]
    run(monkeypatch, "large_masks", "--small", "--results", tmp_path, *few)
    (explain,) = json.loads((tmp_path / "large_masks.json").read_text())
    assert explain["draws"] == 100 and explain["result"] > 4 * 100 * 1568 / 1e6
    # None above a peak that tests before this one have left in the same process.
    assert explain["megabytes"] >= 0
    capsys.readouterr()
    run(monkeypatch, "tables", "--results", tmp_path)
    printed = capsys.readouterr().out
    assert f"| 1568 | 157 | 2 | 1 | {one['draw_ms']:.1f} |" in printed
    assert f"| rows explained | 4 | 100 | {explain['before']:.0f} |" in printed


@pytest.mark.complete
def test_calibration_is_recorded_with_its_verdicts(monkeypatch, capsys, tmp_path):
    chosen = ["--methods", "grid (exact)", "half as wide (control)", "enumeration"]
    run(monkeypatch, "calibration", "--small", "--results", tmp_path, *chosen)
    exact, narrow, masks = json.loads((tmp_path / "calibration.json").read_text())
    assert (exact["program"], masks["program"]) == ("line", "masks")
    assert narrow["coverage_90"] < exact["coverage_90"]
    assert set(exact["quantities"]) == set(exact["histograms"]) == {"slope[0]", "slope[1]"}
    assert abs(narrow["sd_ratio"] / exact["sd_ratio"] - 0.5) < 0.1
    run(monkeypatch, "tables", "--results", tmp_path)
    assert f"| line | grid (exact) | 20, 9 | {exact['verdict']} |" in capsys.readouterr().out


def test_switches_are_recorded_with_their_floor_and_their_branches(monkeypatch, capsys, tmp_path):
    common = ["--small", "--results", tmp_path, "--folds", 1]
    run(monkeypatch, "switches", *common, "--labels", "observed", "averaged")
    run(monkeypatch, "switches", *common, "--branches", "--batches", 200, "--labels", "averaged")
    observed, averaged, branches = json.loads((tmp_path / "switches.json").read_text())
    assert [observed["labels"], averaged["labels"]] == ["observed", "averaged"]
    assert observed["floor"] == averaged["floor"]
    for record in (observed, averaged):
        assert record["gap_ratio"] == pytest.approx(record["gap"] / record["floor"])
        assert len(record["each above 0.5"]) == len(record["gaps"]) == 2
        assert record["cpu_seconds"] > 0
    assert branches["fits"] == 2 and branches["lost"] == sum(e["lost"] for e in branches["each"])
    capsys.readouterr()
    run(monkeypatch, "tables", "--results", tmp_path)
    printed = capsys.readouterr().out
    assert "| S1 | averaged | 1 | 0.0125 |" in printed
    assert "| 200 | 2 | averaged | 1 | " in printed


def test_a_branch_is_lost_where_its_own_features_are_not_kept(monkeypatch):
    switches = importlib.import_module("switches")
    truth = torch.tensor([[1, 1, 0, 0, 1], [0, 0, 1, 1, 1], [1, 1, 0, 0, 1]])
    assert sorted(switches.branch_recalls(truth.bool(), truth)) == [1.0, 1.0]
    one_only = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0]).expand(3, 5)
    assert sorted(switches.branch_recalls(one_only, truth)) == [0.0, 1.0]
    every = torch.ones(3, 5)
    assert switches.branch_recalls(every, truth) == [1.0, 1.0]
    half = torch.tensor([[1.0, 0, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]])
    assert sorted(switches.branch_recalls(half, truth)) == [0.25, 1.0]


def test_small_records_do_not_mix_with_others(monkeypatch, capsys, tmp_path):
    with pytest.raises(SystemExit):
        run(monkeypatch, "step", "--small", "--results", FOLDER / "results")
    assert "figures of full size" in capsys.readouterr().err
    (tmp_path / "step.json").write_text((FOLDER / "results" / "step.json").read_text())
    with pytest.raises(ValueError, match="must not mix"):
        run(monkeypatch, "step", "--small", "--results", tmp_path)


def test_an_absent_data_set_is_said_and_skipped(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("LEXPPL_DATA", str(tmp_path / "nowhere"))
    run(monkeypatch, "tabular", "--small", "--data", "adult", "--results", tmp_path)
    assert f"adult is skipped: no file {tmp_path / 'nowhere'}" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["panels", "infidelity"])
def test_absent_images_and_texts_are_said(monkeypatch, capsys, tmp_path, name):
    monkeypatch.setenv("LEXPPL_DATA", str(tmp_path / "nowhere"))
    run(monkeypatch, name, "--small", "--results", tmp_path)
    assert f"no folder {tmp_path / 'nowhere' / 'MNIST'}" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    not Path(os.environ.get("LEXPPL_DATA", "nowhere"), "MNIST").is_dir(),
    reason="LEXPPL_DATA has no MNIST",
)
def test_explainers_of_images_are_recorded_at_a_small_size(monkeypatch, capsys, tmp_path):
    common = ("--small", "--results", tmp_path)
    run(monkeypatch, "panels", *common, "--imputers", "constant", "surrogate constant")
    run(monkeypatch, "infidelity", *common, "--sets", "digits", "--methods", "l2x")
    constant, surrogate = json.loads((tmp_path / "panels.json").read_text())
    for record in (constant, surrogate):
        assert (record["k"], record["entries"]) == (10, 98)
        # Two epochs have learned nothing: half of a selection is in either panel.
        assert record["outside"] == pytest.approx(0.5, abs=0.1)
    (l2x,) = json.loads((tmp_path / "infidelity.json").read_text())
    assert (l2x["k"], l2x["entries"]) == (25, 784)
    capsys.readouterr()
    run(monkeypatch, "tables", "--results", tmp_path)
    printed = capsys.readouterr().out
    assert f"| 10 of 98 | {surrogate['accuracy']:.3f} |" in printed
    assert f"| l2x | {l2x['fs_m']:.1f} | {l2x['fu_m']:.1f} |" in printed


def test_planted_tables_have_the_gains_that_are_told(monkeypatch):
    """Closed forms: y is N(2a, 1), and N(0, 5) without a; given its like, a has variance .36."""
    tables = importlib.import_module("planted_tables")

    def line(*like):
        return tables.Kind(
            tables._alike, lambda x: 2.0 * x["a"], (("a",),), "a line", dict(like), spread=1.0
        )

    redrawn = (("a",), partial(tables._given_its_like, "a"))
    monkeypatch.setattr(tables, "KINDS", {"alone": line(), "alike": line(redrawn)})
    assert tables.true_gains("alone")["a",] == pytest.approx(0.5 * np.log(5.0), abs=0.04)
    assert tables.true_gains("alike")["a",] == pytest.approx(0.5 * np.log(1 + 4 * 0.36), abs=0.04)


@pytest.mark.parametrize(
    "name",
    [
        *("mixed", "2 % positives", "1 % positives", "nothing", "correlated", "duplicated"),
        *("switch", "three classes", "regression"),
    ],
)
def test_planted_tables_are_of_their_law(monkeypatch, name):
    tables = importlib.import_module("planted_tables")
    monkeypatch.setattr(tables, "TRUTH_ROWS", 1000)
    monkeypatch.setattr(tables, "REDRAWS", 50)
    kind = tables.KINDS[name]
    table, again = (tables.planted(name, 20_000, 1) for _ in range(2))
    pd.testing.assert_frame_equal(table.frame, again.frame)
    new = tables.planted(name, 20_000, 1, new=20_000)
    assert not new.frame.equals(table.frame)
    for part in (table, new):
        x = {column: part.frame[column].to_numpy() for column in part.frame}
        y = x.pop(tables.TARGET)
        for word in set(x) & set(tables.WORDS):
            x[word] = np.array([int(cell.removeprefix(f"{word} ")) for cell in x[word]])
        if kind.spread is None:
            y = np.array([tables.LABELS.index(label) for label in y])
            log_p = log_softmax(kind.output(x), -1)
            expected = (np.exp(log_p) * log_p).sum(-1)
        else:
            expected = np.full(len(y), -0.5 * np.log(2.0 * np.pi * np.e * kind.spread**2))
        np.testing.assert_allclose(part.log_likelihood, kind.log_likelihood(x, y), rtol=1e-6)
        excess = part.log_likelihood - expected
        assert abs(excess.mean()) <= 4.0 * excess.std() / np.sqrt(len(excess))
    assert {column for unit in kind.units for column in unit} < set(x)
    assert all(gain > 0.0 for gain in tables.true_gains(name).values())


def test_planted_tables_have_what_their_names_say():
    tables = importlib.import_module("planted_tables")
    for share in (0.01, 0.02):
        name = f"{share * 100:g} % positives"
        frame = tables.planted(name, 20_000, 1).frame
        assert (frame[tables.TARGET] == "yes").mean() == pytest.approx(share, abs=0.004)
        assert tables.least_gain(name) < 0.2 * tables.LEAST_GAIN
    alike = tables.planted("correlated", 20_000, 1).frame
    assert np.corrcoef(alike["b"], alike["like b"])[0, 1] == pytest.approx(0.8, abs=0.02)
    twice = tables.planted("duplicated", 300, 1).frame
    assert (twice["a"] == twice["a again"]).all()
    city = tables.planted("mixed", 2_000, 1).frame["city"]
    assert city.nunique() == 66


def test_what_is_found_is_judged_by_units():
    believable = importlib.import_module("believable")
    groups = [["a", "a again"], ["city"], ["b"]]
    found = believable.judged("duplicated", groups, ["a again"])
    assert found["false"] == ["city"] and found["false_share"] == pytest.approx(1 / 3)
    assert found["missed"] == ["product"] and found["power"] == pytest.approx(2 / 3)
    assert found["false_members"] == []
    alike = believable.judged("correlated", [["a", "like a"]], ["a", "like a"])
    assert (alike["false"], alike["false_share_members"]) == ([], 0.5)
    empty = believable.judged("nothing", [], [])
    assert (empty["false_share"], empty["power"], empty["missed"]) == (0.0, None, [])


def test_tables_of_planted_truth_have_errors_and_coverage():
    tables = importlib.import_module("believable_tables")

    def record(seed, gain, false):
        bounds = {"gain_lower": 0.0, "gain_upper": 1.0}
        kept = {"selection": 0.5, "selection_lower": 0.4, "selection_upper": 0.6}
        return {
            **{"kind": "mixed", "rows": 300, "seed": seed, "method": "explain"},
            **{"settings": "default", "false": false, "false_share": len(false) / 2},
            **{"false_share_members": 0.0},
            **{"missed": [], "power": 1.0, "power_all": None, "units": [["a", "a again"]]},
            "features": {
                "a": {"selection": 0.2},
                "a again": {"selection": 0.8},
                "city": {"selection": 0.1 * seed},
                "visits": {"selection": 0.0},
            },
            "groups": {
                "a+a again": {**bounds, **kept, "gain": gain, "law": 0.4},
                "city": {**bounds, **kept, "gain": 0.0, "law": None},
            },
            **{"averaged": -0.5, "boosting": -0.6, "network": -0.4, "oracle": -0.4},
            **{"warnings": ["one"] * (seed == 1), "penalty": None, "cpu_seconds": 30.0},
        }

    records = [record(1, 0.5, []), record(2, 2.0, ["city"]), record(3, 0.2, ["city"])]
    found = tables.found_table(records).splitlines()[-1]
    # Of 0, ½ and ½ the mean is ⅓, its standard error ⅙.
    assert (
        "| explain, default | 0.333 ± 0.167 | 0.000 ± 0.000 | 1.000 ± 0.000 | — | city (2) | — | "
        "30 | 3 |" in found
    )
    fit = tables.fit_table(records).splitlines()[-1]
    assert "| — | 0.10 | city 0.20 | 0.80 | 0.100 ± 0.000 | -0.100 ± 0.000 | -0.100 ±" in fit
    # Of the others' means 1.1, .35 and 1.25 one is within, and all three 0 of the city.
    assert fit.endswith("| 0.900 ± 0.557; 0.400 | 0.67 | 1 | 3 |")
    assert tables.fit_table(records[:1]).splitlines()[-1].endswith("| 0.500; 0.400 | — | 1 | 1 |")


def test_known_data_sets_are_told_against_the_better_reference():
    tables = importlib.import_module("believable_tables")
    record = {
        **{"data": "wine", "rows": 107, "held_out": 36, "settings": "default", "kept": 4.0},
        **{"entries": 13, "found": ["a"], "averaged": -0.3, "boosting": -0.2, "network": -0.4},
        **{"boosting_error": 0.05, "network_error": 1.0, "cpu_seconds": 9.0},
    }
    told = tables.unknown_table([record]).splitlines()[-1]
    assert told.endswith("| -0.300 | -0.200 | -0.400 | -0.100 | 0.050 | -2.000 | 9 | 1 |")


def test_shap_is_asked_of_trees_that_it_reads_right(tmp_path):
    """Of splits by sets of levels its values missed two of three, and had a null on top."""
    believable = importlib.import_module("believable")
    shap_found = importlib.import_module("other_findings").shap_found
    path = tmp_path / "table.csv"
    importlib.import_module("planted_tables").planted("duplicated", 2_000, 1).frame.to_csv(
        path, index=False
    )
    source = believable.divided(path, 1, valid_share=0.2, test_share=0.2)
    names, flags = source.data.entry_names, shap_found(source, 1)
    found = [[name] for name, flag in zip(names, flags, strict=True) if flag]
    told = believable.judged("duplicated", found, [])
    assert (told["power"], told["false"]) == (1.0, [])


def test_a_table_that_cannot_be_explained_is_told_and_leaves_the_others(
    monkeypatch, capsys, tmp_path
):
    words = ("--kinds", "duplicated", "--methods", "explain", "permutation", "--words=--k 99")
    with pytest.raises(SystemExit, match="1 tables have no record"):
        run(monkeypatch, "believable", "--small", "--results", tmp_path, *words)
    assert "duplicated 300 1: lexppl explain" in capsys.readouterr().out
    [record] = json.loads((tmp_path / "believable.json").read_text())
    assert record["method"] == "permutation"


@pytest.mark.complete
def test_a_small_table_of_planted_truth_is_typed_and_judged(monkeypatch, capsys, tmp_path):
    words = ("--small", "--results", tmp_path, "--kinds", "duplicated")
    run(monkeypatch, "believable", *words)
    records = {r["method"]: r for r in json.loads((tmp_path / "believable.json").read_text())}
    assert {"explain", "shap", "permutation"} <= set(records)
    explained = records["explain"]
    assert set(explained["features"]) > {"a", "a again", "city"}
    groups = explained["groups"]
    assert {column for label in groups for column in label.split("+")} == set(explained["features"])
    for line in (*explained["features"].values(), *groups.values()):
        assert line["gain_lower"] <= line["gain"] <= line["gain_upper"]
        assert {"p", "selection"} <= set(line)
    assert [groups[label]["law"] is None for label in ("city", "a+a again")] == [True, False]
    assert explained["oracle"] > max(explained["explainer"], explained["boosting"])
    assert explained["averaged"] >= explained["explainer"]
    assert explained["penalty"] > 0.0
    run(monkeypatch, "believable", *words)
    assert f"{len(records)} of {len(records)} are recorded" in capsys.readouterr().out
    run(monkeypatch, "tables", "--results", tmp_path)
    printed = capsys.readouterr().out
    assert "| duplicated | 300 | explain, default | " in printed
    assert f"| duplicated | 300 | default | {explained['penalty']:.3f} | " in printed


@pytest.mark.complete
def test_the_settings_before_are_typed_as_such(monkeypatch, tmp_path):
    from lexppl.systems import METHODS

    monkeypatch.setattr(METHODS, "_methods", dict(METHODS._methods))
    words = ("--kinds", "mixed", "--methods", "explain", "--settings", "before")
    run(monkeypatch, "believable", "--small", "--results", tmp_path, *words)
    [record] = json.loads((tmp_path / "believable.json").read_text())
    assert record["settings"] == "before"
    assert record["penalty"] is None
    fixed = METHODS["lex_before"].fixed
    assert (fixed["folds"], fixed["towards"], fixed["unit"]) == (1, 0.5, 1.0)


@pytest.mark.complete
def test_known_data_sets_are_typed_and_judged(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("LEXPPL_DATA", str(tmp_path / "nowhere"))
    words = ("--data", "wine", "diabetes", "adult")
    run(monkeypatch, "unknown_tables", "--small", "--results", tmp_path, *words)
    assert "adult is skipped" in capsys.readouterr().out
    wine, diabetes = json.loads((tmp_path / "unknown_tables.json").read_text())
    assert wine["data"] == "wine" and wine["rows"] + wine["held_out"] < 150
    assert 0.0 < wine["kept"] < wine["entries"] == 13
    # In the response's own units, whose standard deviation is 77.
    assert -7.0 < diabetes["boosting"] < -4.5 and -7.0 < diabetes["averaged"] < -4.5
    run(monkeypatch, "tables", "--results", tmp_path)
    assert "| wine | " in capsys.readouterr().out


def test_runs_beside_each_other_lose_no_record(monkeypatch, tmp_path):
    record = importlib.import_module("record")
    options = argparse.Namespace(results=tmp_path, small=True, again=False)
    kept = record.Records("beside", ("seed",), "{seed}".format, options)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: kept.add({"seed": seed}), range(24)))
    assert sorted(r["seed"] for r in record.read("beside", tmp_path)) == list(range(24))


def test_help_and_a_refusal_are_measured_as_processes_of_their_own(monkeypatch, capsys, tmp_path):
    run(monkeypatch, "start_up", "--small", "--results", tmp_path)
    first, second = json.loads((tmp_path / "start_up.json").read_text())
    assert (first["command"], first["exit_code"], first["code"]) == ("--help", 0, "after")
    assert second["exit_code"] == 2
    assert all(r[key] > 0 for r in (first, second) for key in ("seconds", "megabytes"))
    capsys.readouterr()
    run(monkeypatch, "tables", "--results", tmp_path)
    assert f"| `--help` | 0 | — | {first['seconds']:.2f} |" in capsys.readouterr().out


def test_a_small_latency(monkeypatch, tmp_path):
    run(monkeypatch, "latency", "--small", "--results", tmp_path)
    (record,) = json.loads((tmp_path / "latency.json").read_text())
    assert (record["figure"], record["code"]) == ("range: a row", "after")
    assert record["milliseconds"] > 0


def test_a_command_that_ends_otherwise_is_not_measured(monkeypatch, tmp_path):
    start_up = importlib.import_module("start_up")
    monkeypatch.setitem(start_up.COMMANDS, "--help", 2)
    with pytest.raises(RuntimeError, match="ended with 0; expected is 2"):
        start_up.run("--help", start_up.ROOT, tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes as POSIX has them")
@pytest.mark.filterwarnings("ignore")
def test_a_small_soak(monkeypatch, capsys, tmp_path):
    run(monkeypatch, "soak", "--small", "--fits", "1", "--results", tmp_path)
    (record,) = json.loads((tmp_path / "soak.json").read_text())
    assert record["kills"] == 2 == len(record["after"]) and record["same"] is True
    capsys.readouterr()
    run(monkeypatch, "tables", "--results", tmp_path)
    assert "| 1 of 1 |" in capsys.readouterr().out


def test_q_fit_says_which_model_is_explained(monkeypatch, capsys, tmp_path):
    run(monkeypatch, "q_fit", "--small", "--results", tmp_path)
    records = json.loads((tmp_path / "q_fit.json").read_text())
    assert [r["explained"] for r in records] == ["adapted", "frozen"]
    assert all(-1 <= r["mcc"] <= 1 for r in records)
    assert records[0]["accuracy"] == records[1]["accuracy"]
    capsys.readouterr()
    run(monkeypatch, "tables", "--results", tmp_path)
    printed = capsys.readouterr().out
    cells = [f"{r['mcc']:.3f}" for r in records]
    missing = " | ".join(["not run"] * 3)
    assert f"| batch norms that adapt | 0.002 | {missing} | {cells[0]} |" in printed
    assert f"| the model as given | 0.002 | {missing} | {cells[1]} |" in printed


def test_real_x_is_recorded_at_every_penalty(monkeypatch, capsys, tmp_path):
    run(monkeypatch, "real_x", "--small", "--results", tmp_path)
    records = json.loads((tmp_path / "real_x.json").read_text())
    assert [(r["variant"], r["penalty"]) for r in records] == [("folds", 0.1), ("folds", 0.2)]
    capsys.readouterr()
    run(monkeypatch, "tables", "--results", tmp_path)
    printed = capsys.readouterr().out
    assert f"| folds | 0.1 | {records[0]['tpr']:.3f} |" in printed and "| mended |" in printed


def test_an_order_that_rests_on_a_tie_is_not_as_expected():
    xtab = importlib.import_module("xtab")
    names = ["f1", "f2", "f3", "f4", "f10"]

    def said(name, who, *masks):
        groups = xtab.tied(names, torch.tensor(masks))
        return xtab.as_expected(name, who, groups)

    assert xtab.tied(names, torch.tensor([0.5, 0.3495, 0.35, 0.6, 0.3499])) == [
        ["f4"], ["f1"], ["f3", "f10", "f2"],
    ]  # fmt: skip
    assert said("Additive", "final", 0.9, 0.5, 0.6, 0.7, 0.1)
    assert not said("Additive", "final", 0.9, 0.6, 0.6, 0.7, 0.1)
    assert not said("Additive", "final", 0.9, 0.6, 0.5, 0.7, 0.1)
    assert said("Switch copied", "final", 0.9, 0.5, 0.6, 0.7, 0.8)
    assert not said("Switch copied", "global", 0.9, 0.5, 0.6, 0.7, 0.8)
    assert said("Switch", "global", 0.7, 0.5, 0.6, 0.7, 0.8)
    assert not said("Switch", "global", 0.8, 0.5, 0.6, 0.7, 0.8005)
    assert said("XOR", "final", 0.7, 0.7, 0.6, 0.6, 0.1)
    assert not said("XOR", "final", 0.7, 0.6, 0.6, 0.5, 0.1)
    assert said("wine", "final", 0.7, 0.6, 0.6, 0.5, 0.1) is None
