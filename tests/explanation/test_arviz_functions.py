"""The ArviZ functions that a statistician types, on four kinds of fit."""

import functools
import warnings

import arviz as az
import matplotlib.pyplot as plt
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from pyro.infer import NUTS
from torch import nn

from lexppl.arviz_compatibility import group_names, group_of
from lexppl.explanation import explain
from lexppl.inference import MCMC, fit
from lexppl.models import imputation_particles, mask_particles, observe
from tests.test_explanation import fitted

NEW = az.InferenceData is xr.DataTree
ROWS, NAMES = 4, ["age", "dose"]
DIMS = {"dims": {"slope": ["feature"]}, "coords": {"feature": NAMES}}


class Line(nn.Module):
    """Two features kept by chance, and a normal response of those that are."""

    def __init__(self, slope=None, logit=0.5):
        super().__init__()
        self.slope = None if slope is None else nn.Parameter(torch.tensor(slope))
        self.logit = logit

    def forward(self, x, y=None):
        slope = self.slope
        if slope is None:
            slope = pyro.sample("slope", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            logits = torch.full((len(x), 2), self.logit) + 0.5 * x
            mask = pyro.sample("mask", dist.Bernoulli(logits=logits).to_event(1))
            with imputation_particles():
                return observe("y", dist.Normal(((mask * x) * slope).sum(-1), 1.0), y)


def guide(x, y=None):
    pyro.sample("slope", dist.Normal(torch.tensor([1.0, -0.5]), 0.2).to_event(1))


@functools.cache
def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 2, generator=generator)
    return x, x[:, 0] + torch.randn(ROWS, generator=generator)


@functools.cache
def posterior_of_kind(kind):
    x, y = data()
    if kind == "guide":
        return explain(Line(), x, y, guide=guide, draws=30, **DIMS)
    if kind == "nuts":
        inference = MCMC(NUTS, samples=30, warmup=30, chains=2)
        result = fit(Line(), (x, y), inference=inference, progress=False)
        return explain(result, x, y, **DIMS)
    lines = [Line([1.0, -0.5]), Line([0.7, -0.2])]
    fits = lines[:1] if kind == "masks" else lines
    return explain(fitted(*fits, labels=None, event_shape=(2,)), x, y, draws=30, entry_names=NAMES)


KINDS = ("masks", "guide", "nuts", "replicates")

if NEW:
    RENAMED = {
        "plot_ppc": az.plot_ppc_dist,
        "plot_ppc of the prior": lambda p: az.plot_ppc_dist(p, group="prior_predictive"),
        "plot_dist_comparison": az.plot_prior_posterior,
        "plot_loo_pit": az.plot_loo_pit,
    }
else:
    RENAMED = {
        "plot_ppc": az.plot_ppc,
        "plot_ppc of the prior": lambda p: az.plot_ppc(p, group="prior"),
        "plot_dist_comparison": az.plot_dist_comparison,
        "plot_loo_pit": lambda p: az.plot_loo_pit(p, y="y"),
    }
FUNCTIONS = {
    "summary": az.summary,
    "plot_trace": az.plot_trace,
    "plot_forest": az.plot_forest,
    "plot_pair": lambda p: az.plot_pair(p, var_names=["importance"]),
    "plot_energy": az.plot_energy,
    "bfmi": az.bfmi,
    "plot_khat": lambda p: az.plot_khat(az.loo(p, pointwise=True)),
    "loo": az.loo,
    "compare": lambda p: az.compare({"one": p, "other": p}),
    "extract": az.extract,
    **RENAMED,
}
OF_HAMILTONIANS = ("plot_energy", "bfmi")
"""Their energy is of a Hamiltonian's trajectory; guides and replicates have none."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_the_functions_of_arviz_run(name, kind):
    posterior = posterior_of_kind(kind)
    if name in OF_HAMILTONIANS and kind != "nuts":
        with pytest.raises(
            (AttributeError, KeyError, TypeError, ValueError), match=r"(?i)energy|sampl"
        ):
            FUNCTIONS[name](posterior)
        return
    FUNCTIONS[name](posterior)
    plt.close("all")


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_written_by_arviz_without_a_warning(kind, tmp_path):
    posterior = posterior_of_kind(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        posterior.to_netcdf(str(tmp_path / "posterior.nc"))
        again = az.from_netcdf(str(tmp_path / "posterior.nc"))
    assert set(group_names(again)) == set(group_names(posterior))


@pytest.mark.parametrize("kind", ["guide", "nuts"])
def test_of_shared_latents_a_summary_fits_on_a_screen(kind):
    posterior = posterior_of_kind(kind)
    for group in ("posterior", "prior"):
        assert not any("row" in held.dims for held in group_of(posterior, group).values())
    shown = [f"{name}[{one}]" for name in ("slope", "mask_mean_over_rows") for one in NAMES]
    index = list(az.summary(posterior).index)
    assert len(index) == 6 and set(shown) <= set(index)
    assert set(group_of(posterior, "prior")) <= set(group_of(posterior, "posterior"))
