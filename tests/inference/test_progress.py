"""What a fit shows on its way: a bar on a terminal, lines, and scalars for TensorBoard."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lexppl import fit
from lexppl.inference import TensorBoardLog, TrainingOptions
from lexppl.systems import lex
from tests.refusals import refused
from tests.small_models import SMALL, table

ROWS, SYSTEM = table(), lex(3, classes=2, penalty=0.02, **SMALL)
SHORT = {"epochs": 3, "batch_size": 20, "progress": False}


def scalars(folder):
    """`{tag: [(step, value), …]}` as TensorBoard reads it."""
    reader = EventAccumulator(str(folder))
    reader.Reload()
    return {
        tag: [(one.step, one.value) for one in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


@pytest.mark.parametrize("replicates", [1, 2])
def test_each_epoch_s_losses_are_there(tmp_path, replicates):
    with TensorBoardLog(tmp_path / "run") as log:
        result = fit(
            SYSTEM, ROWS, replicates=replicates, training=TrainingOptions(callbacks=[log]), **SHORT
        )
    found = scalars(tmp_path / "run")
    ends = [""] if replicates == 1 else ["/0", "/1"]
    names = ["loss/train", "loss/valid", "steps/skipped"]
    assert set(found) == {f"{name}{end}" for name in names for end in ends}
    for name in ("train", "valid"):
        for replicate, end in enumerate(ends):
            steps, values = zip(*found[f"loss/{name}{end}"], strict=True)
            assert steps == (0, 1, 2)
            written = getattr(result.history, name)[:, replicate]
            assert np.allclose(values, written, rtol=1e-6)
    assert found[f"steps/skipped{ends[0]}"] == [(0, 0.0), (1, 0.0), (2, 0.0)]


def test_what_is_not_known_is_left_out(tmp_path):
    """No validation rows, no validation loss; and an epoch is on disk before the next begins."""
    seen = []
    log = TensorBoardLog(tmp_path)
    count = [log, lambda epoch: seen.append(len(scalars(tmp_path)["loss/train"]))]
    fit(SYSTEM, ROWS, valid=None, training=TrainingOptions(callbacks=count), **SHORT)
    log.close()
    assert seen == [1, 2, 3]
    assert set(scalars(tmp_path)) == {"loss/train", "steps/skipped"}


def test_a_fit_that_is_refused_leaves_no_folder(tmp_path):
    log = TensorBoardLog(tmp_path / "run")
    options = {**SHORT, "epochs": 0, "training": TrainingOptions(callbacks=[log])}
    refused("epochs", fit, SYSTEM, ROWS, **options)
    assert not (tmp_path / "run").exists()


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r'pip install "lexppl\[tensorboard\]"') as refused:
        TensorBoardLog("run")
    assert "\n" not in str(refused.value)


@pytest.mark.complete
def test_nothing_of_it_is_loaded_with_the_library():
    program = "import sys, lexppl.inference; print('tensorboard' in sys.modules)"
    done = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=300)
    assert done.split() == ["False"]


class StandardError(io.StringIO):
    """A stream that is a terminal or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "progress", "shown"),
    [(True, True, True), (False, True, False), (True, False, False)],
)
def test_a_bar_is_for_a_terminal(terminal, progress, shown, monkeypatch):
    stream = StandardError(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    fit(SYSTEM, ROWS, epochs=1, progress=progress)
    assert ("epoch" in stream.getvalue()) == shown


@pytest.mark.parametrize("terminal", [True, False])
def test_lines_are_one_an_epoch_wherever_they_go(terminal, monkeypatch):
    stream = StandardError(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    result = fit(SYSTEM, ROWS, epochs=3, progress="lines")
    lines = stream.getvalue().splitlines()
    told = [re.fullmatch(r"epoch (\d) of 3: train (\S+), valid (\S+), \S+ s", one) for one in lines]
    assert [int(one[1]) for one in told] == [1, 2, 3]
    losses = [(float(one[2]), float(one[3])) for one in told]
    written = zip(result.history.train[:, 0], result.history.valid[:, 0], strict=True)
    for found, expected in zip(losses, written, strict=True):
        assert found == pytest.approx(expected, abs=1e-4)


def test_what_is_no_progress_is_refused():
    refused('progress must be True, False or "lines"', fit, SYSTEM, ROWS, epochs=1, progress="line")
