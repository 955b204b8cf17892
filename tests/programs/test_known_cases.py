"""Programs of a statistician that were silently wrong, crashed, or were refused for no reason."""

import itertools
import math
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule

from lexppl import explain, fit
from lexppl.effects import mask_particles
from lexppl.evaluation import feature_evidence, log_marginal_likelihood, predictive
from lexppl.explanation import draws, read_mask
from lexppl.explanation.given_program import as_fitted
from lexppl.inference import MCMC, Enumerate, NestedIWAE
from tests.programs.odd_check import raised_by_lexppl


def every_mask(entries):
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=entries))).double()


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def coin(entries, chance=0.5):
    return dist.Bernoulli(torch.full((entries,), chance).double()).to_event(1)


def half():
    return dist.Bernoulli(torch.tensor(0.5).double())


def log_of_all(program, x, y):
    """log p(y and all else observed) by the bound of all masks."""
    return -NestedIWAE(math.inf, estimator=Enumerate()).loss(program, None, x, y)


def require_masks(found, name, exact, draws):
    """Draws of masks of all rows or of groups within four standard errors of p(z | x, y)."""
    drawn = np.asarray(found["posterior"][name].values, dtype=float).reshape(draws, -1).mean(0)
    error = (exact * (1 - exact) / draws).clamp(min=0.0).sqrt().numpy() + 1e-3
    assert (np.abs(drawn - exact.numpy()) <= 4 * error).all(), (drawn, exact)


def require_all(program, x, y, log_joint, masks, draws=1000):
    """Bound, evidence and posterior, where nothing but y is observed."""
    exact = log_joint.logsumexp(0).item()
    assert log_of_all(program, x, y) == pytest.approx(exact, abs=1e-8)
    assert log_marginal_likelihood(program, x, y).log == pytest.approx(exact, abs=1e-8)
    found = explain(program, x, y, draws=draws, proposals=math.inf)
    require_masks(found, "mask", log_joint.softmax(0) @ masks, draws)


def raised(sites, call):
    """The words of our refusal of a call, by a site's name."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert raised_by_lexppl(caught.value), caught.value
    assert any(f"'{site}'" in str(caught.value) for site in sites), caught.value
    return str(caught.value)


class Neighbours(PyroModule):
    """Rows that see one another's masks, with a number to learn: a fit refuses them as well."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()).double())

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", coin(1))
            z = z.expand(*z.shape[:-2], len(x), 1)
            mean = (z.roll(1, -2) * z * self.scale * x).sum(-1)
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def test_a_fit_refuses_rows_that_see_their_neighbours_masks():
    rows = normal(4, 1), normal(4, seed=1)
    raised(("mask", "y"), lambda: fit(Neighbours(), rows, epochs=1, progress=False))


def improper(x, y=None):
    prior = dist.ImproperUniform(dist.constraints.real, (), ())
    intercept = pyro.sample("intercept", prior)
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        z = pyro.sample("mask", coin(2))
        pyro.sample("y", dist.Normal(intercept + (z * x).sum(-1), 1.0), obs=y)


def conditioned_loss(x, y):
    given = pyro.condition(improper, {"intercept": torch.tensor(0.0).double()})
    return NestedIWAE(4).loss(given, None, x, y)


def sampled(x, y):
    sampler = MCMC(samples=5, warmup=5, chains=1)
    return fit(improper, (x, y), inference=sampler, progress=False)


def bridge(x, y):
    return log_marginal_likelihood(improper, x, y, samples={"intercept": normal(9)})


@pytest.mark.parametrize("call", [conditioned_loss, sampled, bridge])
def test_an_improper_prior_is_refused_by_its_name(call):
    said = raised(("intercept",), lambda: call(normal(8, 2), normal(8, seed=1)))
    assert "improper" in said


CHANCES = torch.tensor([0.3, 0.6, 0.4]).double()


def log_chance(masks, chances=CHANCES):
    return torch.where(masks > 0, chances, 1 - chances).log().sum(-1)


def test_features_in_a_plate_to_the_left_are_entries_of_a_mask():
    x, y = normal(6, 3), normal(6, seed=1)

    def program(x, y=None):
        with mask_particles():
            with pyro.plate("features", 3, dim=-4):
                z = pyro.sample("mask", dist.Bernoulli(CHANCES[:, None, None, None]))
            with pyro.plate("patients", len(x), dim=-1):
                mean = (z * x.T[:, None, None]).sum(-4)
                pyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    masks = every_mask(3)
    log_y = torch.stack([dist.Normal(x @ z, 1.0).log_prob(y).sum() for z in masks])
    require_all(program, x, y, log_y + log_chance(masks), masks)
    found = explain(program, x, y, coords={"features": ["age", "height", "weight"]})
    assert found["posterior"]["mask"].dims == ("chain", "draw", "features")
    prior = found["sample_stats"]["selection_probability"]
    np.testing.assert_allclose(prior.sel(features="height"), 0.6)


@pytest.mark.parametrize("plate", [None, "hospitals"])
def test_features_in_a_plate_to_the_left_of_rows_and_groups(plate):
    group = torch.tensor([0, 1, 1, 0])
    x, y = torch.cat([normal(4, 2), group.unsqueeze(-1).double()], -1), normal(4, seed=1)

    def program(x, y=None):
        rows = pyro.plate("patients", len(x), dim=-1)
        with mask_particles():
            with pyro.plate("features", 2, dim=-4), pyro.plate(plate, 2) if plate else rows:
                z = pyro.sample("mask", dist.Bernoulli(CHANCES[:2, None, None, None]))
            with rows:
                z = z[..., x[:, 2].long()] if plate else z
                mean = (z * x[:, :2].T[:, None, None]).sum(-4)
                pyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    entries = group if plate else torch.arange(4)
    masks = every_mask(2 * (entries.max() + 1)).unflatten(-1, (-1, 2))
    log_y = dist.Normal((masks[:, entries] * x[:, :2]).sum(-1), 1.0).log_prob(y).sum(-1)
    log_joint = log_y + log_chance(masks, CHANCES[:2]).sum(-1)
    exact = log_joint.logsumexp(0).item()
    assert log_marginal_likelihood(program, x, y).log == pytest.approx(exact, abs=1e-8)
    found = explain(program, x, y, proposals=math.inf)
    mean = found["sample_stats"]["selection_probability_given_y"]
    assert mean.dims == ("chain", plate or "row", "features")
    exact_mean = torch.tensordot(log_joint.softmax(0), masks, 1)
    np.testing.assert_allclose(mean.values[0], exact_mean, atol=1e-6)


def test_the_number_of_groups_may_be_that_of_all_rows():
    x = torch.stack([torch.tensor([5.0, 7.0, 9.0, 7.0, 9.0]), torch.ones(5)], -1).double()
    y, group = normal(5), torch.tensor([0, 1, 2, 1, 2])

    def program(x, y=None):
        groups, place = x[:, 0].unique(return_inverse=True)
        with mask_particles():
            with pyro.plate("groups", len(groups)):
                z = pyro.sample("mask", half())
            with pyro.plate("data", len(x)):
                pyro.sample("y", dist.Normal(z[..., place] * x[:, 1], 1.0), obs=y)

    log_y = dist.Normal(every_mask(3)[:, group], 1.0).log_prob(y).sum(-1)
    require_all(program, x, y, log_y - 3 * math.log(2), every_mask(3))


def test_a_chain_of_masks_over_the_rows_has_a_site_for_each():
    x = torch.ones(4, 1).double()
    y = torch.tensor([0.1, 0.9, 1.2, 0.2]).double()

    def program(x, y=None):
        with mask_particles():
            z, masks = torch.zeros(()).double(), []
            for t in pyro.markov(range(len(x))):
                z = pyro.sample(f"z_{t}", dist.Bernoulli(0.2 + 0.6 * z))
                masks.append(z)
            with pyro.plate("time", len(x)):
                pyro.sample("y", dist.Normal(torch.cat(masks, -1), 0.5), obs=y)

    masks = every_mask(4)
    chances = 0.2 + 0.6 * torch.cat([torch.zeros(16, 1), masks[:, :-1]], -1)
    log_joint = dist.Normal(masks, 0.5).log_prob(y).sum(-1) + log_chance(masks, chances)
    found = explain(program, x, y, draws=400)
    for t in range(4):
        require_masks(found, f"z_{t}", log_joint.softmax(0) @ masks[:, t : t + 1], 400)
    stats = found["sample_stats"]
    assert "averaged over draws" in stats["z_3_selection_probability"].attrs["source"]
    assert "averaged" not in stats["selection_probability"].attrs["source"]


def test_a_second_response_may_be_missing_in_some_rows():
    x, y = normal(4, 2), normal(4, seed=1)
    x = torch.cat([x, torch.tensor([[1.0], [0.0], [1.0], [0.0]])], -1).double()

    def program(x, y=None):
        with pyro.plate("data", len(x)), mask_particles():
            z = pyro.sample("mask", coin(1))[..., 0]
            pyro.sample("t", dist.Normal(z, 0.7), obs=x[:, 1], obs_mask=x[:, 2] > 0)
            pyro.sample("y", dist.Normal(z * x[:, 0], 1.0), obs=y)

    z = torch.tensor([[0.0], [1.0]]).double()
    log_t = x[:, 2] * dist.Normal(z, 0.7).log_prob(x[:, 1])
    log_y = dist.Normal(z * x[:, 0], 1.0).log_prob(y)
    stats = explain(program, x, y, proposals=math.inf)["sample_stats"]
    for name, log_joint in (("", log_t), ("_given_y", log_t + log_y)):
        mean = stats[f"selection_probability{name}"].values.ravel()
        np.testing.assert_allclose(mean, log_joint.softmax(0)[1], atol=1e-6)


def of_part(x, y=None, *, size=None):
    with pyro.plate("data", size or len(x), subsample=torch.arange(len(x))), mask_particles():
        z = pyro.sample("mask", coin(1))
        pyro.sample("y", dist.Normal((z * x).sum(-1), 1.0), obs=y)


def test_a_part_of_the_rows_has_a_posterior_and_no_evidence():
    x, y = normal(3, 1), normal(3, seed=1)
    whole, part = (
        explain(partial(of_part, size=size), x, y, proposals=math.inf) for size in (None, 600)
    )
    name = "selection_probability_given_y"
    np.testing.assert_array_equal(whole["sample_stats"][name], part["sample_stats"][name])
    with pytest.raises(ValueError, match="plates of a part of the rows"):
        log_marginal_likelihood(partial(of_part, size=600), x, y)


def of_other_plates(x, y=None):
    with pyro.plate("features", 2, dim=-4), mask_particles():
        z = pyro.sample("mask", half())
    with mask_particles(), pyro.plate("data", len(x), dim=-1):
        pyro.sample("y", dist.Normal((z * x.T[:, None, None]).sum(-4), 1.0), obs=y)


def of_an_index(x, y=None):
    with mask_particles():
        index = pyro.sample("which", dist.Categorical(torch.ones(2).double()))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x.T[index].reshape(-1, len(x)), 1.0), obs=y)


def features_plate(x, y=None):
    with mask_particles():
        with pyro.plate("features", 2, dim=-4):
            z = pyro.sample("mask", half())
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal((z * x.T[:, None, None]).sum(-4), 1.0), obs=y)


def ranks(x, y=None):
    with mask_particles():
        with pyro.plate("groups", 3):
            z = pyro.sample("mask", half())
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(z[..., x[:, 0].argsort()], 1.0), obs=y)


def read(program, x, y):
    draws(as_fitted(program, x, None), x, y, read={"mask": read_mask})


@pytest.mark.parametrize(
    ("program", "entry", "words"),
    [
        (of_other_plates, log_marginal_likelihood, "enter them inside it"),
        (of_other_plates, explain, "enter a plate of them inside"),
        (of_an_index, feature_evidence, "OneHotCategorical in the place of Categorical"),
        (of_an_index, explain, "OneHotCategorical in the place of Categorical"),
        (features_plate, feature_evidence, "posterior has explain"),
        (features_plate, read, "read its latents by name"),
        (ranks, log_marginal_likelihood, "must be columns of x"),
    ],
)
def test_refusals_say_what_to_write(program, entry, words):
    with pytest.raises(ValueError, match=words) as refusal:
        entry(program, normal(3, 2), normal(3, seed=1))
    assert raised_by_lexppl(refusal.value)


@pytest.mark.parametrize("entry", [log_marginal_likelihood, feature_evidence])
def test_a_missing_response_has_no_likelihood(entry):
    y = torch.tensor([1.0, math.nan, 0.0]).double()
    with pytest.raises(FloatingPointError, match="are NaN; look for missing values"):
        entry(of_part, normal(3, 1), y)


def test_a_coin_of_each_row_has_feature_evidence():
    x, y = normal(3, 1), normal(3, seed=1)

    def program(x, y=None):
        with pyro.plate("data", len(x)), mask_particles():
            z = pyro.sample("mask", half())
            pyro.sample("y", dist.Normal(z * x[:, 0], 1.0), obs=y)

    log_y = dist.Normal(torch.tensor([[0.0], [1.0]]) * x[:, 0], 1.0).log_prob(y)
    found = feature_evidence(program, x, y)
    assert found["posterior"].item() == pytest.approx(log_y.softmax(0)[1].mean().item())


def test_a_program_that_requires_y_has_predictions_without():
    def program(x, y):
        return of_part(x, y)

    x = normal(3, 1)
    found, same = (predictive(as_fitted(p, x, None), x) for p in (program, of_part))
    assert torch.equal(found, same)
