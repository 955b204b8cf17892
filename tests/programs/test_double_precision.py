"""Programs in float64: under torch's default of it, and without parameters that would say so."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl import explain, fit
from lexppl.effects import mask_particles
from lexppl.inference import NestedIWAE, TrainingOptions
from tests.programs.builders import Explainer, G, coin
from tests.programs.builders import X as Rows
from tests.programs.builders import Y as Labels

X, Y = Rows.double(), Labels.double()
QUICK = {"epochs": 2, "batch_size": 20, "progress": False, "objective": NestedIWAE(2)}


@pytest.fixture
def doubles():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def states(x, y=None):
    logits = pyro.param("logits", torch.zeros(G))
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        z = pyro.sample("mask", coin(logits.expand(len(x), G)))
        return pyro.sample("y", dist.Bernoulli(logits=(x * z).sum(-1)), obs=y)


CLIPPED = {"training": TrainingOptions(clip_norm=1.0)}


@pytest.mark.parametrize("program", [Explainer, states])
@pytest.mark.parametrize("options", [{}, {"replicates": 2}, CLIPPED])
def test_fitted_and_explained_in_float64(doubles, program, options):
    arrays = X.numpy(), Y.numpy()
    one, other = (fit(program, rows, **QUICK, **options) for rows in ((X, Y), arrays))
    assert {p.dtype for p in one.model.parameters()} == {torch.float64}
    assert np.array_equal(one.history.train, other.history.train)
    assert one.skipped_steps.sum() == 0
    shown = [explain(one, *rows, draws=3, seed=1) for rows in ((X, Y), arrays)]
    means = [given["sample_stats"]["selection_probability"].values for given in shown]
    assert means[0].dtype == np.float64 and np.array_equal(*means)


def without_parameters(dtype):
    def program(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            half = torch.full((G,), 0.5, dtype=dtype)
            z = pyro.sample("mask", dist.Bernoulli(half).expand((len(x), G)).to_event(1))
            return pyro.sample("y", dist.Normal((x * z) @ torch.ones(G, dtype=dtype), 1.0), obs=y)

    return program


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_arrays_are_given_to_a_program_without_parameters_in_its_type(dtype):
    arrays = X.numpy(), X[:, 0].numpy()
    tensors = X.to(dtype), X[:, 0].to(dtype)
    shown = [explain(without_parameters(dtype), *rows, draws=3) for rows in (arrays, tensors)]
    evidence = [one["sample_stats"]["log_evidence"].values for one in shown]
    assert np.array_equal(*evidence)
