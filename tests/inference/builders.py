"""Small tables, explainers and programs that the tests of inference share."""

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample
from torch import nn

from lexppl.effects import mask_particles, penalty
from lexppl.inference import NestedIWAE, fit
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    Predictor,
)

SMALL = {"hidden": (4,), "predictor_hidden": (4,)}


def quick(model, rows, **options):
    """A fit of an epoch with two masks a row, in silence and without validation rows, but for what
    is given."""
    usual = {"objective": NestedIWAE(2), "epochs": 1, "valid": None, "progress": False}
    return fit(model, rows, **{**usual, **options})


def table(rows=60, features=3, seed=0):
    """x, and labels by the sign of its first column."""
    x = torch.randn(rows, features, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > 0).long()


def explainer(
    selector=BernoulliSelector, imputer=None, likelihood=None, *,
    features=3, outputs=2, hidden=(4,), seed=0, predictor=None, program=LEX, **options,
):  # fmt: skip
    """A small LEX whose weights do not depend on what was drawn before."""
    chosen = selector(MLP(features, features, hidden, seed=seed))
    network = MLP(features, outputs, hidden, seed=None if seed is None else seed + 1)
    predictor = predictor or Predictor(network, likelihood or CategoricalLikelihood())
    return program(chosen, ConstantImputer() if imputer is None else imputer, predictor, **options)


class Line(PyroModule):
    """y ~ N(slope · x₀, sd), with a normal prior on the slope, which is read inside the plates."""

    def __init__(self, sd=0.1):
        super().__init__()
        self.slope, self.sd = PyroSample(dist.Normal(0.0, 1.0)), sd

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            return pyro.sample("y", dist.Normal(self.slope * x[:, 0], self.sd), obs=y)


class WithPrior(PyroModule):
    """A global weight under a prior, with a penalty of its own, beside the masks of rows."""

    def __init__(self):
        super().__init__()
        self.selector = MLP(3, 3, (4,), seed=0).double()

    def forward(self, x, y=None):
        weight = pyro.sample("weight", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        penalty("of all", weight.square().sum())
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=self.selector(x)).to_event(1))
            penalty("size", 0.1 * mask.sum(-1))
            logits = (mask * x * weight).sum(-1)
            pyro.sample("y", dist.Bernoulli(logits=logits), obs=None if y is None else y.double())


class Point(PyroModule):
    """A guide of the weight: a point."""

    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.tensor([1.0, -0.5, 0.3]).double())

    def forward(self, x, y=None):
        pyro.sample("weight", dist.Delta(self.value, event_dim=1))


def same_models(one, other, **tolerances):
    """Whether two models have the same parameters."""
    for (name, mine), theirs in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=name, **tolerances)


def state_of(result):
    """All tensors of a fit."""
    modules = [m for one in result.modules for m in (one, *result.guides) if m is not None]
    return [value for m in modules for value in m.state_dict().values()]
