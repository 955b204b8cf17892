"""The ArviZ functions that a statistician types, on four kinds of fit."""

import functools

import arviz as az
import pyro
import pyro.distributions as dist
import torch
import xarray as xr
from pyro.infer import NUTS
from torch import nn

from lexppl.explanation import explain
from lexppl.inference import MCMC, fit
from lexppl.models import imputation_particles, mask_particles, observe
from tests.test_explanation import fitted

NEW = az.InferenceData is xr.DataTree if hasattr(az, "InferenceData") else True
ROWS, NAMES = 12, ["age", "dose"]
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
        return explain(Line(), x, y, guide=guide, draws=60, **DIMS)
    if kind == "nuts":
        inference = MCMC(NUTS, samples=60, warmup=20, chains=2)
        result = fit(Line(), (x, y), inference=inference, progress=False)
        return explain(result, x, y, **DIMS)
    lines = [Line([1.0, -0.5]), Line([0.7, -0.2])]
    fits = lines[:1] if kind == "masks" else lines
    return explain(fitted(*fits, labels=None, event_shape=(2,)), x, y, draws=60, entry_names=NAMES)


KINDS = ("masks", "guide", "nuts", "replicates")
