"""Help and refusals are there before anything heavy is loaded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_bad_input import TYPED, USAGE

HEAVY = {
    *("arviz", "captum", "joblib", "jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "pyro"),
    *("scipy", "shap", "sklearn", "torch", "torchvision", "xarray"),
}
RUN = """
import json, sys
from lexppl.cli import main

told = []
for words in json.loads(sys.argv[1]):
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code
    told.append([code, sorted({name.partition(".")[0] for name in sys.modules})])
print("\\n" + json.dumps(told))
"""

COMMANDS = ("explain", "evaluate", "compare", "change", "impute")
HELP = [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)]
OUT = ["--out", "results"]
REFUSED = [
    line.split()
    for line in """\
explain wine --out results --method l2x --penalty 0.1
explain wine --out results --method real_x --penalty auto
explain wine --out results --method real_x --predictor trees
explain wine --out results --regime fixed-in-situ --black-box model.joblib
explain wine --out results --black-box model.joblib
explain wine --out results --black-box model.joblib --trust-black-box
explain wine --out full
explain wine --out full/there.txt
explain wine --out results --device cuda:
evaluate S3 --out full/there.txt
compare wien --methods lex
compare wine --methods lex --test-share 0.9
compare wine --methods lex --out full
change wine --old model.joblib --new model.joblib
impute wine --test-share 1
impute wine --out full/there.txt
impute wine --device cuda:""".splitlines()
]
REFUSED += [words for words, _ in USAGE.values()]
REFUSED += [[*words, *(OUT if words[0] == "explain" else [])] for words, _ in TYPED.values()]


def ran(folder: Path, commands: list[list[str]]) -> list[tuple[int, list[str]]]:
    """Exit codes, and the packages that are loaded after each command."""
    code = [sys.executable, "-c", RUN, json.dumps(commands)]
    done = subprocess.run(code, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "there.txt").write_text("")
    (tmp_path / "squares").mkdir()
    (tmp_path / "texts.csv").write_text("review,verdict\n")
    return tmp_path


def test_help_loads_nothing_heavy(folder):
    for words, (code, loaded) in zip(HELP, ran(folder, HELP), strict=True):
        assert code == 0, words
        assert not HEAVY & set(loaded), words


def test_refusals_load_nothing_heavy(folder):
    for words, (code, loaded) in zip(REFUSED, ran(folder, REFUSED), strict=True):
        assert code in (1, 2), words
        assert not HEAVY & set(loaded), words


@pytest.mark.complete
def test_what_is_not_refused_as_it_was_typed_is_carried_out(folder):
    """Whether a device is there only torch can say: what is loaded by then is noticed."""
    ((code, loaded),) = ran(folder, [["explain", "wine", *OUT, "--device", "cuda:99"]])
    assert code == 2
    assert {"numpy", "pandas", "torch", "xarray"} <= HEAVY & set(loaded)


@pytest.mark.complete
def test_report_of_a_table_loads_no_sympy(tmp_path):
    typed = ["explain", "wine", "--out", "new", "--epochs", "1", "--replicates", "2", "--quiet"]
    [(code, loaded)] = ran(tmp_path, [typed])
    assert code == 0 and (tmp_path / "new" / "report.html").exists()
    assert "sympy" not in loaded
