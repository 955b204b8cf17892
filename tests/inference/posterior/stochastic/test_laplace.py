"""Normal approximations: Laplace's, variational, and maxima."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample

from lexppl.effects import draw_weights, imputation_particles, mask_particles
from lexppl.inference import NestedIWAE
from lexppl.inference.posterior.stochastic import DiagonalVI, Ensemble, Laplace
from tests.inference.posterior.mcmc.programs import Included
from tests.inference.posterior.stochastic.gaussian_rows import (
    Regression,
    SharedMask,
    against,
    mask_rows,
    regression_posterior,
    regression_rows,
)
from tests.refusals import refused

ROWS = regression_rows(inputs=3, rows=300, scale=10.0)
MOST_Z = 5.0


def run(method, model=None, rows=ROWS):
    found = method.run(model or Regression(3), rows, seed=0, progress=False)
    return found, {name: values.numpy() for name, values in found.samples.items()}


def conditional_sds(x):
    """Of each weight while the others stay."""
    x = x.double()
    return ((x.mT @ x).diagonal() + 0.01).rsqrt().numpy()


@pytest.mark.smoke
def test_a_dense_laplace_is_exact_where_the_posterior_is_normal():
    found, samples = run(Laplace(samples=2000, climb=50))
    z, ratio, error = against(samples["weights"], *regression_posterior(*ROWS))
    assert np.all(np.abs(z) < MOST_Z)
    assert np.all(np.abs(ratio - 1.0) < MOST_Z * error)
    assert found.sampler.name == "dense Laplace" and not found.sampler.are_chains
    assert samples["weights"].shape == (1, 2000, 3)
    x = ROWS[0].double()
    covariance = (x.mT @ x + torch.eye(3) / 100.0).inverse().numpy()
    expected = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    correlation = np.corrcoef(samples["weights"][0].T)[0, 1]
    assert np.abs(np.arctanh(correlation) - np.arctanh(expected)) < MOST_Z / np.sqrt(2000 - 3)


def test_a_diagonal_laplace_has_the_sds_of_one_weight_while_the_others_stay():
    """The information is estimated from 300 rows: the relative error of a sd is √(2/300)/2."""
    found, samples = run(Laplace(samples=2000, diagonal=True, climb=200))
    ratio = samples["weights"][0].std(0) / conditional_sds(ROWS[0])
    assert np.all(np.abs(ratio - 1.0) < MOST_Z * np.sqrt(0.5 / 300 + 0.5 / 2000))
    wide = samples["weights"][0].std(0) / regression_posterior(*ROWS)[1]
    assert np.all(wide[:2] < 0.8)
    assert found.sampler.name == "diagonal Laplace"


def test_a_diagonal_laplace_warns_where_it_missed_the_mode():
    with pytest.warns(UserWarning, match="posterior sds from a mode"):
        run(Laplace(samples=2, diagonal=True, climb=1))


@pytest.mark.filterwarnings("ignore")
def test_drawn_masks_have_no_dense_hessian_and_a_diagonal_one():
    rows = mask_rows(rows=60)
    refused("exact log-likelihood", run, Laplace(objective=NestedIWAE(masks=3)), SharedMask(), rows)
    method = Laplace(samples=5, diagonal=True, climb=20, objective=NestedIWAE(masks=3))
    found, _ = run(method, SharedMask(), rows)
    assert "lower bound with L = 3" in found.sampler.note


def whitened(samples, mode, precision):
    """Draws as they would stand about 0 with unit covariance, and how far they are from it.

    Args:
        samples: u, `(S, D)`.
        mode, precision: of the normal distribution that they shall be of.
    """
    samples = torch.as_tensor(samples, dtype=torch.float64)
    apart = (samples - mode) @ torch.linalg.cholesky(precision)
    covariance = apart.mT @ apart / len(apart)
    eye = torch.eye(len(mode), dtype=torch.float64)
    # The variance of a product is 1 of two coordinates, 2 of a square.
    z = (covariance - eye) * (len(apart) / (1.0 + eye)).sqrt()
    return float(z.abs().max()), float((apart.mean(0) * len(apart) ** 0.5).abs().max())


def mode_of(log_joint, start):
    """A mode by Newton's method and the precision there, of a density written out in float64."""
    place = start.double()
    for _ in range(30):
        gradient = torch.func.grad(log_joint)(place)
        precision = -torch.autograd.functional.hessian(log_joint, place)
        place = place + torch.linalg.solve(precision, gradient)
    return place, precision


def included_log_joint(x, y):
    """log p(y, β, logit π) of :class:`Included`, the four masks of a row listed by hand."""
    x, y = x.double(), y.double()
    masks = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)

    def log_joint(place):
        slope, level = place
        sigmoid = torch.nn.functional.logsigmoid
        log_mask = masks * sigmoid(x + level)[:, None] + (1 - masks) * sigmoid(-x - level)[:, None]
        apart = y[:, None] - slope * (masks * x[:, None]).sum(-1)
        each = torch.logsumexp(log_mask.sum(-1) - apart**2 / 2, -1)
        prior = -(slope**2) / 8 + 2 * sigmoid(level) + 3 * sigmoid(-level)
        return each.sum() + prior

    return log_joint


def included_rows(rows=150):
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(rows, 2, generator=draw)
    kept = (torch.rand(rows, 2, generator=draw) < torch.sigmoid(x + 0.5)).float()
    return x, 1.5 * (kept * x).sum(-1) + torch.randn(rows, generator=draw)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_inclusion_rate_that_is_inferred_has_a_hessian(dtype):
    x, y = (column.to(dtype) for column in included_rows())
    mode, precision = mode_of(included_log_joint(x, y), torch.tensor([1.5, 0.5]))
    method = Laplace(samples=4000, starts=1, climb=30)
    found, _ = run(method, Included().to(dtype), (x, y))
    rate = found.samples["selector.rate"]
    draws = torch.stack([found.samples["slope"], rate.logit()], -1)[0]
    of_covariance, of_mean = whitened(draws, mode, precision)
    assert of_covariance < MOST_Z and of_mean < MOST_Z
    # Another prior on the rate, or no correlation, would be seen.
    assert whitened(draws, mode, precision.diagonal().diag())[0] > MOST_Z
    # The second derivative of the prior alone, which the diagonal has, needs no other.
    diagonal = Laplace(samples=2, diagonal=True, starts=1, climb=1)
    assert run(diagonal, Included().to(dtype), (x, y))[0].chains == 1


class Logistic(Regression):
    """y ~ Bernoulli(σ(w · x)), w ~ N(0, 10²)."""

    def forward(self, x, y=None):
        draw_weights(self)
        with pyro.plate("data", len(x), dim=-1), mask_particles(), imputation_particles():
            outputs = (x * self.weights).sum(-1)
            return pyro.sample("y", dist.Bernoulli(logits=outputs), obs=y)


def test_a_logistic_regression_has_the_hessian_written_by_hand():
    """`Xᵀ diag(p (1 − p)) X + 1/100`, of columns in units a hundred times apart."""
    x, _ = regression_rows(inputs=3, rows=300, scale=100.0)
    draw = torch.Generator().manual_seed(4)
    truth = torch.tensor([1.0, -0.5, 1e-2])
    y = (torch.rand(300, generator=draw) < torch.sigmoid(x @ truth)).float()
    _, samples = run(Laplace(samples=4000, starts=2, climb=100), Logistic(3), (x, y))
    place, wide = truth.double(), x.double()
    for _ in range(30):
        p = torch.sigmoid(wide @ place)
        precision = wide.mT @ (wide * (p * (1 - p))[:, None]) + torch.eye(3).double() / 100
        place = place + torch.linalg.solve(precision, wide.mT @ (y - p) - place / 100)
    of_covariance, of_mean = whitened(samples["weights"][0], place, precision)
    assert of_covariance < MOST_Z and of_mean < MOST_Z
    assert whitened(samples["weights"][0], place, 1.2 * precision)[0] > MOST_Z


def test_columns_that_are_nearly_one_have_their_sds_at_float32():
    """Correlated by 1 − 2e-7: what float32 leaves of their precision is positive, and near it."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 1, generator=generator)
    x = torch.cat([x, x * (1 + 1e-3 * torch.randn(200, 1, generator=generator))], 1)
    y = x.sum(-1) + torch.randn(200, generator=generator)
    _, samples = run(Laplace(samples=500, starts=1, climb=50), Regression(2), (x, y))
    sd = regression_posterior(x, y)[1]
    ratio = samples["weights"][0].std(0) / sd
    assert np.all(np.abs(ratio - 1.0) < 0.2)


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


def test_no_maximum_is_refused():
    x = torch.randn(20, 1, generator=torch.Generator().manual_seed(0))
    with pytest.raises(FloatingPointError, match="no maximum"):
        run(Laplace(samples=2, starts=1, climb=1), Steep(), (x, x[:, 0]))


@pytest.mark.complete
@pytest.mark.parametrize(
    ("method", "name"),
    [
        (DiagonalVI(samples=2000, steps=800, climb=100, batch_size=300, lr=0.1), "diagonal VI"),
        (Ensemble(members=5, climb=200, batch_size=300), "deep ensemble"),
    ],
)
def test_vi_and_an_ensemble_stand_at_the_mode(method, name):
    found, samples = run(method)
    mean, sd = regression_posterior(*ROWS)
    assert found.sampler.name == name and not found.sampler.are_chains
    assert np.all(np.abs(samples["weights"][0].mean(0) - mean) < 0.4 * sd)
    if name == "diagonal VI":
        ratio = samples["weights"][0].std(0) / conditional_sds(ROWS[0])
        assert np.all(np.abs(ratio - 1.0) < 0.15)
    else:
        assert np.all(np.abs(samples["weights"] - mean) < 0.4 * sd)


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
    refused(name, kind, **options)
