"""Small tables, explainers and programs that the tests of inference share."""

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule
from torch import nn

from lexppl.effects import mask_particles, penalty
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    Predictor,
)

SMALL = {"hidden": (4,), "predictor_hidden": (4,)}


def table(rows=60, features=3, seed=0):
    """x, and labels by the sign of its first column."""
    x = torch.randn(rows, features, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > 0).long()


def explainer(
    selector=BernoulliSelector, imputer=None, likelihood=None, *,
    features=3, outputs=2, hidden=(4,), seed=0, predictor=None, **options,
):  # fmt: skip
    """A small LEX whose weights do not depend on what was drawn before."""
    chosen = selector(MLP(features, features, hidden, seed=seed))
    network = MLP(features, outputs, hidden, seed=None if seed is None else seed + 1)
    predictor = predictor or Predictor(network, likelihood or CategoricalLikelihood())
    return LEX(chosen, ConstantImputer() if imputer is None else imputer, predictor, **options)


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
