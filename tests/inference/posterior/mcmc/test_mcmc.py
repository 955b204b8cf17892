"""Pyro's kernels on programs whose masks are summed out, against grids."""

import re
import sys
import warnings
from dataclasses import fields
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import HMC, NUTS
from pyro.nn import PyroModule

from lexppl import explain, fit, load, save
from lexppl.arviz_compatibility import group_of
from lexppl.effects import mask_particles
from lexppl.inference import MCMC, SGHMC, SGLD, SamplerWarning
from lexppl.inference.posterior.global_draws import (
    GlobalDraws,
    SampledGuide,
    SamplerRecord,
    warn_of,
)
from lexppl.inference.posterior.mcmc import Potential, Recorded
from lexppl.models import ConstantImputer
from lexppl.systems import lex
from tests.gradients.enumeration import threshold
from tests.inference.posterior.mcmc.programs import (
    Weighted,
    log_likelihood,
    log_likelihood_at_mean,
    mean_on_grid,
    rows,
    z_score,
)
from tests.refusals import refusals

X, Y = rows(40)
SHORT = MCMC(samples=200, warmup=80, chains=2)
QUICK = MCMC(partial(NUTS, max_tree_depth=3), samples=10, warmup=5, chains=2)
WEIGHTS = torch.linspace(-12, 12, 4001, dtype=torch.float64)


def sampled(model, data=(X, Y), inference=SHORT, seed=0):
    """A fit whose warnings of few draws are left unread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return fit(model, data, inference=inference, seed=seed, progress=False)


def draws_of(result, site):
    return torch.stack([guide.sites[site] for guide in result.guides])


# The posterior


HAMILTONIAN = MCMC(partial(HMC, trajectory_length=1.5), samples=200, warmup=80, chains=2)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize(
    ("subset", "inference"), [(True, SHORT), (False, SHORT), (True, HAMILTONIAN)]
)
def test_a_weight_has_the_posterior_of_a_grid(subset, inference):
    program = Weighted(subset)
    result = sampled(program, inference=inference)
    prior = dist.Normal(0.0, 2.0).log_prob(WEIGHTS)
    exact = mean_on_grid(WEIGHTS, prior + log_likelihood(program, WEIGHTS, X, Y))
    at_mean = mean_on_grid(WEIGHTS, prior + log_likelihood_at_mean(program, WEIGHTS, X, Y))
    draws = draws_of(result, "weight")
    assert abs(z_score(draws, exact)) < threshold(1)
    # Masks at their mean would be another posterior, and these draws can tell.
    assert abs(z_score(draws, at_mean)) > threshold(1)
    assert ("tree_depth" in result.sampler.sample_stats) == (result.sampler.name == "NUTS")


@pytest.mark.complete
def test_a_hierarchical_scale_has_the_posterior_of_a_grid():
    program = Weighted(subset=True, scaled=True)
    kernel = partial(NUTS, max_tree_depth=5)
    result = sampled(program, inference=MCMC(kernel, samples=700, warmup=150, chains=2))
    scales = torch.linspace(1e-3, 9, 700, dtype=torch.float64)
    weights = WEIGHTS[::8]
    given_scale = dist.Normal(0.0, scales[:, None]).log_prob(weights)
    density = dist.HalfNormal(2.0).log_prob(scales)[:, None] + given_scale
    density = density + log_likelihood(program, weights, X, Y)
    values = scales[:, None].expand_as(density)
    draws = draws_of(result, "scale")
    assert abs(z_score(draws, mean_on_grid(values, density))) < threshold(1)
    # Without the Jacobian of its logarithm the density would be that over the scale.
    wrong = mean_on_grid(values, density - values.log())
    assert abs(z_score(draws, wrong)) > threshold(1)


@pytest.mark.smoke
def test_statistics_of_a_sampler():
    result = sampled(Weighted(), inference=QUICK)
    stats = result.sampler.sample_stats
    names = {"diverging", "acceptance_rate", "step_size", "n_steps", "tree_depth", "energy"}
    assert set(stats) == names and all(values.shape == (2, 10) for values in stats.values())
    assert ((stats["acceptance_rate"] >= 0) & (stats["acceptance_rate"] <= 1)).all()
    assert (stats["n_steps"] >= 1).all() and (stats["n_steps"] <= 7).all()
    assert (stats["n_steps"] <= 2.0 ** stats["tree_depth"] - 1).all()
    assert (result.replicates, len(result.history), result.rows) == (2, 0, (40, 0))
    assert result.models[0] is result.models[1] is result.model
    first = repr(result).splitlines()
    assert first[0] == "FitResult: Weighted, NUTS, 2 chains of 10 draws, seed 0"
    assert "r̂ up to" in repr(result) and "independent draws" in repr(result)
    one = result.subset([1])
    assert one.guides == [result.guides[1]] and one.sampler.r_hat is None
    assert one.sampler.sample_stats["n_steps"].shape == (1, 10)


@pytest.mark.parametrize(
    "kernel", [partial(HMC, trajectory_length=0.9), partial(NUTS, max_tree_depth=1)]
)
def test_the_energy_of_a_draw_is_its_hamiltonian(kernel):
    """Of one step ε without a mass the momenta are (u' − u) / ε − ε/2 ∇U(u'), either way in time.

    A draw that stays has its first momenta, at which H is at least U.
    """
    kernel = partial(kernel, step_size=0.9, adapt_step_size=False, adapt_mass_matrix=False)
    result = sampled(Weighted(), inference=MCMC(kernel, samples=40, warmup=1, chains=2))
    potential = Potential(Weighted(), (X, Y))
    moved = 0
    found = torch.from_numpy(result.sampler.sample_stats["energy"])
    for guide, energies in zip(result.guides, found, strict=True):
        places = guide.sites["weight"].clone().requires_grad_()
        u = torch.stack([potential({"weight": place}) for place in places])
        (slopes,) = torch.autograd.grad(u.sum(), places)
        steps = places.detach().diff()
        momenta = steps / 0.9 - 0.45 * slopes[1:]
        expected = u.detach()[1:] + momenta**2 / 2
        assert (energies >= u.detach()).all()
        assert torch.allclose(energies[1:][steps != 0], expected[steps != 0], rtol=1e-9)
        moved += int((steps != 0).sum())
    assert moved > 20
    stats = group_of(explain(result, X, draws=40), "sample_stats")
    assert np.array_equal(stats["energy"].values, found)


def test_divergences_are_counted_where_they_are():
    """A funnel that its steps are too long for."""

    class Funnel(PyroModule):
        def forward(self, x, y=None):
            top = pyro.sample("top", dist.Normal(0.0, 3.0))
            low = pyro.sample("low", dist.Normal(torch.zeros(4), (top / 2).exp()).to_event(1))
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                pyro.sample("y", dist.Normal(low.sum(), 10.0), obs=y)

    kernel = partial(NUTS, step_size=3.0, adapt_step_size=False, max_tree_depth=3)
    with pytest.warns(SamplerWarning, match="draws of NUTS diverged.*target_accept_prob"):
        short = MCMC(kernel, samples=60, warmup=5, chains=2)
        result = fit(Funnel(), (X, Y), inference=short, progress=False)
    diverging = result.sampler.sample_stats["diverging"]
    assert 0 < diverging.sum() == result.sampler.divergences
    assert f"{diverging.sum()} diverged" in repr(result)


def test_chains_that_disagree_are_warned_of():
    class Modes(PyroModule):
        """Two modes far apart."""

        def forward(self, x, y=None):
            a = pyro.sample("a", dist.Normal(torch.zeros(()), 3.0))
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                pyro.sample("y", dist.Normal(a.abs(), 0.1), obs=y)

    signs = iter([1.0, -1.0])

    def start(site):
        return torch.tensor(5.0) * next(signs)

    kernel = partial(NUTS, init_strategy=start)
    with pytest.warns(SamplerWarning, match="chains of NUTS disagree: r̂ is up to"):
        short = MCMC(kernel, samples=40, warmup=30, chains=2)
        result = fit(Modes(), (X, 5.0 + 0 * Y), inference=short, progress=False)
    assert result.sampler.r_hat > 1.5


# The contract of a fit


def test_the_same_seed_gives_the_same_chains_and_leaves_the_world_alone():
    program = Weighted()
    state = torch.get_rng_state()
    first = sampled(program, inference=QUICK)
    assert torch.equal(state, torch.get_rng_state())
    assert not list(pyro.get_param_store().keys())
    again, other = (sampled(program, inference=QUICK, seed=seed) for seed in (0, 1))
    assert torch.equal(draws_of(first, "weight"), draws_of(again, "weight"))
    assert not torch.equal(draws_of(first, "weight"), draws_of(other, "weight"))
    assert not torch.equal(*draws_of(first, "weight"))
    assert first.model is not program and program.training


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("agrees", [True, False])
def test_a_recording_changes_no_draw(monkeypatch, agrees):
    """Where it is found to be another, the chain is run again without it."""
    module = sys.modules["lexppl.inference.posterior.mcmc"]
    plain = sampled(Weighted(), inference=QUICK)
    monkeypatch.setattr(module, "WORTH_RECORDING", 0)
    if not agrees:
        answers = iter([True, False])
        monkeypatch.setattr(Recorded, "agrees", lambda *_: next(answers))
    before = torch.get_rng_state()
    recorded = sampled(Weighted(), inference=QUICK)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.allclose(draws_of(plain, "weight"), draws_of(recorded, "weight"))


def test_a_factory_with_priors_by_nuts(tmp_path):
    x, normal = X.float(), dist.Normal(0.0, 1.0)
    build = partial(lex, 3, classes=2, k=1, hidden=(), predictor_hidden=())
    system = build(imputer=ConstantImputer(), prior=normal)
    result = sampled(system, (x, Y.long()), QUICK)
    assert result.labels == (0, 1)
    posterior = explain(result, x, draws=5)
    assert group_of(posterior, "predictions")["y"].shape[:2] == (2, 5)
    save(result, tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.replicates == 2 and again.models[0] is again.models[1]
    for old, new in zip(result.guides, again.guides, strict=True):
        assert isinstance(new, SampledGuide)
        assert all(torch.equal(values, new.sites[n]) for n, values in old.sites.items())
    stats = again.sampler.sample_stats
    assert all(np.array_equal(v, stats[n]) for n, v in result.sampler.sample_stats.items())
    assert (again.sampler.r_hat, again.sampler.ess) == (result.sampler.r_hat, result.sampler.ess)
    assert repr(again).splitlines()[0] == repr(result).splitlines()[0]
    mine = group_of(explain(again, x, draws=5), "predictions")["mask"]
    assert np.array_equal(mine.values, group_of(posterior, "predictions")["mask"].values)


def test_parameters_without_priors_stay():
    class Shifted(Weighted):
        def __init__(self):
            super().__init__()
            self.shift = torch.nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    with pytest.warns(SamplerWarning, match=r"1 numbers of the program \(shift.*have no prior"):
        result = fit(Shifted(), (X, Y), inference=QUICK, progress=False)
    assert float(result.model.shift.detach()) == 0.3 and result.model.shift.requires_grad
    assert "given 1 number without a prior" in repr(result)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(Shifted().eval(), (X, Y), inference=QUICK, progress=False)
    assert not [one for one in caught if "no prior" in str(one.message)]


def test_an_inference_of_ones_own():
    class Guessing:
        def run(self, model, rows, *, seed, progress):
            values = torch.zeros(1, 7, dtype=torch.float64)
            return GlobalDraws({"weight": values}, SamplerRecord("guess", False), model)

    result = fit(Weighted(), (X, Y), inference=Guessing, progress=False)
    assert repr(result).startswith("FitResult: Weighted, guess, 1 set of 7 draws")
    assert result.sampler.ess is None


# What is refused


test_what_a_sampler_does_not_read_is_refused = refusals(
    ({"epochs": 3}, "epochs= mean nothing beside inference="),
    ({"guide": lambda x, y: None, "folds": 2}, "guide=, folds= mean nothing"),
    ({"row_weights": "dirichlet"}, "row_weights= mean nothing"),
    ({"valid": 0.2}, "valid= means nothing.*all rows"),
    of=lambda options: fit(Weighted(), (X, Y), inference=NUTS, progress=False, **options),
)


test_what_is_no_inference_is_refused = refusals(
    ("nuts", "must be pyro.infer.NUTS or HMC"),
    (NUTS(potential_fn=lambda z: 0.0), "must be the class pyro.infer.NUTS"),
    (pyro.infer.MCMC, "must be pyro.infer.NUTS or HMC"),
    (pyro.infer.mcmc.RandomWalkKernel, "must be the class pyro.infer.NUTS"),
    of=lambda inference: fit(Weighted(), (X, Y), inference=inference, progress=False),
    error=TypeError,
)


test_a_sampler_that_cannot_be_is_refused = refusals(
    (lambda: MCMC(samples=3), "samples must be a whole number of at least 4"),
    (lambda: MCMC(chains=0), "chains must be"),
    (lambda: MCMC(partial(NUTS, depth=3)), r"\['depth'\]: .* it takes"),
    (lambda: MCMC(partial(NUTS, model=print)), r"\['model'\]: .* that the program sets"),
    (lambda: MCMC(partial(NUTS, print)), "by name"),
)


def test_rows_that_are_not_all_at_hand_are_refused():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=4)
    with pytest.raises(TypeError, match="all rows at once, and train is a loader"):
        fit(Weighted(), loader, inference=NUTS, progress=False)
    with pytest.raises(TypeError, match="a function that builds one; it is list"):
        fit([Weighted(), Weighted()], (X, Y), inference=NUTS, progress=False)


def test_nothing_to_sample_is_refused_before_the_warning_of_what_stays_fixed():
    class Fixed(PyroModule):
        def __init__(self):
            super().__init__()
            self.shift = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

        def forward(self, x, y=None):
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                pyro.sample("y", dist.Normal(self.shift, 1.0), obs=y)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for inference in (NUTS, SGHMC()):
            with pytest.raises(ValueError, match=r"nothing to sample.*row_weights="):
                fit(Fixed(), (X, Y), inference=inference, progress=False)


@pytest.mark.parametrize("sampler", [MCMC, SGHMC, SGLD])
@pytest.mark.parametrize("of", [{"r_hat": 1.5}, {"ess": 3.0}])
def test_a_warning_names_settings_that_the_sampler_has(sampler, of):
    record = SamplerRecord("it", are_chains=True, **of)
    with pytest.warns(SamplerWarning) as caught:
        warn_of(record)
    named = re.findall(r"(\w+)=", str(caught[0].message))
    assert named and set(named) <= {field.name for field in fields(sampler)}
