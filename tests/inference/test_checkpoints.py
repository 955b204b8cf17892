"""A fit that is stopped and goes on is, to the bit, one that was never stopped."""

import errno
import io
import os
import pickle
import re
import signal
import sys
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, Sampler, TensorDataset

from lexppl.effects import mask_particles
from lexppl.inference import (
    REBAR,
    Checkpoints,
    LossTerm,
    NestedIWAE,
    ReplicateData,
    Stage,
    TrainingOptions,
    TunedControl,
    fit,
)
from lexppl.inference.training.checkpoint import CheckpointWarning, LoopState, SavedState
from lexppl.inference.training.watch import BestStates
from lexppl.models import (
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    GapImputer,
    GaussianImputer,
    Predictor,
    UnmaskedPredictor,
    tree_predictor,
)
from lexppl.sealed_files import checksum_of
from lexppl.systems import lex, real_x
from tests.processes import exit_code_of, kill, killed_after
from tests.refusals import refused
from tests.small_models import Line, explainer, table

X, Y = table(90)
SMALL = {"hidden": (6,), "predictor_hidden": (6,)}
QUICK = {"epochs": 4, "batch_size": 20, "progress": False}
MODULE = sys.modules["lexppl.inference.training.checkpoint"]


class KilledError(Exception):
    """In place of a signal that nothing survives."""


def killed_at(number):
    def call(epoch):
        if epoch.number == number:
            raise KilledError

    return call


def bits(result):
    """All that a fit has come to, but for the time it took."""
    found = {name: getattr(result.history, name) for name in ("train", "valid", "stage")}
    found |= {name: getattr(result, name) for name in ("best_epoch", "best_valid", "skipped_steps")}
    for place, one in enumerate(result.modules):
        found |= {f"{place} {n}": t.detach().numpy() for n, t in one.state_dict().items()}
    return found


def assert_same(one, other):
    first, second = bits(one), bits(other)
    assert list(first) == list(second)
    different = [n for n in first if first[n].tobytes() != second[n].tobytes()]
    assert not different
    assert one.interrupted == other.interrupted and one.collapse == other.collapse


def small(penalty=0.02):
    return lex(3, classes=2, penalty=penalty, **SMALL)


def program(network=None, selector=None):
    """A program whose weights do not depend on what was drawn before."""
    predictor = None if network is None else Predictor(network, CategoricalLikelihood())
    chosen = BernoulliSelector if selector is None else lambda _: BernoulliSelector(selector)
    return explainer(chosen, GaussianImputer(), hidden=(6,), predictor=predictor)


class Counting(nn.Module):
    """Counts its calls in training, in a buffer that is no running statistic to torch."""

    def __init__(self):
        super().__init__()
        self.network = MLP(3, 2, (6,), seed=1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return self.network(x) * (1 + 0.01 * self.calls)


LOOK = 11
"""Runs of a program of mini-batches before the first step."""


class Later(PyroModule):
    """Counts its steps in a number, and draws in place from the second epoch's first one on, after
    the first look and the four of 72 rows."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Linear(3, 1)
        self.steps = 0

    def forward(self, x, y=None):
        if self.training:
            self.steps += 1
        noise = self.noise(len(x))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            return pyro.sample("y", dist.Normal(self.slope(x)[:, 0] + noise, 1.0), obs=y)

    def noise(self, rows):
        noise = torch.randn(rows)
        return noise if self.steps <= LOOK + 4 else noise + torch.empty(rows).exponential_()


class Broken(Later):
    """One whose loss is NaN now and then, and whose steps then move nothing."""

    def noise(self, rows):
        share = 0.5 if self.training and self.steps > LOOK else 0.0
        return torch.randn(rows) + 0.0 * (torch.rand(()) - share).log()


def normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def two_stages():
    """The second with an optimizer of its own, and its first epochs by the best of the first."""
    model = program()
    term = LossTerm(model, NestedIWAE(2))
    return [
        Stage([term], epochs=3),
        Stage([term], epochs=3, optimizer=partial(torch.optim.RMSprop, lr=1e-2, momentum=0.5)),
    ]


def loader(**settings):
    return DataLoader(TensorDataset(X, Y), batch_size=20, **settings)


def with_trees():
    return explainer(imputer=GapImputer(), hidden=(6,), predictor=tree_predictor(X, 2, trees=5))


BOOTSTRAP = {"replicates": 2, "row_weights": "dirichlet"}
CLIPPED = {"training": TrainingOptions(clip_norm=1.0)}
PATIENT = {"training": TrainingOptions(patience=1)}
CASES = {
    "replicates of weighted rows and folds": lambda: {"model": small(), **BOOTSTRAP, "folds": 2},
    "two systems' stages": lambda: {"model": real_x(3, classes=2, **SMALL), "folds": 2},
    "two stages": lambda: {"model": None, "stages": two_stages},
    "models that differ": lambda: {"model": [small(0.01), small(0.05)], **CLIPPED},
    "a control that is tuned": lambda: {
        "model": program(),
        "objective": NestedIWAE(2, estimator=REBAR(control=TunedControl())),
    },
    "a scheduler": lambda: {
        "model": program(),
        "optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        "training": TrainingOptions(
            partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.3)
        ),
    },
    "weights by row": lambda: {"model": small(), **BOOTSTRAP, "sample_weight": torch.arange(90.0)},
    "graphs": lambda: {"model": program(), "training": TrainingOptions(compile="graph")},
    "patience": lambda: {"model": small(), **PATIENT, "epochs": 15, "learning_rate": 0.3},
    "batch norm": lambda: {
        "model": UnmaskedPredictor(Predictor(normed(), CategoricalLikelihood()))
    },
    "a buffer of its own": lambda: {"model": program(Counting())},
    "a guide": lambda: {
        "model": Line(),
        "train": ReplicateData([(X[:, :1], X[:, 0] * slope) for slope in (-2.0, 2.0)]),
        "guide": AutoNormal,
        "objective": NestedIWAE(1),
    },
    "trees": lambda: {"model": with_trees(), "folds": 2, "replicates": 2},
    "a loader": lambda: {"model": program(), "train": loader(shuffle=True), "valid": (X, Y)},
    "a loader with a generator": lambda: {
        "model": program(),
        "train": loader(sampler=RandomSampler(X, generator=torch.Generator().manual_seed(3))),
        "valid": loader(shuffle=True, generator=torch.Generator().manual_seed(4)),
    },
    "a number of its own, and draws in place": lambda: {
        "model": Later,
        "train": (X, X[:, 0]),
        "replicates": 2,
    },
    "steps that are skipped": lambda: {"model": Broken, "train": (X, X[:, 0]), "replicates": 2},
    "no validation rows": lambda: {"model": small(), "valid": None},
}


def calling(callback, **options):
    return TrainingOptions(callbacks=[callback], **options)


def learned(callback=None, **settings):
    """A fit of the program, which calls back after each epoch."""
    training = {} if callback is None else {"training": calling(callback)}
    return fit(program(), (X, Y), **{**QUICK, **training, **settings})


def fitted(case, callbacks=(), **more):
    """A case's fit, all of it built anew, as in another process."""
    settings = {"train": (X, Y), "training": TrainingOptions(), **QUICK, **CASES[case](), **more}
    settings["training"] = replace(settings["training"], callbacks=callbacks)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        return fit(settings.pop("model"), settings.pop("train"), **settings)


@pytest.mark.complete(but=3)
@pytest.mark.filterwarnings("ignore::lexppl.inference.NotSettledWarning")
@pytest.mark.filterwarnings("ignore:.* had a loss or gradient that is not finite")
@pytest.mark.parametrize("case", CASES)
def test_what_goes_on_is_what_was_never_stopped(case, tmp_path):
    whole = fitted(case)
    kept = Checkpoints(tmp_path, 0)
    last = len(whole.history) - 1
    for stop in sorted({0, last // 2, last}):
        with pytest.raises(KilledError):
            fitted(case, checkpoint=kept, callbacks=[killed_at(stop)])
    if case == "steps that are skipped":
        assert (whole.skipped_steps > 0).all()
    seen = []
    again = fitted(case, checkpoint=kept, callbacks=[lambda epoch: seen.append(epoch.number)])
    assert seen == [last]
    assert_same(whole, again)
    finished = fitted(case, checkpoint=kept, callbacks=[killed_at(last)])
    assert_same(whole, finished)
    assert (finished.history.seconds == again.history.seconds).all()
    plain = fitted(case, seed=1)
    assert bits(plain)["train"].tobytes() != bits(whole)["train"].tobytes()


def states(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0, 2, 4, 5]),
        ({"every_minutes": 1.5}, [0, 3, 5]),
        ({"every_minutes": 0.0}, [0, 1, 2, 3, 4, 5, 5]),
    ],
)
def test_a_state_is_written_at_the_end_of_an_epoch_when_it_is_due(
    settings, expected, tmp_path, monkeypatch
):
    written, given, now = [], MODULE.SavedState.write, [0.0]

    def write(saved, state, first=False):
        written.append((state["epochs"], state["finished"]))
        given(saved, state, first)

    def half_a_minute(epoch):
        now[0] += 30.0

    monkeypatch.setattr(MODULE.SavedState, "write", write)
    monkeypatch.setattr(MODULE.time, "monotonic", lambda: now[0])
    kept = Checkpoints(tmp_path, **settings)
    learned(half_a_minute, checkpoint=kept, epochs=5)
    assert [epochs for epochs, _ in written] == expected
    assert [done for _, done in written] == [False] * (len(written) - 1) + [True]
    assert states(tmp_path) == ["state.pt"]


@pytest.mark.smoke
def test_ctrl_c_tells_where_it_goes_on(tmp_path):
    def interrupt(epoch):
        if epoch.number == 2:
            raise KeyboardInterrupt

    settings = {**QUICK, "checkpoint": Checkpoints(tmp_path, 0)}
    with pytest.warns(CheckpointWarning, match=r"holds its state after 2 epochs, from which the"):
        result = fit(program(), (X, Y), training=calling(interrupt), **settings)
    assert result.interrupted and len(result.history) == 3
    assert_same(fit(program(), (X, Y), **QUICK), fit(program(), (X, Y), **settings))


def test_a_compiled_fit_says_that_it_goes_on_to_float_error(tmp_path):
    """It is stopped before its second step, with which compiling would begin."""
    settings = {**QUICK, "batch_size": 90, "training": calling(killed_at(0), compile=True)}
    settings["checkpoint"] = Checkpoints(tmp_path, 0)
    with warnings.catch_warnings(), pytest.raises(KilledError):
        warnings.simplefilter("error", CheckpointWarning)
        fit(program(), (X, Y), **settings)
    told = pytest.warns(CheckpointWarning, match="to float error and not to the bit")
    with told, pytest.raises(KilledError):
        fit(program(), (X, Y), **settings)
    with pytest.raises(ValueError, match="compile was True and is False"):
        fit(program(), (X, Y), **{**settings, "training": TrainingOptions()})


def test_what_a_callback_ends_has_come_to_its_end(tmp_path):
    first = learned(lambda epoch: epoch.number == 1, checkpoint=tmp_path)
    again = learned(killed_at(2), checkpoint=tmp_path)
    assert again.interrupted and len(again.history) == 2
    assert_same(first, again)


@dataclass
class Doubled:
    """A function whose setting is its own."""

    factor: float = 2.0

    def __call__(self, parameters):
        return torch.optim.Adam(parameters, lr=1e-3 * self.factor)


OTHERS = {
    "seed was 0 and is 1": {"seed": 1},
    "epochs was 4 and is 5": {"epochs": 5},
    "patience was None and is 3": {"training": TrainingOptions(patience=3)},
    "train.x has other values": {"train": (X[:40].flip(0), Y[:40])},
    "train.y has other values": {"train": (X[:40], 1 - Y[:40])},
    "train.x was float32 (40, 3) and is float32 (39, 3)": {"train": (X[:39], Y[:39])},
    "valid.x has other values": {"valid": (X[:50] + 1e-6, Y[:50])},
    "selector.network.layers": {"model": program(selector=MLP(3, 3, (6,), seed=5))},
    "model.stage 0.terms.0.objective.masks was 2 and is 3": {"objective": NestedIWAE(3)},
    "optimizer.factor was 2.0 and is 3.0": {"optimizer": Doubled(3.0)},
    "learning_rate was 0.1 and is 0.2": {"learning_rate": 0.2, "optimizer": None},
    "replicate": {"replicates": 2},
}


@pytest.mark.parametrize("told", OTHERS)
def test_another_fit_is_refused_by_what_is_another(told, tmp_path):
    usual = {
        "model": program(),
        "train": (X[:40], Y[:40]),
        "valid": (X[:50], Y[:50]),
        "objective": NestedIWAE(2),
        "optimizer": Doubled(),
        **QUICK,
        "checkpoint": Checkpoints(tmp_path, 0),
    }
    if "learning_rate" in told:
        usual |= {"learning_rate": 0.1, "optimizer": None}
    with pytest.raises(KilledError):
        fit(**usual, training=calling(killed_at(1)))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    with pytest.raises(ValueError, match=re.escape(told)) as refused:
        fit(**{**usual, "training": calling(killed_at(0)), **OTHERS[told]})
    assert str(tmp_path) in str(refused.value) and "another folder" in str(refused.value)
    assert {path: path.read_bytes() for path in before} == before


def test_another_code_is_another_fit(tmp_path):
    def named(source):
        """A network as a notebook's cell would have it, before and after it was edited."""
        room = {"nn": nn, "MLP": MLP, "__name__": "notebook"}
        exec(source, room)
        return program(room["Edited"]())

    source = """
class Edited(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = MLP(3, 2, (6,), seed=1)
    def forward(self, x):
        return self.network(x)
"""
    settings = {**QUICK, "checkpoint": tmp_path}
    fit(named(source), (X, Y), **settings)
    fit(named("# A comment is no code.\n" + source), (X, Y), **settings)
    with pytest.raises(ValueError, match=r"predictor.network.code has other values"):
        fit(named(source.replace("self.network(x)", "2 * self.network(x)")), (X, Y), **settings)


def unwritable_state(parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    optimizer.param_groups[0]["rule"] = print
    return optimizer


class Odd(Sampler):
    def __iter__(self):
        return iter(range(1, 90, 2))

    def __len__(self):
        return 45


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"optimizer": unwritable_state}, "optimizer or scheduler holds what a checkpoint cannot"),
        ({"train": loader(sampler=Odd())}, "the loader has samplers of its own"),
        ({"train": loader(num_workers=1, persistent_workers=True)}, "persistent workers"),
    ],
)
def test_what_cannot_be_put_back_is_refused_before_any_step(settings, told, tmp_path):
    usual = {"train": (X, Y), "valid": (X, Y), **QUICK, "training": calling(killed_at(0))}
    usual |= settings
    refused(re.escape(told), fit, program(), error=TypeError, checkpoint=tmp_path, **usual)
    assert not states(tmp_path)


def test_a_random_state_of_a_programs_own_is_refused_by_its_place(tmp_path):
    network = Counting()
    network.noise = torch.Generator()
    with pytest.raises(TypeError, match=r"predictor\.network\.noise is a random state of its own"):
        fit(program(network), (X, Y), checkpoint=tmp_path, **QUICK)


@pytest.mark.parametrize("wrong", [3, True, b"folder"])
def test_a_folder_is_a_path(wrong):
    with pytest.raises(TypeError, match="folder must be a path"):
        fit(program(), (X, Y), checkpoint=wrong, **QUICK)


def test_a_place_that_cannot_be_written_is_refused_before_any_step(tmp_path):
    (tmp_path / "file").write_text("of somebody's")
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "file"))):
        learned(killed_at(0), checkpoint=tmp_path / "file")


# -- a full disk


def test_a_full_disk_loses_no_earlier_state_and_no_fit(tmp_path, monkeypatch):
    """The fit goes on, and says once from where it can be continued."""
    given, calls = Path.write_bytes, iter(range(100))

    def full(path, content):
        # The states after epochs 2 to 4 find no room.
        if next(calls) in (2, 3, 4):
            given(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        given(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    settings = {**QUICK, "checkpoint": Checkpoints(tmp_path, 0)}
    with pytest.warns(CheckpointWarning) as found, pytest.raises(KilledError):
        fit(program(), (X, Y), training=calling(killed_at(3)), **settings)
    (warning,) = (str(one.message) for one in found if one.category is CheckpointWarning)
    assert warning == (
        f"the state after 2 epochs cannot be written: No space left on device; {tmp_path} holds "
        "that after 1 epoch, and the fit goes on without"
    )
    assert states(tmp_path) == ["state.pt"]
    monkeypatch.undo()
    assert_same(fit(program(), (X, Y), **QUICK), fit(program(), (X, Y), **settings))


# -- damage


def stopped(folder):
    with pytest.raises(KilledError):
        learned(killed_at(3), checkpoint=Checkpoints(folder, 0))
    return folder / "state.pt"


def flipped(content, where):
    place = int(where * len(content))
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGE = {
    "cut short": lambda content: content[:-7],
    "emptied": lambda content: b"",
    "a flipped bit": lambda content: flipped(content, 0.7),
    "a flipped bit near the beginning": lambda content: flipped(content, 0.1),
    "of another program": lambda content: pickle.dumps({"fit": print}),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_state_is_refused_by_name(kind, tmp_path):
    file = stopped(tmp_path)
    file.write_bytes(DAMAGE[kind](file.read_bytes()))
    settings = {**QUICK, "checkpoint": tmp_path, "training": calling(killed_at(0))}
    with pytest.raises(ValueError, match=r"state\.pt cannot be read: .*; remove .* to begin anew"):
        fit(program(), (X, Y), **settings)


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_state_of_another_layout_is_refused_by_name(tmp_path, at_the_end):
    """As another version may write it, with a checksum that fits."""
    if at_the_end:
        fit(program(), (X, Y), checkpoint=tmp_path, **QUICK)
    path = tmp_path / "state.pt" if at_the_end else stopped(tmp_path)
    state = torch.load(io.BytesIO(path.read_bytes()[64:]), weights_only=True)
    for name in sorted(state.keys() - {"scheduler", "tuner"}):  # Of other fits
        content = io.BytesIO()
        torch.save({other: value for other, value in state.items() if other != name}, content)
        path.write_bytes(checksum_of(content.getvalue()).encode() + content.getvalue())
        with pytest.raises(ValueError, match=rf"state.pt has no '{name}': it is another") as one:
            fit(program(), (X, Y), checkpoint=tmp_path, **QUICK)
        assert "\n" not in str(one.value)


def test_other_versions_are_told(tmp_path, monkeypatch):
    stopped(tmp_path)
    now = MODULE.versions()
    monkeypatch.setattr(MODULE, "versions", lambda: {**now, "torch": "9.9"})
    with pytest.warns(CheckpointWarning, match=r"its last bits .*torch was .* and is 9\.9"):
        fit(program(), (X, Y), checkpoint=tmp_path, **QUICK)


# -- kills


KILLED = {"epochs": 6, "batch_size": 20, "progress": False, "replicates": 2}


def fit_killed(place, folder):
    callbacks = []
    if place == "between epochs":
        callbacks = [lambda epoch: kill() if epoch.number == 1 else None]
    elif place == "before a file is written":
        Path.write_bytes = killed_after(2, Path.write_bytes)
    else:
        os.replace = killed_after(2, os.replace)
    fit(
        small(),
        (X, Y),
        training=TrainingOptions(callbacks=callbacks),
        checkpoint=Checkpoints(folder, 0),
        **KILLED,
    )


@pytest.mark.complete
def test_fits_that_are_killed_anywhere_come_to_the_same_bits(tmp_path):
    """Once after some epochs, once before a state is written, once before it has its name; then to
    the end."""
    whole = fit(small(), (X, Y), **KILLED)
    kept = {**KILLED, "checkpoint": Checkpoints(tmp_path, 0)}
    for place in ("between epochs", "before a file is written", "before the name"):
        assert exit_code_of(fit_killed, place, tmp_path) == -signal.SIGKILL
    again = fit(small(), (X, Y), **kept)
    assert_same(whole, again)
    assert np.isfinite(again.history.seconds).all()
    assert states(tmp_path) == ["state.pt"]


@pytest.mark.parametrize(
    ("owner", "name"),
    [(LoopState, "_put_back_random"), (LoopState, "_put_back"), (BestStates, "restore")],
)
def test_what_is_not_put_back_would_show(owner, name, tmp_path, monkeypatch):
    """The comparison of all other tests sees each part of a state."""
    settings = {**QUICK, "learning_rate": 1.0, "epochs": 6}
    whole = fit(program(), (X, Y), **settings)
    best = int(whole.best_epoch[0])
    assert best < 5
    kept = {**settings, "checkpoint": Checkpoints(tmp_path, 0)}
    with pytest.raises(KilledError):
        fit(program(), (X, Y), training=TrainingOptions(callbacks=[killed_at(best + 1)]), **kept)
    monkeypatch.setattr(owner, name, lambda *_: None)
    again = fit(program(), (X, Y), **kept)
    with pytest.raises(AssertionError):
        assert_same(whole, again)


def test_two_processes_that_write_one_checkpoint_leave_a_whole_state(tmp_path, monkeypatch):
    """Another process begins to write between a state's write and its rename, and fails."""
    original, where, begun = Path.write_bytes, Checkpoints(tmp_path / "state"), []

    def write_beside(path, content):
        original(path, content[: len(content) // 2] if begun else content)
        if begun:
            raise OSError(errno.ENOSPC, "No space left on device")
        begun.append(path)
        other.write({"epochs": 1, "numbers": torch.ones(3)})

    state = SavedState(where, {})
    other = SavedState(where, {})
    monkeypatch.setattr(Path, "write_bytes", write_beside)
    with pytest.warns(CheckpointWarning, match="cannot be written"):
        state.write({"epochs": 2, "numbers": torch.zeros(3)}, first=True)
    again = SavedState(where, {}).found
    assert torch.equal(again["numbers"], torch.zeros(3))
    assert [file.name for file in (tmp_path / "state").iterdir()] == ["state.pt"]
