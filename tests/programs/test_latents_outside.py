"""Latents outside the particle plates: continuous and discrete, of all rows and of one."""

import itertools
import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.polynomial.hermite import hermgauss

from lexppl.effects import mask_particles
from lexppl.inference import DisARM, Enumerate, LeaveOneOut, NestedIWAE
from tests.gradients.enumeration import threshold
from tests.programs.enumeration import (
    Case,
    distance,
    drawn,
    exact,
    gradients_of,
    largest_z,
    value_and_gradient,
)
from tests.programs.zoo import X, Y, kept, respond, rows
from tests.refusals import refused

PARAMETERS = {
    **{"a": [0.4, -0.7], "w": [1.3, -0.9], "q": [0.5, -0.3]},
    **{"loc": [0.3], "log_scale": [-0.4]},
}


def case(model, guide):
    return Case(model, {n: torch.tensor(v).double() for n, v in PARAMETERS.items()}, guide)


# Discrete ones, enumerated


def inclusion(p):
    """Spike and slab: whether each of two effects is there at all."""
    with pyro.plate("effects", 2, dim=-1):
        included = pyro.sample("included", dist.Bernoulli(torch.tensor([0.3, 0.6]).double()))
    with rows(), mask_particles():
        respond(p, included[0] * p["w"][0] * kept(p) + included[1] * p["w"][1])


def inclusion_guide(p):
    with pyro.plate("effects", 2, dim=-1):
        pyro.sample("included", dist.Bernoulli(logits=p["q"]))


def size(p):
    """A prior over how much masks matter."""
    k = pyro.sample("k", dist.Categorical(torch.tensor([0.2, 0.5, 0.3]).double()))
    with rows(), mask_particles():
        respond(p, k * p["w"][0] * kept(p))


def size_guide(p):
    pyro.sample("k", dist.Categorical(logits=torch.cat([p["q"], p["loc"]])))


def chain(p):
    first = pyro.sample("first", dist.Bernoulli(torch.tensor(0.4).double()))
    second = pyro.sample("second", dist.Bernoulli(0.2 + 0.5 * first))
    with rows(), mask_particles():
        respond(p, (first + p["w"][1] * second) * kept(p))


def chain_guide(p):
    first = pyro.sample("first", dist.Bernoulli(logits=p["q"][0]))
    pyro.sample("second", dist.Bernoulli(logits=p["q"][1] - first))


def outcome_of_a_row(p):
    """A latent of each row, in no particle plate."""
    data = rows()
    with data:
        kind = pyro.sample("kind", dist.Bernoulli(torch.full((2,), 0.4).double()))
    with data, mask_particles():
        respond(p, p["w"][0] * kept(p) * kind)


def outcome_guide(p):
    with rows():
        pyro.sample("kind", dist.Bernoulli(logits=p["q"] * X[:, 0]))


DISCRETE = {
    "inclusion": (inclusion, inclusion_guide),
    "size": (size, size_guide),
    "chain": (chain, chain_guide),
    "of a row": (outcome_of_a_row, outcome_guide),
}


@pytest.mark.complete(but=4)
@pytest.mark.parametrize("masks", [1, 2])
@pytest.mark.parametrize("name", DISCRETE)
def test_enumerate_lists_them(name, masks):
    one = case(*DISCRETE[name])
    found = value_and_gradient(one, NestedIWAE(masks, estimator=Enumerate(), entropy=0.2))
    assert distance(found, exact(one, masks, entropy=0.2)) < 1e-10


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("copies", [None, 3])
@pytest.mark.parametrize("estimator", [LeaveOneOut(), DisARM()], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", DISCRETE)
def test_copies_leave_one_another_out(name, estimator, copies):
    one = case(*DISCRETE[name])
    elbo = NestedIWAE(2, samples=2, estimator=estimator, copies=copies)
    limit = threshold(11 * len(DISCRETE) * 4)
    assert largest_z(drawn(one, elbo, 600), exact(one, 2)) < limit


def test_one_copy_is_refused():
    one = case(*DISCRETE["inclusion"])
    with pytest.raises(ValueError, match=r"copies=2 or more of the program, or Enumerate\(\)"):
        value_and_gradient(one, NestedIWAE(2, copies=1))
    for copies in (0, 1.5):
        refused("copies must be a whole number", NestedIWAE, 2, copies=copies)


def test_without_a_guide_they_are_refused():
    with pytest.raises(
        ValueError, match=r"'included' is a latent that no guide draws, outside mask_particles"
    ):
        value_and_gradient(case(inclusion, None), NestedIWAE(2))


# Continuous ones: a normal weight, against Gauss–Hermite quadrature of the enumerated bound


def slope(p):
    weight = pyro.sample("weight", dist.Normal(torch.zeros(()).double(), 1.5))
    with rows(), mask_particles():
        respond(p, weight * kept(p))


def slope_guide(p):
    pyro.sample("weight", dist.Normal(p["loc"][0], p["log_scale"][0].exp()))


def closed_slope_guide(p):
    infer = {"closed_kl": True}
    pyro.sample("weight", dist.Normal(p["loc"][0], p["log_scale"][0].exp()), infer=infer)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("guide", [slope_guide, closed_slope_guide])
@pytest.mark.parametrize(
    ("masks", "samples", "estimator"),
    [(1, 2, LeaveOneOut()), (2, 1, LeaveOneOut()), (2, 1, Enumerate()), (1, 2, DisARM())],
)
def test_a_normal_weight_against_quadrature(guide, masks, samples, estimator):
    one = case(slope, guide)
    nodes, weights = (torch.as_tensor(v) for v in hermgauss(40))
    leaves = {n: v.clone().requires_grad_() for n, v in one.parameters.items()}
    loc, scale = leaves["loc"][0], leaves["log_scale"][0].exp()
    prior, posterior = dist.Normal(torch.zeros(()).double(), 1.5), dist.Normal(loc, scale)
    total = -torch.distributions.kl_divergence(posterior, prior)
    for row, node in itertools.product(range(2), range(len(nodes))):
        weight = loc + scale * math.sqrt(2) * nodes[node]
        p = torch.sigmoid((leaves["a"] * X[row]).sum())
        log_q = torch.stack([torch.log1p(-p), p.log()])
        effect = torch.stack([0 * weight, weight]) + 0.4 * X[row, 1]
        log_y = dist.Bernoulli(logits=effect).log_prob(Y[row].expand(2))
        bound = torch.zeros(()).double()
        for pair in itertools.product(range(2), repeat=masks):
            index = torch.tensor(pair)
            bound = bound + log_q[index].sum().exp() * (
                torch.logsumexp(log_y[index], 0) - math.log(masks)
            )
        total = total + weights[node] / math.sqrt(math.pi) * bound
    draws = drawn(one, NestedIWAE(masks, samples=samples, estimator=estimator), 600)
    assert largest_z(draws, (total.detach(), gradients_of(total, leaves))) < threshold(9 * 8)


def test_an_estimator_outside_is_refused():
    def guide(p):
        distribution = dist.Categorical(logits=torch.cat([p["q"], p["loc"]]))
        pyro.sample("k", distribution, infer={"estimator": LeaveOneOut()})

    with pytest.raises(ValueError, match=r"'k' is outside mask_particles.*leave the estimator out"):
        value_and_gradient(case(size, guide), NestedIWAE(2))
