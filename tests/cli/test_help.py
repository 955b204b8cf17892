"""What a newcomer reads first."""

import pytest

import lexppl
from lexppl.cli import main


def shown(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    assert end.value.code == 0
    return capsys.readouterr().out


def test_version(capsys):
    assert shown(capsys, "--version") == f"lexppl {lexppl.__version__}\n"


def test_help_has_examples(capsys):
    text = shown(capsys, "--help")
    assert "lexppl explain breast_cancer --out results" in text
    assert "lexppl evaluate S3" in text


@pytest.mark.smoke
def test_explain_help(capsys):
    text = " ".join(shown(capsys, "explain", "--help").split())
    for told in ("report.html", "breast_cancer, wine, digits, diabetes", "RUNS THE CODE IN IT"):
        assert told in text
    assert "--debug" not in text


def test_evaluate_help(capsys):
    text = shown(capsys, "evaluate", "--help")
    assert "lexppl evaluate S1 --k 5" in text
    assert max(map(len, text.splitlines())) <= 100
