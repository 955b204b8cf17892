"""The distributions of entries drawn without replacement, against sums over orders."""

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradgradcheck

from lexppl.distributions import KSubset, OrderedTopK, TopKMask
from tests.distributions.goodness_of_fit import FAILURE_RATE, assert_fits, p_value
from tests.distributions.listed import numbers
from tests.refusals import refused


def test_mask_log_prob_at_the_largest_k() -> None:
    logits = numbers(3, 10, scale=3.0)
    distribution = TopKMask(logits, 8)
    assert (
        distribution.log_prob(distribution.enumerate_support(expand=False)).logsumexp(0).abs().max()
        < 1e-12
    )


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits(dtype: torch.dtype) -> None:
    logits = torch.tensor([50.0, -50.0, 50.0, 0.0, 1e3, -1e3], dtype=dtype, requires_grad=True)
    for k in range(1, 7):
        for distribution in (OrderedTopK(logits, k), TopKMask(logits, k)):
            log_prob = distribution.log_prob(distribution.enumerate_support())
            assert bool(log_prob.isfinite().all())
            assert abs(log_prob.logsumexp(0)) < 1e-4
            (gradient,) = grad(log_prob.square().sum(), logits, create_graph=True)
            (second,) = grad(gradient.square().sum(), logits)
            assert bool(gradient.isfinite().all() & second.isfinite().all())


def test_indices_and_masks() -> None:
    logits = numbers(4, 6)
    ordered, mask = OrderedTopK(logits, 2), TopKMask(logits, 2)
    wide = ordered.expand((3, 4))
    assert (wide.batch_shape, wide.event_shape) == ((3, 4), (2,))
    draws = wide.sample((5,))
    assert draws.shape == (5, 3, 4, 2) and bool(wide.support.check(draws).all())
    assert torch.equal(wide.log_prob(draws), ordered.log_prob(draws))
    assert wide.enumerate_support().shape == (30, 3, 4, 2)
    assert mask.ordered.mask(mask.ordered.sample((5,))).shape == (5, 4, 6)
    masks = mask.enumerate_support(expand=False)
    assert torch.equal(mask.mode, masks[mask.log_prob(masks).argmax(0), 0])
    order = torch.tensor([[0, 3, 2], [4, 1, 0]])
    for check in (
        lambda x: OrderedTopK(x, 3).log_prob(order),
        lambda x: TopKMask(x, 5).log_prob(torch.ones(5, dtype=torch.float64)),
    ):
        assert gradgradcheck(check, (numbers(2, 5),))


@pytest.mark.parametrize(("size", "k"), [(5, 2), (6, 6), (7, 3)])
def test_draws_fit(size: int, k: int) -> None:
    torch.manual_seed(size)
    logits = numbers(2, size).detach()
    ordered = OrderedTopK(logits, k)
    orders = ordered.enumerate_support(expand=False)
    draws = ordered.sample((20_000,))
    probabilities = ordered.log_prob(orders).exp()
    distribution = TopKMask(logits, k)
    masks = distribution.enumerate_support(expand=False)
    mask_draws = distribution.sample((20_000,))
    mask_probabilities = distribution.log_prob(masks).exp()
    for row in range(2):
        assert_fits(draws[:, row], orders[:, 0], probabilities[:, row])
        assert_fits(ordered.mask(draws)[:, row], masks[:, 0], mask_probabilities[:, row])
        assert_fits(mask_draws[:, row], masks[:, 0], mask_probabilities[:, row])


def test_other_laws_do_not_fit() -> None:
    """Negative controls: the order reversed; the exact k-subset distribution with the same
    logits."""
    torch.manual_seed(0)
    logits = numbers(6).detach()
    ordered, distribution = OrderedTopK(logits, 3), TopKMask(logits, 3)
    orders = ordered.enumerate_support()
    reversed_draws = ordered.sample((20_000,)).flip(-1)
    assert p_value(reversed_draws, orders, ordered.log_prob(orders).exp()) < FAILURE_RATE
    masks = distribution.enumerate_support()
    draws = KSubset(logits, 3).sample((20_000,))
    assert p_value(draws, masks, distribution.log_prob(masks).exp()) < FAILURE_RATE
    assert (distribution.log_prob(masks) - KSubset(logits, 3).log_prob(masks)).abs().max() > 0.1


@pytest.mark.parametrize("distribution", [OrderedTopK, TopKMask])
@pytest.mark.parametrize(
    ("logits", "k", "error", "message"),
    [
        (torch.zeros(4), 0, ValueError, "between 1 and G = 4.*it is 0"),
        (torch.zeros(4), 5, ValueError, "it is 5"),
        (torch.zeros(4), 1.5, TypeError, "k must be an int; it is a float"),
        (torch.tensor(0.0), 1, ValueError, "last dimension"),
        (torch.tensor([0.0, math.inf]), 1, ValueError, "finite"),
    ],
)
def test_bad_input(
    distribution: type, logits: Tensor, k: int, error: type[Exception], message: str
) -> None:
    refused(message, distribution, logits, k, error=error, validate_args=True)


def test_refusals() -> None:
    nine = (torch.arange(12) < 9).float()
    refused("at most 8 entries; k is 9", TopKMask(torch.zeros(12), 9).log_prob, nine)
    refused("ordered draws, more than", OrderedTopK(torch.zeros(20), 10).enumerate_support)
    ordered = OrderedTopK(torch.zeros(4), 2, validate_args=True)
    for bad in (torch.tensor([1, 1]), torch.tensor([0, 4]), torch.tensor([-1, 0])):
        with pytest.raises(ValueError):
            ordered.log_prob(bad)
    with pytest.raises(ValueError):
        TopKMask(torch.zeros(4), 2, validate_args=True).log_prob(torch.tensor([1.0, 1, 1, 0]))
