"""Leave-one-out scores are those of refits, and rank a true model above a wrong one."""

import warnings

import arviz as az
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl.effects import mask_particles
from lexppl.evaluation import compare_loo, loo, reloo
from lexppl.evaluation.bayes.loo import LooWarning
from lexppl.inference import NestedIWAE, Pathwise, fit
from lexppl.inference.posterior.global_draws import SampledGuide, SamplerRecord
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
from tests.refusals import refused

FEW = slice(0, 5)


def closed_form(x=X, y=Y):
    """log p(y_n | y_−n) = log p(y) − log p(y_−n), of the conjugate line."""
    every = torch.arange(len(x))
    total = evidence(x, y)
    return np.array([total - evidence(x[every != n], y[every != n]) for n in range(len(x))])


def errors_of(found):
    """Monte Carlo errors of importance sampling's own estimate of each row."""
    log_weight = -found.log_likelihood
    weight = np.exp(log_weight - log_weight.max(0))
    return weight.std(0) / weight.mean(0) / np.sqrt(len(weight))


@pytest.mark.smoke
def test_psis_equals_the_closed_form_within_its_error():
    found = loo(Line(), X, Y, draws(4000))
    assert not len(found.high)
    z = (found.pointwise - closed_form()) / errors_of(found)
    assert np.abs(z).max() < 4
    assert found.elpd == pytest.approx(found.pointwise.sum())
    assert found.error == pytest.approx(np.sqrt(8) * found.pointwise.std(ddof=1))


def test_refits_equal_the_closed_form_within_their_error():
    def refit(x, y, seed):
        return draws(4000, seed % 2**60, x, y)

    found = reloo(loo(Line(), X, Y, draws(4000)), Line(), X, Y, refit, rows=range(8))
    assert found.refitted == tuple(range(8))
    # p(y_n | θ) over the posterior of a slope: its relative sd is below 1 here.
    assert np.abs(found.pointwise - closed_form()).max() < 4 / np.sqrt(4000)
    assert np.isneginf(found.k).all()


def test_masks_are_marginal_in_what_is_left_out():
    """A program whose masks are latents of each row, and its exact evidence by listing."""
    x, y = X[FEW], Y[FEW]
    every = torch.arange(5)
    total = masked_evidence(x, y)
    exact = np.array([total - masked_evidence(x[every != n], y[every != n]) for n in range(5)])
    found = loo(MaskedLine(), x, y, masked_draws(4000, x, y))
    z = (found.pointwise - exact) / errors_of(found)
    # The draws are resampled with replacement, which adds a fortieth to their variance.
    assert np.abs(z).max() < 4

    def refit(x, y, seed):
        return masked_draws(4000, x, y, seed % 2**60)

    again = reloo(found, MaskedLine(), x, y, refit, rows=[0, 3])
    assert np.abs(again.pointwise - exact)[[0, 3]].max() < 4 / np.sqrt(4000)
    assert (again.pointwise[[1, 2, 4]] == found.pointwise[[1, 2, 4]]).all()


def test_a_variational_guide_is_weighed():
    bound = NestedIWAE(1, estimator=Pathwise())
    options = {"valid": None, "objective": bound, "epochs": 1, "progress": False}
    result = fit(Line(), (X, Y), guide=Altered(width=1.5, shift=0.3), **options)
    found = loo(result, X, Y, draws=8000)
    assert np.abs(found.pointwise - closed_form()).max() < 0.1
    # Unweighed, draws of another place are wrong by more.
    drawn = Altered(width=1.5, shift=1.5)
    mean, root = drawn.mean.detach(), drawn.root
    noise = torch.randn(8000, 2, generator=torch.Generator().manual_seed(0))
    wrong = loo(Line(), X, Y, {"slope": mean + noise @ root.T})
    assert np.abs(wrong.pointwise - closed_form()).max() > 0.3
    narrow = fit(Line(), (X, Y), guide=Altered(width=0.3), **options)
    with pytest.warns(LooWarning, match="8 of 8 rows"):
        loo(narrow, X, Y)


def test_a_samplers_draws_are_taken_as_they_are():
    options = {"valid": None, "epochs": 1, "progress": False}
    result = fit(Line(), (X, Y), guide=Altered(), objective=NestedIWAE(1), **options)
    samples = draws(1000)
    result.sampler = SamplerRecord("exact", are_chains=False)
    result.guides = [SampledGuide(samples)]
    np.testing.assert_array_equal(loo(result, X, Y).pointwise, loo(Line(), X, Y, samples).pointwise)


def test_an_outlier_is_reported_and_left_out_by_a_refit():
    y = Y.clone()
    y[2] += 8.0
    with pytest.warns(LooWarning, match="k̂ above"):
        found = loo(Line(), X, y, draws(1000, y=y))
    assert 2 in found.high

    def refit(x, y, seed):
        return draws(20_000, seed % 2**60, x, y)

    exact = closed_form(y=y)
    again = reloo(found, Line(), X, y, refit)
    assert not len(again.high)
    others = torch.arange(8) != 2
    slopes = draws(20_000, 7, X[others], y[others])["slope"]
    p = dist.Normal(slopes @ X[2], 1.0).log_prob(y[2]).double().exp()
    error = float(p.std() / p.mean()) / np.sqrt(20_000)
    assert error < 0.2
    assert abs(again.pointwise[2] - exact[2]) < 4 * error


class First(Line):
    """The wrong model: the first feature alone."""

    def forward(self, x, y=None):
        slope = self.slope
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            return pyro.sample("y", dist.Normal(x[:, 0] * slope[0], 1.0), obs=y)


def first_draws(count, seed, x, y):
    own = draws(count, seed, x[:, :1], y)["slope"]
    other = torch.randn(count, 1, generator=torch.Generator().manual_seed(seed + 1))
    return {"slope": torch.cat([own, other], -1)}


def test_arviz_reads_it_and_agrees():
    true = loo(Line(), X, Y, draws(2000))
    wrong = loo(First(), X, Y, first_draws(2000, 0, X, Y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = az.loo(true.posterior(), pointwise=True)
        table = az.compare({"true": true.posterior(), "wrong": wrong.posterior()})
    elpd = getattr(theirs, "elpd_loo", None)
    elpd = theirs.elpd if elpd is None else elpd
    assert float(elpd) == pytest.approx(true.elpd, abs=0.02)
    ours = compare_loo({"wrong": wrong, "true": true})
    assert list(ours.index) == list(table.index)
    assert ours.loc[ours.index[0], "behind"] == 0.0
    apart = true.pointwise - wrong.pointwise
    sign = 1.0 if ours.index[0] == "true" else -1.0
    assert ours["behind"].iloc[1] == pytest.approx(sign * apart.sum())
    assert ours["behind_error"].iloc[1] == pytest.approx(np.sqrt(8) * apart.std(ddof=1))


def test_what_cannot_be_left_out_is_refused():
    options = {"valid": None, "epochs": 1, "progress": False, "objective": NestedIWAE(1)}
    result = fit(Line(), (X, Y), guide=Altered(), **options)
    refused("needs posterior draws", loo, Line(), X, Y)
    refused("draws of its own", loo, result, X, Y, draws(100))
    refused(r"8 rows of the fit .valid=None.; x has 4", loo, result, X[:4], Y[:4])
    several = fit(Line, (X, Y), guide=Altered(), replicates=2, **options)
    refused("2 replicates", loo, several, X, Y)
    found = loo(Line(), X, Y, draws(200))
    with pytest.raises(ValueError, match=r"x must have shape \(8, …\), as found; .* \(4, "):
        reloo(found, Line(), X[:4], Y[:4], draws)
    with pytest.raises(ValueError, match=r"pointwise must have shape \(8,\); the shape is \(4,\)"):
        found.less(loo(Line(), X[:4], Y[:4], draws(200)))
    refused("at least one", compare_loo, {})
