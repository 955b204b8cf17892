"""Which plate is scaled up to the data set, and which programs no mini-batch can stand for."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule
from torch import nn

from lexppl.effects import mask_particles, penalty
from lexppl.inference import Enumerate, NestedIWAE
from lexppl.inference.contexts import MiniBatch, keep_parameters_local, rows_plate
from lexppl.inference.training.first_look import nodes_of
from tests.refusals import refused
from tests.small_models import OneLog, Partial, Taking, quick

X = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).float()


class Grouped(PyroModule):
    """Masks of groups, each row's group a column of x; one penalty for each group's mask."""

    def __init__(self, groups=2, rows="data"):
        super().__init__()
        self.groups, self.rows = groups, rows
        self.logits = nn.Parameter(torch.linspace(-1.0, 1.0, groups))
        self.weight = nn.Parameter(torch.tensor(1.3))

    def forward(self, x, y=None):
        with pyro.plate("groups", self.groups, dim=-1), mask_particles():
            distribution = dist.Bernoulli(logits=self.logits.unsqueeze(-1)).to_event(1)
            mask = pyro.sample("mask", distribution)[..., 0]
            penalty("size", 0.3 * mask)
        group = torch.arange(len(x)) % self.groups
        with pyro.plate(self.rows, len(x), dim=-1), mask_particles():
            logits = self.weight * mask[..., group] * x[:, 0]
            pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def plate_of(model):
    keep_parameters_local(model)
    return rows_plate(nodes_of(model, (X[:4], Y[:4])).values(), 4)


def value(model, rows, batch, plate):
    elbo = NestedIWAE(1, samples=2, estimator=Enumerate())
    with MiniBatch(rows, batch, plate):
        return -elbo.loss(model, None, X[:batch], Y[:batch])


def penalties(model):
    return -0.3 * float(torch.sigmoid(model.logits).sum())


@pytest.mark.parametrize("groups", [2, 4])
def test_rows_are_scaled_up_and_groups_are_not(groups):
    """With four groups there are as many as rows in the batch."""
    model = Grouped(groups)
    plate = plate_of(model)
    assert plate == "data"
    whole, part = value(model, 4, 4, plate), value(model, 8, 4, plate)
    fixed = penalties(model)
    assert part - fixed == pytest.approx(2 * (whole - fixed), rel=1e-5)


def test_rows_that_cannot_be_told_from_groups_are_refused():
    refused(r"plates \['groups', 'people'\] .* have 4 entries each", plate_of, Grouped(4, "people"))
    assert plate_of(Grouped(2, "people")) == "people"
    refused('call the plate over rows "data"', quick, Grouped(4, "people"), (X, Y), batch_size=4)


def test_the_last_batch_may_be_as_small_as_the_groups():
    """Five rows in batches of three: the plate is known from the first."""
    options = {"batch_size": 3, "epochs": 2, "objective": NestedIWAE(1, samples=2)}
    result = quick(Grouped(2, "people"), (X[:5], Y[:5]), **options)
    assert len(result.history) == 2


@pytest.mark.smoke
def test_gradients_of_a_fit_are_those_of_all_rows():
    """One epoch of plain gradient descent by batches, averaged over all ways to make them."""
    model = Grouped(2)
    bound = NestedIWAE(1, samples=2, estimator=Enumerate())
    full = bound.differentiable_loss(model, None, X, Y)
    exact = torch.autograd.grad(full, list(model.parameters()))
    parts = [torch.zeros_like(g) for g in exact]
    for start in range(0, 8, 2):
        rows = slice(start, start + 2)
        with MiniBatch(8, 2, "data"):
            loss = bound.differentiable_loss(model, None, X[rows], Y[rows])
        for part, g in zip(parts, torch.autograd.grad(loss, list(model.parameters())), strict=True):
            part += g / 4
    for part, g in zip(parts, exact, strict=True):
        assert torch.allclose(part, g, atol=1e-5)


@pytest.mark.parametrize(("known", "plate"), [(None, "data"), (8, None)])
def test_a_programs_own_subsample(known, plate):
    """Of the batch: N/B for the batch times B/b for its own; of all rows: N/b, which it says."""
    model = Taking(known)
    found = plate_of(model)
    assert found == plate
    with MiniBatch(8, 4, found):
        trace = pyro.poutine.trace(model).get_trace(X[:4], Y[:4])
    assert trace.nodes["y"]["scale"] == 4.0


def test_a_factor_of_the_whole_batch_needs_all_rows():
    times = torch.rand(8, generator=torch.Generator().manual_seed(1))
    with pytest.raises(ValueError, match=r"'partial' observes the whole batch.*batch_size=8"):
        quick(Partial, (X, times), batch_size=4)
    quick(Partial, (X, times), batch_size=8)


def test_rows_inside_one_log_need_all_rows():
    told = "'data' of site 'y' is a plate of a subsample, entered in mask_particles"
    refused(told, quick, OneLog, (X, Y), batch_size=4)
    quick(OneLog, (X, Y), batch_size=4, objective=NestedIWAE(1, samples=2))
    quick(OneLog, (X, Y), batch_size=8)


def test_only_steps_move_running_statistics():
    """What a fit looks at before its first step leaves no trace in a batch norm."""

    class Normed(PyroModule):
        def __init__(self):
            super().__init__()
            self.selector = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))

        def forward(self, x, y=None):
            logits = self.selector(x)
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                mask = pyro.sample("mask", dist.Bernoulli(logits=logits).to_event(1))
                pyro.sample("y", dist.Bernoulli(logits=mask[..., 0] * x[:, 0]), obs=y)

    result = quick(Normed, (X, Y), epochs=3, batch_size=4)
    assert int(result.model.selector[0].num_batches_tracked) == 3 * 2
