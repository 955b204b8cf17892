"""Every way to a posterior of global latents, in float64 with float32 as the default and after."""

import warnings
from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import HMC, NUTS
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule, PyroSample

from lexppl import explain, fit
from lexppl.arviz_compatibility import group_of
from lexppl.effects import imputation_particles, mask_particles
from lexppl.inference import MCMC, SGHMC, SGLD, DiagonalVI, Ensemble, Laplace
from lexppl.models import BetaBernoulliSelector
from tests.inference.builders import quick

X = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = 1.5 * X[:, 0] + X.flip(0)[:, 1]
SHORT = {"samples": 4, "climb": 2}
ENGINES = {
    "NUTS": MCMC(partial(NUTS, max_tree_depth=4), samples=4, warmup=2, chains=1),
    "HMC": MCMC(partial(HMC, trajectory_length=0.5), samples=4, warmup=2, chains=1),
    "recorded NUTS": MCMC(partial(NUTS, max_tree_depth=2), samples=500, warmup=1, chains=1),
    "SGHMC": SGHMC(**SHORT, thin=2, warmup=2, chains=2),
    "SGLD": SGLD(**SHORT, thin=2, warmup=2, chains=2),
    "dense Laplace": Laplace(samples=4, climb=20, starts=1),
    "diagonal Laplace": Laplace(**SHORT, diagonal=True, starts=1),
    "diagonal VI": DiagonalVI(**SHORT, steps=4),
    "ensemble": Ensemble(members=2, climb=4),
}


class Included(PyroModule):
    """A rate of inclusion, a slope and a scale, all with priors."""

    def __init__(self):
        super().__init__()
        self.selector = BetaBernoulliSelector(torch.nn.Identity(), 2.0, 2.0)
        self.register_buffer("zero", torch.zeros(()))
        self.slope = PyroSample(lambda self: dist.Normal(self.zero, 2.0))
        self.scale = PyroSample(lambda self: dist.HalfNormal(self.zero + 1.0))

    def forward(self, x, y=None):
        law = self.selector(x)
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", law)
            with imputation_particles():
                mean = self.slope * (mask * x).sum(-1)
                return pyro.sample("y", dist.Normal(mean, self.scale), obs=y)


def checked(result):
    sites = result.guides[0].sites
    assert set(sites) == {"selector.rate", "slope", "scale"}
    assert {values.dtype for values in sites.values()} == {torch.float64}
    assert all(values.isfinite().all() for values in sites.values())
    drawn = group_of(explain(result, X[:3], draws=3), "posterior")
    assert drawn["slope"].dtype == "float64"


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_engines(name, default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = Included().double()
            checked(fit(program, (X, Y), inference=ENGINES[name], progress=False))
    finally:
        torch.set_default_dtype(before)


def test_numbers_are_those_of_float64():
    """A float32 step on the way would leave a slope of 24 binary digits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(Included().double(), (X, Y), inference=ENGINES["NUTS"], progress=False)
    slope = result.guides[0].sites["slope"]
    assert not torch.equal(slope, slope.float().double())


def test_a_guide():
    result = quick(Included().double(), (X, Y), guide=AutoNormal)
    assert {p.dtype for p in result.guides[0].parameters()} == {torch.float64}
