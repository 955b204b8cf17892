"""The distributions of entries drawn without replacement, against sums over orders."""

import math
from itertools import permutations

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from lexppl.distributions import KSubset, OrderedTopK, TopKMask
from tests.distributions.goodness_of_fit import FAILURE_RATE, assert_fits, p_value

SIZES = [(size, k) for size in range(1, 7) for k in range(1, size + 1)]


def logits_of(*shape: int, scale: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, dtype=torch.float64, generator=generator) * scale
    return logits.requires_grad_()


def ordered_log_prob(logits: Tensor, order: tuple[int, ...]) -> Tensor:
    """Pick by pick, for one row of logits."""
    total = logits.new_zeros(())
    left = list(range(len(logits)))
    for pick in order:
        total = total + logits[pick] - logits[left].logsumexp(0)
        left.remove(pick)
    return total


def mask_log_prob(logits: Tensor, mask: Tensor) -> Tensor:
    """The sum over the orders of the mask's ones."""
    chosen = mask.nonzero().flatten().tolist()
    return torch.stack([ordered_log_prob(logits, o) for o in permutations(chosen)]).logsumexp(0)


@pytest.mark.parametrize(("size", "k"), SIZES)
def test_ordered_log_prob(size: int, k: int) -> None:
    logits = logits_of(2, size, seed=size)
    distribution = OrderedTopK(logits, k)
    draws = distribution.enumerate_support(expand=False)
    assert draws.shape == (math.perm(size, k), 1, k)
    log_prob = distribution.log_prob(draws)
    assert log_prob.logsumexp(0).abs().max() < 1e-12
    for order, value in list(zip(draws[:, 0].tolist(), log_prob[:, 1], strict=True))[:30]:
        reference = ordered_log_prob(logits[1], tuple(order))
        assert (value - reference).abs() < 1e-12
        (difference,) = grad(value - reference, logits, retain_graph=True)
        assert difference.abs().max() < 1e-12


@pytest.mark.parametrize(("size", "k"), SIZES)
def test_mask_log_prob_sums_over_orders(size: int, k: int) -> None:
    logits = logits_of(2, size, seed=size)
    distribution = TopKMask(logits, k)
    masks = distribution.enumerate_support(expand=False)
    log_prob = distribution.log_prob(masks)
    assert log_prob.shape == (math.comb(size, k), 2)
    assert log_prob.logsumexp(0).abs().max() < 1e-12
    reference = torch.stack([mask_log_prob(logits[0], mask) for mask in masks[:, 0]])
    assert (log_prob[:, 0] - reference).abs().max() < 1e-12
    weights = torch.linspace(-1, 1, len(masks), dtype=torch.float64)
    (difference,) = grad((weights * (log_prob[:, 0] - reference)).sum(), logits)
    assert difference.abs().max() < 1e-12


def test_mask_log_prob_at_the_largest_k() -> None:
    logits = logits_of(3, 10, scale=3.0)
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


def test_gradcheck() -> None:
    logits = logits_of(2, 5)
    order = torch.tensor([[0, 3, 2], [4, 1, 0]])
    mask = OrderedTopK(logits, 3).mask(order)
    for function in (
        lambda x: OrderedTopK(x, 3).log_prob(order),
        lambda x: TopKMask(x, 3).log_prob(mask),
        lambda x: TopKMask(x, 5).log_prob(torch.ones(5, dtype=torch.float64)),
    ):
        assert gradcheck(function, (logits,))
        assert gradgradcheck(function, (logits,))


@pytest.mark.parametrize(("size", "k"), [(5, 2), (6, 6), (7, 3)])
def test_draws_fit(size: int, k: int) -> None:
    torch.manual_seed(size)
    logits = logits_of(2, size).detach()
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
    logits = logits_of(6).detach()
    ordered, distribution = OrderedTopK(logits, 3), TopKMask(logits, 3)
    orders = ordered.enumerate_support()
    reversed_draws = ordered.sample((20_000,)).flip(-1)
    assert p_value(reversed_draws, orders, ordered.log_prob(orders).exp()) < FAILURE_RATE
    masks = distribution.enumerate_support()
    draws = KSubset(logits, 3).sample((20_000,))
    assert p_value(draws, masks, distribution.log_prob(masks).exp()) < FAILURE_RATE
    assert (distribution.log_prob(masks) - KSubset(logits, 3).log_prob(masks)).abs().max() > 0.1


def test_shapes_and_expand() -> None:
    logits = logits_of(4, 6)
    for distribution, event in ((OrderedTopK(logits, 2), 2), (TopKMask(logits, 2), 6)):
        wide = distribution.expand((3, 4))
        assert type(wide) is type(distribution)
        assert wide.batch_shape == (3, 4)
        assert wide.event_shape == (event,)
        draws = wide.sample((5,))
        assert draws.shape == (5, 3, 4, event)
        assert wide.log_prob(draws).shape == (5, 3, 4)
        assert (wide.log_prob(draws) - distribution.log_prob(draws)).abs().max() < 1e-12
        assert wide.enumerate_support().shape[1:] == (3, 4, event)
        assert wide.enumerate_support(expand=False).shape[1:] == (1, 1, event)
        assert bool(wide.support.check(draws).all())
        assert distribution.expand_by((2,)).sample().shape == (2, 4, event)
        assert repr(wide) == f"{type(distribution).__name__}(logits: (3, 4, 6), k: 2)"
    mask = TopKMask(logits, 2)
    assert mask.ordered.mask(mask.ordered.sample((5,))).shape == (5, 4, 6)
    assert torch.equal(mask.mode.sum(-1), torch.full((4,), 2.0, dtype=torch.float64))
    masks = mask.enumerate_support(expand=False)
    best = mask.log_prob(masks).argmax(0)
    assert torch.equal(mask.mode, masks[best, 0])


def test_vmap() -> None:
    logits = logits_of(5, 3, 6).detach()

    def everything(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        ordered = OrderedTopK(x, 3, validate_args=False).expand((4, 3))
        mask = TopKMask(x, 3, validate_args=False).expand((4, 3))
        order, drawn = ordered.sample(), mask.sample()
        return order, ordered.log_prob(order), drawn, mask.log_prob(drawn)

    torch.manual_seed(0)
    order, log_order, mask, log_mask = torch.func.vmap(everything, randomness="different")(logits)
    for row in range(5):
        expected = OrderedTopK(logits[row], 3).log_prob(order[row])
        assert (log_order[row] - expected).abs().max() < 1e-12
        expected = TopKMask(logits[row], 3).log_prob(mask[row])
        assert (log_mask[row] - expected).abs().max() < 1e-12


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
    with pytest.raises(error, match=message):
        distribution(logits, k, validate_args=True)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="at most 8 entries; k is 9"):
        TopKMask(torch.zeros(12), 9).log_prob(torch.ones(12))
    with pytest.raises(ValueError, match="ordered draws, more than"):
        OrderedTopK(torch.zeros(20), 10).enumerate_support()
    ordered = OrderedTopK(torch.zeros(4), 2, validate_args=True)
    for bad in (torch.tensor([1, 1]), torch.tensor([0, 4]), torch.tensor([-1, 0])):
        with pytest.raises(ValueError):
            ordered.log_prob(bad)
    with pytest.raises(ValueError):
        TopKMask(torch.zeros(4), 2, validate_args=True).log_prob(torch.tensor([1.0, 1, 1, 0]))
