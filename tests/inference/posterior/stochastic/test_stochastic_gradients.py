"""Samplers by stochastic gradients, against a closed form and a grid."""

import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from lexppl import explain
from lexppl.arviz_compatibility import group_of
from lexppl.inference import NestedIWAE, fit
from lexppl.inference.posterior.stochastic import SGHMC, SGLD, Laplace
from tests.inference.posterior.stochastic.gaussian_rows import (
    Regression,
    SharedMask,
    against,
    mask_rows,
    regression_posterior,
    regression_rows,
)
from tests.refusals import refused

pytest.importorskip("posteriors", reason="the extra 'bayes' is not installed")

SAMPLERS = (SGHMC, SGLD)
SHORT = {"chains": 64, "samples": 4, "thin": 20, "warmup": 240, "climb": 100, "batch_size": 60}
"""Steps enough for three weights in scaled coordinates."""

ROWS = regression_rows(inputs=3, rows=300, scale=10.0)
MOST_Z = 5.0
BIAS = 0.1
"""What the step size may add to or take from a sd, beyond the Monte Carlo error."""


def drawn(sampler, seed=0):
    return sampler.run(Regression(3), ROWS, seed=seed, progress=False)


def far(sampler):
    """How many errors the draws' sds are off beyond the bias, and the |z| of their means."""
    samples = drawn(sampler).samples["weights"].numpy()
    z, ratio, error = against(samples, *regression_posterior(*ROWS))
    return np.max((np.abs(ratio - 1.0) - BIAS) / error), np.max(np.abs(z))


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_conjugate_posterior_in_unequal_units_is_found(sampler):
    off, z = far(sampler(**SHORT))
    assert off < MOST_Z and z < MOST_Z


@pytest.mark.complete
def test_without_the_scale_of_a_batch_it_is_not(monkeypatch):
    """A batch of 60 of 300 rows then stands for 60: sds are √5 times as large."""
    module = sys.modules["lexppl.inference.posterior.log_posterior"]
    monkeypatch.setattr(module, "MiniBatch", lambda *_: nullcontext())
    off, _ = far(SGHMC(**{**SHORT, "chains": 256}))
    assert off > MOST_Z


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_without_noise_it_is_not(sampler):
    off, _ = far(sampler(**{**SHORT, "batch_size": 300}, temperature=1e-4))
    assert off > MOST_Z


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_seed_gives_the_same_bits_and_the_global_state_stays(sampler):
    few = sampler(samples=2, chains=2, thin=3, warmup=2, climb=4)
    before = torch.random.get_rng_state()
    first, again, other = drawn(few), drawn(few), drawn(few, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first.samples["weights"], again.samples["weights"])
    assert not torch.equal(first.samples["weights"], other.samples["weights"])
    assert first.samples["weights"].shape == (2, 2, 3)
    assert first.sampler.name == few.name and first.sampler.are_chains
    for values in first.sampler.sample_stats.values():
        assert values.shape == (2, 2) and np.isfinite(values).all()


@pytest.mark.smoke
def test_a_bound_is_noted():
    few = SGHMC(samples=2, chains=2, thin=2, warmup=2, climb=2, objective=NestedIWAE(masks=3))
    found = few.run(SharedMask(), mask_rows(rows=40), seed=0, progress=False)
    assert found.sampler.name == "SGHMC" and "lower bound with L = 3" in found.sampler.note
    assert set(found.samples) == {"slope", "keep"}


@pytest.mark.filterwarnings("ignore")
def test_a_fit_by_it_is_explained_by_its_draws():
    few = SGHMC(samples=4, chains=2, thin=2, warmup=2, climb=4)
    x, y = mask_rows(rows=60)
    result = fit(SharedMask(), (x, y), inference=few, progress=False)
    posterior = explain(result, x[:5], y[:5], draws=4)
    assert result.sampler.name == "SGHMC" and result.replicates == 2
    assert group_of(posterior, "log_likelihood")["y"].shape == (2, 4, 5)


def test_a_step_too_large_for_a_batch_s_noise_is_refused():
    with pytest.raises(ValueError, match=r"lr=5.0 is too large.*at most"):
        drawn(SGHMC(samples=2, chains=2, thin=2, warmup=0, climb=2, lr=5.0, batch_size=30))


def test_a_chain_that_leaves_the_numbers_is_refused():
    wild = SGLD(samples=2, chains=2, thin=300, warmup=0, climb=2, lr=1e6, beta=0.0)
    refused("a smaller lr", drawn, wild, error=FloatingPointError)


REFUSED = {
    "no step": {"lr": 0.0},
    "no noise": {"temperature": 0.0},
    "no draws": {"samples": 0},
    "half a step": {"thin": 0.5},
    "an empty batch": {"batch_size": 0},
    "a negative noise": {"beta": -1.0},
    "no bound": {"objective": "elbo"},
}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("case", REFUSED)
def test_numbers_outside_their_range_are_refused(sampler, case):
    (name,) = REFUSED[case]
    refused(name, sampler, error=(ValueError, TypeError), **REFUSED[case])


@pytest.mark.parametrize("sampler", [SGHMC(), SGLD(), Laplace(diagonal=True)])
def test_without_the_extra_the_error_names_it(monkeypatch, sampler):
    monkeypatch.setitem(sys.modules, "posteriors", None)
    with pytest.raises(ImportError, match=r'pip install "lexppl\[bayes\]"'):
        sampler.run(Regression(3), ROWS, seed=0, progress=False)
