"""Fixtures of the tests: the benchmarks' scripts, run as scripts are."""

import importlib
import json
import runpy
import sys

import pytest

from tests.benchmark_modules import FOLDER

MODULES = {path.stem for path in FOLDER.glob("*.py")}


class Benchmarks:
    """The benchmarks' folder, with records in a folder of the test's own."""

    def __init__(self, monkeypatch, capsys, results):
        self._monkeypatch, self._capsys, self.results = monkeypatch, capsys, results

    def run(self, name, *arguments):
        """Run a script; its records."""
        words = [f"{name}.py", *map(str, arguments), "--results", str(self.results)]
        self._monkeypatch.setattr(sys, "argv", words)
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        path = self.results / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else []

    def printed(self):
        """What has been printed since the last call."""
        return self._capsys.readouterr().out

    def tables(self):
        """The tables of what is recorded."""
        self.printed()
        self.run("tables")
        return self.printed()


@pytest.fixture
def three_folds(monkeypatch):
    """Importances and changes in three folds, which take three fifths of the time of five."""
    for name in ("importance", "change"):
        module = importlib.import_module(f"lexppl.evaluation.{name}")
        monkeypatch.setattr(module, "FOLDS", 3)


@pytest.fixture
def benchmarks(monkeypatch, capsys, tmp_path):
    """What the scripts import from their folder is forgotten after the test."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield Benchmarks(monkeypatch, capsys, tmp_path / "results")
    for name in MODULES:
        sys.modules.pop(name, None)
