"""`lexppl explain --checkpoint` and `--resume`: after a stop the same command goes on."""

import re
import signal
import sys
from pathlib import Path

import pytest
from safetensors.torch import load

from lexppl.cli import main
from lexppl.inference.training.loop import TrainingLoop
from tests.cli.tables import people, written
from tests.processes import exit_code_of, killed_after
from tests.refusals import over

QUICK = ["--epochs", "4", "--replicates", "2", "--draws", "5", "--quiet"]
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
        f"{name} {n}": values.numpy().tobytes() for n, values in load(found.pop(name)).items()
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
    words = ["explain", path, *QUICK, "--replicates", "3"]
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
    words = ["explain", path, *QUICK, "--penalty", "0.02"]
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
