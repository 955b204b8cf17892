"""Two mask sites with estimators of their own, against the sum over all pairs of masks."""

from itertools import product

import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.polynomial.hermite import hermgauss

from lexppl.effects import mask_particles
from lexppl.inference import REBAR, LeaveOneOut, NestedIWAE, Pathwise, ScoreFunction
from lexppl.inference.contexts import seeded
from tests.gradients.enumeration import threshold, z_scores

FIRST, SECOND = torch.tensor([0.4, -0.7]).double(), torch.tensor([0.9, 0.2]).double()
WEIGHTS = torch.tensor([1.1, -0.8, 1.7, 0.6]).double()
ROWS = 40_000


def masks_of(logits, name, estimator):
    infer = {} if estimator is None else {"estimator": estimator}
    return pyro.sample(name, dist.Bernoulli(logits=logits).to_event(1), infer=infer)


def program(first, second, unit, estimators):
    """The second distribution's logits depend on the first mask."""
    with pyro.poutine.scale(scale=unit), pyro.plate("data", len(unit), dim=-1), mask_particles():
        a = masks_of(first, "a", estimators[0])
        b = masks_of(second + a, "b", estimators[1])
        logits = (torch.cat([a, b], -1) * WEIGHTS).sum(-1)
        pyro.sample("y", dist.Bernoulli(logits=logits), obs=torch.ones(len(unit)).double())


def exact(first, second):
    total = 0.0
    for a in product((0.0, 1.0), repeat=2):
        for b in product((0.0, 1.0), repeat=2):
            a_, b_ = torch.tensor(a).double(), torch.tensor(b).double()
            log_p = dist.Bernoulli(logits=first).log_prob(a_).sum()
            log_p = log_p + dist.Bernoulli(logits=second + a_).log_prob(b_).sum()
            value = torch.nn.functional.logsigmoid((torch.cat([a_, b_]) * WEIGHTS).sum())
            total = total + log_p.exp() * value
    return total


def drawn_gradients_are_those_of(exact, program, estimator, extra):
    """Of one draw a row, of two sites' logits."""
    at = [value.clone().requires_grad_() for value in (FIRST, SECOND)]
    gradients = torch.autograd.grad(exact(*at), at)
    leaves = [v.expand(ROWS, 2).clone().requires_grad_() for v in (FIRST, SECOND)]
    objective = NestedIWAE(1, samples=2, estimator=estimator)
    with seeded(0):
        unit = torch.ones(ROWS).double()
        loss = objective.differentiable_loss(program, None, *leaves, unit, extra)
    (-loss).backward()
    for leaf, gradient in zip(leaves, gradients, strict=True):
        assert z_scores(leaf.grad, gradient).abs().max() < threshold(12)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("objectives", "estimators"),
    [
        (LeaveOneOut(), (None, REBAR(0.5))),
        (REBAR(0.5), (LeaveOneOut(), None)),
        (ScoreFunction(), (None, REBAR(0.3, scale=0.6))),
        (REBAR(0.5), (None, None)),
    ],
)
def test_sites_with_their_own_estimators_are_unbiased(objectives, estimators):
    drawn_gradients_are_those_of(exact, program, objectives, estimators)


def test_a_law_that_depends_on_a_relaxed_mask_cannot_be_held():
    objective = NestedIWAE(1, samples=2, estimator=REBAR())
    leaves = [v.expand(3, 2).clone().requires_grad_() for v in (FIRST, SECOND)]
    unit = torch.ones(3).double()
    with pytest.raises(
        ValueError, match=r"the distribution of 'b' depends on \['a'\].*Choose REBAR for 'b'"
    ):
        objective.differentiable_loss(program, None, *leaves, unit, (None, LeaveOneOut()))


NODES, NODE_WEIGHTS = (torch.from_numpy(v) for v in hermgauss(24))


def soft_then_hard(soft, hard, unit, infer):
    """A soft mask with a Pathwise gradient whose mean depends on REBAR's mask."""
    with pyro.poutine.scale(scale=unit), pyro.plate("data", len(unit), dim=-1), mask_particles():
        b = masks_of(hard, "b", None)
        distribution = dist.Normal(soft + 0.5 * b, 0.7).to_event(1)
        a = pyro.sample("a", distribution, infer=infer)
        logits = (torch.cat([a, b], -1) * WEIGHTS).sum(-1)
        pyro.sample("y", dist.Bernoulli(logits=logits), obs=torch.ones(len(unit)).double())


def exact_of_soft_and_hard(soft, hard):
    """Two linear forms of one normal are one normal, so that a single quadrature does."""
    total = 0.0
    scale = 0.7 * WEIGHTS[:2].norm()
    for b in product((0.0, 1.0), repeat=2):
        b_ = torch.tensor(b).double()
        mean = (WEIGHTS[:2] * (soft + 0.5 * b_)).sum() + (WEIGHTS[2:] * b_).sum()
        logits = mean + scale * 2**0.5 * NODES
        value = (NODE_WEIGHTS * torch.nn.functional.logsigmoid(logits)).sum() / torch.pi**0.5
        total = total + dist.Bernoulli(logits=hard).log_prob(b_).sum().exp() * value
    return total


def test_a_reparameterised_mask_beside_rebar_is_drawn_again():
    infer = {"estimator": Pathwise()}
    drawn_gradients_are_those_of(exact_of_soft_and_hard, soft_then_hard, REBAR(0.5), infer)
