"""p(z | x, y) by enumeration is calibrated; draws that are something else are caught."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule

from lexppl.effects import imputation_particles, mask_particles
from lexppl.evaluation import mask_calibration, mask_table
from lexppl.evaluation.bayes.mask_table import row_log_likelihood
from lexppl.inference import Enumerate, NestedIWAE
from lexppl.inference.predictive import drawing
from tests.benchmark_modules import benchmark_module
from tests.refusals import refusals, refused

ResampledMasks = benchmark_module("resampled_masks").ResampledMasks
X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
WEIGHTS = torch.tensor([1.5, -1.0, 2.0])


class Masked(PyroModule):
    """Bernoulli masks that depend on x, and a response of the kept features."""

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=x).to_event(1))
            with imputation_particles():
                mean = (mask * x * WEIGHTS).sum(-1)
                return pyro.sample("y", dist.Normal(mean, 0.5), obs=y)


def logits_of(x, y):
    """The posterior, written out: `{mask: log p(z | x) + log p(y | x, z)}` by row."""
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)
    prior = dist.Bernoulli(logits=x).log_prob(masks[:, None]).sum(-1)
    likelihood = dist.Normal((masks[:, None] * x * WEIGHTS).sum(-1), 0.5).log_prob(y)
    return masks, prior, likelihood


Y = torch.linspace(-2.0, 2.0, 40)


def test_the_table_is_the_posterior_written_out():
    with drawing(seed=0):
        table = mask_table(Masked(), X, Y)
    masks, prior, likelihood = logits_of(X, Y)
    order = [int((table.masks == mask).all(-1).nonzero()) for mask in masks]
    torch.testing.assert_close(table.log_prior[order], prior)
    torch.testing.assert_close(table.log_likelihood[order], likelihood)
    torch.testing.assert_close(table.log_evidence, torch.logsumexp(prior + likelihood, 0))
    exact = NestedIWAE(math.inf, estimator=Enumerate())
    with drawing(seed=0):
        loss = exact.loss(Masked(), None, X, Y)
    assert float(table.log_evidence.sum()) == pytest.approx(-loss, rel=1e-5)
    torch.testing.assert_close(table.likelihood_of(masks[:, None].expand(-1, 40, -1)), likelihood)


def test_drawn_masks_have_the_same_evidence():
    with drawing(seed=1):
        exact = mask_table(Masked(), X, Y)
    drawn = torch.cat(
        [row_log_likelihood(Masked(), X, Y, {}, masks=400, seed=s).exp() for s in range(30)]
    )
    error = drawn.std(0) / math.sqrt(len(drawn))
    z = (drawn.mean(0) - exact.log_evidence.exp()) / error.clamp(min=1e-30)
    # A row whose y is far out is explained by masks that few draws have: its error is not known.
    assert z[error > 0.01 * drawn.mean(0).clamp(min=1e-3)].abs().max() < 5.0


@pytest.mark.smoke
def test_enumeration_and_resampling_are_calibrated():
    assert mask_calibration(Masked(), X, simulations=1000, seed=1).alarms() == {}
    own = {"both": lambda masks: masks[..., 0] * masks[..., 2]}
    own_names = mask_calibration(Masked(), X, quantities=own, simulations=100).names
    assert own_names == ("both", "log p(y | x, z)")
    resampled = ResampledMasks(Masked(), proposals=8)
    found = mask_calibration(Masked(), X, resampled, simulations=1000, seed=1)
    assert found.alarms() == {}
    assert found.method == "importance resampling of 8 proposals a draw"
    assert found.names == ("size", "mask[0]", "mask[1]", "mask[2]", "log p(y | x, z)")


def prior_draws(x, y, seed):
    with drawing(seed):
        return dist.Bernoulli(logits=x).sample((99,))


def sharper(x, y, seed):
    with drawing(seed):
        table = mask_table(Masked(), x, y)
        power = torch.softmax(4.0 * (table.log_prior + table.log_likelihood), 0)
        chosen = torch.multinomial(power.T, 99, replacement=True).T
    return table.masks[chosen]


def towards_more(x, y, seed):
    with drawing(seed):
        table = mask_table(Masked(), x, y)
        weight = table.log_prior + table.log_likelihood + table.masks.sum(-1, keepdim=True)
        chosen = torch.multinomial(weight.softmax(0).T, 99, replacement=True).T
    return table.masks[chosen]


def test_draws_that_have_not_seen_y_are_caught_by_the_likelihood_alone():
    found = mask_calibration(Masked(), X, prior_draws, simulations=1000)
    assert set(found.alarms()) == {"log p(y | x, z)"}


def test_a_sharper_and_a_shifted_posterior_are_caught():
    # The numbers of a mask have few values, and ties hide a posterior that is too sure but in
    # the likelihood.
    found = mask_calibration(Masked(), X, sharper, simulations=2000)
    assert "log p(y | x, z)" in found.alarms()
    shifted = mask_calibration(Masked(), X, towards_more, simulations=2000)
    assert shifted.alarms()["size"] == "too high"


class Shared(Masked):
    def forward(self, x, y=None):
        pyro.sample("slope", dist.Normal(0.0, 1.0))
        return super().forward(x, y)


class TwoMasks(PyroModule):
    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            for name in ("first", "second"):
                pyro.sample(name, dist.Bernoulli(logits=x).to_event(1))
            return pyro.sample("y", dist.Normal(x[:, 0], 0.5), obs=y)


test_what_cannot_be_checked_is_refused = refusals(
    (Shared(), None, {}, "rows share"),
    (TwoMasks(), None, {}, "one mask a row"),
    (Masked(), lambda x, y, s: torch.zeros(99, 3), {}, "masks of infer must have shape .S, 40, 3."),
    (Masked(), lambda x, y, s: torch.zeros(9, 40, 3), {}, "gave 9 draws"),
    (Masked(), lambda x, y, s: torch.full((99, 40, 3), 2.0), {}, "program can draw"),
    (Masked(), None, {"quantities": {"a": lambda masks: masks}}, "quantity 'a'"),
    of=lambda program, infer, options: mask_calibration(
        program, X, infer, simulations=40, **options
    ),
)


def test_what_has_no_table_is_refused():
    with drawing(seed=0):
        refused("several latents", mask_table, TwoMasks(), X, Y)
        refused("must observe y", mask_table, lambda x, y: None, X, Y)
        with pytest.raises(ValueError, match="scaled site 'y' has no posterior"):
            mask_table(pyro.poutine.scale(Masked(), scale=0.5), X, Y)
        wide = torch.zeros(4, 20)
        refused("masks", mask_table, Wide(), wide, Y[:4])


class Wide(PyroModule):
    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=x).to_event(1))
            return pyro.sample("y", dist.Normal(mask.sum(-1), 0.5), obs=y)
