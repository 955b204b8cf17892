"""Seeds, and parameters that no global store has."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Predictive
from pyro.infer.autoguide import AutoDelta, AutoNormal
from pyro.nn import PyroModule, PyroSample

from lexppl.inference import NestedIWAE, ReplicateData
from lexppl.inference.contexts import keep_parameters_local, seed_generators, seeded
from tests.small_models import Line, quick

IS_THERE = hasattr(torch, "accelerator") and torch.accelerator.is_available()


@pytest.mark.parametrize("seed", [0, 7, -1, 2**63 - 1, np.int64(5)])
def test_numbers_are_those_of_torchs_own_seed(seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        expected = torch.randn(5)
        seed_generators(seed)
        assert torch.equal(torch.randn(5), expected)


@pytest.mark.skipif(IS_THERE, reason="its generators are seeded too")
def test_accelerators_are_seeded_where_there_are_some(monkeypatch):
    seeds = []
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    with seeded(3):
        assert torch.initial_seed() == 3 and seeds == []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with seeded(3):
        assert seeds == [3]


X = torch.linspace(-1.0, 1.0, 20)[:, None]
ROWS = [(X, X[:, 0] * slope) for slope in (-2.0, 2.0)]


def fitted(kind):
    options = {"objective": NestedIWAE(1), "epochs": 100, "learning_rate": 0.1}
    return quick(Line(), ReplicateData(ROWS), guide=kind, **options)


def test_each_replicates_guide_keeps_its_own_parameters_when_it_is_called():
    for kind in (AutoDelta, AutoNormal):
        guides = fitted(kind).guides
        before = [[p.detach().clone() for p in guide.parameters()] for guide in guides]
        called = [float(torch.stack([g(X)["slope"] for _ in range(50)]).mean()) for g in guides]
        assert called[0] < -1.5 and called[1] > 1.5
        for guide, own in zip(guides, before, strict=True):
            assert all(torch.equal(p, q) for p, q in zip(guide.parameters(), own, strict=True))
    assert not dict(pyro.get_param_store())
    assert not pyro.settings.get("module_local_params")


def test_pyros_own_predictive_takes_them_one_after_another():
    result = fitted(AutoNormal)
    means = [
        float(Predictive(model, guide=guide, num_samples=100)(X[-1:])["y"].mean())
        for model, guide in zip(result.models, result.guides, strict=True)
    ]
    assert means[0] < -1.5 and means[1] > 1.5


class Twice(PyroModule):
    """A program whose part is called twice a run."""

    def __init__(self):
        super().__init__()
        self.line = PyroModule[torch.nn.Linear](1, 1, bias=False)
        self.line.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 1]).to_event(2))

    def forward(self, x):
        return self.line(x) - self.line(x)


def test_a_part_prepared_before_its_program_draws_its_weight_once_a_run():
    program = Twice()
    keep_parameters_local(program.line)
    keep_parameters_local(program)
    assert float(program(X).abs().max()) == 0.0
