"""VAEAC: its objective and its bound against quadrature over the latent variable, its draws by
z-scores, and as an imputer: no gradient but that of the mask, saved and loaded, under vmap."""

import math

import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from pyro.infer import TraceMeanField_ELBO

from lexppl.inference.contexts import program_settings, seeded
from lexppl.models import MLP
from lexppl.models.imputers.vaeac import (
    VAEAC,
    ImageDecoder,
    ImageEncoder,
    TableDecoder,
    VAEACImputer,
    VAEACProposal,
    latent_distribution,
    seen_of,
)
from lexppl.models.networks import initial_weights
from tests.refusals import refused

D = 3
NODES, NODE_WEIGHTS = hermegauss(80)
KEEPS = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]).double()


def networks(latent=1):
    """With weights large enough for the prior, the proposal and the features to depend on all."""
    parts = [MLP(2 * D, 2 * latent, (8,), "tanh", seed=seed) for seed in (0, 2)]
    with initial_weights(1):
        parts.insert(1, TableDecoder(latent, D, (8,)))
    for part in parts:
        with torch.no_grad():
            for parameter in part.parameters():
                parameter.mul_(1.5)
    return tuple(part.double() for part in parts)


def imputer(features="normal", latent=1):
    return VAEACImputer(*networks(latent), (D,), features)


def rows(count=4):
    return torch.rand(count, D, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def integrals(given, x, keep, of=None):
    """By quadrature over h: log p(x_H | x_S), and E of a function of features' distributions."""
    seen = seen_of(x, keep)
    prior = latent_distribution(given.prior(seen)).base_dist
    log_terms, values = [], []
    for node, weight in zip(NODES, NODE_WEIGHTS / NODE_WEIGHTS.sum(), strict=True):
        h = prior.loc + prior.scale * node
        each = given.decode(h, seen)
        log_terms.append(
            math.log(weight) + torch.where(keep == 0, each.log_prob(x), 0).sum(-1)
            if weight > 0
            else torch.full((len(x),), -math.inf).double()
        )
        if of is not None:
            values.append(weight * of(each))
    return torch.stack(log_terms).logsumexp(0), sum(values) if of is not None else None


@pytest.mark.parametrize("features", ["normal", "pixels"])
def test_the_bound_is_unbiased_for_the_likelihood(features):
    """Of one draw, exp(bound) has the likelihood as its mean, whatever the proposal: |z| < 5."""
    given, x = imputer(features), rows()
    expected, _ = integrals(given, x, KEEPS)
    many = 20_000
    wide = [t.repeat_interleave(many, 0) for t in (x, KEEPS)]
    each = given.log_likelihood_bound(*wide, draws=1).reshape(4, many)
    ratio = (each - expected.unsqueeze(-1)).exp()
    z = (ratio.mean(-1) - 1) / (ratio.std(-1) / many**0.5)
    assert float(z.abs().max()) < 5
    assert float(ratio.std(-1).max()) < 20  # else the test could not fail
    better = given.log_likelihood_bound(x, KEEPS.bool(), draws=1000)
    torch.testing.assert_close(better, expected, rtol=0, atol=0.1)
    # The control: the likelihood of all features is another.
    everything, _ = integrals(given, x, torch.zeros_like(KEEPS))
    assert float((everything - expected)[:2].abs().max()) > 0.1


@pytest.mark.smoke
def test_draws_have_the_moments_of_the_integral():
    """Means and variances of hidden features by 20,000 draws, |z| < 5."""
    given, x = imputer(), rows()
    _, mean = integrals(given, x, KEEPS, lambda each: each.mean)
    _, second = integrals(given, x, KEEPS, lambda each: each.variance + each.mean**2)
    draws = given(x, KEEPS).expand((20_000, 4)).sample()
    hidden = KEEPS == 0
    for found, expected in ((draws, mean), (draws**2, second)):
        z = (found.mean(0) - expected) / (found.std(0) / 20_000**0.5)
        assert float(z[hidden].abs().max()) < 5
    assert torch.equal(draws[:, ~hidden], x.expand(20_000, 4, D)[:, ~hidden])


def test_the_objective_is_the_bound_given_the_masks(monkeypatch):
    """E_q[log p(x_H | h)] − KL(q ‖ p) by quadrature: |z| < 5."""
    program_file = "lexppl.models.imputers.vaeac"
    monkeypatch.setattr(f"{program_file}._masks", lambda x, grouping: KEEPS)
    prior, decoder, proposal = networks()
    x, given = rows(), imputer()
    draws = 600
    with program_settings(validate=True):
        program, guide = VAEAC(prior, decoder), VAEACProposal(proposal)
        elbo = TraceMeanField_ELBO(max_plate_nesting=1)
        losses = torch.tensor([float(elbo.loss(program, guide, x)) for _ in range(draws)])
    seen = seen_of(x, KEEPS)
    q = latent_distribution(proposal(torch.cat([x, KEEPS], 1))).base_dist
    p = latent_distribution(prior(seen)).base_dist
    divergence = torch.distributions.kl_divergence(q, p).sum()
    expected = -divergence
    for node, weight in zip(NODES, NODE_WEIGHTS / NODE_WEIGHTS.sum(), strict=True):
        each = given.decode(q.loc + q.scale * node, seen).log_prob(x)
        expected = expected + weight * torch.where(KEEPS == 0, each, 0).sum()
    expected, error = expected.detach(), float(losses.std()) / draws**0.5
    assert abs(float(losses.mean() + expected)) / error < 5
    assert float(divergence.detach()) > 10 * error  # the control


@pytest.mark.parametrize("kept", [0.0, 1.0])
def test_gradients_stop_at_the_imputer_but_for_the_mask(kept):
    given = imputer()
    x = rows().requires_grad_()
    keep = torch.full((5, 4, D), kept, dtype=torch.float64).requires_grad_()
    distribution = given(x, keep)
    with seeded(7):
        draw = distribution.hidden_distribution.rsample()
    with seeded(7):
        imputed = distribution.rsample()
    to_x, to_keep = torch.autograd.grad(imputed.sum(), (x, keep))
    torch.testing.assert_close(to_keep, (x - draw).detach())
    torch.testing.assert_close(to_x, torch.full_like(x, 5 * kept))
    assert imputed.isfinite().all()
    assert not any(p.requires_grad for p in given.parameters())
    assert not draw.requires_grad
    refused("log_likelihood_bound", distribution.log_prob, imputed, error=NotImplementedError)


def images_imputer(shape=(2, 7, 9), features="pixels"):
    channels = shape[0]
    return VAEACImputer(
        ImageEncoder(2 * channels, 6, (4, 6)),
        ImageDecoder(3, channels, 4),
        ImageEncoder(2 * channels, 6, (4, 6)),
        shape,
        features,
    )


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 7, 9), (3, 3, 2)])
def test_images_of_any_size(shape, monkeypatch):
    given = images_imputer(shape)
    x = torch.rand(5, *shape)
    keep = (torch.rand(3, 5, 1, *shape[1:]) < 0.5).expand(3, 5, *shape)
    drawn = []
    for most in (2**19, 1):
        monkeypatch.setattr("lexppl.models.imputers.vaeac.NUMBERS_AT_ONCE", most)
        with seeded(2):
            drawn.append(given(x, keep).expand((2, 3, 5)).sample())
        assert drawn[-1].shape == (2, 3, 5, *shape)
        assert torch.equal(drawn[-1][:, keep], x.expand(3, 5, *shape)[keep].expand(2, -1))
        steps = drawn[-1][:, ~keep] * 255
        torch.testing.assert_close(steps, steps.round(), rtol=0, atol=1e-4)
    assert given.log_likelihood_bound(x, keep[0], draws=3).isfinite().all()


def test_bad_features():
    prior, decoder, proposal = networks()
    refused("features must be one of", VAEAC, prior, decoder, features="binary")
    with pytest.raises(ValueError, match="features must be one of"):
        VAEACImputer(prior, decoder, proposal, (D,), features="binary")
