"""Programs whose posterior is known, and how draws are held against it."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample

from lexppl.effects import draw_weights, imputation_particles, mask_particles


class Regression(PyroModule):
    """y ~ N(w · x, 1), w ~ N(0, 10²)."""

    def __init__(self, inputs):
        super().__init__()
        prior = dist.Normal(torch.zeros(inputs), 10.0).to_event(1)
        self.weights = PyroSample(prior)

    def forward(self, x, y=None):
        draw_weights(self)
        with pyro.plate("data", len(x), dim=-1), mask_particles(), imputation_particles():
            return pyro.sample("y", dist.Normal((x * self.weights).sum(-1), 1.0), obs=y)


def regression_rows(inputs=4, rows=300, seed=1, scale=50.0):
    """Rows with two correlated columns and one in another unit."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs, generator=draw)
    x[:, 1] = 0.8 * x[:, 0] + 0.6 * x[:, 1]
    x[:, 2] *= scale
    y = x @ torch.tensor([1.0, -0.5, 1.0 / scale, 2.0])[:inputs]
    return x, y + torch.randn(rows, generator=draw)


def regression_posterior(x, y):
    """Mean and sd of the weights, in closed form."""
    x, y = x.double(), y.double()
    covariance = (x.mT @ x + torch.eye(x.shape[1]) / 100.0).inverse()
    return (covariance @ (x.mT @ y)).numpy(), covariance.diagonal().sqrt().numpy()


class SharedMask(PyroModule):
    """A logistic explainer of three entries: z_i ~ Bernoulli(σ(γ)), y ~ Bernoulli(σ(β z · x))."""

    def __init__(self):
        super().__init__()
        self.slope = PyroSample(dist.Normal(0.0, 2.0))
        self.keep = PyroSample(dist.Normal(0.0, 1.5))

    def forward(self, x, y=None):
        draw_weights(self)
        with pyro.plate("data", len(x), dim=-1):
            law = dist.Bernoulli(logits=self.keep.expand(len(x), 3)).to_event(1)
            with mask_particles():
                kept = pyro.sample("mask", law) * x
                with imputation_particles():
                    outputs = self.slope * kept.sum(-1)
                    return pyro.sample("y", dist.Bernoulli(logits=outputs), obs=y)


def mask_rows(rows=400, seed=2):
    """Rows of that explainer at β = 2, γ = 1."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=draw)
    kept = (torch.rand(rows, 3, generator=draw) < torch.sigmoid(torch.tensor(1.0))).float()
    y = (torch.rand(rows, generator=draw) < torch.sigmoid(2.0 * (kept * x).sum(-1))).float()
    return x, y


def against(samples, mean, sd):
    """How draws stand to a posterior: z of their mean, and the sd ratio with its standard error.

    Args:
        samples: `(C, S, D)`, C independent chains, from whose differences the errors are told; of
            one chain its S draws are taken for independent.
        mean, sd: of the posterior, `(D,)`.
    """
    scaled = (np.asarray(samples, float) - mean) / sd
    if len(scaled) == 1:
        scaled = scaled.swapaxes(0, 1)
    chains = len(scaled)
    means = scaled.mean(1)
    z = means.mean(0) / (means.std(0, ddof=1) / math.sqrt(chains))
    squares = (scaled**2).mean(1)
    ratio = np.sqrt(squares.mean(0))
    error = squares.std(0, ddof=1) / math.sqrt(chains) / (2.0 * ratio)
    return z, ratio, error
