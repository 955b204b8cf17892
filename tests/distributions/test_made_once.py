"""What a part makes of its numbers once, for each type and device."""

import copy

import pyro.distributions as dist
import pytest
import torch
from torch import nn

from lexppl.distributions.computed_once import MadeOnce
from lexppl.inference.replicates.replicate_hyperparameters import replicate_hyperparameters
from lexppl.models import CostPenalty, PriorLogits, RandomSizeSelector

MASKS = dist.Bernoulli(torch.tensor([0.5, 0.25])).to_event(1)


def test_numbers_that_change_are_made_anew_and_types_are_told_apart():
    penalty = CostPenalty([1.0, 4.0])
    assert float(penalty(MASKS, torch.zeros(2))) == 1.5
    penalty.costs = (2.0, 0.1)
    double = dist.Bernoulli(torch.tensor([0.5, 0.25]).double()).to_event(1)
    assert float(penalty(double, torch.zeros(2).double())) == 0.5 * 2.0 + 0.25 * 0.1
    assert float(penalty(MASKS, torch.zeros(2))) == pytest.approx(1.025)


@pytest.mark.parametrize(
    "part", [PriorLogits(nn.Identity(), (1.0, -1.0)), RandomSizeSelector(nn.Identity(), (1.0, 2.0))]
)
def test_one_that_was_used_is_the_same_replicate_as_one_that_was_not(part):
    used = copy.deepcopy(part)
    used(torch.zeros(3, 2))
    assert replicate_hyperparameters([used, part]) == []


def test_what_is_made_in_inference_mode_takes_part_in_gradients_later():
    kept, slopes = MadeOnce(), torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        kept.like(slopes, (3.0, 5.0), torch.tensor)
    (gradient,) = torch.autograd.grad(
        (slopes * kept.like(slopes, (3.0, 5.0), torch.tensor)).sum(), slopes
    )
    assert gradient.tolist() == [3.0, 5.0]
