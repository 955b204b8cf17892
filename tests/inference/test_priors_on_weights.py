"""Weights with priors, read inside the plates, are drawn before them."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule, PyroSample
from torch import nn

from lexppl import explain
from lexppl.effects import draw_weights, mask_particles, weights_first
from lexppl.inference import Enumerate, NestedIWAE
from lexppl.inference.objective.program import sample_nodes
from lexppl.systems import lex
from tests import small_models
from tests.refusals import refused
from tests.small_models import quick

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
Y = 1.5 * X[:, 0] + 0.5 * torch.randn(60, generator=torch.Generator().manual_seed(1))


class Line(PyroModule):
    """A linear response whose slope has a prior and is read in the plates."""

    def __init__(self):
        super().__init__()
        self.slope = PyroModule[nn.Linear](1, 1, bias=False)
        self.slope.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 1]).to_event(2))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("mask", dist.Bernoulli(torch.full((1,), 0.5)).to_event(1))
            pyro.sample("y", dist.Normal(self.slope(x[:, :1])[:, 0], 0.5), obs=y)


def test_a_guide_set_up_elsewhere_is_refused():
    """Its weights were drawn in the plates, once for each row."""
    with pyro.settings.context(module_local_params=True), torch.no_grad():
        model = small_models.Line()
        guide = AutoNormal(pyro.poutine.block(model, hide=["mask"]))
        guide(X[:2], Y[:2])
    refused("'slope'", quick, model, (X, Y), guide=guide)


def test_without_a_guide_it_is_refused():
    told = r"'slope.weight' is a latent that no guide draws, outside mask_particles"
    refused(told, quick, Line, (X, Y))


def with_priors(model):
    """Every weight of a factory's predictor under a normal prior."""
    network = model.predictor.network
    pyro.nn.module.to_pyro_module_(network)
    for part in network.modules():
        for name, value in list(part.named_parameters(recurse=False)):
            distribution = dist.Normal(0.0, 1.0).expand(value.shape).to_event(value.dim())
            setattr(part, name, PyroSample(distribution))
    return model


def factory():
    return with_priors(lex(2, classes=2, k=1, hidden=(3,), predictor_hidden=(3,)).program())


def test_a_factorys_weights_are_shared_by_all_rows():
    nodes = sample_nodes(weights_first(factory()), (X, (Y > 0).long()))
    layers = [node for name, node in nodes.items() if name.startswith("layers")]
    assert len(layers) == 4
    for node in layers:
        assert node["fn"].batch_shape == () and not node["cond_indep_stack"]


@pytest.mark.parametrize("objective", [NestedIWAE(2), NestedIWAE(1, samples=2)])
def test_a_factory_with_priors_is_fitted(objective):
    model = factory()
    guide = AutoNormal(pyro.poutine.block(model, hide=["mask", "x_imputed"]))
    result = quick(model, (X, (Y > 0).long()), guide=guide, objective=objective, epochs=2)
    assert explain(result, X[:5], draws=3)["predictions"]["mask"].shape == (1, 3, 5, 2)


@pytest.mark.smoke
def test_the_bound_is_that_of_weights_outside():
    """The same program with its weight sampled by hand at its head."""

    class ByHand(Line):
        def forward(self, x, y=None):
            distribution = dist.Normal(0.0, 1.0).expand([1, 1]).to_event(2)
            weight = pyro.sample("slope.weight", distribution)
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                pyro.sample("mask", dist.Bernoulli(torch.full((1,), 0.5)).to_event(1))
                pyro.sample("y", dist.Normal(x[:, 0] * weight[0, 0], 0.5), obs=y)

    def guide(x, y=None):
        pyro.sample("slope.weight", dist.Delta(torch.tensor([[1.2]]), event_dim=2))

    elbo = NestedIWAE(2, estimator=Enumerate())
    plain = nn.Module.__new__(ByHand)
    plain.__init__()
    del plain.slope
    assert elbo.loss(Line(), guide, X, Y) == pytest.approx(elbo.loss(plain, guide, X, Y), rel=1e-6)


def test_drawn_by_hand_it_runs_under_pyros_own():
    class Drawn(Line):
        def forward(self, x, y=None):
            draw_weights(self)
            return Line.forward(self, x, y)

    def guide(x, y=None):
        pyro.sample("slope.weight", dist.Normal(torch.ones(1, 1), 0.1).to_event(2))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("mask", dist.Bernoulli(torch.full((1,), 0.5)).to_event(1))

    with pyro.validation_enabled(True):
        assert Trace_ELBO().loss(Drawn(), guide, X, Y) > 0
