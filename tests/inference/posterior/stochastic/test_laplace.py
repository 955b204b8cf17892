"""Normal approximations: Laplace's, variational, and maxima."""

import warnings

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample

from lexppl.effects import imputation_particles, mask_particles
from lexppl.inference import NestedIWAE
from lexppl.inference.posterior.stochastic.diagonal_vi import DiagonalVI
from lexppl.inference.posterior.stochastic.ensemble import Ensemble
from lexppl.inference.posterior.stochastic.laplace import Laplace
from lexppl.weights_drawn_first import draw_weights
from tests.inference.posterior.stochastic.gaussian_rows import (
    Regression,
    SharedMask,
    against,
    mask_posterior,
    mask_rows,
    regression_posterior,
    regression_rows,
)

ROWS = regression_rows(inputs=3, rows=300, scale=10.0)
MOST_Z = 5.0


def run(method, model=None, rows=ROWS):
    found = method.run(model or Regression(3), rows, seed=0, progress=False)
    return found, {name: values.numpy() for name, values in found.samples.items()}


def conditional_sds(x):
    """Of each weight while the others stay."""
    x = x.double()
    return ((x.mT @ x).diagonal() + 0.01).rsqrt().numpy()


def test_a_dense_laplace_is_exact_where_the_posterior_is_normal():
    found, samples = run(Laplace(samples=2000, climb=50))
    z, ratio, error = against(samples["weights"], *regression_posterior(*ROWS))
    assert np.all(np.abs(z) < MOST_Z)
    assert np.all(np.abs(ratio - 1.0) < MOST_Z * error)
    assert found.sampler.name == "dense Laplace" and not found.sampler.are_chains
    assert samples["weights"].shape == (1, 2000, 3)


class Fixed(Regression):
    """With a mask that is not drawn."""

    def forward(self, x, y=None):
        draw_weights(self)
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Delta(torch.ones_like(x), event_dim=1))
            with imputation_particles():
                outputs = (mask * x * self.weights).sum(-1)
                return pyro.sample("y", dist.Normal(outputs, 1.0), obs=y)


def test_a_mask_that_is_not_drawn_is_no_sum():
    found, samples = run(Laplace(samples=1000, climb=50), Fixed(3))
    z, _, _ = against(samples["weights"], *regression_posterior(*ROWS))
    assert np.all(np.abs(z) < MOST_Z) and found.sampler.note is None


@pytest.mark.smoke
def test_its_correlations_are_there_too():
    _, samples = run(Laplace(samples=2000, climb=50))
    x = ROWS[0].double()
    covariance = (x.mT @ x + torch.eye(3) / 100.0).inverse().numpy()
    expected = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    found = np.corrcoef(samples["weights"][0].T)[0, 1]
    assert np.abs(np.arctanh(found) - np.arctanh(expected)) < MOST_Z / np.sqrt(2000 - 3)


def test_a_diagonal_laplace_has_the_sds_of_one_weight_while_the_others_stay():
    """The information is estimated from 300 rows: the relative error of a sd is √(2/300)/2."""
    found, samples = run(Laplace(samples=2000, diagonal=True, climb=200))
    ratio = samples["weights"][0].std(0) / conditional_sds(ROWS[0])
    assert np.all(np.abs(ratio - 1.0) < MOST_Z * np.sqrt(0.5 / 300 + 0.5 / 2000))
    wide = samples["weights"][0].std(0) / regression_posterior(*ROWS)[1]
    assert np.all(wide[:2] < 0.8)
    assert found.sampler.name == "diagonal Laplace"


def test_a_diagonal_laplace_says_that_it_missed_the_mode():
    with pytest.warns(UserWarning, match="posterior sds from a mode"):
        run(Laplace(samples=2, diagonal=True, climb=1))


@pytest.mark.complete
def test_masks_that_are_listed_have_a_hessian():
    """The posterior is skewed: Laplace's sds are measured, and its mode is one."""
    rows = mask_rows()
    _, samples = run(Laplace(samples=1000, climb=50), SharedMask(), rows)
    mean, sd = mask_posterior(*rows)
    both = np.stack([samples["slope"], samples["keep"]], -1)
    z, ratio, _ = against(both, mean, sd)
    assert np.all((ratio > 0.7) & (ratio < 1.2))
    assert np.all(np.abs(both.mean((0, 1)) - mean) < 0.7 * sd), z


def test_drawn_masks_have_no_dense_hessian_and_a_diagonal_one():
    rows = mask_rows(rows=60)
    with pytest.raises(ValueError, match="exact log-likelihood"):
        run(Laplace(objective=NestedIWAE(masks=3)), SharedMask(), rows)
    method = Laplace(samples=5, diagonal=True, climb=20, objective=NestedIWAE(masks=3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, _ = run(method, SharedMask(), rows)
    assert "lower bound with L = 3" in found.sampler.note


class Steep(PyroModule):
    """A log posterior without a maximum: a convex factor outgrows the prior."""

    def __init__(self):
        super().__init__()
        self.level = PyroSample(dist.Normal(0.0, 1.0))

    def forward(self, x, y=None):
        draw_weights(self)
        pyro.factor("convex", self.level.square())
        with pyro.plate("data", len(x), dim=-1), mask_particles(), imputation_particles():
            pyro.sample("y", dist.Normal(x[:, 0], 1.0), obs=y)


def test_no_maximum_is_told():
    x = torch.randn(20, 1, generator=torch.Generator().manual_seed(0))
    with pytest.raises(FloatingPointError, match="no maximum"):
        run(Laplace(samples=2, starts=1, climb=1), Steep(), (x, x[:, 0]))


@pytest.mark.complete
def test_diagonal_vi_has_the_sds_of_one_weight_while_the_others_stay():
    found, samples = run(DiagonalVI(samples=2000, steps=800, climb=100, batch_size=300, lr=0.1))
    mean, sd = regression_posterior(*ROWS)
    ratio = samples["weights"][0].std(0) / conditional_sds(ROWS[0])
    assert np.all(np.abs(ratio - 1.0) < 0.15)
    assert np.all(np.abs(samples["weights"][0].mean(0) - mean) < 0.4 * sd)
    assert found.sampler.name == "diagonal VI" and not found.sampler.are_chains


@pytest.mark.complete
def test_an_ensemble_about_one_mode_stands_at_it():
    method = Ensemble(members=5, climb=200, batch_size=300)
    found, samples = run(method)
    mean, sd = regression_posterior(*ROWS)
    assert samples["weights"].shape == (1, 5, 3)
    assert np.all(np.abs(samples["weights"] - mean) < 0.4 * sd)
    assert found.sampler.name == "deep ensemble" and not found.sampler.are_chains


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Laplace, {"samples": 0}),
        (Laplace, {"starts": 0}),
        (Laplace, {"batch_size": 0}),
        (DiagonalVI, {"lr": 0.0}),
        (DiagonalVI, {"temperature": 0.0}),
        (DiagonalVI, {"steps": 0}),
        (Ensemble, {"members": 1}),
    ],
)
def test_numbers_outside_their_range_are_refused(kind, options):
    (name,) = options
    with pytest.raises(ValueError, match=name):
        kind(**options)
