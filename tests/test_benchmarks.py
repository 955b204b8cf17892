"""The benchmarks' scripts start, run at a small size, and make the tables that are printed."""

import importlib
import json
import re
import runpy
import sys
from pathlib import Path

import pytest

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
