"""Draws of replicates that are run at once: different, whichever way torch makes them."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule
from torch import nn

from lexppl.inference import NestedIWAE, fit
from lexppl.inference.replicates.replicate_draws import OutOfPlaceDraws, ReplicateDraws
from lexppl.models import mask_particles

IN_PLACE = ("normal_", "uniform_", "exponential_", "cauchy_")


def drawn(name):
    return lambda x: x + getattr(torch.empty(4), name)()


@pytest.mark.parametrize("name", IN_PLACE)
def test_replicates_have_draws_of_their_own(name):
    made = ReplicateDraws().run("a", drawn(name), (0,), (torch.zeros(3),))
    assert made.shape == (3, 4)
    assert all((made[0] != other).all() for other in made[1:])


@pytest.mark.parametrize("name", IN_PLACE)
def test_torch_refuses_them_where_they_are_not_looked_for(name):
    """What the second run of a program rests on: no replicates with the same draws."""
    with pytest.raises(RuntimeError, match="inplace randomness"):
        torch.func.vmap(drawn(name), randomness="different")(torch.zeros(3))


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_draw_in_place_that_comes_later_is_met(name):
    draws = ReplicateDraws()
    given = ((0,), (torch.zeros(3),))
    draws.run("a", lambda x: x + torch.randn(4), *given)
    for _ in range(2):
        made = draws.run("a", drawn(name), *given)
        assert (made[0] != made[1]).all()
    plain = draws.run("a", lambda x: x + torch.randn(4), *given)
    assert (plain[0] != plain[1]).all()


def test_they_are_not_looked_for_where_there_are_none(monkeypatch):
    looked = []
    look = OutOfPlaceDraws.__enter__
    monkeypatch.setattr(OutOfPlaceDraws, "__enter__", lambda self: looked.append(1) or look(self))
    draws, given = ReplicateDraws(), ((0,), (torch.zeros(3),))
    for which, one, expected in (
        ("plain", lambda x: x + torch.randn(4), 1),
        ("in place", drawn("normal_"), 3),
    ):
        looked.clear()
        for _ in range(3):
            draws.run(which, one, *given)
        assert len(looked) == expected


def test_another_error_is_not_taken_for_a_draw():
    def fails(x):
        raise RuntimeError("of its own")

    draws, given = ReplicateDraws(), ((0,), (torch.zeros(3),))
    draws.run("a", torch.clone, *given)
    with pytest.raises(RuntimeError, match="of its own"):
        draws.run("a", fails, *given)


class Noisy(PyroModule):
    """A program whose noise is torch's own exponential, which draws in place."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Linear(1, 1)

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            noise = pyro.sample("noise", dist.Exponential(torch.tensor(1.0)))
            return pyro.sample("y", dist.Normal(self.slope(x)[:, 0] + noise, 1.0), obs=y)


def test_a_fit_of_replicates_with_draws_in_place():
    x = torch.randn(60, 1, generator=torch.Generator().manual_seed(0))
    result = fit(
        Noisy(),
        (x, x[:, 0]),
        replicates=3,
        epochs=3,
        objective=NestedIWAE(masks=2),
        progress=False,
    )
    assert len({float(model.slope.weight.detach()) for model in result.models}) == 3
