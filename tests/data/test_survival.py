"""Sets of survival times: real ones by their published counts, simulated ones by their formulas."""

import math
import sys

import pytest
import torch

from lexppl.data import Dataset, SimulatedSurvival, load, synthetic_survival
from lexppl.data.named_sets import survival_names
from tests.gradients.enumeration import threshold
from tests.refusals import refused

PUBLISHED = {
    "rossi": ("lifelines", 432, 7, 114),
    "gbsg2": ("sksurv", 686, 8, 299),
    "whas500": ("sksurv", 500, 14, 215),
    "veterans_lung_cancer": ("sksurv", 137, 6, 128),
}


@pytest.mark.parametrize("name", survival_names())
def test_real_sets_have_their_rows_and_events(name):
    library, rows, entries, events = PUBLISHED[name]
    pytest.importorskip(library)
    data = load(name, dtype=torch.float64)
    assert (len(data), data.n_entries, int(data.y[:, 1].sum())) == (rows, entries, events)
    assert data.task == "survival" and data.y.shape == (rows, 2)
    assert data.y.dtype == torch.float64 and bool((data.y[:, 0] > 0).all())
    assert f"survival times with {events} events" in repr(data)


@pytest.mark.parametrize("module", ["lifelines.datasets", "sksurv.datasets"])
def test_a_missing_library_is_told_in_one_line(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    name = "rossi" if "lifelines" in module else "gbsg2"
    error = refused(r'pip install "lexppl\[survival\]"', load, name, error=ImportError)
    assert "\n" not in str(error)


def test_names_and_arguments_that_do_not_go():
    refused(r"no shipped data set 'rosi'.*'rossi'", load, "rosi")
    refused("'rossi' is none", load, "rossi", standardise_target=True)
    refused("rows must be a whole number", synthetic_survival, rows=0)
    refused("censored must be", SimulatedSurvival, censored=1.0)
    refused("shape must be", SimulatedSurvival, shape=0.0)
    with pytest.raises(ValueError, match=r"y must have shape \(3,\), or \(3, 2\), or \(3, 3\)"):
        Dataset(torch.ones(3, 1), torch.ones(3, 4), ("a",), (0,), ("a",), "t", is_part=True)


@pytest.mark.smoke
@pytest.mark.parametrize("shape", [1.0, 2.0])
def test_simulated_times_follow_their_hazard(shape):
    """exp(−H(T)) is uniform: its first two moments, and those under another shape."""
    distribution = SimulatedSurvival(shape=shape, scale=3.0, censored=0.0)
    data = synthetic_survival(20_000, 5, distribution=distribution, dtype=torch.float64)
    assert bool((data.y[:, 1] == 1).all())

    def z(of):
        u = of.survival(data.x, data.y[:, 0])
        first = (u.mean() - 1 / 2) / math.sqrt(1 / 12 / len(u))
        second = (u.square().mean() - 1 / 3) / math.sqrt(4 / 45 / len(u))
        return max(abs(float(first)), abs(float(second)))

    assert z(distribution) < threshold(2)
    assert z(SimulatedSurvival(shape=1.2 * shape, scale=3.0)) > 2 * threshold(2)


@pytest.mark.parametrize("censored", [0.2, 0.6])
def test_as_many_are_censored_as_was_asked(censored):
    distribution = SimulatedSurvival(censored=censored)
    data = synthetic_survival(20_000, 6, distribution=distribution)
    error = math.sqrt(censored * (1 - censored) / 20_000)
    # The end of censoring is itself set on draws.
    assert abs(1 - float(data.y[:, 1].mean()) - censored) < 5 * error


def test_the_switch_says_what_is_relevant():
    distribution = SimulatedSurvival()
    data = synthetic_survival(200, 7, dtype=torch.float64)
    x = data.x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(distribution.log_hazard(x).sum(), x)
    relevant = data.truth.clone()
    relevant[:, 6] = 0
    assert torch.equal((slope != 0).double(), relevant)
    moved = data.x.clone()
    moved[:, 6] *= -1
    changed = distribution.log_hazard(moved) != distribution.log_hazard(data.x)
    assert bool(changed.all())
    assert torch.equal(synthetic_survival(200, 7, dtype=torch.float64).y, data.y)
    assert not torch.equal(synthetic_survival(200, 8, dtype=torch.float64).y, data.y)
