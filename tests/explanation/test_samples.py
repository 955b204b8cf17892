"""Programs with draws of what all rows share: by a sampler, by Predictive, by a guide."""

import math
from dataclasses import replace

import arviz as az
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Predictive
from pyro.nn import PyroModule, PyroSample
from scipy import stats
from torch import nn

from lexppl.arviz_compatibility import group_names, group_of
from lexppl.explanation import explain
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference import fit
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.posterior.global_draws import SampledGuide, SamplerRecord
from lexppl.models import imputation_particles, mask_particles, observe
from lexppl.models.predictor import table_predictor
from lexppl.systems import q_fit
from tests.refusals import refused
from tests.test_explanation import FAILURE, fitted, lex


class Sites(PyroModule):
    """y ~ N(w · (z x) + effect of the first of two sites + bias, 1), with priors on all three."""

    def __init__(self):
        super().__init__()
        self.w = PyroSample(dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        self.bias = PyroSample(dist.Normal(0.0, 1.0))

    def forward(self, x, y=None):
        w, bias = self.w, self.bias
        with pyro.plate("sites", 2):
            effect = pyro.sample("effect", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=x).to_event(1))
            with imputation_particles():
                mean = (mask * x * w).sum(-1) + effect[0] + bias
                return observe("y", dist.Normal(mean, 1.0), y)


CHAINS, SAMPLES, ROWS = 2, 6, 5
NUMBERS = torch.Generator().manual_seed(0)
BY_CHAIN = {
    "w": torch.randn(CHAINS, SAMPLES, 3, generator=NUMBERS),
    "bias": torch.randn(CHAINS, SAMPLES, generator=NUMBERS),
    "effect": torch.randn(CHAINS, SAMPLES, 2, generator=NUMBERS),
}
ONE_CHAIN = {name: values[0] for name, values in BY_CHAIN.items()}
X = torch.randn(ROWS, 3, generator=NUMBERS)
Y = torch.randn(ROWS, generator=NUMBERS)


def test_every_draw_stands_in_the_posterior_under_its_name():
    posterior = explain(Sites(), X, samples=BY_CHAIN)
    drawn = group_of(posterior, "posterior")
    # As many as there are features, and nothing says that they are theirs.
    assert drawn["w"].dims == ("chain", "draw", "w_dim_0")
    assert drawn["effect"].dims == ("chain", "draw", "sites")
    assert drawn["bias"].dims == ("chain", "draw")
    for name, values in BY_CHAIN.items():
        np.testing.assert_array_equal(drawn[name], values)
    assert group_of(posterior, "predictions")["mask"].shape == (CHAINS, SAMPLES, ROWS, 3)
    assert posterior.attrs["chains"].startswith("Markov chains")
    assert posterior.attrs["objective"] == "log posterior density, draws by the samples given"


def exact_log_likelihood(chain, draw):
    """log p(y | x, θ) with the eight masks summed out by hand, `(B,)`."""
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)
    w, bias, effect = (BY_CHAIN[name][chain, draw] for name in ("w", "bias", "effect"))
    prior = dist.Bernoulli(logits=X).to_event(1).log_prob(masks.unsqueeze(1))
    mean = (masks.unsqueeze(1) * X * w).sum(-1) + effect[0] + bias
    return torch.logsumexp(prior + dist.Normal(mean, 1.0).log_prob(Y), 0).numpy()


@pytest.mark.smoke
def test_log_likelihood_is_that_of_each_draw_with_the_masks_summed_out():
    posterior = explain(Sites(), X, Y, samples=BY_CHAIN, proposals=math.inf)
    found = group_of(posterior, "log_likelihood")["y"].values
    for chain in range(CHAINS):
        for draw in range(SAMPLES):
            np.testing.assert_allclose(
                found[chain, draw], exact_log_likelihood(chain, draw), rtol=1e-4, atol=1e-5
            )
    held_out = explain(Sites(), X, Y, samples=BY_CHAIN, proposals=math.inf, held_out=True)
    pooled = group_of(held_out, "log_likelihood")["y"].values
    assert np.ptp(pooled, axis=(0, 1)).max() < 1e-4
    np.testing.assert_allclose(pooled[0, 0], np.log(np.exp(found).mean((0, 1))), atol=1e-4)


def test_proposals_come_close_to_it():
    """z-scores over 40 copies of each row, of p(y | x, θ), which is estimated without bias."""
    copies = 40
    repeated = X.repeat_interleave(copies, 0), Y.repeat_interleave(copies)
    posterior = explain(Sites(), *repeated, samples=ONE_CHAIN, proposals=100)
    found = np.exp(group_of(posterior, "log_likelihood")["y"].values[0])
    for draw in range(SAMPLES):
        each = found[draw].reshape(ROWS, copies)
        error = each.mean(1) - np.exp(exact_log_likelihood(0, draw))
        z = error / (each.std(1, ddof=1) / math.sqrt(copies))
        assert np.abs(z).max() < stats.t.isf(FAILURE / 2 / (SAMPLES * ROWS), copies - 1)


def test_predictive_gives_samples_too():
    with seeded(0), program_settings(validate=True):
        returned = ["w", "bias", "effect", "mask", "y", "_RETURN"]
        drawn = Predictive(Sites(), ONE_CHAIN, return_sites=returned)(X)
    assert drawn["w"].shape != ONE_CHAIN["w"].shape
    posterior = explain(Sites(), X, samples=drawn)
    np.testing.assert_array_equal(group_of(posterior, "posterior")["w"].values[0], ONE_CHAIN["w"])


def shared_guide(x, y=None):
    pyro.sample("w", dist.Normal(torch.ones(3), 0.01).to_event(1))
    pyro.sample("bias", dist.Normal(0.0, 0.01))
    with pyro.plate("sites", 2):
        pyro.sample("effect", dist.Normal(torch.tensor([2.0, -2.0]), 0.01))


def test_a_guide_of_a_program_gives_each_draw_its_own_values():
    drawn = group_of(explain(Sites(), X, guide=shared_guide, draws=40), "posterior")
    for name, mean in (("w", np.ones(3)), ("bias", 0.0), ("effect", np.array([2.0, -2.0]))):
        z = (drawn[name].values[0] - mean) / 0.01
        assert np.abs(z.mean(0)).max() * math.sqrt(40) < 6.0
        assert (z.std(0) > 0.5).all() and (z.std(0) < 2.0).all()


def test_samples_beside_a_guide_of_the_masks():
    def masks(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("mask", dist.Bernoulli(torch.full((len(x), 3), 0.7)).to_event(1))

    alone, guided = (
        explain(Sites(), X, Y, samples=ONE_CHAIN, guide=guide, seed=1, proposals=4000)
        for guide in (None, masks)
    )
    found = [group_of(p, "log_likelihood")["y"].values for p in (alone, guided)]
    assert not np.array_equal(*found)
    np.testing.assert_allclose(found[0], found[1], atol=0.2)


def test_a_sampled_fit_has_its_samplers_statistics():
    values = {"diverging": np.arange(12).reshape(2, 6) > 8, "energy": np.ones((2, 6, 4))}
    sampled = replace(
        fitted(Sites(), Sites(), labels=None),
        guides=[SampledGuide({n: v[c] for n, v in BY_CHAIN.items()}) for c in range(CHAINS)],
        sampler=SamplerRecord("NUTS", are_chains=True, sample_stats=values),
    )
    told = group_of(explain(sampled, X), "sample_stats")
    np.testing.assert_array_equal(told["diverging"], values["diverging"])
    assert told["energy"].dims == ("chain", "draw", "energy_dim_0")
    thin = group_of(explain(sampled, X, draws=2), "sample_stats")
    np.testing.assert_array_equal(thin["diverging"], values["diverging"][:, ::3])
    independent = replace(sampled, sampler=SamplerRecord("Laplace", are_chains=False))
    attrs = explain(independent, X).attrs
    assert attrs["chains"] == "sets of independent draws: Laplace"


def test_a_global_importance_keeps_its_name():
    with seeded(1):
        model = table_predictor(3, 2, (4,))
    system = q_fit(3, model, scope="global")
    y = (X[:, 0] > 0).long()
    result = fit(system, (X, y), epochs=1, replicates=2, progress=False)
    posterior = explain(result, X, y, draws=5)
    drawn = group_of(posterior, "posterior")
    assert drawn["importance"].dims == ("chain", "draw", "feature")
    mask = masks_of(posterior, given_y=True)["mask"]
    np.testing.assert_allclose(drawn["importance"], mask.isel(row=0), rtol=1e-5)
    np.testing.assert_allclose(drawn["mask_importance"], mask.mean("row"), rtol=1e-5)
    assert "posterior" in group_names(explain(result, X, draws=5))


class Mean(nn.Module):
    """y ~ N(θ, 1) with θ ~ N(0, 1), whatever the mask: LOO is known in closed form."""

    def forward(self, x, y=None):
        theta = pyro.sample("theta", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("mask", dist.Bernoulli(x.new_full((len(x), 1), 0.5)).to_event(1))
            with imputation_particles():
                return observe("y", dist.Normal(theta.expand(len(x)), 1.0), y)


def elpd(posterior):
    found = az.loo(posterior)
    return float(getattr(found, "elpd_loo", getattr(found, "elpd", math.nan)))


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_loo_is_the_one_of_refits():
    """Eight estimates by exact posterior draws against the closed form; the log-density of the same
    rows, with nothing left out, is another number."""
    y = torch.randn(12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    x, n = torch.zeros(12, 1, dtype=torch.float64), len(y)
    mean, sd = float(y.sum()) / (n + 1), 1 / math.sqrt(n + 1)
    draws = mean + sd * torch.randn(8, 120, generator=NUMBERS, dtype=torch.float64)
    loo, inside = [], []
    for chain in draws:
        posterior = explain(Mean(), x, y, samples={"theta": chain}, proposals=1)
        loo.append(elpd(posterior))
        values = group_of(posterior, "log_likelihood")["y"].values[0]
        inside.append(np.log(np.exp(values).mean(0)).sum())
    others = (float(y.sum()) - y.numpy()) / n
    exact = stats.norm.logpdf(y.numpy(), others, math.sqrt(1 + 1 / n)).sum()
    error = np.std(loo, ddof=1) / math.sqrt(8)
    assert abs(np.mean(loo) - exact) / error < stats.t.isf(1e-4, 7)
    assert abs(np.mean(inside) - exact) / error > stats.t.isf(1e-4, 7)


def test_plain_fits_have_their_log_score():
    """Nothing was drawn that the rows could be left out of: the sum over rows of the log of the
    fits' mean density."""
    y = (X[:, 0] > 0).long()
    posterior = explain(fitted(lex(seed=0), lex(seed=5)), X, y, draws=30, proposals=math.inf)
    by_fit = group_of(posterior, "sample_stats")["log_evidence"].values
    score = np.log(np.exp(by_fit.astype(float)).mean(0)).sum()
    assert elpd(posterior) == pytest.approx(score, abs=1e-4)
    weighted = replace(fitted(lex(seed=0), lex(seed=5)), row_weights="dirichlet")
    each = group_of(explain(weighted, X, y, draws=30, proposals=math.inf), "log_likelihood")["y"]
    np.testing.assert_allclose(each.values[:, 0], by_fit, atol=1e-4)


UNFIT = [
    ({"samples": {**ONE_CHAIN, "v": ONE_CHAIN["w"]}}, r"the program does not sample \['v'\]"),
    (
        {"samples": {"w": ONE_CHAIN["w"]}},
        r"all rows share, \['w', 'bias', 'effect'\]; they are of \['w'\]",
    ),
    ({"samples": {}}, r"they are of \[\]"),
    (
        {"samples": {**ONE_CHAIN, "w": torch.zeros(6, 2)}},
        r"samples\['w'\] must have shape \(S, 3\), or \(C, S, 3\), .*shape is \(6, 2\)",
    ),
    ({"samples": {**ONE_CHAIN, "bias": torch.zeros(4)}}, "as many chains and draws"),
    ({"samples": {**ONE_CHAIN, "bias": BY_CHAIN["bias"]}}, "as many chains and draws"),
    ({"samples": {**ONE_CHAIN, "bias": torch.full((6,), math.nan)}}, "must be finite"),
    ({}, r"samples \['w', 'bias', 'effect'\] for all rows, and there is no guide"),
    ({"guide": lambda x, y=None: None}, "the guide does not cover them"),
    ({"samples": ONE_CHAIN, "proposals": 0}, "proposals must be"),
    ({"samples": ONE_CHAIN, "proposals": 2.5}, "proposals must be"),
]


@pytest.mark.parametrize(("given", "told"), UNFIT)
def test_what_does_not_fit_the_program_is_refused_by_name(given, told, monkeypatch):
    monkeypatch.setattr("lexppl.explanation.mask_sampler.MaskSampler.drawn", pytest.fail)
    refused(told, explain, Sites(), X, Y, **given)


def test_what_is_no_program_is_refused():
    refused("program must be a fit", explain, 3, X, error=TypeError)
    refused("program must be a fit", explain, Sites, X, error=TypeError)
    refused("samples must be a dict", explain, Sites(), X, error=TypeError, samples=[ONE_CHAIN])
    refused("guide must be a fitted guide", explain, Sites(), X, error=TypeError, guide=3)
    refused("a fit has its own", explain, fitted(lex()), X, guide=shared_guide)
    refused("all rows share, none here", explain, lex(), X, samples={"mask": torch.zeros(3, 3)})
    with pytest.raises(ValueError, match="samples are of one program, and the fit has 2"):
        explain(fitted(lex(), lex()), X, samples={"mask": torch.zeros(3, 3)})
