"""Evidence that a feature is needed: closed forms of one entry, and enumeration by hand."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule

from lexppl.distributions import KSubset
from lexppl.effects import mask_particles
from lexppl.evaluation import feature_evidence, log_bayes_factors, mask_table
from lexppl.inference.predictive import drawing
from tests.refusals import refused

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(200, 2, generator=GENERATOR)


class Needs(PyroModule):
    """The second entry says nothing; the first does with weight w, kept with probability .6."""

    def __init__(self, weight=2.0):
        super().__init__()
        self.weight = weight

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            keep = torch.full((len(x), 2), 0.6)
            mask = pyro.sample("mask", dist.Bernoulli(keep).to_event(1))
            mean = self.weight * mask[..., 0] * x[:, 0]
            return pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


Y = 2.0 * X[:, 0] + torch.randn(200, generator=GENERATOR)


def test_bayes_factors_of_a_row_are_likelihood_ratios_of_its_entry():
    with drawing(seed=0):
        factors = log_bayes_factors(mask_table(Needs(), X, Y))
    exact = dist.Normal(2.0 * X[:, 0], 1.0).log_prob(Y) - dist.Normal(0.0, 1.0).log_prob(Y)
    torch.testing.assert_close(factors[:, 0], exact, rtol=1e-4, atol=1e-4)
    assert factors[:, 1].abs().max() < 1e-4


def test_the_gain_of_an_entry_is_the_free_program_less_the_one_without():
    found = feature_evidence(Needs(), X, Y, names=["true", "null"])
    out = dist.Normal(0.0, 1.0).log_prob(Y)
    kept = dist.Normal(2.0 * X[:, 0], 1.0).log_prob(Y)
    free = torch.logsumexp(torch.stack([kept + np.log(0.6), out + np.log(0.4)]), 0)
    gain = (free - out).double()
    assert found.loc["true", "gain"] == pytest.approx(float(gain.mean()), rel=1e-4)
    error = float(gain.std()) / np.sqrt(200)
    assert found.loc["true", "gain_error"] == pytest.approx(error, rel=1e-4)
    assert found.loc["true", "z"] > 4
    assert found.loc["null", "gain"] == pytest.approx(0.0, abs=1e-6)
    assert found.loc["true", "log_bayes_factor"] == pytest.approx(
        float((kept - out).sum()), rel=1e-4
    )
    assert found["prior"].to_numpy() == pytest.approx([0.6, 0.6])
    assert found.loc["true", "posterior"] > 0.7
    assert found.loc["null", "posterior"] == pytest.approx(0.6)


@pytest.mark.smoke
def test_a_null_entry_has_a_z_of_a_null():
    """y does not depend on x: a program that thinks so loses, and mostly not by chance."""
    z = []
    for seed in range(40):
        y = torch.randn(200, generator=torch.Generator().manual_seed(seed))
        z.append(feature_evidence(Needs(0.1), X, y)["z"].iloc[0])
    assert np.mean(z) < 0.5
    assert np.max(z) < 4


class Always(Needs):
    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", KSubset(torch.zeros(len(x), 2), k=2))
            return pyro.sample("y", dist.Normal(mask[..., 1] * x[:, 1], 1.0), obs=y)


def test_an_entry_that_is_always_kept_has_no_evidence():
    with drawing(seed=0):
        factors = log_bayes_factors(mask_table(Always(), X, Y))
    assert factors.isnan().all()


def test_what_has_no_evidence_is_refused():
    refused("2 mask entries; there are 3", feature_evidence, Needs(), X, Y, names=["a", "b", "c"])
