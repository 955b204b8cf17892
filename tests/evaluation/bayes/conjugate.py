"""A linear program with masks whose posterior and evidence are known."""

import itertools

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample
from torch import nn

from lexppl.effects import mask_particles

X = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
Y = X @ torch.tensor([1.0, -1.0]) + torch.randn(8, generator=torch.Generator().manual_seed(1))


class Line(PyroModule):
    """y ~ N(x·slope, 1), slope ~ N(0, 1)."""

    def __init__(self, features=2):
        super().__init__()
        self.slope = PyroSample(dist.Normal(0.0, 1.0).expand([features]).to_event(1))

    def forward(self, x, y=None):
        slope = self.slope
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            return pyro.sample("y", dist.Normal(x @ slope, 1.0), obs=y)


class MaskedLine(Line):
    """The same of the features that each row's own mask keeps, each with probability .3."""

    def forward(self, x, y=None):
        slope = self.slope
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            keep = torch.full(tuple(x.shape), 0.3)
            mask = pyro.sample("mask", dist.Bernoulli(keep).to_event(1))
            return pyro.sample("y", dist.Normal((mask * x) @ slope, 1.0), obs=y)


def moments(x=X, y=Y):
    """Mean and covariance of the slope under :class:`Line`."""
    precision = torch.eye(x.shape[1]) + x.T @ x
    return torch.linalg.solve(precision, x.T @ y), torch.linalg.inv(precision)


def evidence(x=X, y=Y):
    """log p(y | x) under :class:`Line`."""
    covariance = torch.eye(len(x)) + x @ x.T
    return float(dist.MultivariateNormal(torch.zeros(len(x)), covariance).log_prob(y))


def draws(count, seed=0, x=X, y=Y):
    """Of the slope's posterior under :class:`Line`."""
    mean, covariance = moments(x, y)
    noise = torch.randn(count, x.shape[1], generator=torch.Generator().manual_seed(seed))
    return {"slope": mean + noise @ torch.linalg.cholesky(covariance).T}


class Altered(PyroModule):
    """A guide: the exact posterior of :class:`Line` with another width and place."""

    def __init__(self, width=1.0, shift=0.0):
        super().__init__()
        mean, covariance = moments()
        root = torch.linalg.cholesky(covariance)
        self.root = width * root
        self.mean = mean + shift * root.sum(-1)
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, x, y=None):
        mean = self.mean + 0.0 * self.unused
        pyro.sample("slope", dist.MultivariateNormal(mean, scale_tril=self.root))


def masked_evidence(x, y):
    """log p(y | x) under :class:`MaskedLine`: given the masks of all rows, which are listed
    jointly, the line is conjugate."""
    total = []
    each = [torch.tensor(m) for m in itertools.product((0.0, 1.0), repeat=2)]
    for masks in itertools.product(each, repeat=len(x)):
        z = torch.stack(masks)
        total.append(float(dist.Bernoulli(0.3).log_prob(z).sum()) + evidence(z * x, y))
    return float(torch.logsumexp(torch.tensor(total, dtype=torch.float64), 0))


def masked_draws(count, x, y, seed=5):
    """Of the slope's posterior under :class:`MaskedLine`: resampled from forty times as many draws
    of its prior."""
    prior = dist.Normal(torch.zeros(2), torch.ones(2)).to_event(1)
    masks = torch.tensor(list(itertools.product((0.0, 1.0), repeat=2)))
    weight_of_mask = dist.Bernoulli(0.3).log_prob(masks).sum(-1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        proposed = prior.sample((40 * count,))
        mean = torch.einsum("mg,bg,sg->msb", masks, x, proposed)
        rows = dist.Normal(mean, 1.0).log_prob(y) + weight_of_mask[:, None, None]
        log_weight = torch.logsumexp(rows, 0).sum(-1)
        chosen = torch.multinomial(log_weight.softmax(0), count, replacement=True)
    return {"slope": proposed[chosen]}
