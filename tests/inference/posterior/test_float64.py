"""Every way to a posterior of global latents, in float64 with float32 as the default and after."""

from functools import partial

import pytest
import torch
from pyro.infer import HMC, NUTS
from pyro.infer.autoguide import AutoNormal

from lexppl import explain, fit
from lexppl.arviz_compatibility import group_of
from lexppl.inference import MCMC, SGHMC, SGLD, DiagonalVI, Ensemble, Laplace
from tests.inference.posterior.mcmc.programs import Included
from tests.small_models import quick

X = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = 1.5 * X[:, 0] + X.flip(0)[:, 1]
SHORT = {"samples": 4, "climb": 2}
ENGINES = {
    "NUTS": MCMC(partial(NUTS, max_tree_depth=4), samples=4, warmup=2, chains=1),
    "HMC": MCMC(partial(HMC, trajectory_length=0.5), samples=4, warmup=2, chains=1),
    "recorded NUTS": MCMC(partial(NUTS, max_tree_depth=2), samples=4, warmup=2, chains=1),
    "SGHMC": SGHMC(**SHORT, thin=2, warmup=2, chains=2),
    "SGLD": SGLD(**SHORT, thin=2, warmup=2, chains=2),
    "dense Laplace": Laplace(samples=4, climb=20, starts=1),
    "diagonal Laplace": Laplace(**SHORT, diagonal=True, starts=1),
    "diagonal VI": DiagonalVI(**SHORT, steps=4),
    "ensemble": Ensemble(members=2, climb=4),
}


def checked(inference):
    result = fit(Included(scaled=True).double(), (X, Y), inference=inference, progress=False)
    sites = result.guides[0].sites
    assert set(sites) == {"selector.rate", "slope", "scale"}
    assert {values.dtype for values in sites.values()} == {torch.float64}
    assert all(values.isfinite().all() for values in sites.values())
    drawn = group_of(explain(result, X[:3], draws=3), "posterior")
    assert drawn["slope"].dtype == "float64"
    return sites


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_engines(name, default, monkeypatch):
    if name == "recorded NUTS":
        monkeypatch.setattr("lexppl.inference.posterior.mcmc.WORTH_RECORDING", 0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        checked(ENGINES[name])
    finally:
        torch.set_default_dtype(before)


@pytest.mark.filterwarnings("ignore")
def test_numbers_are_those_of_float64():
    """A float32 step on the way would leave a slope of 24 binary digits."""
    slope = checked(ENGINES["NUTS"])["slope"]
    assert not torch.equal(slope, slope.float().double())


def test_a_guide():
    result = quick(Included(scaled=True).double(), (X, Y), guide=AutoNormal)
    assert {p.dtype for p in result.guides[0].parameters()} == {torch.float64}
