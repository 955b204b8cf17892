"""A line an epoch, for runs whose output goes to a file."""

import re

import pytest

from lexppl.cli import main
from tests.cli.tables import people, written

QUICK = ["--epochs", "2", "--replicates", "1", "--draws", "4", "--penalty", "0.02"]


@pytest.mark.complete(but=2)
@pytest.mark.parametrize("words", [[], ["--epoch-lines"], ["--epoch-lines", "--quiet"]])
def test_lines_are_there_where_they_are_asked_for(tmp_path, capsys, words):
    path = written(people(), tmp_path)
    assert main(["explain", str(path), "--out", str(tmp_path / "r"), *QUICK, *words]) == 0
    lines = re.findall(
        r"^epoch (\d) of 2: train \S+, valid \S+, \S+ s$", capsys.readouterr().err, re.M
    )
    # The first fit is the explainer's; the judges have epochs of their own.
    assert lines[:2] == (["1", "2"] if words == ["--epoch-lines"] else [])
