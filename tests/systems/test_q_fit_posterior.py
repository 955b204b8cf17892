"""Q-FIT's global posterior by the fit's defaults, against the exact one by quadrature."""

import math

import pyro.distributions as dist
import pytest
import torch
from scipy.stats import beta as beta_law
from scipy.stats import kstest
from torch import nn

from lexppl.inference import Linear, fit
from lexppl.inference.batches import ReplicateData
from lexppl.inference.contexts import seeded
from lexppl.systems import q_fit
from tests.refusals import refused


class Logistic(nn.Module):
    """A known model, `y ~ Bernoulli(σ(slopes · x))` as two classes."""

    def __init__(self, slopes):
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes))

    def forward(self, x):
        logit = x @ self.slopes
        return dist.Categorical(logits=torch.stack([torch.zeros_like(logit), logit], -1))


class Normal(Logistic):
    """A known model, `y ~ Normal(slopes · x, ½)`."""

    def forward(self, x):
        return dist.Normal(x @ self.slopes, 0.5)


def simulated(model, rows, entries, seed):
    """A draw of f from Dir(1, …, 1), and rows from the model."""
    with seeded(seed):
        f = dist.Dirichlet(torch.ones(entries)).sample()
        x = torch.randn(rows, entries)
        return f, x, model(f * x).sample()


def exact_moments(model, x, y):
    """Mean and sd of f₁ given all rows under the prior Dir(1, 1), on a grid."""
    grid = (torch.arange(4000) + 0.5) / 4000
    shares = torch.stack([grid, 1.0 - grid], -1)
    log_p = torch.cat(
        [model(some[:, None] * x).log_prob(y).double().sum(-1) for some in shares.split(200)]
    )
    weight = log_p.softmax(0)
    mean = (weight * grid).sum()
    return float(mean), float((weight * (grid - mean).square()).sum().sqrt())


def sd_ratio(result, model, x, y, replicate=0):
    q = result.guides[replicate].distribution
    return float(q.variance[0].detach().sqrt()) / exact_moments(model, x, y)[1]


KNOWN = {
    "few rows": (Logistic([2.0, 1.0]), 100),
    "labels": (Logistic([2.0, 1.0]), 1000),
    "responses": (Normal([1.0, 1.0]), 600),
}


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("name", KNOWN)
def test_the_posterior_has_the_exact_ones_width_by_default(name):
    """The fit sets a fifth of the rows apart, so that the least possible ratio is 1.12."""
    model, rows = KNOWN[name]
    _, x, y = simulated(model, rows, 2, seed=1)
    system = q_fit(2, model, scope="global", concentration=1.0)
    result = fit(system, (x, y), progress=False)
    assert 1 / 1.5 < sd_ratio(result, model, x, y) < 1.5


@pytest.mark.complete
def test_a_common_rate_leaves_it_far_too_wide():
    """What Adam at 1e-3 does, as a negative control of the ratio above."""
    model, rows = KNOWN["labels"]
    _, x, y = simulated(model, rows, 2, seed=1)
    system = q_fit(2, model, scope="global", concentration=1.0)
    slow = Linear(1e-3, 5e-5, begin=0.5)
    result = fit(system, (x, y), learning_rate=slow, progress=False)
    assert sd_ratio(result, model, x, y) > 3


@pytest.mark.complete
def test_the_truth_has_the_rank_of_a_draw_over_simulated_sets():
    """Ranks of the true f₁ are uniform, and a 90 % interval has it in 90 % of sets."""
    model, sets = Logistic([2.0, 1.0]), 150
    drawn = [simulated(model, 150, 2, seed) for seed in range(sets)]
    system = q_fit(2, model, scope="global", concentration=1.0)
    data = ReplicateData([(x, y) for _, x, y in drawn])
    result = fit(system, data, valid=None, progress=False)
    alpha = torch.stack([g.distribution.concentration.detach() for g in result.guides])
    truth = torch.stack([f for f, _, _ in drawn])[:, 0]
    ranks = beta_law.cdf(truth, alpha[:, 0], alpha[:, 1])
    assert kstest(ranks, "uniform").pvalue > 1e-4
    covered = float(((ranks > 0.05) & (ranks < 0.95)).mean())
    assert abs(covered - 0.9) < 4 * math.sqrt(0.9 * 0.1 / sets)
    ratios = [sd_ratio(result, model, x, y, r) for r, (_, x, y) in enumerate(drawn[:20])]
    assert all(1 / 1.5 < ratio < 1.5 for ratio in ratios)
    # Narrower by four on purpose, it is caught.
    narrow = beta_law.cdf(truth, 16 * alpha[:, 0], 16 * alpha[:, 1])
    assert kstest(narrow, "uniform").pvalue < 1e-4


def test_draws_of_a_step_are_as_many_as_asked_for():
    system = q_fit(2, Logistic([1.0, 1.0]), scope="global", samples=3)
    assert system.build()[0].terms[0].objective.copies == 3
    assert q_fit(2, Logistic([1.0, 1.0])).build()[0].terms[0].objective.samples == 10
    refused("samples must be", q_fit, 2, Logistic([1.0, 1.0]), samples=0)
