"""Plates that draw their own rows: the guide's rows are the model's, and the scale is N/b."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl.effects import mask_particles
from lexppl.inference import REBAR, Enumerate, LeaveOneOut, NestedIWAE
from tests.gradients.enumeration import threshold
from tests.programs.enumeration import Case, drawn, exact, largest_z

X = torch.tensor([0.9, -0.4, 1.5, -1.1]).double()
Y = torch.tensor([1.0, 0.0, 1.0, 1.0]).double()
PARAMETERS = {"a": [0.7], "w": [1.4], "q": [-0.5]}
ROWS, TAKEN = 4, 2


class Rows:
    """The rows that a program took, as it saw them."""

    def __init__(self, subsample=True):
        self.seen = {"model": [], "guide": []}
        self.size = TAKEN if subsample else None

    def plate(self):
        return pyro.plate("data", ROWS, subsample_size=self.size, dim=-1)

    def masks(self, logits, index):
        return pyro.sample(
            "mask", dist.Bernoulli(logits=(logits * X[index]).unsqueeze(-1)).to_event(1)
        )

    def model(self, p):
        with self.plate() as index, mask_particles():
            self.seen["model"].append(index)
            z = self.masks(p["a"], index)
            distribution = dist.Bernoulli(logits=p["w"] * z[..., 0] - 0.3 * X[index])
            pyro.sample("y", distribution, obs=Y[index])

    def guide(self, p):
        with self.plate() as index, mask_particles():
            self.seen["guide"].append(index)
            self.masks(p["q"], index)


def plain():
    return {name: torch.tensor(v).double() for name, v in PARAMETERS.items()}


def whole(guided, masks):
    everything = Rows(subsample=False)
    guide = everything.guide if guided else None
    return exact(Case(everything.model, plain(), guide), masks)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("guided", [True, False])
@pytest.mark.parametrize(
    ("masks", "samples", "estimator"),
    [(1, 2, LeaveOneOut()), (2, 1, LeaveOneOut()), (2, 1, Enumerate()), (1, 2, REBAR(0.5))],
)
def test_expectation_is_that_of_all_rows(guided, masks, samples, estimator):
    value, gradient = whole(guided, masks)
    some = Rows()
    elbo = NestedIWAE(masks, samples=samples, estimator=estimator)
    case = Case(some.model, plain(), some.guide if guided else None)
    draws = drawn(case, elbo, 800)
    assert largest_z(draws, (value, gradient)) < threshold(4 * 8)
    if guided:
        pairs = zip(some.seen["model"], some.seen["guide"], strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)


def test_the_same_rows_in_every_run_of_an_estimate():
    some = Rows()
    elbo = NestedIWAE(1, samples=2, estimator=REBAR(0.5))
    for _ in range(5):
        some.seen["model"].clear()
        elbo.differentiable_loss(some.model, some.guide, plain())
        first, *others = some.seen["model"]
        assert len(others) == 2 and all(torch.equal(first, other) for other in others)


def test_a_subsample_inside_a_log_is_refused():
    def model(p):
        with mask_particles(), pyro.plate("data", ROWS, subsample_size=TAKEN, dim=-1) as index:
            z = pyro.sample("mask", dist.Bernoulli(logits=p["a"].expand(TAKEN, 1)).to_event(1))
            pyro.sample("y", dist.Bernoulli(logits=p["w"] * z[..., 0]), obs=Y[index])

    with pytest.raises(
        ValueError, match="'data' of site 'y' is a plate of a subsample, entered in mask_particles"
    ):
        NestedIWAE(2).differentiable_loss(model, None, plain())
    NestedIWAE(1, samples=2).differentiable_loss(model, None, plain())
