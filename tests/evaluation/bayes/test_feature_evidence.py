"""Evidence that a feature is needed: closed forms of one entry, and enumeration by hand."""

import itertools
import math
import warnings
from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import NUTS
from pyro.nn import PyroModule
from scipy.special import logit, roots_hermitenorm, softmax

from lexppl.distributions import KSubset
from lexppl.effects import mask_particles
from lexppl.evaluation import feature_evidence, log_bayes_factors, mask_table
from lexppl.inference import MaskGibbs, SamplerWarning, fit
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


# Draws of masks that all rows share

NODES, WEIGHTS = roots_hermitenorm(60)  # Of a mean over N(0, 1)
SLOPES = torch.tensor([0.5, 0.0, -0.25], dtype=torch.float64)
ROWS = torch.randn(30, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
NOISE = torch.randn(30, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
RESPONSES = ROWS @ SLOPES + NOISE


class Shared(PyroModule):
    """A mask of all rows, of log-odds that have a prior or are −1, and what may weigh it."""

    def __init__(self, varies=False, factor=False):
        super().__init__()
        self.varies, self.factor = varies, factor

    def forward(self, x, y=None):
        odds = x.new_tensor(-1.0)
        if self.varies:
            odds = pyro.sample("odds", dist.Normal(odds, 1.0))
        with mask_particles():
            law = dist.Bernoulli(logits=odds.expand(3)).to_event(1)
            z = pyro.sample("mask", law)
            if self.factor:
                pyro.factor("few", -z.sum(-1))
            with pyro.plate("data", len(x), dim=-1):
                mean = ((z * SLOPES) @ x.mT).squeeze(-2)
                pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def evidence_by_hand(varies):
    """P(z_g = 1) and P(z_g = 1 | y) by all masks and a quadrature of their log-odds."""
    masks = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
    odds = NODES - 1.0 if varies else np.array([-1.0])
    of_odds = WEIGHTS / WEIGHTS.sum() if varies else np.ones(1)
    prior = of_odds @ np.exp(odds[:, None] * masks.sum(1) - 3 * np.log1p(np.exp(odds))[:, None])
    apart = RESPONSES.numpy() - masks * SLOPES.numpy() @ ROWS.numpy().T
    return prior @ masks, softmax(np.log(prior) - 0.5 * (apart**2).sum(1)) @ masks


def sampled(program, **settings):
    few = {"samples": 60, "warmup": 20, "chains": 20, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        method = MaskGibbs(NUTS, **few)
        return fit(program, (ROWS, RESPONSES), inference=method, progress=False)


@pytest.mark.parametrize("varies", [False, pytest.param(True, marks=pytest.mark.complete)])
def test_evidence_of_drawn_masks_is_that_of_all_masks(varies):
    few = {"samples": 100, "chains": 4} if varies else {}
    found = feature_evidence(sampled(Shared(varies), **few), ROWS, names=["a", "b", "c"])
    prior, posterior = evidence_by_hand(varies)
    if varies:
        assert abs(found["prior"] - prior).max() < 0.03
    else:
        np.testing.assert_allclose(found["prior"], prior, rtol=1e-6)
    apart = found["log_bayes_factor"] - (logit(posterior) - logit(prior))
    z = apart / found["log_bayes_factor_error"]
    assert abs(z).max() < 4 and found["log_bayes_factor_error"].max() < 0.6
    gain = np.log((1 - found["prior"]) / (1 - found["posterior"]))
    np.testing.assert_allclose(found["gain"], gain, rtol=1e-9)
    assert found["gain_error"].isna().all() and list(found.index) == ["a", "b", "c"]


def test_evidence_of_drawn_and_of_listed_masks_is_one_quantity():
    listed = feature_evidence(Shared(), ROWS, RESPONSES)
    drawn = feature_evidence(sampled(Shared()), ROWS)
    assert list(listed) == list(drawn) and (listed["log_bayes_factor_error"] == 0).all()
    error = drawn["log_bayes_factor_error"]
    z = (drawn["log_bayes_factor"] - listed["log_bayes_factor"]) / error
    assert abs(z).max() < 4
    # log (1 − π)/(1 − p) has the derivative p by the log-odds of p.
    z = (drawn["gain"] - listed["gain"]) / (error * drawn["posterior"])
    assert abs(z).max() < 4


def test_the_error_of_a_prior_that_varies_is_counted():
    """Rows that say nothing: the Bayes factor is 1, and what is off is within its error."""
    few = {"samples": 100, "warmup": 50, "chains": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        rows = 0 * ROWS, NOISE
        method = MaskGibbs(NUTS, **few)
        result = fit(Shared(varies=True), rows, inference=method, progress=False)
    found = feature_evidence(result, 0 * ROWS)
    assert abs(found["log_bayes_factor"] / found["log_bayes_factor_error"]).max() < 4


def test_an_entry_that_all_draws_keep_has_no_finite_evidence():
    result = sampled(Shared(), samples=4, warmup=1, chains=1)
    for guide in result.guides:
        guide.sites["mask"][:] = torch.tensor([1.0, 0.0, 1.0])
    found = feature_evidence(result, ROWS)
    assert found["log_bayes_factor"].tolist() == [math.inf, -math.inf, math.inf]
    assert np.isinf(found["log_bayes_factor_error"]).all()


def test_evidence_of_fits_that_have_none_is_refused():
    result = sampled(Shared(), samples=4, warmup=1, chains=1)
    refused("leave it out with a fit", feature_evidence, result, ROWS, RESPONSES)
    refused("give y with a program", feature_evidence, Shared(), ROWS)
    weighed = sampled(Shared(factor=True), samples=4, warmup=1, chains=1)
    refused(r"\['few'\], observed without y", feature_evidence, weighed, ROWS)
    refused("no draws of masks", feature_evidence, replace(result, guides=[None]), ROWS)
