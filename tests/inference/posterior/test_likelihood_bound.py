"""Which bound the likelihood of a program given its global latents is."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl.effects import imputation_particles, mask_particles
from lexppl.inference.posterior.global_latents import latents_of
from lexppl.inference.posterior.log_posterior import likelihood_bound
from tests.refusals import refusals, refused

pytestmark = pytest.mark.usefixtures("local_parameters")


def latents(mask=None, imputation=None, second=None, entries=4):
    """Those of a program with these in its particles, each given as a law of `(G,)`."""

    def program(x, y):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            for name, law in (("mask", mask), ("second", second)):
                if law is not None:
                    pyro.sample(name, law(x))
            with imputation_particles():
                if imputation is not None:
                    pyro.sample("x_imputed", imputation(x))
                pyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    return latents_of(program, (torch.zeros(1, entries), torch.zeros(1)))


def drawn(x):
    return dist.Bernoulli(torch.full_like(x, 0.5)).to_event(1)


def point(x):
    return dist.Delta(torch.ones_like(x), event_dim=1)


def random(x):
    return dist.Normal(torch.zeros_like(x), 1.0).to_event(1)


@pytest.mark.parametrize(
    ("parts", "masks"),
    [
        ({}, 1),
        ({"mask": point}, 1),
        ({"imputation": random}, 1),
        ({"mask": point, "imputation": random}, 7),
        ({"mask": drawn}, math.inf),
        ({"mask": drawn, "second": point}, math.inf),
        ({"mask": drawn, "imputation": random}, math.inf),
        ({"mask": drawn, "second": drawn}, 7),
        ({"mask": random}, 7),
        ({"mask": drawn, "entries": 5}, 7),
    ],
)
def test_masks_are_drawn_where_they_cannot_be_summed_over(parts, masks):
    bound = likelihood_bound(latents(**parts), 10, most_masks=16, drawn=7)
    assert bound.masks == masks and bound.imputations == 1


test_else_they_are_refused = refusals(
    ({"mask": random}, {}, "'mask', of Independent, cannot be listed.*use a guide"),
    ({"mask": drawn, "second": drawn}, {"most_masks": 255}, "256 joint values"),
    ({"mask": drawn, "imputation": random}, {}, "'x_imputed' is drawn at random"),
    ({"mask": drawn}, {"most_masks": 15}, "16 masks"),
    ({"mask": drawn}, {"most_particles": 159}, "160 particles"),
    of=lambda parts, limits: likelihood_bound(latents(**parts), 10, **limits),
)


def test_the_limits_themselves_are_allowed():
    found = latents(mask=drawn)
    two = latents(mask=drawn, second=drawn)
    assert likelihood_bound(two, 1, most_masks=256).masks == math.inf
    assert likelihood_bound(found, 10, most_masks=16, most_particles=160).masks == math.inf
    random_ones = latents(mask=drawn, imputation=random)
    assert likelihood_bound(random_ones, 10, 3, most_particles=480).imputations == 3
    refused("480 particles", likelihood_bound, random_ones, 10, 3, most_particles=479)
