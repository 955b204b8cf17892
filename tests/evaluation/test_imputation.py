"""Scores of imputers against closed forms on Gaussians, by z-scores: the true conditional scores
best, by as much as it should, and wrong ones are told from it."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from lexppl.evaluation.imputation import fair_crps, imputation
from lexppl.models import (
    ConditionalGaussianImputer,
    ConstantImputer,
    DiscretizedLogisticMixtureImputer,
    GapImputer,
    GaussianImputer,
    GaussianMixtureImputer,
    Grouping,
    MarginalImputer,
)
from tests.refusals import refusals, refused

D = 4
COVARIANCE = torch.full((D, D), 0.8, dtype=torch.float64) + 0.2 * torch.eye(D, dtype=torch.float64)
MEAN = torch.tensor([0.5, -1.0, 0.0, 2.0], dtype=torch.float64)

SHIFT = torch.tensor([0.5, -0.5, 0.5, -0.5], dtype=torch.float64)


def rows(count=400, seed=0):
    noise = torch.randn(
        count, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return MEAN + noise @ torch.linalg.cholesky(COVARIANCE).mT


def gaussians():
    return {
        "true": ConditionalGaussianImputer(MEAN, COVARIANCE),
        "alone": GaussianImputer(MEAN, torch.ones(D, dtype=torch.float64)),
        "too wide": ConditionalGaussianImputer(MEAN, 2 * COVARIANCE),
        "shifted": ConditionalGaussianImputer(MEAN + SHIFT, COVARIANCE),
    }


def conditional_variances(hidden):
    """Eigenvalues' product of the hidden features' conditional covariance, and its diagonal."""
    kept = D - hidden
    sigma = COVARIANCE.numpy()
    h, s = slice(0, hidden), slice(hidden, D)
    conditional = sigma[h, h] - sigma[h, s] @ np.linalg.solve(sigma[s, s], sigma[s, h]) * (kept > 0)
    return np.linalg.slogdet(conditional)[1], np.diag(conditional)


def test_scores_of_the_true_conditional_are_the_closed_forms():
    """E log p(x_H | x_S) = −½ (|H| (1 + log 2π) + log det Σ_{H|S}), E CRPS = σ/√π. Features are
    exchangeable, so that any |H| of them do. Four scores, each at |z| < 5."""
    found = imputation({"true": gaussians()["true"]}, rows(2000), rates=[0.25, 0.75], draws=20)
    table = found.table.loc["true"]
    for rate, hidden in ((0.25, 1), (0.75, 3)):
        log_det, variances = conditional_variances(hidden)
        score = table.loc[rate]
        expected = -0.5 * (1 + math.log(2 * math.pi) + log_det / hidden)
        z = (score["log_likelihood"] - expected) / score["log_likelihood_error"]
        assert abs(z) < 5
        expected = np.sqrt(variances).mean() / math.sqrt(math.pi)
        assert abs(score["crps"] - expected) / score["crps_error"] < 5
        # The control: what features alone would have.
        assert abs(score["crps"] - 1 / math.sqrt(math.pi)) / score["crps_error"] > 5


@pytest.mark.smoke
def test_the_true_conditional_is_the_best():
    scores = imputation(gaussians(), rows(), rates=[0.25, 0.5, 0.75], draws=50)
    worse = scores.against("true")
    assert (worse["log_likelihood_z"] < -5).all()
    assert (worse.loc[["alone", "shifted"], "crps_z"] < -5).all()
    _, variances = conditional_variances(1)
    lost = worse.loc[("shifted", 0.25)]
    # The part of the shift that the kept features, shifted too, do not explain.
    weights = np.linalg.solve(COVARIANCE.numpy()[1:, 1:], COVARIANCE.numpy()[1:, 0])
    shift = float(SHIFT[0]) - weights @ SHIFT[1:].numpy()
    expected = -(shift**2) / (2 * variances[0])
    assert abs(lost["log_likelihood"] - expected) / lost["log_likelihood_error"] < 5


def test_fair_scores_have_no_bias_whatever_the_draws():
    """CRPS of N(0, 1) at x in closed form; two draws are enough, on average. |z| < 5."""
    generator = torch.Generator().manual_seed(3)
    x = 0.7
    expected = x * (2 * stats.norm.cdf(x) - 1) + 2 * stats.norm.pdf(x) - 1 / math.sqrt(math.pi)
    numeric = integrate.quad(lambda t: (stats.norm.cdf(t) - (t >= x)) ** 2, -9, 9, points=[x])[0]
    assert expected == pytest.approx(numeric, rel=1e-6)
    for count in (2, 3, 10):
        draws = torch.randn(count, 100_000, generator=generator, dtype=torch.float64)
        found = fair_crps(draws, torch.full((100_000,), x, dtype=torch.float64))
        error = float(found.std()) / math.sqrt(100_000)
        assert abs(float(found.mean()) - expected) / error < 5
        # The control: with m² in place of m (m − 1), E|u − u'|/(2m) = 1/(m√π) too much.
        biased = float(found.mean()) + 1 / (count * math.sqrt(math.pi))
        assert abs(biased - expected) / error > 5
        pairs = (draws[:, None, :50] - draws[None, :, :50]).abs().sum((0, 1))
        direct = (draws[:, :50] - x).abs().mean(0) - pairs / (2 * count * (count - 1))
        torch.testing.assert_close(found[:50], direct)


def test_points_have_their_absolute_error_and_no_density():
    x = rows(50)
    given = {"zero": ConstantImputer(0.0).double(), "rows": MarginalImputer(rows(30, seed=1))}
    scores = imputation(given, x, rates=[0.99], draws=10)
    assert torch.isnan(scores.log_likelihood).all()
    torch.testing.assert_close(scores.crps[0, 0], x.abs().mean(-1))
    assert scores.table["crps_error"].notna().all()
    assert "log_likelihood" in scores.table


def test_probabilities_of_steps_count_as_densities():
    """A wide discretised logistic and a Gaussian mixture of the same shape are near each other; as
    log-probabilities they would be log 255 = 5.5 nats apart."""
    generator = torch.Generator().manual_seed(0)
    x = 0.5 + 0.08 * torch.randn(500, 1, 2, 2, generator=generator)
    x = (x.clamp(0, 1) * 255).round() / 255
    given = {
        "gaussian": GaussianMixtureImputer.fit(x[:300], 1, least_scale=1e-3),
        "logistic": DiscretizedLogisticMixtureImputer.fit(x[:300], 1),
    }
    scores = imputation(given, x[300:], rates=[0.5], draws=5)
    truth = -0.5 * (1 + math.log(2 * math.pi)) - math.log(0.08)
    for name in given:
        assert abs(float(scores.table.loc[(name, 0.5), "log_likelihood"]) - truth) < 0.3


def test_patches_of_images_are_hidden_whole():
    x = torch.rand(20, 2, 4, 6, generator=torch.Generator().manual_seed(0))
    patches = Grouping.patches((2, 4, 6), 2)
    seen = []

    class Watching(MarginalImputer):
        def forward(self, x, keep):
            seen.append(keep)
            return super().forward(x, keep)

    scores = imputation({"rows": Watching(x)}, x, rates=[0.5], grouping=patches, draws=3)
    hidden = ~torch.cat(seen)
    assert hidden.shape == x.shape
    whole = hidden.reshape(20, 2, 2, 2, 3, 2).float().mean((1, 3, 5))
    assert set(whole.unique().tolist()) == {0.0, 1.0}
    assert (whole.sum((1, 2)) == 3).all()
    assert scores.crps.isfinite().all()
    refused("imputer must be one of", scores.against, "b")


def test_a_seed_gives_the_same_whatever_else_is_scored():
    given = gaussians()
    state = torch.get_rng_state()
    all_of_them = imputation(given, rows(30), rates=[0.5], draws=5, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    one = imputation({"shifted": given["shifted"]}, rows(30), rates=[0.5], draws=5, seed=3)
    assert torch.equal(one.crps[0], all_of_them.crps[3])
    other = imputation({"shifted": given["shifted"]}, rows(30), rates=[0.5], draws=5, seed=4)
    assert not torch.equal(one.crps, other.crps)


test_bad_input = refusals(
    ({"imputers": {}}, "a mapping of one imputer or more"),
    ({"imputers": {"a": 3}}, TypeError, "'a' is a int, not a module"),
    ({"imputers": {"a": GapImputer()}}, "leaves hidden features missing"),
    ({"rows": torch.zeros(3)}, r"must have shape \(N, \*event\)"),
    ({"rows": torch.full((2, 1), math.nan)}, "finite; 2 of its 2 values are NaN"),
    ({"rates": []}, "give one rate or more"),
    ({"rates": [1.0]}, "a rate must"),
    ({"draws": 1}, "draws must"),
    ({"seed": -1}, "seed must"),
    of=lambda given: imputation(
        **{"imputers": {"a": GaussianImputer()}, "rows": torch.ones(3, 2)} | given
    ),
)
