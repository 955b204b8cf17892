"""Several discrete latents of a particle: enumeration is the sum over all of their values.

The sums are written out by `pyro.poutine.condition` over every assignment, without the library's
lists.
"""

import itertools
import math
from functools import partial
from types import SimpleNamespace

import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl.distributions import KSubset
from lexppl.effects import imputation_particles, mask_particles
from lexppl.evaluation import log_marginal_likelihood
from lexppl.inference import Enumerate, LeaveOneOut, NestedIWAE
from lexppl.inference.objective.listed_latents import ListedLatents
from tests.programs.builders import coin
from tests.programs.enumeration import distance, gradients_of
from tests.refusals import refusals, refused

EXACT = NestedIWAE(math.inf, estimator=Enumerate())
X = torch.tensor([[0.9, -0.6], [-0.4, 1.2], [0.3, 0.7]]).double()
Y = torch.tensor([0.7, -0.3, 1.1]).double()
STEPS = torch.tensor([[0.2, 1.3, -0.4, 0.9], [1.0, -0.2, 0.3, 0.1]]).double()
VALUES = {
    **{"a": [0.4, -0.7], "b": [0.3, 0.8], "w": [1.3, -0.9]},
    **{"start": [0.2, -0.5], "move": [[0.7, -0.4], [-0.2, 1.1]]},
}


def parameters():
    return {name: torch.tensor(v).double().requires_grad_() for name, v in VALUES.items()}


def of(y, *place):
    return None if y is None else y[place]


def chain_of_masks(p, x, y):
    """The second mask's law depends on the first, the third's on both."""
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        first = pyro.sample("first", coin(p["a"] * x))
        second = pyro.sample("second", coin(p["b"] + 2.0 * first))
        third = pyro.sample("third", coin((second - first).sum(-1, keepdim=True) + p["b"][:1]))
        mean = (p["w"] * first * second).sum(-1) + third[..., 0]
        pyro.sample("y", dist.Normal(mean, 0.8), obs=y)


def regime(p, x, y):
    """A regime chooses the mask's law, and the slopes."""
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        k = pyro.sample("regime", dist.Categorical(logits=torch.stack([*p["a"], p["b"][0]])))
        z = pyro.sample("mask", coin(torch.stack([p["a"], p["b"], -p["a"]])[k] * x))
        pyro.sample("y", dist.Normal((p["w"] * z * x).sum(-1) + 0.3 * k, 0.8), obs=y)


def hidden_markov_chain(p, x, y):
    """A chain of three states of each row, and a mask beside it; a site for each step."""
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        z = pyro.sample("mask", coin(p["a"] * x))
        state = pyro.sample("s_0", dist.Categorical(logits=p["start"]))
        for t in range(4):
            if t:
                state = pyro.sample(f"s_{t}", dist.Categorical(logits=p["move"][state]))
            mean = p["w"][state] + (z * x).sum(-1)
            pyro.sample(f"y_{t}", dist.Normal(mean, 0.7), obs=of(y, slice(None), t))


def chain_over_rows(p, x, y):
    """The rows are the steps: one log of all of them."""
    with mask_particles():
        state = None
        for n in range(len(x)):
            logits = p["start"] if state is None else p["move"][state]
            state = pyro.sample(f"s_{n}", dist.Categorical(logits=logits))
            z = pyro.sample(f"mask_{n}", coin(p["a"][:1] * x[n, :1]))
            mean = p["w"][state] + z[..., 0] * x[n, 1]
            pyro.sample(f"y_{n}", dist.Normal(mean, 0.8), obs=of(y, n))


def steps_in_a_plate(p, x, y):
    """A mask of each step of each row, in a plate of steps inside the log."""
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        k = pyro.sample("regime", dist.Categorical(logits=p["start"]))
        with pyro.plate("steps", 4, dim=-4):
            z = pyro.sample("mask", coin((p["a"][k] * x[:, 0]).unsqueeze(-1)))
            obs = None if y is None else y.T[:, None, None]
            pyro.sample("y", dist.Normal(p["w"][k] * z[..., 0], 0.7), obs=obs)


def spike_and_slab(p, x, y):
    """A mask that all rows share, in one log with all of them."""
    with mask_particles():
        k = pyro.sample("regime", dist.Categorical(logits=p["start"]))
        z = pyro.sample("mask", coin(p["a"] + p["b"][k].unsqueeze(-1)))
        with pyro.plate("data", len(x), dim=-1):
            pyro.sample("y", dist.Normal((p["w"] * z * x).sum(-1), 0.8), obs=y)


def slopes_integrated_out(p, x, y):
    """y is one event of all rows, given the mask that they share."""
    with mask_particles():
        z = pyro.sample("mask", coin(p["a"]))
        kept = z[..., None, :] * x * p["w"].exp()
        covariance = kept @ kept.mT + 0.6 * torch.eye(len(x)).double()
        pyro.sample("y", dist.MultivariateNormal(torch.zeros(len(x)).double(), covariance), obs=y)


def masks_of_groups(p, x, y):
    """A mask of each of two groups, in one log with all rows, and one of each row."""
    with mask_particles():
        with pyro.plate("groups", 2, dim=-1):
            z = pyro.sample("mask", coin(torch.stack([p["a"], p["b"]])))
        with pyro.plate("data", len(x), dim=-1):
            own = pyro.sample("own", coin(p["b"][:1].expand(len(x), 1)))
            mean = (p["w"] * z[..., (torch.arange(len(x)) + 1) % 2, :]).sum(-1) + own[..., 0]
            pyro.sample("y", dist.Normal(mean, 0.8), obs=y)


def rows_within_groups(p, x, y):
    """Groups outside the log, rows inside: a log for each group."""
    with pyro.plate("groups", 2, dim=-4), mask_particles():
        z = pyro.sample("mask", coin(torch.stack([p["a"], p["b"]])[:, None, None, None]))
        k = pyro.sample("regime", dist.Categorical(logits=p["start"]))
        with pyro.plate("data", len(x), dim=-1):
            mean = (p["w"] * z * x).sum(-1) + 0.4 * k
            pyro.sample("y", dist.Normal(mean, 0.8), obs=y)


PARALLEL = {"enumerate": "parallel"}


def of_scalars(p, x, y):
    """Scalar masks, the second by the first, marked as Pyro's own enumeration asks."""
    with pyro.plate("data", len(y), dim=-1), mask_particles():
        k = pyro.sample("regime", dist.Categorical(logits=p["start"]), infer=PARALLEL)
        first = pyro.sample("first", dist.Bernoulli(logits=p["a"][k] * x[:, 0]), infer=PARALLEL)
        logits = p["move"][k, first.long()] * x[:, 1]
        second = pyro.sample("second", dist.Bernoulli(logits=logits), infer=PARALLEL)
        mean = p["w"][0] * first * x[:, 0] + p["w"][1] * second * x[:, 1]
        pyro.sample("y", dist.Normal(mean, 0.8), obs=y)


ONE_LOG = [chain_over_rows, spike_and_slab, slopes_integrated_out, masks_of_groups]
"""Those whose rows share one log."""
OF_ROWS = [chain_of_masks, regime, of_scalars, hidden_markov_chain]
PROGRAMS = [*OF_ROWS, steps_in_a_plate, rows_within_groups, *ONE_LOG]


def values_of(site):
    """Every value of all entries of a site together."""
    fn, shape = site["fn"], (*site["fn"].batch_shape, *site["fn"].event_shape)
    one = fn.base_dist if isinstance(fn, dist.Independent) else fn
    one = one.enumerate_support(expand=False).flatten()
    every = itertools.product(one, repeat=math.prod(shape))
    return [torch.stack(list(each)).reshape(shape) for each in every]


def assignments(program, p, *args):
    """Every joint value of a program's latents, by name, and the log-density of all sites."""
    with torch.no_grad():
        trace = pyro.poutine.trace(program).get_trace(p, *args)
    latents = {
        name: values_of(site)
        for name, site in trace.nodes.items()
        if site["type"] == "sample" and not site["is_observed"] and "Subsample" not in str(site)
    }
    for values in itertools.product(*latents.values()):
        given = dict(zip(latents, values, strict=True))
        run = pyro.poutine.trace(pyro.poutine.condition(program, data=given))
        yield given, run.get_trace(p, *args).log_prob_sum()


def log_sum(program, p, *args):
    return torch.stack([log for _, log in assignments(program, p, *args)]).logsumexp(0)


def brute_force(program, p, x, y):
    """log p(y), of rows or groups one by one where each has its own log."""
    if program is rows_within_groups:
        return sum(log_sum(one_group, p, g, x, y) for g in range(2))
    if program in ONE_LOG:
        return log_sum(program, p, x, y)
    return sum(log_sum(program, p, x[n : n + 1], y[n : n + 1]) for n in range(len(y)))


def one_group(p, g, x, y):
    z = pyro.sample("mask", coin((p["a"], p["b"])[g]))
    k = pyro.sample("regime", dist.Categorical(logits=p["start"]))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal((p["w"] * z * x).sum(-1) + 0.4 * k, 0.8), obs=y)


def gap(value, p, other, q):
    """The largest difference of two values and of their gradients in the same parameters."""
    found, expected = (
        (v.detach(), gradients_of(v, leaves)) for v, leaves in ((value, p), (other, q))
    )
    return distance(found, expected)


def rows_of(program):
    if program.__name__.startswith(("hidden", "steps")):
        return X[:2], STEPS
    return X, Y


def enumerated(program, p, objective=EXACT):
    return -objective.differentiable_loss(program, None, p, *rows_of(program))


def error(program, objective=EXACT):
    """Of value and gradient."""
    p, q = parameters(), parameters()
    found = enumerated(program, p, objective)
    return gap(found, p, brute_force(program, q, *rows_of(program)), q)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_value_and_gradient_are_those_of_all_assignments(program):
    assert error(program) < 1e-10


@pytest.mark.parametrize("program", [chain_of_masks, hidden_markov_chain, masks_of_groups])
def test_a_latent_whose_prior_is_left_out_is_noticed(program, monkeypatch):
    whole = ListedLatents.log_prior

    def without_the_last(listed, run):
        kept = [site for site in run.drawn if site.name != listed.names[-1]]
        return whole(listed, SimpleNamespace(drawn=kept))

    monkeypatch.setattr(ListedLatents, "log_prior", without_the_last)
    with pyro.validation_enabled(False):
        assert error(program) > 1e-3
    refused("have a total probability of", error, program)


def test_a_sum_of_logs_is_over_all_assignments():
    p, q = parameters(), parameters()
    found = enumerated(regime, p, NestedIWAE(1, estimator=Enumerate()))
    total = 0.0
    for n in range(len(Y)):
        for given, log in assignments(regime, q, X[n : n + 1], Y[n : n + 1]):
            run = pyro.poutine.trace(pyro.poutine.condition(regime, data=given))
            nodes = run.get_trace(q, X[n : n + 1], Y[n : n + 1]).nodes
            log_p = nodes["y"]["fn"].log_prob(Y[n]).sum()
            total = total + (log - log_p).exp() * log_p
    assert gap(found, p, total, q) < 1e-10


def test_a_mark_to_enumerate_is_not_drawn():
    with pytest.raises(ValueError, match=r"'regime' is to be summed out.*estimator=Enumerate\(\)"):
        NestedIWAE(5, estimator=LeaveOneOut()).loss(of_scalars, None, parameters(), X, Y)


def many_states(p, x, y):
    with pyro.plate("data", len(y), dim=-1), mask_particles():
        total = sum(pyro.sample(f"s_{t}", dist.Bernoulli(0.5)) for t in range(17))
        pyro.sample("y", dist.Normal(total, 1.0), obs=y)


def a_size_of_its_own(p, x, y):
    with pyro.plate("data", len(y), dim=-1), mask_particles():
        k = pyro.sample("k", dist.Categorical(torch.tensor([0.0, 0.4, 0.6])))
        z = pyro.sample("mask", KSubset(p["a"] * x, k.clamp(min=1)))
        pyro.sample("y", dist.Normal((z * x).sum(-1), 1.0), obs=y)


def noise_beside(p, x, y):
    with pyro.plate("data", len(y), dim=-1), mask_particles():
        z = pyro.sample("mask", coin(p["a"] * x))
        noise = pyro.sample("noise", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(z.sum(-1) + noise, 1.0), obs=y)


test_what_cannot_be_listed_is_refused = refusals(
    (many_states, "of 's_16' stand in one log, and at most 65,536 .*: use fewer rows"),
    (a_size_of_its_own, "'mask'. have some that are not there: .*such as a k of its own"),
    (noise_beside, "'noise', of Normal, cannot be listed.*an estimator that draws"),
    of=lambda program: EXACT.loss(program, None, parameters(), X[:1], Y[:1]),
)


def test_a_point_beside_a_mask_is_left_alone():
    def program(p, x, y):
        with pyro.plate("data", len(y), dim=-1), mask_particles():
            z = pyro.sample("mask", coin(p["a"] * x))
            twice = pyro.sample("twice", dist.Delta(2.0 * z, event_dim=1))
            with imputation_particles():
                pyro.sample("y", dist.Normal(twice.sum(-1), 1.0), obs=y)

    p = parameters()
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).double()] * 2).unsqueeze(1)
    log_y = dist.Normal(2 * masks.sum(-1), 1.0).log_prob(Y)
    exact = (coin(p["a"] * X).log_prob(masks) + log_y).logsumexp(0).sum()
    found = -EXACT.loss(program, None, p, X, Y)
    assert found == pytest.approx(float(exact.detach()), abs=1e-10)


def given_rows(program):
    """Of x and y alone, as the rest of the library calls programs."""
    p = {name: value.detach() for name, value in parameters().items()}
    return lambda x, y=None: program(p, x, y)


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p is not rows_within_groups], ids=lambda f: f.__name__
)
def test_the_marginal_likelihood(program):
    x, y = rows_of(program)
    found = log_marginal_likelihood(given_rows(program), x, y)
    exact = float(brute_force(program, parameters(), x, y).detach())
    assert found.log == pytest.approx(exact, abs=1e-10) and found.error == 0.0


def test_a_latent_that_is_masked_is_drawn_by_its_law():
    """Only the response of the first row is seen, by `obs_mask` or by `poutine.mask`."""

    def program(p, x, y, seen=True):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", coin(p["a"] * x))
            with pyro.poutine.mask(mask=seen):
                k = pyro.sample("regime", dist.Categorical(logits=p["start"]))
                pyro.sample("y", dist.Normal((p["w"] * z).sum(-1) + k, 0.8), obs=y)

    partly = partial(program, seen=torch.tensor([True, False, False]))
    exact = float(log_sum(program, parameters(), X[:1], Y[:1]).detach())
    assert -EXACT.loss(partly, None, parameters(), X, Y) == pytest.approx(exact, abs=1e-10)
    found = log_marginal_likelihood(given_rows(partly), X, Y)
    assert found.log == pytest.approx(exact, abs=1e-10)


def test_4096_masks_that_all_rows_share():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 12, generator=generator, dtype=torch.double)
    y = x[:, 0] - x[:, 3] + 0.5 * torch.randn(60, generator=generator, dtype=torch.double)
    slope = torch.linspace(-1.0, 1.0, 12).double().requires_grad_()

    def program(x, y=None):
        with mask_particles():
            z = pyro.sample("mask", coin(torch.full((12,), -0.5).double()))
            with pyro.plate("data", len(x), dim=-1):
                mean = (z[..., 0, :] * slope) @ x.T
                pyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    masks = torch.tensor(list(itertools.product((0.0, 1.0), repeat=12))).double()
    log_prior = -0.5 * masks.sum(-1) - 12 * math.log1p(math.exp(-0.5))
    square = (y - (masks * slope) @ x.T).square().sum(-1)
    exact = (log_prior - 0.5 * square - 30 * math.log(2 * math.pi)).logsumexp(0)
    found = -EXACT.differentiable_loss(program, None, x, y)
    (one,), (other,) = (torch.autograd.grad(value, [slope]) for value in (found, exact))
    assert float((found - exact).detach().abs()) < 1e-9 and float((one - other).abs().max()) < 1e-9
    listed = log_marginal_likelihood(program, x, y)
    assert listed.log == pytest.approx(float(exact.detach()), abs=1e-9)
