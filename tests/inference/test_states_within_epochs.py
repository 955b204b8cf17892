"""A fit that is stopped within an epoch goes on within it, to the bits of one that never was."""

import signal
import sys
from contextlib import contextmanager
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from lexppl.data import ParquetRows
from lexppl.inference import (
    REBAR,
    Checkpoints,
    CheckpointWarning,
    ReplicateData,
    TunedControl,
    annealed,
    fit,
)
from lexppl.inference.contexts import seeded
from lexppl.inference.training.checkpoints.checkpoints import KeptStates
from lexppl.inference.training.checkpoints.within_epoch import EpochBatches
from lexppl.inference.training.loop import TrainingLoop
from lexppl.inference.training.step import TrainingStep
from lexppl.inference.training.step_guard import StepGuard
from lexppl.inference.training.watched.epoch_loss import EpochLoss
from lexppl.models import images
from lexppl.systems import lex, real_x, suwr
from tests.inference.test_checkpoints import (
    KilledError,
    Later,
    X,
    Y,
    assert_same,
    program,
    small,
)
from tests.processes import exit_code_of, killed_after

FIT = {"epochs": 3, "batch_size": 20, "progress": False}
STEPS = 4
"""Of an epoch: 72 rows are learned from."""


@contextmanager
def steps_counted(most=None):
    """Counts the steps that are made, and kills the fit before more than so many."""
    made, run = [], TrainingStep.run

    def counted(self, *given):
        if len(made) == most:
            raise KilledError
        made.append(None)
        return run(self, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TrainingStep, "run", counted)
        yield made


@pytest.fixture(autouse=True)
def due_after_each_step(monkeypatch):
    monkeypatch.setattr(KeptStates, "is_due_within", lambda self: True)


def killed_and_gone_on(make, rows, kills, tmp_path, **options):
    """A fit that is stopped after each of some numbers of its own steps, and then goes on; the
    whole one beside it."""
    given = {**FIT, **options}
    with steps_counted() as of_whole:
        whole = fit(make(), rows(), **given)
    kept = {**given, "checkpoint": Checkpoints(tmp_path, every_epochs=1)}
    done = 0
    for kill in kills:
        with steps_counted(kill), pytest.raises(KilledError):
            fit(make(), rows(), **kept)
        done += kill
    with steps_counted() as made:
        again = fit(make(), rows(), **kept)
    assert len(made) == len(of_whole) - done, "it did not go on where it was"
    return whole, again


@pytest.mark.complete
def test_wherever_it_is_killed(tmp_path):
    for kill in (1, 3, STEPS, STEPS + 1, 3 * STEPS - 1):
        folder = tmp_path / str(kill)
        assert_same(*killed_and_gone_on(program, lambda: (X, Y), [kill], folder))


def test_however_often(tmp_path):
    assert_same(*killed_and_gone_on(program, lambda: (X, Y), [1] * 10, tmp_path))


class Noisy(Dataset):
    """Rows that draw: the state differs from batch to batch."""

    def __len__(self):
        return len(X)

    def __getitem__(self, place):
        return X[place] + 0.1 * torch.rand(3), Y[place]


def loaded(dataset, **options):
    return DataLoader(dataset, batch_size=20, shuffle=True, **options)


def normalised():
    architecture = images((1, 4, 4), patches=2, blocks=(2,), levels=1, width=2, batch_norm=True)
    return lex(architecture, classes=2)


def counting():
    with seeded(0):
        return Later()


PLAIN = TensorDataset(X, Y)
PIXELS = torch.rand(90, 1, 4, 4, generator=torch.Generator().manual_seed(4))
CASES = {
    "cross-fitted": (small, lambda: (X, Y), {}),
    "stages": (partial(real_x, 3, classes=2, hidden=(6,), predictor_hidden=(6,)), None, {}),
    "replicates": (program, None, {"replicates": 2}),
    "rows of each": (program, lambda: ReplicateData([(X, Y), (-X, Y)]), {}),
    "row weights": (small, None, {"row_weights": "dirichlet", "replicates": 2}),
    "batch norm": (normalised, lambda: (PIXELS, Y), {}),
    "tuned control": (
        program,
        None,
        {"objective": annealed(2, estimator=REBAR(control=TunedControl()))},
    ),
    "clipped SGD": (
        program,
        None,
        {
            "optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
            "scheduler": partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5),
            "clip_norm": 0.5,
        },
    ),
    "counts its calls": (counting, None, {}),
    "progress": (
        partial(suwr, 3, classes=2, schedule="published", hidden=(6,), predictor_hidden=(6,)),
        None,
        {},
    ),
    "graphs": (program, None, {"compile": "graph"}),
    "bf16": (program, None, {"precision": "bf16-mixed"}),
    "loader": (program, lambda: loaded(PLAIN), {"valid": (X, Y)}),
    "loader and generator": (
        program,
        lambda: loaded(PLAIN, generator=torch.Generator().manual_seed(3)),
        {"valid": (X, Y)},
    ),
    "rows that draw": (program, lambda: loaded(Noisy()), {"valid": (X, Y)}),
}


@pytest.mark.complete(but=1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make, rows, options", CASES.values(), ids=CASES)
def test_whatever_is_fitted(make, rows, options, tmp_path):
    kills = [2, STEPS, 1]
    assert_same(*killed_and_gone_on(make, rows or (lambda: (X, Y)), kills, tmp_path, **options))


def test_rows_that_are_read_from_files(tmp_path):
    """A buffer that is filled three times an epoch draws between the steps."""
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y})
    for part in range(3):
        frame[part * 30 : (part + 1) * 30].to_parquet(tmp_path / f"{part}.parquet")

    def rows():
        return ParquetRows(tmp_path, target="y", buffer=30)

    whole, again = killed_and_gone_on(
        program, rows, [4, 7], tmp_path / "state", valid=(X, Y), batch_size=10
    )
    assert_same(whole, again)


class Bad(torch.nn.Module):
    """A network whose 7th, 14th … training call is not finite; the first look has fewer."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(()))

    def reset_parameters(self):
        self.layer.reset_parameters()

    def forward(self, x):
        if self.training:
            self.calls += 1
        return self.layer(x) / (self.calls % 7 != 0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("replicates", [1, 2])
def test_skipped_steps_are_known_after(replicates, tmp_path):
    with seeded(0):
        model = program(Bad())
    whole, again = killed_and_gone_on(
        lambda: model, lambda: (X, Y), [7, 3], tmp_path, replicates=replicates, epochs=6
    )
    assert sum(whole.skipped_steps) >= 2 * replicates
    assert_same(whole, again)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(EpochBatches, "go_to"), (EpochLoss, "restore"), (StepGuard, "restore")],
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_not_put_back_would_show(owner, name, tmp_path, monkeypatch):
    with seeded(0):
        model = program(Bad())
    monkeypatch.setattr(owner, name, lambda self, state: None)
    with pytest.raises(AssertionError):
        assert_same(*killed_and_gone_on(lambda: model, lambda: (X, Y), [7], tmp_path))


def test_batches_of_which_too_many_draw_are_left_at_the_ends_of_epochs(tmp_path, monkeypatch):
    module = sys.modules[EpochBatches.__module__]
    monkeypatch.setattr(module, "MOST_DRAWS", 1)
    kept = {**FIT, "valid": (X, Y), "checkpoint": Checkpoints(tmp_path, every_epochs=1)}
    whole = fit(program(), loaded(Noisy()), **{**FIT, "valid": (X, Y)})
    with steps_counted(STEPS + 4), pytest.raises(KilledError):
        fit(program(), loaded(Noisy()), **kept)
    with steps_counted() as made:
        again = fit(program(), loaded(Noisy()), **kept)
    # After the first step of the second epoch, and no later.
    assert len(made) == 3 * (STEPS + 1) - (STEPS + 1) - 1
    assert_same(whole, again)


def test_a_state_within_is_due_by_time_alone(tmp_path, monkeypatch):
    monkeypatch.undo()
    module = sys.modules[KeptStates.__module__]
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    for settings, expected in [
        ({}, [False, True]),
        ({"every_minutes": 3.0}, [False, False, False, True]),
        ({"every_minutes": 0.0}, [False] * 4),
        ({"every_epochs": 1}, [False] * 4),
        ({"every_epochs": 1, "every_minutes": 2.0}, [False, False, True]),
    ]:
        kept = KeptStates(Checkpoints(tmp_path, **settings), {})
        begun, seen = now[0], []
        for minute in range(len(expected)):
            now[0] = begun + 60.0 * minute + 1.0
            seen.append(kept.is_due_within())
        assert seen == expected, settings
    # Writing takes no more than a twentieth of the time.
    kept = KeptStates(Checkpoints(tmp_path, every_minutes=1.0), {})
    kept.seconds = 6.0
    begun = now[0]
    now[0] = begun + 119.0
    assert not kept.is_due_within()
    now[0] = begun + 121.0
    assert kept.is_due_within()


def test_time_of_an_epoch_counts_what_was_before(tmp_path, monkeypatch):
    module = sys.modules[TrainingLoop.__module__]
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    run = TrainingStep.run

    def slow(self, *given):
        now[0] += 10.0
        return run(self, *given)

    monkeypatch.setattr(TrainingStep, "run", slow)
    _, again = killed_and_gone_on(program, lambda: (X, Y), [2, STEPS], tmp_path)
    np.testing.assert_allclose(again.history.seconds, [40.0, 40.0, 40.0])


def test_ctrl_c_tells_where_it_goes_on(tmp_path, monkeypatch):
    run, left = TrainingStep.run, iter(range(STEPS + 2))

    def interrupted(self, *given):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return run(self, *given)

    monkeypatch.setattr(TrainingStep, "run", interrupted)
    kept = {**FIT, "checkpoint": Checkpoints(tmp_path, every_epochs=1)}
    with pytest.warns(CheckpointWarning, match="after 1 epoch and 2 steps of the next, from"):
        assert fit(program(), (X, Y), **kept).interrupted
    monkeypatch.setattr(TrainingStep, "run", run)
    assert_same(fit(program(), (X, Y), **FIT), fit(program(), (X, Y), **kept))


def fit_killed(folder):
    """A fit that is killed before its fourth step."""
    TrainingStep.run = killed_after(3, TrainingStep.run)
    KeptStates.is_due_within = lambda self: True
    fit(small(), (X, Y), checkpoint=Checkpoints(folder, every_epochs=1), **FIT)


@pytest.mark.complete
def test_a_process_that_is_killed_within_an_epoch(tmp_path):
    kept = {**FIT, "checkpoint": Checkpoints(tmp_path, every_epochs=1)}
    whole = fit(small(), (X, Y), **FIT)
    for _ in range(3):
        assert exit_code_of(fit_killed, tmp_path) == -signal.SIGKILL
    with steps_counted() as made:
        again = fit(small(), (X, Y), **kept)
    assert len(made) == 3 * STEPS - 9
    assert_same(whole, again)
