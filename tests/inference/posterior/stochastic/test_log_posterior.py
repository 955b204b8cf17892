"""The log posterior of global latents, by mini-batches."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model
from pyro.nn import PyroModule

from lexppl.effects import imputation_particles, mask_particles
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.posterior.log_posterior import LogPosterior
from tests.inference.posterior.stochastic.gaussian_rows import (
    Regression,
    SharedMask,
    mask_rows,
    regression_rows,
)
from tests.refusals import refusals


class Constrained(PyroModule):
    """A response whose spread is positive and whose weights are shares, in a plate of groups."""

    def forward(self, x, y=None):
        spread = pyro.sample("spread", dist.LogNormal(0.0, 0.5))
        shares = pyro.sample("shares", dist.Dirichlet(torch.tensor([1.0, 2.0, 3.0])))
        with pyro.plate("groups", 2):
            level = pyro.sample("level", dist.HalfNormal(2.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles(), imputation_particles():
            mean = (x * shares).sum(-1) * level[0] + level[1]
            return pyro.sample("y", dist.Normal(mean, spread), obs=y)


def of(model, rows, **options):
    options = {"seed": 0, "batch_size": len(rows[0]), "objective": None, **options}
    return LogPosterior(model, rows, **options)


def values(target, vectors, batch=None):
    with seeded(0), program_settings(validate=False), torch.no_grad():
        return torch.stack([target.of_batch(u, batch or target.rows) for u in vectors])


def test_it_is_pyro_s_own_potential_with_its_transforms():
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    rows = (x, x[:, 0].exp())
    target = of(Constrained(), rows)
    vectors = torch.randn(6, target.dimensions, generator=torch.Generator().manual_seed(1))
    model = Constrained()
    keep_parameters_local(model)
    with seeded(0), program_settings(validate=False):
        _, potential, transforms, _ = initialize_model(model, model_args=rows)
        assert set(target.sites.names) == set(transforms)
        expected = []
        for vector in vectors:
            parts = zip(target.sites.names, vector.split(target.sites.sizes), strict=True)
            point = {name: part.reshape(target.sites.shapes[name]) for name, part in parts}
            expected.append(-potential(point))
    torch.testing.assert_close(values(target, vectors), torch.stack(expected), rtol=1e-4, atol=1e-3)
    assert target.exact and target.dimensions == 1 + 2 + 2


@pytest.mark.smoke
def test_masks_are_summed_over_exactly():
    x, y = mask_rows(rows=30)
    target = of(SharedMask(), (x, y))
    assert target.exact and target.objective.masks == math.inf and target.note is None
    vectors = torch.tensor([[0.5, -1.0], [2.0, 1.0]])
    expected = []
    masks = torch.tensor([[i >> b & 1 for b in range(3)] for i in range(8)]).float()
    for slope, keep in vectors.double():
        log_mask = masks.double() * torch.nn.functional.logsigmoid(keep)
        log_mask = log_mask + (1 - masks) * torch.nn.functional.logsigmoid(-keep)
        signs = (2 * y - 1).double()
        log_y = torch.nn.functional.logsigmoid(signs[:, None] * slope * (x @ masks.T).double())
        total = torch.logsumexp(log_mask.sum(-1) + log_y, -1).sum()
        prior = dist.Normal(0.0, 2.0).log_prob(slope) + dist.Normal(0.0, 1.5).log_prob(keep)
        expected.append(total + prior)
    torch.testing.assert_close(
        values(target, vectors).double(), torch.stack(expected), rtol=1e-5, atol=1e-4
    )


def test_the_batches_of_an_epoch_average_to_all_rows():
    x, y = regression_rows(rows=60)
    target = of(Regression(4), (x, y), batch_size=20)
    vector = torch.tensor([[0.3, 0.1, 0.0, 1.0]])
    thirds = [tuple(c[i : i + 20] for c in (x, y)) for i in (0, 20, 40)]
    mean = torch.stack([values(target, vector, batch) for batch in thirds]).mean(0)
    torch.testing.assert_close(mean, values(target, vector), rtol=1e-5, atol=1e-3)
    alone = torch.stack([values(target, vector, batch) for batch in thirds])
    assert not torch.allclose(alone, values(target, vector))


def test_chains_are_each_by_itself_and_their_gradients_too():
    x, y = mask_rows(rows=40)
    target = of(SharedMask(), (x, y), batch_size=10)
    vectors = torch.tensor([[0.5, -1.0], [2.0, 1.0], [1.0, 0.0]], requires_grad=True)
    with seeded(0), program_settings(validate=False):
        batches = target.batches(3)
        total, each = target.of_chains(vectors, batches)
        (together,) = torch.autograd.grad(total, vectors)
        for chain in range(3):
            one = target.of_batch(vectors[chain], tuple(c[chain] for c in batches))
            torch.testing.assert_close(each[chain], one)
            (own,) = torch.autograd.grad(one, vectors)
            torch.testing.assert_close(together[chain], own[chain], rtol=1e-4, atol=1e-4)
    assert batches[0].shape == (3, 10, 3)


def test_the_given_program_is_left_alone():
    model = Regression(4).train()
    target = of(model, regression_rows(rows=60))
    assert model.training and target.model is not model and not target.model.training


def plain(x, y=None):
    with pyro.plate("data", len(x), dim=-1), mask_particles(), imputation_particles():
        pyro.sample("y", dist.Normal(x[:, 0], 1.0), obs=y)


def discrete(x, y=None):
    pyro.sample("size", dist.Poisson(3.0))
    plain(x, y)


def impossible(x, y=None):
    scale = pyro.sample("scale", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x), dim=-1), mask_particles(), imputation_particles():
        pyro.sample("y", dist.Poisson(torch.zeros(len(x)) + 0.0 * scale), obs=y)


test_what_cannot_be_sampled_is_refused = refusals(
    (plain, {}, "no global latents"),
    (discrete, {}, "'size' is discrete"),
    (plain, {"batch_size": 31}, "batch has 31 rows, more than 30"),
    (impossible, {}, FloatingPointError, "probability zero"),
    of=lambda program, options: of(
        program,
        (torch.randn(30, 2, generator=torch.Generator().manual_seed(0)), torch.ones(30)),
        **options,
    ),
)
