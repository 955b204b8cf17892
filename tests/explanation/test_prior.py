"""Prior and prior predictive of programs before any fit, against closed forms."""

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule

from lexppl import fit, prior
from lexppl.arviz_compatibility import group_names, group_of
from lexppl.effects import mask_particles
from tests.refusals import refused

DRAWS = 1500
X = torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, 2.0]], dtype=torch.float64)


def program(x, y=None):
    """kept ~ Beta(2, 3), z_g ~ Bernoulli(kept), y ~ N(Σ z x, 1)."""
    kept = pyro.sample("kept", dist.Beta(torch.tensor(2.0).to(x), 3.0))
    with pyro.plate("terms", 2):
        pyro.sample("slope", dist.Normal(torch.zeros((), dtype=x.dtype), 2.0))
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        z = pyro.sample("mask", dist.Bernoulli(kept.expand(3)).to_event(1))
        mean = pyro.deterministic("mean", (z * x).sum(-1), event_dim=0)
        pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def z_score(values, expected, variance):
    """Of a mean over independent draws, the first dim."""
    return abs(np.asarray(values, dtype=float).mean(0) - expected) / np.sqrt(variance / len(values))


def test_sizes_responses_and_named_values_have_their_closed_forms():
    found = prior(program, X, draws=DRAWS)
    drawn, new = group_of(found, "prior"), group_of(found, "prior_predictive")
    # E[kept] = 2/5, Var = 6 / (25 · 6) = 1/25; of three coins that share it, the size has variance
    # 3 · 6/25 + 6 Var(kept).
    assert (z_score(drawn["kept"].values[0], 0.4, 0.04) < 4).all()
    of_size = 3 * 0.24 + 6 * 0.04
    assert (z_score(drawn["size"].values[0], 1.2, of_size) < 4).all()
    assert not (z_score(drawn["size"].values[0], 1.0, of_size) < 4).any(), "the control"
    total, squares = X.sum(-1).numpy(), X.square().sum(-1).numpy()
    of_mean = 0.24 * squares + 0.04 * (total**2 - squares)
    assert (z_score(drawn["mean"].values[0], 0.4 * total, of_mean) < 4).all()
    assert (z_score(new["y"].values[0], 0.4 * total, of_mean + 1) < 4).all()
    # E[y²] has a variance of about 3 Var(y)² at most.
    second = new["y"].values[0] ** 2
    expected = of_mean + 1 + (0.4 * total) ** 2
    assert (abs(second.mean(0) - expected) < 4 * second.std(0) / np.sqrt(DRAWS)).all()
    # What is drawn together stands together.
    sums = (drawn["mask"].values[0] * X.numpy()).sum(-1)
    np.testing.assert_allclose(drawn["mean"].values[0], sums, atol=1e-6)
    assert drawn["importance"].dims == ("chain", "draw", "feature")
    stated = group_of(found, "sample_stats")["selection_probability"].values
    assert (abs(stated - 0.4) < 4 * 0.2 / np.sqrt(DRAWS)).all(), "the mean over draws of kept"


def test_groups_dims_and_coords():
    names = {"slope": ["term"]}
    refused("0 names, of the dimensions", prior, program, X, draws=2, dims=names)
    found = prior(program, X, draws=5, coords={"terms": ["a", "b"], "feature": ["p", "q", "r"]})
    assert {"prior", "prior_predictive", "sample_stats", "constant_data"} == set(group_names(found))
    drawn = group_of(found, "prior")
    assert drawn["slope"].dims == ("chain", "draw", "terms")
    assert drawn["terms"].values.tolist() == ["a", "b"]
    assert drawn["mask"].sel(feature="q").dims == ("chain", "draw", "row")
    assert drawn["mask"].shape == (1, 5, 2, 3)

    def vector(x, y=None):
        slope = pyro.sample("slope", dist.Normal(torch.zeros(3).to(x), 1.0).to_event(1))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", dist.Bernoulli(torch.full((3,), 0.5).to(x)).to_event(1))
            pyro.sample("y", dist.Normal((z * slope * x).sum(-1), 1.0), obs=y)

    found = prior(vector, X, draws=5, dims={"slope": ["feature"]}, entry_names=["p", "q", "r"])
    assert group_of(found, "prior")["slope"].sel(feature="r").shape == (1, 5)


def test_labels_have_probabilities():
    def labelled(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", dist.Bernoulli(torch.full((1,), 0.3).to(x)).to_event(1))
            # p(y = 1) is .9 where z is on, else .2.
            pyro.sample("y", dist.Bernoulli(0.2 + 0.7 * z[..., 0]), obs=y)

    found = prior(labelled, X[:, :1], draws=DRAWS)
    new = group_of(found, "prior_predictive")
    one = new["y_probability"].sel({"class": 1}).values[0]
    chance = 0.3 * 0.9 + 0.7 * 0.2
    assert (abs(one - chance) < 4 * 0.7 * np.sqrt(0.21 / DRAWS)).all()
    assert (z_score(new["y"].values[0], chance, chance * (1 - chance)) < 4).all()


def test_masks_that_rows_share():
    def shared(x, y=None):
        with mask_particles():
            z = pyro.sample("mask", dist.Bernoulli(torch.full((3,), 0.25).to(x)).to_event(1))
            kept = pyro.deterministic("kept", z.prod(-1), event_dim=0)
            with pyro.plate("data", len(x), dim=-1):
                pyro.sample("y", dist.Normal((z * x).sum(-1) + kept, 1.0), obs=y)

    found = prior(shared, X, draws=DRAWS)
    drawn = group_of(found, "prior")
    assert drawn["mask"].dims == ("chain", "draw", "feature")
    assert (z_score(drawn["mask"].values[0], 0.25, 0.1875) < 4).all()
    np.testing.assert_array_equal(drawn["kept"].values, drawn["mask"].values.prod(-1))


class Learned(PyroModule):
    def __init__(self):
        super().__init__()
        self.logit = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", dist.Bernoulli(logits=self.logit).to_event(1))
            pyro.sample("y", dist.Normal((z * x).sum(-1), 1.0), obs=y)


def test_what_has_no_prior_is_refused():
    data = (X.float(), X[:, 0].float())
    result = fit(Learned, data, epochs=1, valid=None, progress=False)
    refused("prior is of a program before a fit", prior, result, X, error=TypeError)
    bootstrap = fit(
        Learned, data, epochs=1, valid=None, progress=False, replicates=2, row_weights="dirichlet"
    ).as_draws()
    refused("before a fit", prior, bootstrap, X, error=TypeError)

    def improper(x, y=None):
        pyro.sample("base", dist.ImproperUniform(dist.constraints.real, (), ()))
        program(x, y)

    assert "improper" in str(refused("'base'", prior, improper, X))
    for words in ({"draws": -1}, {"imputations": 0}, {"seed": -1}):
        refused(next(iter(words)), prior, program, X, error=(ValueError, TypeError), **words)
