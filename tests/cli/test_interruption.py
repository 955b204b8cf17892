"""Ctrl-C: the best state so far is written, or nothing at all."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load as load_tensors

from lexppl import explain, load
from lexppl.cli import main
from lexppl.cli.terminal import deferred_interrupts
from lexppl.data import TableEncoding
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference import FitResult
from lexppl.inference.training.loop import TrainingLoop
from lexppl.report import page, report, sections
from tests.cli.tables import explained, people, written
from tests.processes import exit_code_of, killed_after
from tests.refusals import over

QUICK = ["--epochs", "6", "--replicates", "2", "--draws", "5", "--quiet"]


def interrupt(monkeypatch, at: int, owner: object, name: str) -> None:
    """Let the n-th call of a function be met by Ctrl-C."""
    given = getattr(owner, name)
    calls = iter(range(1, 1000))

    def interrupted(*args, **kwargs):
        if next(calls) == at:
            raise KeyboardInterrupt
        return given(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupted)


def test_fit_that_has_begun_is_written(tmp_path, monkeypatch, capsys):
    interrupt(monkeypatch, 3, TrainingLoop, "_validate")
    out = explained(tmp_path, *QUICK, code=130)
    captured = capsys.readouterr()
    assert "interrupted after 2 of 6 epochs" in captured.err
    assert "the explainer" in captured.out and "EVAL-X" not in captured.out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "interrupted after 2 of 6 epochs" in page
    assert page.count("<svg") == 5 and "encode the answer?" not in page


@pytest.mark.complete
def test_interrupted_judge_keeps_the_explainer(tmp_path, monkeypatch, capsys):
    # Six epochs are the explainer's, six the predictor's that sees everything, and six those of the
    # explainer that goes on from full masks.
    interrupt(monkeypatch, 20, TrainingLoop, "_epoch")
    out = explained(tmp_path, *QUICK, code=130)
    captured = capsys.readouterr()
    assert "sees everything" in captured.out and "EVAL-X" not in captured.out
    assert "the scores were interrupted" in captured.err
    assert (out / "posterior.nc").exists()


@over(
    (1, "lexppl.cli.explain_table", "read_source"),
    (1, "lexppl.cli.explain_table", "capped"),
    (1, "lexppl.inference.training.loop.TrainingLoop", "_step"),
    (1, "lexppl.inference.training.loop.TrainingLoop", "_epoch"),
)
def test_nothing_is_left(at, owner, name, tmp_path, monkeypatch, capsys):
    place = TrainingLoop if owner.endswith("TrainingLoop") else sys.modules[owner]
    interrupt(monkeypatch, at, place, name)
    explained(tmp_path, *QUICK, code=130)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == "lexppl: interrupted; nothing was written"
    assert [entry.name for entry in tmp_path.iterdir()] == ["people.csv"]


def loads(out) -> FitResult:
    """The explainer that is in a folder, which explains rows of the table."""
    explainer = load(out / "explainer")
    encoding = TableEncoding.from_json(json.loads((out / "encoding.json").read_text()))
    posterior = explain(explainer, encoding.encode(people(5)), draws=2)
    assert masks_of(posterior)["mask"].shape[2:] == (5, 4)
    return explainer


def test_a_first_epoch_that_is_cut_short_is_written(tmp_path, monkeypatch, capsys):
    """Rows may be so many that it takes minutes."""
    interrupt(monkeypatch, 1, TrainingLoop, "_validate")
    out = explained(tmp_path, *QUICK, "--penalty", "0.02", code=130)
    assert "interrupted after 1 of 6 epochs" in capsys.readouterr().err
    explainer = loads(out)
    assert np.isnan(explainer.best_valid).all()
    assert (out / "report.html").exists()


@pytest.mark.complete(but=1)
@over(
    (report, "judge_learning"),
    (report.Report, "posterior"),
    (sections, "save_posterior"),
    (page, "write_report"),
)
def test_the_model_is_written_first(owner, name, tmp_path, monkeypatch, capsys):
    interrupt(monkeypatch, 1, owner, name)
    out = explained(tmp_path, *QUICK, "--penalty", "0.02", code=130)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == (
        f"lexppl: interrupted: {out} holds the fitted explainer, and not what follows from it"
    )
    assert sorted(entry.name for entry in out.iterdir()) == ["encoding.json", "explainer"]
    assert not loads(out).interrupted


def test_a_failure_after_the_fit_leaves_the_model(tmp_path, monkeypatch, capsys):
    def fails(*_):
        raise ValueError("no such colour")

    monkeypatch.setattr("lexppl.report.page.write_report", fails)
    out = explained(tmp_path, *QUICK, "--penalty", "0.02", code=1)
    told = capsys.readouterr().err.splitlines()[-2:]
    assert told[0].startswith("lexppl: not all was done:")
    assert told[1] == "lexppl: error: no such colour"
    assert sorted(entry.name for entry in out.iterdir()) == ["encoding.json", "explainer"]
    loads(out)


@pytest.fixture
def heard():
    """Ctrl-C is heard, also where the tests were started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_ctrl_c_waits_for_what_must_be_whole():
    done = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        done.append(1)
    with deferred_interrupts(raises=False):
        signal.raise_signal(signal.SIGINT)
        done.append(2)
    assert done == [1, 2]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_evaluation(tmp_path, monkeypatch, capsys):
    interrupt(monkeypatch, 2, TrainingLoop, "_validate")
    out = tmp_path / "scores.json"
    words = ["--rows", "200", "--draws", "3", "--epochs", "5", "--quiet", "--out", str(out)]
    assert main(["evaluate", "S1", *words]) == 130
    assert "interrupted after 1 epoch" in capsys.readouterr().err
    assert '"interrupted": true' in out.read_text()


posix = pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX does")


@contextmanager
def program(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The program in a process of its own, which hears Ctrl-C, and shows its progress as to a
    terminal."""
    start = (
        "import sys; sys.stderr.isatty = lambda: True; from lexppl.cli import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", start, *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has them ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(words: str, process: subprocess.Popen[str]) -> None:
    """Read what the program tells until it says some words."""
    assert process.stderr is not None
    seen = ""
    while words not in seen:
        read = process.stderr.read(1)
        assert read, f"{words!r} was not said: {seen}"
        seen += read


@pytest.mark.complete
@posix
@over(
    ("valid=", signal.SIGINT),
    ("fitting EVAL-X", signal.SIGTERM),
    ("looking at directions", signal.SIGINT),
)
def test_a_real_signal(words, number, tmp_path):
    path = written(people(), tmp_path)
    out = tmp_path / "results"
    epochs = "3000" if words == "valid=" else "3"
    options = ["--epochs", epochs, "--draws", "5", "--penalty", "0.02", "--replicates", "2"]
    with program("explain", str(path), "--out", str(out), *options) as process:
        wait_for(words, process)
        process.send_signal(number)
        _, error = process.communicate(timeout=300)
    assert process.returncode == 130, error
    assert "interrupted" in error and "Traceback" not in error
    assert loads(out).interrupted == (words == "valid=")
    assert [entry.name for entry in tmp_path.iterdir() if "partial" in entry.name] == []


@pytest.mark.complete
@posix
def test_a_real_signal_before_there_is_a_fit(tmp_path):
    out = tmp_path / "results"
    with program("explain", str(written(people(), tmp_path)), "--out", str(out)) as process:
        wait_for("measuring what the features are worth", process)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=300)
    assert process.returncode == 130 and not out.exists()
    assert error.splitlines()[-1] == "lexppl: interrupted; nothing was written"


@pytest.mark.complete
@posix
def test_a_real_signal_while_the_table_is_read(tmp_path):
    """From a pipe that gives a first line and then nothing, until the program is interrupted."""
    pipe = tmp_path / "table.csv"
    os.mkfifo(pipe)
    words = ("explain", str(pipe), "--out", str(tmp_path / "results"))
    # It is opened for writing when the program has opened it to read.
    with program(*words) as process, pipe.open("w") as writing:
        writing.write("a,b,c\n")
        writing.flush()
        process.send_signal(signal.SIGINT)
        try:
            _, error = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:  # Python ignores one that comes within a finalizer.
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=240)
    assert process.returncode == 130, error
    first, *rest = error.splitlines()
    assert first == f"lexppl: reading {pipe}" and rest == [
        "lexppl: interrupted; nothing was written"
    ]
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.csv"]


# `lexppl explain --checkpoint` and `--resume`: after a stop the same command goes on.


FOUR_EPOCHS = ["--epochs", "4", "--replicates", "2", "--draws", "5", "--quiet"]
CHECKPOINTS = sys.modules["lexppl.inference.training.checkpoint"]


@pytest.fixture
def always(monkeypatch):
    """A state after each epoch."""
    monkeypatch.setattr(CHECKPOINTS.SavedState, "is_due", True)


def contents(out):
    """What a run has written, but for the page's words that were typed and the fits' seconds."""
    found = {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "posterior.nc"
    }
    # The description beside the weights has the fits' seconds.
    name = str(Path("explainer", "weights.safetensors"))
    found |= {
        f"{name} {n}": values.numpy().tobytes()
        for n, values in load_tensors(found.pop(name)).items()
    }
    page = found["report.html"].decode().splitlines()
    kept = [line for line in page if "<code>lexppl explain" not in line]
    found["report.html"] = re.sub(r"(; | in )\d+ s</dd>", "", "\n".join(kept)).encode()
    return found


def run_killed(last, words):
    """A run of the command line that is killed after some epochs."""
    TrainingLoop._validate = killed_after(last, TrainingLoop._validate)
    CHECKPOINTS.SavedState.is_due = True
    main(words)


@pytest.mark.complete
@pytest.mark.usefixtures("always")
def test_after_kills_the_report_is_that_of_a_run_that_was_never_killed(tmp_path, monkeypatch):
    """Killed in the explainer's own fit, and in that of the predictor that sees everything."""
    path = str(written(people(), tmp_path))
    words = ["explain", path, *FOUR_EPOCHS, "--replicates", "3"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    out, states = str(tmp_path / "out"), str(tmp_path / "states")
    # The explainer and what sees everything have four epochs each, the judge of few rows two.
    epochs = []
    for last in (2, 5):
        typed = [*words, "--out", out, "--checkpoint", states]
        assert exit_code_of(run_killed, last, typed) == -signal.SIGKILL
    given = TrainingLoop._validate
    monkeypatch.setattr(TrainingLoop, "_validate", lambda *args: epochs.append(1) or given(*args))
    assert main([*words, "--out", out, "--resume", states]) == 0
    assert len(epochs) == 2 * 4 + 2 - (2 + 5)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.complete
@pytest.mark.usefixtures("always")
def test_after_ctrl_c_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    path = str(written(people(), tmp_path))
    words = ["explain", path, *FOUR_EPOCHS, "--penalty", "0.02"]
    out, states = str(tmp_path / "out"), str(tmp_path / "states")
    calls, given = iter(range(2)), TrainingLoop._validate

    def interrupted(*arguments):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return given(*arguments)

    with monkeypatch.context() as context:
        context.setattr(TrainingLoop, "_validate", interrupted)
        assert main([*words, "--out", out, "--checkpoint", states]) == 130
    told = capsys.readouterr().err
    assert "the fit was interrupted" in told and "its state after 2 epochs" in told
    assert f"{states}/network/explainer" in told
    assert main([*words, "--out", out, "--resume", states]) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert main([*words, "--out", out, "--overwrite", "--resume", states]) == 0
    assert "interrupted" not in capsys.readouterr().err
    before = contents(tmp_path / "out")
    assert main([*words, "--out", out, "--overwrite", "--resume", states, "--epochs", "5"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"lexppl: error: {states}/network/explainer holds the state of another fit: epochs was 4 "
        "and is 5. Give what was given then, or another folder"
    )
    assert contents(tmp_path / "out") == before


@over(
    (["--resume", "states"], 2, "--resume states: no state is there; give "),
    (["--checkpoint", "out/states"], 2, "--checkpoint out/states is within --out"),
    (["--checkpoint", "out"], 2, "--checkpoint out is within --out"),
    (["--checkpoint", "people.csv"], 1, "--checkpoint people.csv is a file"),
    (["--checkpoint", "a", "--resume", "b"], 2, "not allowed with argument --checkpoint"),
    (
        ["--checkpoint", "a", "--inference", "nuts"],
        2,
        "--checkpoint keeps the state of a fit, and --inference nuts draws",
    ),
    (["--checkpoint", "people.csv/states"], 1, "people.csv/states"),
)
def test_what_cannot_serve_is_refused_in_one_line(words, code, told, tmp_path, monkeypatch, capsys):
    written(people(), tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "people.csv", "--out", "out", *words]) == code
    error = capsys.readouterr().err
    assert told in error and "Traceback" not in error
    assert error.count("\n") == 1 or "people.csv/states" in told
    assert [path.name for path in tmp_path.iterdir()] == ["people.csv"]


# A disk without room: one line, and nothing left behind.


TWO_EPOCHS = ["--epochs", "2", "--replicates", "2", "--penalty", "0.02", "--draws", "20", "--quiet"]
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
    done = ran("explain", str(table), "--out", str(out), *TWO_EPOCHS, before=limit)
    assert "File too large" in told_once(done)
    assert [entry.name for entry in tmp_path.iterdir()] == ["people.csv"]


@pytest.mark.smoke
def test_too_little_room_is_refused_before_the_fit(tmp_path, monkeypatch, capsys):
    def fitted(*_, **__):
        raise AssertionError("work began")

    monkeypatch.setattr("lexppl.cli.explain_table.fit_table", fitted)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(600_000, 590_000, 10_000))
    out = explained(tmp_path, *TWO_EPOCHS, code=1)
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
