"""What a newcomer reads first."""

import pytest

import lexppl
from lexppl.choices.imputers import IMPUTERS, LEARNED
from lexppl.cli import main
from tests.refusals import over


def shown(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    assert end.value.code == 0
    return capsys.readouterr().out


def test_version(capsys):
    assert shown(capsys, "--version") == f"lexppl {lexppl.__version__}\n"


@over(
    ("", ["lexppl explain breast_cancer --out results", "lexppl evaluate S3"]),
    ("evaluate", ["lexppl evaluate S1 --k 5"]),
    ("impute", [f"  {name}: " for name in (*IMPUTERS, *LEARNED)]),
)
def test_help_has_examples_and_names_in_lines_of_a_terminal(command, named, capsys):
    text = shown(capsys, *command.split(), "--help")
    assert all(words in text for words in named)
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.smoke
def test_explain_help(capsys):
    brief = shown(capsys, "explain", "--help")
    assert len(brief.splitlines()) <= 60 and max(map(len, brief.splitlines())) <= 100
    for words in ("--help-all", "--target", "lexppl explain breast_cancer", "RUNS THE CODE IN IT"):
        assert words in " ".join(brief.split())
    assert "--batch-size" not in brief and "long runs:" not in brief
    every = " ".join(shown(capsys, "explain", "--help-all").split())
    for words in ("report.html", "breast_cancer, wine, digits, diabetes", "--batch-size"):
        assert words in every
    assert "--debug" not in every
