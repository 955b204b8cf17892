"""The distributions that systems add: shapes, expansion, support and gradients as of Pyro's own."""

import pyro.distributions as dist
import pytest
import torch
from scipy.stats import kstest

from lexppl.distributions import MaskDirichlet
from lexppl.distributions.top_k import TopEntries
from tests.refusals import refused

FAILURE_RATE = 1e-6


@pytest.mark.smoke
def test_dirichlet_draws_follow_the_law():
    """Each share is a Beta variate; Kolmogorov–Smirnov, failing by chance in 3·10⁻⁶ of seeds."""
    alpha = torch.tensor([0.3, 1.5, 4.0]).double()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = MaskDirichlet(alpha).sample((20_000,))
    for place in range(3):
        distribution = torch.stack([alpha[place], alpha.sum() - alpha[place]]).tolist()
        assert kstest(draws[:, place].numpy(), "beta", args=distribution).pvalue > FAILURE_RATE
    wrong = kstest(draws[:, 0].numpy(), "beta", args=[0.4, 5.5]).pvalue
    assert wrong < FAILURE_RATE


def test_dirichlet_draws_in_replicates_differ():
    alpha = torch.full((4, 3), 0.5)
    draws = torch.func.vmap(lambda a: MaskDirichlet(a).rsample(), randomness="different")(alpha)
    assert len({tuple(row) for row in draws.tolist()}) == 4


def test_top_entries_shapes_and_expansion():
    distribution = TopEntries(torch.tensor([[0.1, 3.0, -1.0], [2.0, 0.0, 1.0]]), k=2)
    assert (distribution.batch_shape, distribution.event_shape) == ((2,), (3,))
    wide = distribution.expand((4, 2))
    assert isinstance(wide, dist.Delta)
    assert wide.sample().shape == (4, 2, 3)
    assert torch.equal(distribution.mean, torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]))
    assert torch.equal(distribution.log_prob(distribution.mean), torch.zeros(2))
    assert float(distribution.log_prob(1 - distribution.mean).max()) == -torch.inf
    for k, kind in ((0, ValueError), (4, ValueError), (1.5, TypeError)):
        refused("k must", TopEntries, torch.zeros(3), k, error=kind)
