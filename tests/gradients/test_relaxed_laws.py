"""Reparameterised distributions of relaxed masks: the pathwise gradient against quadrature over
their noise.

Each distribution has one noise here, the logistic difference of its keys, so that the bound of L
masks is an integral over L of them.
"""

import math
from itertools import product

import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.polynomial.legendre import leggauss

from lexppl.distributions import MaxConcrete, RelaxedSubset
from lexppl.effects import mask_particles, penalty
from lexppl.inference import REBAR, LeaveOneOut, NestedIWAE, Pathwise, ScoreFunction, SelfNormalized
from tests.gradients.enumeration import threshold, z_scores

TEMPERATURE, COST, DRAWS = 0.7, 0.3, 100_000
WEIGHTS = torch.tensor([1.4, -0.9]).double()
PARAMETERS = {"prior": torch.tensor([0.3, -0.5]).double(), "weights": WEIGHTS}
GUIDE = torch.tensor([-0.4, 0.6]).double()


def relaxed_bernoulli(logits):
    """One relaxed entry, by the difference of the logits."""
    one = logits[..., :1] - logits[..., 1:]
    return dist.RelaxedBernoulli(torch.tensor(TEMPERATURE).double(), logits=one).to_event(1)


LAWS = {
    "relaxed Bernoulli": relaxed_bernoulli,
    "max of Concrete draws": lambda logits: MaxConcrete(TEMPERATURE, logits, k=1),
    "relaxed subset": lambda logits: RelaxedSubset(TEMPERATURE, logits, k=1),
}
OBJECTIVES = {
    "average": {"masks": 1, "samples": 2},
    "iwae": {"masks": 2},
    "penalty": {"masks": 2, "penalty": 0.5},
    "guide": {"masks": 2},
}
ESTIMATORS = [Pathwise(), LeaveOneOut(), ScoreFunction(), REBAR(), SelfNormalized()]


def log_likelihood(weights, mask):
    return torch.nn.functional.logsigmoid((weights[..., : mask.shape[-1]] * mask).sum(-1))


def program(distribution, objective):
    def model(values, unit):
        rows = len(unit)
        with pyro.poutine.scale(scale=unit), pyro.plate("data", rows, dim=-1), mask_particles():
            mask = pyro.sample("mask", LAWS[distribution](values["prior"]))
            if objective == "penalty":
                penalty("cost", COST * mask.sum(-1) ** 2 * mask[..., 0])
            y = dist.Bernoulli(logits=(values["weights"][:, : mask.shape[-1]] * mask).sum(-1))
            pyro.sample("y", y, obs=torch.ones(rows).double())

    def guide(values, unit):
        with pyro.plate("data", len(unit), dim=-1), mask_particles():
            pyro.sample("mask", LAWS[distribution](values["guide"]))

    return model, guide if objective == "guide" else None


def mask_of(distribution, logits, noise):
    """The relaxed mask of a logistic noise: `(n, 1)` or `(n, 2)`."""
    first = torch.sigmoid((logits[0] - logits[1] + noise) / TEMPERATURE).unsqueeze(-1)
    return first if distribution == "relaxed Bernoulli" else torch.cat([first, 1 - first], -1)


def exact(distribution, objective, values):
    """The objective by Gauss–Legendre quadrature over the uniform that gives the noise."""
    nodes, weights = leggauss(120)
    u = torch.from_numpy((nodes + 1) / 2)
    share = torch.from_numpy(weights / 2)
    noise = u.log() - torch.log1p(-u)
    proposal = values.get("guide", values["prior"])
    mask = mask_of(distribution, proposal, noise)
    log_w = log_likelihood(values["weights"], mask)
    if objective == "guide":
        log_w = log_w + LAWS[distribution](values["prior"]).log_prob(mask)
        log_w = log_w - LAWS[distribution](proposal).log_prob(mask)
    if objective == "average":
        total = (share * log_w).sum()
    else:
        pairs = torch.logaddexp(log_w.unsqueeze(0), log_w.unsqueeze(1)) - math.log(2)
        total = (share.unsqueeze(0) * share.unsqueeze(1) * pairs).sum()
    if objective == "penalty":
        cost = COST * mask.sum(-1) ** 2 * mask[..., 0]
        total = total - 0.5 * (share * cost).sum()
    return total


def largest_z(distribution, objective, estimator, law_drawn=None):
    start = {**PARAMETERS, "guide": GUIDE} if objective == "guide" else PARAMETERS
    values = {n: v.clone().requires_grad_() for n, v in start.items()}
    value = exact(distribution, objective, values)
    gradients = torch.autograd.grad(value, list(values.values()))
    leaves = {n: v.expand(DRAWS, 2).clone().requires_grad_() for n, v in start.items()}
    unit = torch.ones(DRAWS).double().requires_grad_()
    options = OBJECTIVES[objective]
    with torch.random.fork_rng(), pyro.validation_enabled(False):
        torch.manual_seed(0)
        loss = NestedIWAE(estimator=estimator, **options).differentiable_loss(
            *program(law_drawn or distribution, objective), leaves, unit
        )
        (-loss).backward()
    scores = [z_scores(leaves[n].grad, g) for n, g in zip(values, gradients, strict=True)]
    scores.append(z_scores(unit.grad, value.detach()).reshape(1))
    return float(torch.cat(scores).abs().max())


CASES = [
    (distribution, objective, estimator)
    for distribution, objective, estimator in product(LAWS, OBJECTIVES, ESTIMATORS)
    if objective != "guide" or distribution == "relaxed Bernoulli"
    if not (isinstance(estimator, SelfNormalized) and objective == "average")
]


@pytest.mark.complete(but=27)
@pytest.mark.parametrize(("distribution", "objective", "estimator"), CASES)
def test_a_reparameterised_law_has_its_own_gradient_under_every_estimator(
    distribution, objective, estimator
):
    assert largest_z(distribution, objective, estimator) < threshold(len(CASES) * 7)


def test_a_law_at_another_temperature_is_caught(monkeypatch):
    monkeypatch.setitem(LAWS, "colder", lambda logits: MaxConcrete(0.6 * TEMPERATURE, logits, k=1))
    found = largest_z("max of Concrete draws", "iwae", Pathwise(), law_drawn="colder")
    assert found > 2 * threshold(7)


def test_a_guide_without_a_density_is_refused():
    leaves = {n: v.expand(2, 2) for n, v in {**PARAMETERS, "guide": GUIDE}.items()}
    with pytest.raises(NotImplementedError, match="MaxConcrete has no log_prob"):
        NestedIWAE(2, estimator=Pathwise()).differentiable_loss(
            *program("max of Concrete draws", "guide"), leaves, torch.ones(2).double()
        )
