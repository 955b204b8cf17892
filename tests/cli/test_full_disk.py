"""A disk without room: one line, and nothing left behind."""

import os
import shutil
import subprocess
import sys
from collections import namedtuple

import pytest

from tests.cli.tables import explained, people, written
from tests.refusals import over

QUICK = ["--epochs", "2", "--replicates", "2", "--penalty", "0.02", "--draws", "20", "--quiet"]
Usage = namedtuple("Usage", "total used free")


def ran(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, as a crash would end the tests."""
    program = f"import sys; {before}\nfrom lexppl.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
    )


def told_once(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a failure is told in, after the warnings of the fit."""
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    # Matplotlib tells that it cannot keep its list of fonts, and goes on.
    lines = [
        line
        for line in done.stderr.splitlines()
        if not line.startswith(("lexppl: warning: ", "Could not save font"))
    ]
    (line,) = lines
    assert line.startswith("lexppl: error: ")
    return line


@pytest.mark.complete
@pytest.mark.skipif(os.name != "posix", reason="file sizes are limited as POSIX does")
@over(pytest.param(5_000, id="the model"), pytest.param(200_000, id="the report"))
def test_files_that_cannot_grow(most, tmp_path):
    """Each write beyond the limit fails as on a full disk, wherever it is."""
    table = written(people(), tmp_path)
    out = tmp_path / "new" / "results"
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))"
    done = ran("explain", str(table), "--out", str(out), *QUICK, before=limit)
    assert "File too large" in told_once(done)
    assert [entry.name for entry in tmp_path.iterdir()] == ["people.csv"]


@pytest.mark.smoke
def test_too_little_room_is_refused_before_the_fit(tmp_path, monkeypatch, capsys):
    def fitted(*_, **__):
        raise AssertionError("work began")

    monkeypatch.setattr("lexppl.cli.explain_table.fit_table", fitted)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(600_000, 590_000, 10_000))
    out = explained(tmp_path, *QUICK, code=1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"lexppl: error: {out}: at least ")
    assert captured.err.endswith("there are 0.0 MB: make room, or give another place\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["people.csv"]


@pytest.mark.complete
def test_what_is_needed_is_no_more_than_what_is_written(tmp_path, monkeypatch):
    """An estimate above it would refuse what has room."""
    asked: list[int] = []
    monkeypatch.setattr(
        "lexppl.cli.explain_table.refuse_without_space", lambda _, needed: asked.append(needed)
    )
    words = ["--epochs", "1", "--replicates", "1", "--penalty", "0.02", "--draws", "2", "--quiet"]
    # Trees that may take the network's place are not known before the fit, and are larger.
    words += ["--predictor", "network"]
    out = explained(tmp_path, *words)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert size / 4 < asked[0] < size
