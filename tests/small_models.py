"""Small tables, explainers, programs and fits of them, which the tests share."""

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample
from torch import nn

from lexppl.distributions import KSubset
from lexppl.effects import imputation_particles, mask_particles, penalty
from lexppl.inference import NestedIWAE, fit
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    GaussianImputer,
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


class OwnExplainer(PyroModule):
    """README's program of a user's own, and how its labels are made of what it is given."""

    def __init__(self, features=3, classes=2, k=2, make=lambda y: y, law=None):
        super().__init__()
        self.selector = MLP(features, features, (4,))
        self.predictor = MLP(features, classes, (4,))
        self.imputer, self.k, self.make, self.law = GaussianImputer(), k, make, law

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", KSubset(self.selector(x), k=self.k))
            with imputation_particles():
                x_imputed = pyro.sample("x_imputed", self.imputer(x, mask))
                outputs = self.predictor(x_imputed)
                law = self.law(outputs) if self.law else dist.Categorical(logits=outputs)
                return pyro.sample("y", law, obs=None if y is None else self.make(y))


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


class Taking(PyroModule):
    """A program that takes some of the rows it is given, or of those it knows."""

    def __init__(self, known=None):
        super().__init__()
        self.known = known
        self.logits = nn.Parameter(torch.tensor(0.4))

    def forward(self, x, y=None):
        size = len(x) if self.known is None else self.known
        with pyro.plate("data", size, subsample_size=2, dim=-1) as index, mask_particles():
            distribution = dist.Bernoulli(logits=self.logits.expand(1)).to_event(1)
            mask = pyro.sample("mask", distribution)[..., 0]
            rows = index if self.known is None else index % len(x)
            pyro.sample("y", dist.Bernoulli(logits=mask * x[rows, 0]), obs=y[rows].to(x))


class Partial(PyroModule):
    """A partial likelihood of all rows at once."""

    def __init__(self, features=2):
        super().__init__()
        self.selector, self.risk = MLP(features, features, (4,)), MLP(features, 1, (4,))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=self.selector(x)).to_event(1))
            risk = self.risk(mask * x).squeeze(-1)
        if y is not None:
            order = y.argsort(descending=True)
            risk = risk[..., order]
            with mask_particles():
                fit_ = (risk - risk.logcumsumexp(-1)).sum(-1, keepdim=True)
                pyro.factor("partial", fit_)


class OneLog(Partial):
    """All rows in one log."""

    def forward(self, x, y=None):
        with mask_particles(), pyro.plate("data", len(x), dim=-1):
            mask = pyro.sample("mask", dist.Bernoulli(logits=self.selector(x)).to_event(1))
            pyro.sample("y", dist.Bernoulli(logits=(mask * x).sum(-1)), obs=y.to(x))


def same_models(one, other, **tolerances):
    """Whether two models have the same parameters."""
    for (name, mine), theirs in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=name, **tolerances)


def state_of(result):
    """All tensors of a fit."""
    modules = [m for one in result.modules for m in (one, *result.guides) if m is not None]
    return [value for m in modules for value in m.state_dict().values()]
