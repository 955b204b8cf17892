"""Draws of what all rows share: their posteriors, group by group, and the functions of ArviZ."""

import functools
import math
import warnings
from dataclasses import replace

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from pyro.infer import NUTS, Predictive
from pyro.nn import PyroModule, PyroSample
from scipy import stats
from torch import nn

from lexppl import explain, fit
from lexppl.arviz_compatibility import group_names, group_of
from lexppl.effects import imputation_particles, mask_particles
from lexppl.explanation import mask_means, selection_table
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference import MCMC
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.posterior.global_draws import SampledGuide, SamplerRecord
from lexppl.models import observe
from lexppl.models.predictor import table_predictor
from lexppl.systems import q_fit
from tests.refusals import refusals, refused
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


# What the draws of each group of a posterior are: against priors, guides and exact responses.


# The prior


def test_the_prior_is_drawn_from_the_program_and_not_from_its_guide():
    """Var y = 1 + Σ p_g x_g², with θ ~ N(0, 1) and z ~ Bernoulli(p)."""
    x = torch.tensor([[2.0, 1.0], [0.5, -2.0]])
    posterior = explain(Line(), x, torch.zeros(2), guide=guide, draws=150, seed=3)
    prior, given = (group_of(posterior, name)["slope"].values[0] for name in ("prior", "posterior"))
    bound = stats.norm.isf(FAILURE / 8)
    z = np.abs(prior.mean(0)) * math.sqrt(150), np.abs((prior**2).mean(0) - 1) * math.sqrt(75)
    assert np.max(z) < bound
    assert (np.abs(given.mean(0)) * math.sqrt(150) > bound).all()
    kept = torch.sigmoid(0.5 + 0.5 * x)
    exact = (1 + (kept * x**2).sum(-1)).numpy()
    squares = group_of(posterior, "prior_predictive")["y"].values[0].astype(float) ** 2
    error = np.abs(squares.mean(0) - exact) / (squares.std(0, ddof=1) / math.sqrt(150))
    assert error.max() < bound
    share = group_of(posterior, "prior")["importance"].values[0].mean(0)
    z = np.abs(share - kept.mean(0).numpy()) / math.sqrt(0.25 / 300)
    assert z.max() < bound


# New responses


class Response(nn.Module):
    """Two features kept by chance; what is kept moves a response of some family a little."""

    def __init__(self, family):
        super().__init__()
        self.family = family
        self.slope = nn.Parameter(torch.tensor([0.4, -0.3]))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(torch.full((len(x), 2), 0.5)).to_event(1))
            with imputation_particles():
                return observe("y", self.family((mask * x * self.slope).sum(-1)), y)


FAMILIES = {
    "normal": lambda eta: dist.Normal(eta, 1.0),
    "Poisson": lambda eta: dist.Poisson((1.0 + eta).exp()),
    "negative binomial": lambda eta: dist.NegativeBinomial(torch.tensor(4.0), logits=eta),
    "ordinal": lambda eta: dist.OrderedLogistic(eta, torch.tensor([-0.8, 0.2, 1.0])),
}
DATA_SETS = 20


def pits(family, proposals, count, draws=100):
    """The randomised PIT of each row's y among the draws of `posterior_predictive`, by data set
    `(20, N)`, and that among the first four of them alone."""
    model = Response(FAMILIES[family])
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(DATA_SETS * count, 2, generator=generator)
    with seeded(2), torch.no_grad():
        mask = torch.bernoulli(torch.full_like(x, 0.5))
        y = model.family((mask * x * model.slope).sum(-1)).sample()
    found = explain(
        fitted(model, labels=None, event_shape=(2,)), x, y, draws=draws, proposals=proposals, seed=4
    )
    drawn = group_of(found, "posterior_predictive")["y"].values[0]
    level = np.random.default_rng(5).random(len(y))
    each = []
    for some in (drawn, drawn[:4]):
        below, same = (some < y.numpy()).mean(0), (some == y.numpy()).mean(0)
        each.append((below + level * same).reshape(DATA_SETS, count))
    return each


def uniform(values):
    return sum(stats.kstest(one, "uniform").pvalue > 0.01 for one in values)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("proposals", [1, math.inf])
def test_responses_given_y_are_new_in_each_draw(family, proposals):
    own, of_four = pits(family, proposals, 30)
    assert uniform(own) >= DATA_SETS - 1
    if family == "normal":
        assert uniform(of_four) < DATA_SETS - 1


class Filled(nn.Module):
    """One feature, kept or filled in at random, and a normal response of it: y' follows the
    imputation that goes with the mask."""

    def __init__(self):
        super().__init__()
        self.one = nn.Parameter(torch.ones(()))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(torch.full((len(x), 1), 0.5)).to_event(1))
            with imputation_particles():
                fill = pyro.sample("fill", dist.Normal(torch.zeros(len(x)), 1.0))
                seen = mask[..., 0] * x[:, 0] + (1 - mask[..., 0]) * fill
                return observe("y", dist.Normal(self.one * seen, 0.5), y)


def test_new_responses_are_those_of_the_mask_and_the_imputation_that_go_with_them():
    """Of y given z = 0: fill | y ~ N(y / 1.25, 1/5), and y' ~ N(y / 1.25, 1/5 + 1/4)."""
    x, y = torch.full((100, 1), 8.0), torch.full((100,), 1.5)
    found = explain(
        fitted(Filled(), labels=None, event_shape=(1,)),
        x,
        y,
        draws=100,
        proposals=20,
        imputations=4,
    )
    assert not masks_of(found, given_y=True)["mask"].values.any()
    drawn = group_of(found, "posterior_predictive")["y"].values[0].astype(float)
    assert len(np.unique(drawn)) > 0.99 * drawn.size
    by_row = drawn.mean(0)
    z = (by_row.mean() - 1.2) / (by_row.std(ddof=1) / 10)
    squares = ((drawn - 1.2) ** 2).mean(0)
    of_squares = (squares.mean() - 0.45) / (squares.std(ddof=1) / 10)
    assert max(abs(z), abs(of_squares)) < stats.t.isf(FAILURE / 4, 99)


# A guide of the masks


class Prior(nn.Module):
    """A prior over masks that reads nothing; the selector is the guide's."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(torch.full((len(x), 3), 0.25)).to_event(1))
            with imputation_particles():
                return observe("y", dist.Normal((mask * x * self.weight).sum(-1), 1.0), y)


def selector(x, y=None):
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        pyro.sample("mask", dist.Bernoulli(logits=3 * x).to_event(1))


def relaxed_selector(x, y=None):
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        relaxed = dist.RelaxedBernoulliStraightThrough(torch.tensor(0.5), logits=3 * x)
        pyro.sample("mask", relaxed.to_event(1))


@pytest.mark.parametrize("draws", [0, 40])
def test_a_guide_of_the_masks_stands_beside_their_prior_and_is_shown(draws):
    x = torch.tensor([[2.0, 0.1, -2.0], [1.0, -0.3, -1.0]])
    posterior = explain(Prior(), x, guide=selector, draws=draws)
    stated = group_of(posterior, "sample_stats")
    assert (stated["selection_probability"] == 0.25).all()
    means = mask_means(posterior)
    np.testing.assert_allclose(means.values[0], torch.sigmoid(3 * x).numpy(), rtol=1e-6)
    assert means.attrs["source"] == "mean of the guide's distribution q(z | x)"
    table = selection_table(posterior)
    name = "mask_by_guide_selection_probability"
    np.testing.assert_allclose(table[name][["x1", "x2", "x3"]], means.values[0].mean(0), rtol=1e-6)
    if draws:
        drawn = masks_of(posterior)["mask_by_guide"].values[0]
        z = (drawn.mean(0) - means.values[0]) / np.sqrt(0.25 / draws)
        assert np.abs(z).max() < stats.norm.isf(FAILURE / 12)
    plain = explain(Prior(), x, draws=draws)
    assert "selection_probability" in selection_table(plain)
    xr.testing.assert_identical(
        group_of(plain, "predictions")["mask"], group_of(posterior, "predictions")["mask"]
    )


def test_a_guide_without_a_mean_needs_draws():
    x = torch.tensor([[2.0, 0.1, -2.0]])
    refused("mask_by_guide", explain, Prior(), x, guide=relaxed_selector, draws=0)
    means = mask_means(explain(Prior(), x, torch.ones(1), guide=relaxed_selector, draws=50))
    assert means.attrs["source"] == "mean of the draws"
    assert means.values[0, 0, 0] > 0.9 and means.values[0, 0, 2] < 0.1


# Names of dimensions


DIMS = {"slope": ["feature"]}


test_names_of_what_is_not_there_are_refused = refusals(
    ({"dims": {"slop": ["feature"]}}, r"dims names \['slop'\].* are \['slope'\]"),
    ({"dims": {"slope": "feature"}}, r"dims\['slope'\] must be 1 names"),
    ({"dims": {"slope": ["a", "b"]}}, r"dims\['slope'\] must be 1 names"),
    ({"dims": {"slope": ["row"]}}, r"none of \('chain', 'draw', 'row'\)"),
    ({"dims": {"slope": ["a"]}, "coords": {"a": ["u", "v", "w"]}}, "3 names, and .* 2"),
    ({"coords": {"b": ["u", "v"]}}, r"coords names \['b'\]"),
    ({"dims": DIMS, "coords": {"feature": ["u"]}}, "2 names; there are 1"),
    ({"coords": {"feature": ["u", "v"]}, "entry_names": ["u", "v"]}, "give one"),
    of=lambda named: explain(Line(), torch.zeros(3, 2), guide=guide, draws=2, **named),
)


def test_dims_take_the_names_of_the_entries_or_their_own():
    x = torch.zeros(3, 2)
    own = {"dims": {"slope": ["side"]}, "coords": {"side": ["left", "right"]}}
    for named, dim, names in (
        ({"dims": DIMS, "entry_names": ["u", "v"]}, "feature", ["u", "v"]),
        (own, "side", ["left", "right"]),
        ({}, "slope_dim_0", [0, 1]),
    ):
        posterior = explain(Line(), x, guide=guide, draws=2, **named)
        for group in ("posterior", "prior"):
            slope = group_of(posterior, group)["slope"]
            assert slope.dims == ("chain", "draw", dim)
            assert slope[dim].values.tolist() == names


# The ArviZ functions that a statistician types, on four kinds of fit.


NEW = az.InferenceData is xr.DataTree
ROWS_OF_TWO, NAMES = 4, ["age", "dose"]
NAMED = {"dims": {"slope": ["feature"]}, "coords": {"feature": NAMES}}


class Line(nn.Module):
    """Two features kept by chance, and a normal response of those that are."""

    def __init__(self, slope=None, logit=0.5):
        super().__init__()
        self.slope = None if slope is None else nn.Parameter(torch.tensor(slope))
        self.logit = logit

    def forward(self, x, y=None):
        slope = self.slope
        if slope is None:
            slope = pyro.sample("slope", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            logits = torch.full((len(x), 2), self.logit) + 0.5 * x
            mask = pyro.sample("mask", dist.Bernoulli(logits=logits).to_event(1))
            with imputation_particles():
                return observe("y", dist.Normal(((mask * x) * slope).sum(-1), 1.0), y)


def guide(x, y=None):
    pyro.sample("slope", dist.Normal(torch.tensor([1.0, -0.5]), 0.2).to_event(1))


@functools.cache
def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS_OF_TWO, 2, generator=generator)
    return x, x[:, 0] + torch.randn(ROWS_OF_TWO, generator=generator)


@functools.cache
def posterior_of_kind(kind):
    x, y = data()
    if kind == "guide":
        return explain(Line(), x, y, guide=guide, draws=30, **NAMED)
    if kind == "nuts":
        inference = MCMC(NUTS, samples=30, warmup=30, chains=2)
        result = fit(Line(), (x, y), inference=inference, progress=False)
        return explain(result, x, y, **NAMED)
    lines = [Line([1.0, -0.5]), Line([0.7, -0.2])]
    fits = lines[:1] if kind == "masks" else lines
    return explain(fitted(*fits, labels=None, event_shape=(2,)), x, y, draws=30, entry_names=NAMES)


KINDS = ("masks", "guide", "nuts", "replicates")

if NEW:
    RENAMED = {
        "plot_ppc": az.plot_ppc_dist,
        "plot_ppc of the prior": lambda p: az.plot_ppc_dist(p, group="prior_predictive"),
        "plot_dist_comparison": az.plot_prior_posterior,
        "plot_loo_pit": az.plot_loo_pit,
    }
else:
    RENAMED = {
        "plot_ppc": az.plot_ppc,
        "plot_ppc of the prior": lambda p: az.plot_ppc(p, group="prior"),
        "plot_dist_comparison": az.plot_dist_comparison,
        "plot_loo_pit": lambda p: az.plot_loo_pit(p, y="y"),
    }
FUNCTIONS = {
    "summary": az.summary,
    "plot_trace": az.plot_trace,
    "plot_forest": az.plot_forest,
    "plot_pair": lambda p: az.plot_pair(p, var_names=["importance"]),
    "plot_energy": az.plot_energy,
    "bfmi": az.bfmi,
    "plot_khat": lambda p: az.plot_khat(az.loo(p, pointwise=True)),
    "loo": az.loo,
    "compare": lambda p: az.compare({"one": p, "other": p}),
    "extract": az.extract,
    **RENAMED,
}
OF_HAMILTONIANS = ("plot_energy", "bfmi")
"""Their energy is of a Hamiltonian's trajectory; guides and replicates have none."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_the_functions_of_arviz_run(name, kind):
    posterior = posterior_of_kind(kind)
    if name in OF_HAMILTONIANS and kind != "nuts":
        with pytest.raises(
            (AttributeError, KeyError, TypeError, ValueError), match=r"(?i)energy|sampl"
        ):
            FUNCTIONS[name](posterior)
        return
    FUNCTIONS[name](posterior)
    plt.close("all")


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_written_by_arviz_without_a_warning(kind, tmp_path):
    posterior = posterior_of_kind(kind)
    with warnings.catch_warnings(action="error", category=UserWarning):
        posterior.to_netcdf(str(tmp_path / "posterior.nc"))
        again = az.from_netcdf(str(tmp_path / "posterior.nc"))
    assert set(group_names(again)) == set(group_names(posterior))


@pytest.mark.parametrize("kind", ["guide", "nuts"])
def test_of_shared_latents_a_summary_fits_on_a_screen(kind):
    posterior = posterior_of_kind(kind)
    for group in ("posterior", "prior"):
        assert not any("row" in held.dims for held in group_of(posterior, group).values())
    shown = [f"{name}[{one}]" for name in ("slope", "mask_mean_over_rows") for one in NAMES]
    index = list(az.summary(posterior).index)
    assert len(index) == 6 and set(shown) <= set(index)
    assert set(group_of(posterior, "prior")) <= set(group_of(posterior, "posterior"))
