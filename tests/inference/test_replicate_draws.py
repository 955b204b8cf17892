"""Draws of replicates that are run at once: different, whichever way torch makes them."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule
from torch import nn

from lexppl.inference import NestedIWAE, fit
from lexppl.inference.replicates import OutOfPlaceDraws
from lexppl.models import mask_particles

IN_PLACE = ("normal_", "uniform_", "exponential_", "cauchy_")


def drawn(name):
    return lambda x: x + getattr(torch.empty(4), name)()


@pytest.mark.parametrize("name", IN_PLACE)
def test_replicates_have_draws_of_their_own(name):
    """Torch itself refuses them, and so gives no replicates the same draws."""
    with pytest.raises(RuntimeError, match="inplace randomness"):
        torch.func.vmap(drawn(name), randomness="different")(torch.zeros(3))
    with OutOfPlaceDraws():
        made = torch.func.vmap(drawn(name), randomness="different")(torch.zeros(3))
    assert made.shape == (3, 4)
    assert all((made[0] != other).all() for other in made[1:])


class Noisy(PyroModule):
    """A program whose noise is drawn in place, by torch's own exponential, or is not."""

    def __init__(self, law=None) -> None:
        super().__init__()
        self.slope = nn.Linear(1, 1)
        self.law = law or dist.Exponential(torch.tensor(1.0))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            noise = pyro.sample("noise", self.law)
            return pyro.sample("y", dist.Normal(self.slope(x)[:, 0] + noise, 1.0), obs=y)


@pytest.mark.parametrize(("law", "looked"), [(None, True), (dist.Uniform(0.0, 1.0), False)])
def test_a_fit_of_replicates_looks_for_draws_in_place_where_there_are_some(
    law, looked, monkeypatch
):
    entered, enter = [], OutOfPlaceDraws.__enter__
    monkeypatch.setattr(OutOfPlaceDraws, "__enter__", lambda self: entered.append(1) or enter(self))
    x = torch.randn(60, 1, generator=torch.Generator().manual_seed(0))
    options = {"objective": NestedIWAE(masks=2), "epochs": 3, "progress": False}
    result = fit(Noisy(law), (x, x[:, 0]), replicates=3, **options)
    assert len({float(model.slope.weight.detach()) for model in result.models}) == 3
    assert bool(entered) is looked
