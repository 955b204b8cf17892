"""A program that fits are tried with: masks by one network, labels of what they keep by another."""

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule
from torch import nn

from lexppl.effects import mask_particles
from lexppl.models import MLP

G = 3
X = torch.randn(40, G, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).float()


def coin(logits):
    return dist.Bernoulli(logits=logits).to_event(1)


class Explainer(PyroModule):
    def __init__(self):
        super().__init__()
        self.selector, self.predictor = MLP(G, G, (4,), seed=0), MLP(G, 1, (4,), seed=1)

    def law(self, x):
        return coin(self.selector(x))

    def logits(self, kept):
        return self.predictor(kept)[..., 0]

    def respond(self, mask, x, y):
        return pyro.sample("y", dist.Bernoulli(logits=self.logits(mask * x)), obs=y)

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            return self.respond(pyro.sample("mask", self.law(x)), x, y)


class Guide(nn.Module):
    """Masks given x and y."""

    def __init__(self, law=coin):
        super().__init__()
        self.network, self.law = MLP(G + 1, G, (4,), seed=2), law
        self.shift = nn.Parameter(torch.zeros(G))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            seen = torch.cat([x, y[:, None]], -1)
            pyro.sample("mask", self.law(self.network(seen) + self.shift))
