"""A discrete imputation that is learned has a score of its own, whatever the masks' estimator."""

import itertools

import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl.inference import REBAR, LeaveOneOut, NestedIWAE, ScoreFunction
from lexppl.models import imputation_particles, mask_particles
from tests.gradients.enumeration import threshold, z_scores

MASKS, IMPUTATIONS, ROWS = 2, 2, 60_000
MASK_LOGIT, FILL_LOGIT = 0.3, -0.4


def log_likelihood(mask, fill):
    """Of y = 1, from the mask's one entry and what stands in for what it hides."""
    return torch.nn.functional.logsigmoid(0.5 + 1.5 * mask - 2.0 * (1 - mask) * fill)


def exact_gradients():
    """By listing both masks and all four fills of a row."""
    logits = torch.tensor([MASK_LOGIT, FILL_LOGIT], dtype=torch.double, requires_grad=True)
    total = torch.zeros((), dtype=torch.double)
    for masks in itertools.product((0.0, 1.0), repeat=MASKS):
        for fills in itertools.product((0.0, 1.0), repeat=MASKS * IMPUTATIONS):
            z = torch.tensor(masks).double()
            e = torch.tensor(fills).double().reshape(IMPUTATIONS, MASKS)
            weight = log_likelihood(z, e).exp().mean().log()
            log_q = dist.Bernoulli(logits=logits[0]).log_prob(z).sum()
            log_q = log_q + dist.Bernoulli(logits=logits[1]).log_prob(e).sum()
            total = total + log_q.exp() * weight
    return torch.autograd.grad(total, logits)[0]


def drawn_gradients(estimator):
    mask_logit = torch.full((ROWS, 1), MASK_LOGIT, dtype=torch.double, requires_grad=True)
    fill_logit = torch.full((ROWS,), FILL_LOGIT, dtype=torch.double, requires_grad=True)

    def model():
        with pyro.plate("data", ROWS, dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=mask_logit).to_event(1))
            with imputation_particles():
                fill = pyro.sample("fill", dist.Bernoulli(logits=fill_logit))
                logits = 0.5 + 1.5 * mask[..., 0] - 2.0 * (1 - mask[..., 0]) * fill
                distribution = dist.Bernoulli(logits=logits)
                pyro.sample("y", distribution, obs=torch.ones(ROWS, dtype=torch.double))

    with torch.random.fork_rng(), pyro.validation_enabled(False):
        torch.manual_seed(0)
        objective = NestedIWAE(MASKS, IMPUTATIONS, estimator=estimator)
        objective.differentiable_loss(model, None).backward()
    fill_gradient = torch.zeros(ROWS) if fill_logit.grad is None else fill_logit.grad
    return torch.stack([-mask_logit.grad[:, 0], -fill_gradient], -1)


@pytest.mark.smoke
@pytest.mark.parametrize("estimator", [LeaveOneOut(), ScoreFunction(), REBAR(0.5)])
def test_learned_imputation_is_scored(estimator):
    scores = z_scores(drawn_gradients(estimator), exact_gradients())
    assert scores.abs().max() < threshold(6)


def test_an_estimator_that_forgets_it_is_caught(monkeypatch):
    from lexppl.inference.estimators import base

    monkeypatch.setattr(base, "imputation_score", lambda site, terms: 0.0)
    scores = z_scores(drawn_gradients(LeaveOneOut()), exact_gradients())
    assert scores[0].abs() < threshold(6) < scores[1].abs() / 2
