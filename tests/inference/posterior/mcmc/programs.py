"""Small programs with global latents, and their posteriors by other means."""

import math
from itertools import combinations, product
from types import MappingProxyType

import arviz
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample

from lexppl.distributions import KSubset
from lexppl.effects import imputation_particles, mask_particles

G = 3


def rows(count=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, G, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] + 0.5 * x[:, 1] > 0).double()


class Weighted(PyroModule):
    """y ~ Bernoulli(logit = w Σ_g z_g x_g); w has a prior, and with `scaled` that a scale.

    Masks keep one of three features (`subset`), or each by itself. Others derive from it, with
    another use of the weight, or law of y.
    """

    infer = MappingProxyType({})

    def __init__(self, subset=True, scaled=False):
        super().__init__()
        self.subset, self.scaled = subset, scaled
        if scaled:
            self.scale = PyroSample(dist.HalfNormal(torch.tensor(2.0, dtype=torch.float64)))
            self.weight = PyroSample(lambda self: dist.Normal(0.0, self.scale))
        else:
            self.weight = PyroSample(dist.Normal(torch.zeros((), dtype=torch.float64), 2.0))
        self.register_buffer("logits", torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64))

    def law(self):
        if self.subset:
            return KSubset(self.logits, 1)
        return dist.Bernoulli(logits=self.logits).to_event(1)

    def used(self):
        return self.weight

    def response(self, weight, kept):
        return dist.Bernoulli(logits=(weight * kept).sum(-1))

    def forward(self, x, y=None):
        weight = self.used()
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", self.law(), infer=dict(self.infer))
            with imputation_particles():
                return pyro.sample("y", self.response(weight, mask * x), obs=y)


def masks_of(program):
    """All masks with their log-probabilities, listed by hand."""
    logits = program.logits
    if program.subset:
        masks = [[float(g in kept) for g in range(G)] for kept in combinations(range(G), 1)]
        return torch.tensor(masks, dtype=torch.float64), torch.log_softmax(logits, 0)
    masks = torch.tensor(list(product([0.0, 1.0], repeat=G)), dtype=torch.float64)
    log_p = masks * torch.nn.functional.logsigmoid(logits)
    log_p = log_p + (1 - masks) * torch.nn.functional.logsigmoid(-logits)
    return masks, log_p.sum(-1)


def log_likelihood(program, weight, x, y):
    """`Σ_n log p(y_n | x_n, w)` for weights `(W,)`, by a sum over masks written out."""
    masks, log_p = masks_of(program)
    logits = weight[:, None, None] * (x @ masks.T)
    log_y = dist.Bernoulli(logits=logits).log_prob(y[:, None].expand(len(x), len(masks)))
    return torch.logsumexp(log_p + log_y, -1).sum(-1)


def log_likelihood_at_mean(program, weight, x, y):
    """The same with the mean of the masks in their place, which is another likelihood."""
    masks, log_p = masks_of(program)
    logits = weight[:, None] * (x @ (log_p.exp()[:, None] * masks).sum(0))
    return dist.Bernoulli(logits=logits).log_prob(y).sum(-1)


def mean_on_grid(values, log_density):
    """The mean of a quantity under a density given at the points of an even grid."""
    weight = torch.softmax(log_density.flatten(), 0)
    return float((weight * values.flatten()).sum())


def z_score(draws, mean):
    """How far the mean of draws `(C, S)` is from a number, in its own standard errors.

    Args:
        draws: of several chains.
        mean: what it is compared with.
    """
    draws = np.asarray(draws)
    size = float(arviz.ess({"v": draws}, method="mean")["v"])
    return float((draws.mean() - mean) / (draws.std() / math.sqrt(size)))
