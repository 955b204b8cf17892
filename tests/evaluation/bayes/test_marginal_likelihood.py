"""The marginal likelihood by four ways is one number, and a closed form where there is one."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl.evaluation import log_marginal_likelihood
from lexppl.evaluation.bayes.marginal_likelihood import bridge
from tests.evaluation.bayes.conjugate import (
    Altered,
    Line,
    MaskedLine,
    X,
    Y,
    draws,
    evidence,
    masked_draws,
    masked_evidence,
)
from tests.refusals import refusals

FEW = slice(0, 5)


def z_of(found, exact):
    return (found.log - exact) / found.error


@pytest.mark.smoke
def test_a_conjugate_line_by_each_way():
    samples = draws(4000)
    assert abs(z_of(log_marginal_likelihood(Line(), X, Y, samples=samples), evidence())) < 4
    wide = Altered(width=1.5)
    importance = log_marginal_likelihood(Line(), X, Y, guide=wide)
    assert abs(z_of(importance, evidence())) < 4
    assert importance.k < 0.7
    nodes = log_marginal_likelihood(Line(), X, Y, samples=samples, nodes=12)
    assert nodes.log == pytest.approx(evidence(), abs=1e-4)


def test_a_conjugate_program_with_discrete_masks_by_each_way():
    exact = masked_evidence(X[FEW], Y[FEW])
    samples = masked_draws(4000, X[FEW], Y[FEW])
    nodes = log_marginal_likelihood(MaskedLine(), X[FEW], Y[FEW], samples=samples, nodes=60)
    assert nodes.log == pytest.approx(exact, abs=1e-3)
    found = log_marginal_likelihood(MaskedLine(), X[FEW], Y[FEW], samples=samples)
    assert abs(z_of(found, exact)) < 4
    assert found.error < 0.05

    def guide(x, y=None):
        pyro.sample("slope", dist.MultivariateNormal(torch.zeros(2), 1.5 * torch.eye(2)))

    listed = log_marginal_likelihood(MaskedLine(), X[FEW], Y[FEW], guide=guide)
    assert abs(z_of(listed, exact)) < 4
    drawn = log_marginal_likelihood(MaskedLine(), X[FEW], Y[FEW], guide=guide, masks=500)
    # The bound of 500 masks is lower by at most Var(w) / (2 · 500) E(w)² a row, here below .01.
    assert drawn.log - exact < 4 * drawn.error
    assert drawn.log - exact > -4 * drawn.error - 0.05


def test_a_bridge_that_has_not_settled_is_refused(monkeypatch):
    draws = torch.randn(2, 200, 1, generator=torch.Generator().manual_seed(0)).double()
    monkeypatch.setattr("lexppl.evaluation.bayes.marginal_likelihood.ROUNDS", 1)
    with pytest.raises(FloatingPointError, match="not settled in 1 rounds"):
        bridge(lambda u: -u.square().sum(-1), draws)


def test_a_bridge_counts_the_autocorrelation_of_its_chains():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4, 2000, 1, generator=generator, dtype=torch.float64)
    chain = torch.zeros_like(noise)
    chain[:, 0] = noise[:, 0]
    for t in range(1, 2000):
        chain[:, t] = 0.95 * chain[:, t - 1] + math.sqrt(1 - 0.95**2) * noise[:, t]

    def density(u):
        return -0.5 * (u**2).sum(-1)

    exact = 0.5 * math.log(2 * math.pi)
    log, error = bridge(density, chain)
    assert abs(log - exact) < 4 * error
    independent = bridge(density, noise)
    assert error > 1.5 * independent[1]


def test_errors_are_of_the_size_they_say():
    z = []
    for seed in range(40):
        samples = draws(400, seed)
        found = log_marginal_likelihood(Line(), X, Y, samples=samples, draws=400, seed=seed)
        z.append(z_of(found, evidence()))
    spread = torch.tensor(z)
    # χ² of 40 with these z would be below 14 or above 88 with a probability of 1e-4.
    assert 14 < float((spread**2).sum()) < 88


test_what_cannot_be_integrated_is_refused = refusals(
    ({}, "real numbers"),
    ({"guide": Altered(), "samples": draws(50)}, "one"),
    ({"nodes": 5}, "samples too"),
    ({"samples": {"slop": torch.zeros(50, 2)}}, "lack the program's latents"),
    ({"samples": draws(10)}, "20 draws of each chain or more"),
    ({"samples": draws(100), "nodes": 1000}, r"1000\^2 nodes exceed"),
    of=lambda given: log_marginal_likelihood(Line(), X, Y, **given),
)


def test_latents_of_rows_and_moving_supports_are_refused():
    def of_rows(x, y=None):
        with pyro.plate("data", len(x)):
            own = pyro.sample("own", dist.Normal(0.0, 1.0))
            pyro.sample("y", dist.Normal(own, 1.0), obs=y)

    def moving(x, y=None):
        top = pyro.sample("top", dist.HalfNormal(1.0))
        part = pyro.sample("part", dist.Uniform(0.0, top))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(part, 1.0), obs=y)

    at = {"own": torch.zeros(50, len(X))}
    for given in ({}, {"samples": at}):
        with pytest.raises(ValueError, match=r"'own' is outside mask_particles.*each row has"):
            log_marginal_likelihood(of_rows, X, Y, **given)
    at = {"top": torch.ones(50), "part": torch.full((50,), 0.5)}
    with pytest.raises(ValueError, match="support of 'part' depends on another latent"):
        log_marginal_likelihood(moving, X, Y, samples=at)
