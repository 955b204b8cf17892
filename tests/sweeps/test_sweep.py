"""A sweep's fits are those of fit, each by its own seed, and a failure is its own row's alone."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.inference import CollapseWarning, fit
from lexppl.models import ConstantImputer, GaussianImputer
from lexppl.sweeps import SweepWarning, sweep
from lexppl.systems import lex, real_x
from tests.refusals import refused

X = torch.randn(150, 3, generator=torch.Generator().manual_seed(0))
ROWS = (X, (X[:, 0] > 0).long())
SMALL = partial(lex, 3, classes=2, hidden=(4,), predictor_hidden=(4,))
COMMON = {"epochs": 2, "progress": False}


def numbers(found):
    """What does not depend on the clock."""
    return found.table.drop(columns="seconds")


def size_of(result):
    return {"weight": sum(float(p.detach().abs().sum()) for p in result.model.parameters())}


def test_each_row_is_the_fit_of_its_setting():
    found = sweep(SMALL, ROWS, settings={"k": [1, 2], "seed": [0, 3]}, judge=size_of, **COMMON)
    assert found.table[["k", "seed"]].values.tolist() == [[1, 0], [1, 3], [2, 0], [2, 3]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        alone = fit(SMALL(k=2), ROWS, seed=3, **COMMON)
    assert found.table["valid_loss"].iloc[3] == alone.best_valid[0]
    assert found.table["weight"].iloc[3] == size_of(alone)["weight"]
    assert found.table["epochs_run"].tolist() == [2] * 4
    state = found.result(3).model.state_dict()
    assert all(torch.equal(v, state[n]) for n, v in alone.model.state_dict().items())
    assert found.table["valid_loss"].nunique() == 4


@pytest.mark.smoke
def test_a_failure_stands_in_its_row_and_is_reported():
    with pytest.warns(SweepWarning, match=r"1 of 3 settings failed; the first is k=7: ValueError"):
        found = sweep(SMALL, ROWS, settings={"k": [1, 7, 2]}, **COMMON)
    assert found.table["error"].isna().tolist() == [True, False, True]
    assert "k must be a whole number from 1 to 3" in found.failed["error"].iloc[0]
    assert np.isfinite(found.table["valid_loss"][[0, 2]]).all()
    assert "3, of k" in repr(found) and "failed               1" in repr(found)
    refused("no fit of k=7: ValueError", found.result, 1)


def test_a_failing_judge_fails_the_row():
    with pytest.warns(
        SweepWarning, match="judge must give numbers by names other than .*; name is 'x'"
    ):
        found = sweep(SMALL, ROWS, settings={"k": [1]}, judge=lambda fit: {"name": "x"}, **COMMON)
    assert "TypeError" in found.table["error"].iloc[0]


def test_imputers_have_names_of_their_own():
    imputers = {"zero": ConstantImputer(torch.zeros(3)), "noise": GaussianImputer()}
    found = sweep(SMALL, ROWS, settings={"imputer": imputers, "k": [1]}, **COMMON)
    assert found.table["imputer"].tolist() == ["zero", "noise"]
    assert found.table["valid_loss"].nunique() == 2


def test_settings_may_be_a_list_with_other_names():
    found = sweep(SMALL, ROWS, settings=[{"k": 1}, {"penalty": 0.1, "seed": 2}], **COMMON)
    assert found.table["penalty"].tolist()[1] == 0.1
    assert pd.isna(found.table["k"].iloc[1])


def test_a_function_that_builds_a_program_draws_from_the_settings_seed():
    def build(width):
        return SMALL(k=1, hidden=(width,)).program()

    settings = {"width": [3], "seed": [0, 1]}
    torch.manual_seed(1)
    first = sweep(build, ROWS, settings=settings, **COMMON)
    torch.manual_seed(2)
    assert numbers(first).equals(numbers(sweep(build, ROWS, settings=settings, **COMMON)))
    assert first.table["valid_loss"].nunique() == 2


def test_global_random_state_is_left_as_it_is():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    sweep(SMALL, ROWS, settings={"k": [1]}, **COMMON)
    assert torch.equal(torch.rand(2), expected)


@pytest.fixture
def fits(monkeypatch):
    """The settings that were fitted."""
    import sys

    module = sys.modules["lexppl.sweeps"]
    seen, original = [], module._fitted

    def noted(setting, *others):
        seen.append(str(setting))
        return original(setting, *others)

    monkeypatch.setattr(module, "_fitted", noted)
    return seen


def test_a_sweep_goes_on_from_its_folder(tmp_path, fits):
    settings = {"k": [1, 2], "seed": [0, 1]}
    held = sweep(SMALL, ROWS, settings=settings, judge=size_of, **COMMON)
    fits.clear()
    first = sweep(SMALL, ROWS, settings={"k": [1]}, folder=tmp_path, judge=size_of, **COMMON)
    assert fits == ["k=1"]
    sweep(
        SMALL, ROWS, settings={"k": [1], "seed": [0, 1]}, folder=tmp_path, judge=size_of, **COMMON
    )
    again = sweep(SMALL, ROWS, settings=settings, folder=tmp_path, judge=size_of, **COMMON)
    assert fits == ["k=1", "k=1, seed=0", "k=1, seed=1", "k=2, seed=0", "k=2, seed=1"]
    assert numbers(held).equals(numbers(again))
    assert first.table["valid_loss"][0] == again.table["valid_loss"][0]
    for place in range(4):
        state = held.result(place).model.state_dict()
        assert all(
            torch.equal(v, state[n]) for n, v in again.result(place).model.state_dict().items()
        )


@pytest.mark.parametrize(
    "change",
    [
        {"train": (X + 1, ROWS[1])},
        {"epochs": 3},
        {"judge": lambda fit: {"other": 1.0}},
        {"build": partial(SMALL, towards=0.5)},
    ],
)
def test_what_has_changed_is_fitted_again(tmp_path, fits, change):
    call = {"build": SMALL, "train": ROWS, "settings": {"k": [1]}, "folder": tmp_path, **COMMON}
    sweep(**call)
    sweep(**call)
    assert len(fits) == 1
    sweep(**{**call, **change})
    assert len(fits) == 2


def test_what_failed_is_tried_again(tmp_path, fits):
    def build(k):
        if not (tmp_path / "ready").exists():
            raise OSError("not yet")
        return SMALL(k=k)

    call = {"settings": {"k": [1]}, "folder": tmp_path / "fits", **COMMON}
    with pytest.warns(SweepWarning, match="OSError: not yet"):
        sweep(build, ROWS, **call)
    (tmp_path / "ready").touch()
    assert sweep(build, ROWS, **call).table["error"].isna().all()


def test_a_fit_that_cannot_be_saved_is_held_in_memory(tmp_path):
    class Own(torch.nn.Module):
        cannot_be_saved = "it holds a file"

        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, *args):
            return self.inner(*args)

    call = {"settings": {"k": [1]}, "folder": tmp_path, **COMMON}
    with pytest.warns(SweepWarning, match="held in memory alone: .*it holds a file"):
        found = sweep(lambda k: Own(SMALL(k=k).program()), ROWS, **call)
    assert len(found.failed) == 0 and isinstance(found.result(0).model, Own)


def test_an_interrupted_sweep_lists_what_was_not_run(tmp_path, monkeypatch):
    import sys

    module = sys.modules["lexppl.sweeps"]
    original, calls = module.fit, []

    def interrupted(*args, **kwargs):
        calls.append(1)
        result = original(*args, **kwargs)
        result.interrupted = len(calls) == 2
        return result

    monkeypatch.setattr(module, "fit", interrupted)
    with pytest.warns(SweepWarning, match="2 of 3 settings failed; the first is k=2: interrupted"):
        found = sweep(SMALL, ROWS, settings={"k": [1, 2, 3]}, folder=tmp_path, **COMMON)
    assert "not run" in found.table["error"].iloc[2]
    assert len(list(tmp_path.glob("*/row.json"))) == 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"settings": {"kk": [1]}}, ValueError, "lex cannot be called with kk=1: .*'kk'"),
        ({"settings": {"k": [1]}, "epoch": 2}, ValueError, "unexpected keyword argument 'epoch'"),
        ({"settings": {"k": 1}}, TypeError, r"must be a list of values to try; it is 1"),
        ({"settings": {"k": []}}, ValueError, "at least one; there is none"),
        ({"settings": {"k": [1, 1]}}, ValueError, "k=1 stands there twice"),
        ({"settings": []}, ValueError, "at least one; there is none"),
        ({"settings": {"k": [1]}, "k": 2}, ValueError, "k is a setting, and given for all"),
        ({"settings": {"train": [1]}}, ValueError, "train can be no setting of a sweep"),
        ({"settings": {"k": [1]}, "checkpoint": "f"}, ValueError, "checkpoint can be no setting"),
        ({"settings": 3}, TypeError, "settings must be a dict of values by name"),
        ({"settings": [3]}, TypeError, "or a list of dicts; it is .3."),
        ({"settings": {"k": [1]}, "client": "tcp://host"}, TypeError, "dask.distributed.Client"),
        ({"settings": {"k": [1]}, "jobs": 0}, ValueError, "jobs must be"),
        ({"settings": {"k": [1]}, "threads": 0}, ValueError, "threads must be"),
        ({"settings": {"k": [1]}, "build": SMALL(k=1)}, TypeError, "build must be a function"),
        ({"settings": {"k": [1]}, "build": partial(real_x, classes=2)}, ValueError, "real_x"),
        ({"settings": {"error": [1]}}, ValueError, "error can be no setting of a sweep"),
        (
            {"settings": {"seed": [1]}, "build": partial(lex, classes=2)},
            ValueError,
            "lex cannot be called with seed=1: missing a required argument: 'features'",
        ),
    ],
)
def test_mistakes_are_refused_before_any_fit(fits, call, error, message):
    refused(message, sweep, error=error, **{"build": SMALL, "train": ROWS, **call})
    assert not fits


def test_a_folder_needs_rows_that_have_a_fingerprint(tmp_path):
    with pytest.raises(TypeError, match="cannot be identified"):
        rows = (row for row in ROWS)
        sweep(SMALL, rows, settings={"k": [1]}, folder=tmp_path, **COMMON)


def test_a_damaged_row_of_a_folder_is_refused_by_name(tmp_path):
    call = {"settings": {"k": [1]}, "folder": tmp_path, **COMMON}
    sweep(SMALL, ROWS, **call)
    (file,) = tmp_path.glob("*/row.json")
    for content in (file.read_bytes()[:40], b"[1]", b""):
        file.write_bytes(content)
        error = refused("row.json cannot be read", sweep, SMALL, ROWS, **call)
        assert error.path == file and "\n" not in str(error)


def test_two_sweeps_of_one_folder_do_not_remove_each_other_s_files(tmp_path, monkeypatch):
    """Another process writes the same fit while this one does."""
    import sys

    module = sys.modules["lexppl.sweeps"]
    call, original, others = {"settings": {"k": [1]}, "folder": tmp_path, **COMMON}, module.save, []

    def save_beside(result, folder):
        original(result, folder)
        if not others:
            others.append(folder)
            others.append(sweep(SMALL, ROWS, **call).result(0))
        assert (folder / "weights.safetensors").is_file()

    monkeypatch.setattr(module, "save", save_beside)
    found = sweep(SMALL, ROWS, **call).result(0)
    states = [one.model.state_dict() for one in (found, others[1])]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert [path.name for path in tmp_path.glob(".*")] == []
