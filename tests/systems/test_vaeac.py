"""VAEAC fitted to rows: near the true conditional, far from features alone, and on images."""

import pytest
import torch

from lexppl.evaluation import imputation
from lexppl.models import ConditionalGaussianImputer, GaussianImputer, Grouping
from lexppl.systems import fit_vaeac
from tests.refusals import refusals

D = 3
COVARIANCE = torch.full((D, D), 0.9) + 0.1 * torch.eye(D)


def rows(count):
    noise = torch.randn(count, D, generator=torch.Generator().manual_seed(0))
    return noise @ torch.linalg.cholesky(COVARIANCE).mT


@pytest.mark.complete
def test_a_fit_comes_near_the_true_conditional():
    x = rows(1200)
    state = torch.get_rng_state()
    given = {
        "vaeac": fit_vaeac(x[:800], latent=2, width=32, epochs=45, batch_size=50, seed=1),
        "true": ConditionalGaussianImputer(torch.zeros(D), COVARIANCE),
        "alone": GaussianImputer(),
    }
    assert torch.equal(torch.get_rng_state(), state)
    scores = imputation(given, x[800:], rates=[0.3, 0.7], draws=20)
    lost = scores.against("true").loc["vaeac"]
    assert (lost["log_likelihood"] > -0.15).all()
    assert (lost["log_likelihood"] < 5 * lost["log_likelihood_error"]).all()
    gained = scores.against("alone").loc["vaeac"]
    assert (gained[["log_likelihood_z", "crps_z"]] > 10).all(None)


@pytest.mark.complete
def test_images_are_fitted_and_what_is_seen_tells_the_rest():
    generator = torch.Generator().manual_seed(0)
    bright = torch.rand(300, generator=generator) < 0.5
    x = torch.where(bright[:, None, None, None], 0.8, 0.1).expand(300, 1, 4, 4)
    x = (x + 0.1 * torch.rand(300, 1, 4, 4, generator=generator)).clamp(0, 1)
    imputer = fit_vaeac(x[:200], latent=2, width=4, epochs=25, batch_size=20, learning_rate=1e-2)
    keep = torch.zeros(1, 4, 4)
    keep[:, :2] = 1
    hidden = imputer(x[200:], keep).sample()[:, :, 2:].mean((1, 2, 3))
    assert ((hidden > 0.5) == bright[200:]).float().mean() > 0.95


@pytest.mark.smoke
def test_the_same_seed_gives_the_same_bits_and_groups_are_taken():
    x = rows(60)
    options = {"latent": 2, "width": 4, "epochs": 1, "grouping": Grouping([0, 0, 1])}
    first, again = fit_vaeac(x, **options), fit_vaeac(x, **options)
    other = fit_vaeac(x, **options, seed=1)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    assert not torch.equal(first.prior.layers[0].weight, other.prior.layers[0].weight)


test_bad_input = refusals(
    (torch.zeros(5, 2, 2), {}, r"x must have shape \(N, D\), or \(N, C, H, W\)"),
    (torch.zeros(1, 2), {}, "at least 2 rows"),
    (255 * torch.ones(5, 1, 4, 4), {}, "Divide by 255"),
    (torch.zeros(5, 2), {"latent": 0}, "latent must be"),
    (torch.zeros(5, 2), {"features": "binary"}, "features must be one of"),
    of=lambda x, options: fit_vaeac(x, **options),
)
