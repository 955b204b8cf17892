"""What Pyro and torch would refuse in words of their own, or let pass, is refused by its name."""

import math
from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.poutine import block, scale

from lexppl import explain, fit
from lexppl.effects import mask_particles
from lexppl.inference import Enumerate, NestedIWAE
from lexppl.inference.contexts import keep_parameters_local
from tests.programs.builders import Explainer, G, Guide, X, Y

QUICK = {"epochs": 1, "progress": False, "objective": NestedIWAE(1, samples=2)}
EXACT = NestedIWAE(math.inf, estimator=Enumerate())


class SecondDimension(Explainer):
    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-2), mask_particles():
            return self.respond(pyro.sample("mask", self.law(x)), x, y)


class NoEvent(Explainer):
    def law(self, x):
        return dist.Bernoulli(logits=self.selector(x))


class Tempered(Explainer):
    def respond(self, mask, x, y):
        with scale(scale=0.3):
            return super().respond(mask, x, y)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            SecondDimension,
            "plates 'mask_particles' and 'data' are both at dim -2.*rows is at dim=-1",
        ),
        (NoEvent, r"site 'mask' has 3 entries at dim -1 of its batch shape.*'data' has.*to_event"),
    ],
)
def test_plates(program, message):
    with pytest.raises(ValueError, match=message):
        fit(program, (X, Y), **QUICK)
    with pytest.raises(ValueError, match=message):
        explain(program(), X, draws=2)


def test_responses_of_one_column():
    """With one mask (B, 1) against (1, B) would pass, as B² responses."""
    with pytest.raises(ValueError, match=r"site 'y' observes values of shape \(32, 1\).*y\[:, 0\]"):
        fit(Explainer, (X, Y[:, None]), **QUICK)
    fit(Explainer, (X, Y), **QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": torch.optim.Adam([torch.zeros(1)])}, "must be a function.*instance of Adam"),
        ({"optimizer": pyro.optim.Adam({"lr": 0.1})}, "must be a function.*instance of PyroOptim"),
        ({"optimizer": 0.1}, "must be a function.*instance of float"),
        ({"device": "cuda"}, r"takes no device= \(it is 'cuda'\).*x.to\('cuda'\)"),
    ],
)
def test_arguments_of_a_fit(options, message):
    with pytest.raises(TypeError, match=message):
        fit(Explainer, (X, Y), **QUICK, **options)
    fit(Explainer, (X, Y), **QUICK, optimizer=partial(torch.optim.SGD, lr=0.1))


@pytest.mark.parametrize("model", [Explainer, Explainer()])
def test_replicates_start_from_networks_of_a_guide_of_their_own(model):
    given = Guide()
    still = {**QUICK, "learning_rate": 0.0, "guide": given}
    result = fit(model, (X, Y), replicates=2, **still)
    first = [guide.network.layers[0].weight for guide in result.guides]
    assert not torch.equal(*first)
    assert torch.equal(result.guides[0].shift, result.guides[1].shift)
    alone = fit(model, (X, Y), **still).guides[0]
    assert torch.equal(alone.network.layers[0].weight, given.network.layers[0].weight)


def test_what_is_beneath_a_handler_learns():
    given = Guide()
    before = given.shift.clone()
    result = fit(Explainer, (X, Y), guide=block(given, hide=["nothing"]), **QUICK)
    assert not torch.equal(result.guides[0].program.shift, before)
    assert torch.equal(given.shift, before)
    model = Explainer()
    result = fit(scale(model, scale=0.5), (X, Y), **QUICK)
    one, other = result.model.program.selector.layers[0].weight, model.selector.layers[0].weight
    assert not torch.equal(one, other)


@pytest.mark.parametrize("words", [{"hide": ["mask"]}, {"expose": ["y"]}])
def test_a_latent_that_a_handler_hides_is_refused(words):
    with pytest.raises(ValueError, match=r"site 'mask' is hidden.*poutine\.block.*do not hide"):
        fit(block(Explainer(), **words), (X, Y), **QUICK)
    with pytest.raises(ValueError, match="site 'mask' is hidden"):
        fit(Explainer, (X, Y), guide=block(Guide(), hide=["mask"]), **QUICK)


def test_a_scale_of_the_response_tempers_what_is_learned_and_not_what_is_explained():
    plain, tempered = Explainer(), Tempered()
    for model in (plain, tempered):
        keep_parameters_local(model)
    loss, of_tempered = (EXACT.loss(model, None, X, Y) for model in (plain, tempered))
    assert of_tempered == pytest.approx(0.3 * loss, rel=1e-5)
    # All masks listed: p(z | x, y) ∝ p(z | x) p(y | x, z), the power 1.
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * G)
    with torch.no_grad():
        prior = dist.Bernoulli(logits=plain.selector(X)).to_event(1).log_prob(masks[:, None])
        logits = plain.predictor(X * masks[:, None])[..., 0]
        likelihood = dist.Bernoulli(logits=logits).log_prob(Y)
        weights = (prior + likelihood).softmax(0)
        means = torch.einsum("zb,zg->bg", weights, masks)
        powered = torch.einsum("zb,zg->bg", (prior + 0.3 * likelihood).softmax(0), masks)
    shown = explain(tempered, X, Y, draws=2, proposals=math.inf)["sample_stats"]
    found = torch.as_tensor(shown["selection_probability_given_y"].values[0])
    torch.testing.assert_close(found, means, rtol=0, atol=1e-5)
    assert float((found - powered).abs().max()) > 1e-3
