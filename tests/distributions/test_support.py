"""The list of a distribution's masks, and its family's uniform member."""

import pyro.distributions as dist
import pytest
import torch

from lexppl.distributions import (
    KSubset,
    MaxConcrete,
    OrderedTopK,
    TopKMask,
    mask_support,
    uniform_masks,
)
from lexppl.distributions.computed_once import MadeOnce
from lexppl.models import CostPenalty
from tests.refusals import refusals


def test_bernoulli_lists_every_mask_once() -> None:
    distribution = dist.Bernoulli(logits=torch.zeros(3, 5, dtype=torch.float64)).to_event(1)
    masks = mask_support(distribution)
    assert masks.shape == (32, 1, 5)
    assert masks.dtype == torch.float64
    assert len(masks.unique(dim=0)) == 32
    distribution = dist.Bernoulli(logits=torch.randn(2, 3, 5)).to_event(1)
    assert distribution.log_prob(mask_support(distribution)).logsumexp(0).abs().max() < 1e-5


test_refusals = refusals(
    (dist.Bernoulli(logits=torch.zeros(40)).to_event(1), 2**16, "1099511627776 masks.*65536"),
    (KSubset(torch.zeros(40), 20), 2**16, "KSubset with G = 40.* has 137846528820 masks"),
    (TopKMask(torch.zeros(10), 5), 100, "TopKMask with G = 10 has 252 masks.*limit = 100"),
    (dist.OneHotCategorical(logits=torch.zeros(9)), 8, "9 masks, more than limit = 8"),
    (KSubset(torch.zeros(2, 4), torch.tensor([1, 2])), 100, "the same k in every row"),
    (OrderedTopK(torch.zeros(4), 2), 100, "use TopKMask"),
    (MaxConcrete(0.5, torch.zeros(4), 2), 100, "MaxConcrete cannot list its masks"),
    of=mask_support,
)


def test_other_independent_laws_are_refused() -> None:
    for function in (mask_support, uniform_masks):
        with pytest.raises(TypeError, match="and not Normal"):
            function(dist.Normal(torch.zeros(4), 1.0).to_event(1))
        with pytest.raises(TypeError, match=r"event shape \(2, 4\)"):
            function(dist.Bernoulli(logits=torch.zeros(2, 4)).to_event(2))


def test_uniform_members() -> None:
    logits = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    for distribution in (
        dist.Bernoulli(logits=logits).to_event(1).expand((2, 4)),
        KSubset(logits, 3).expand((2, 4)),
        TopKMask(logits, 3).expand((2, 4)),
        OrderedTopK(logits, 3).expand((2, 4)),
        KSubset(logits, torch.tensor([1, 2, 3, 6])).expand((2, 4)),
    ):
        uniform = uniform_masks(distribution)
        assert type(uniform) is type(distribution)
        assert uniform.batch_shape == distribution.batch_shape == (2, 4)
        assert uniform.event_shape == distribution.event_shape
        draws = uniform.sample((3,))
        log_prob = uniform.log_prob(draws)
        assert draws.dtype in (torch.float64, torch.int64)
        assert (log_prob - log_prob[0, 0]).abs().max() < 1e-12
        assert not log_prob.requires_grad
    assert torch.equal(distribution.k, uniform.k)
    with pytest.raises(TypeError, match=r"MaxConcrete is not known.*@uniform_masks.register"):
        uniform_masks(MaxConcrete(0.5, torch.zeros(4), 2))


def test_tensors_made_once_follow_their_numbers_types_and_gradients() -> None:
    masks = dist.Bernoulli(torch.tensor([0.5, 0.25])).to_event(1)
    penalty = CostPenalty([1.0, 4.0])
    assert float(penalty(masks, torch.zeros(2))) == 1.5
    penalty.costs = (2.0, 0.5)
    assert float(penalty(masks, torch.zeros(2))) == 1.125
    kept, slopes = MadeOnce(), torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        kept.like(slopes, (3.0, 5.0), torch.tensor)
    (slopes * kept.like(slopes, (3.0, 5.0), torch.tensor)).sum().backward()
    assert slopes.grad is not None and slopes.grad.tolist() == [3.0, 5.0]
    assert kept.like(slopes.double(), (3.0, 5.0), torch.tensor).dtype == torch.float64
