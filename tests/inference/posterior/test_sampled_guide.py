"""Draws of global latents as a guide."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample

from lexppl.effects import imputation_particles, mask_particles
from lexppl.inference.contexts import seeded
from lexppl.inference.posterior.global_draws import SampledGuide
from lexppl.inference.predictive import FittedProgram, drawing


class Line(PyroModule):
    """y ~ N(slope · z x, 1), with a prior on the slope."""

    def __init__(self):
        super().__init__()
        self.part = PyroModule()
        self.part.slope = PyroSample(dist.Normal(0.0, 1.0))

    def forward(self, x, y=None):
        slope = self.part.slope
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            half = dist.Bernoulli(x.new_full((len(x), 1), 0.5)).to_event(1)
            mask = pyro.sample("mask", half)
            with imputation_particles():
                return pyro.sample("y", dist.Normal(slope * mask[..., 0] * x[:, 0], 1.0), obs=y)


def slopes_of(draws, samples):
    x = torch.ones(3, 1)
    with drawing(seed=0):
        program = FittedProgram(Line(), SampledGuide({"part.slope": samples}), (x[:1],), draws)
        runs = [run for run, _ in program.runs((x,))]
    return [float(run.sites["part.slope"].value) for run in runs]


def test_draws_are_all_samples_in_order_or_evenly_thinned():
    assert slopes_of(4, torch.tensor([1.0, 2.0, 3.0, 4.0])) == [1.0, 2.0, 3.0, 4.0]
    assert slopes_of(2, torch.tensor([1.0, 2.0, 3.0, 4.0])) == [1.0, 3.0]


def test_called_by_itself_it_gives_one_at_random():
    guide = SampledGuide({"a": torch.arange(50.0)})
    with seeded(0):
        first = [float(guide(None)["a"]) for _ in range(20)]
    with seeded(0):
        again = [float(guide(None)["a"]) for _ in range(20)]
    assert first == again
    assert len(set(first)) > 10


def test_its_draws_go_through_its_state():
    guide = SampledGuide({"net.0.weight": torch.randn(5, 2, 3)})
    copy = SampledGuide({"net.0.weight": torch.zeros(5, 2, 3)})
    copy.load_state_dict(guide.state_dict())
    assert torch.equal(copy.sites["net.0.weight"], guide.sites["net.0.weight"])


@pytest.mark.parametrize(
    ("samples", "error", "words"),
    [
        ({}, ValueError, "at least one site"),
        ({"a": [1.0]}, TypeError, "tensor"),
        ({"a": torch.zeros(3), "b": torch.zeros(2)}, ValueError, "same number of draws"),
        ({"a": torch.zeros(0)}, ValueError, "same number of draws"),
    ],
)
def test_what_is_no_draws_is_refused(samples, error, words):
    with pytest.raises(error, match=words):
        SampledGuide(samples)
