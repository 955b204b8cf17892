"""What the draws of each group of a posterior are: against priors, guides and exact responses."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from scipy import stats
from torch import nn

from lexppl.arviz_compatibility import group_of
from lexppl.explanation import explain, selection_table
from lexppl.explanation.reading.masks import mask_means, masks_of
from lexppl.inference.contexts import seeded
from lexppl.models import imputation_particles, mask_particles, observe
from tests.explanation.test_arviz_functions import Line, guide
from tests.refusals import refusals, refused
from tests.test_explanation import fitted

FAILURE = 1e-6


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
