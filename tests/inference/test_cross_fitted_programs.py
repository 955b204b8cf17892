"""Cross-fitting of programs of one's own: whatever the predictor gives, by its rows."""

import math
from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn

from lexppl import explain, fit, load, save
from lexppl.distributions import KSubset
from lexppl.effects import FoldShift, mask_particles
from lexppl.inference import Enumerate, NestedIWAE
from lexppl.inference.contexts import keep_parameters_local, program_settings
from lexppl.inference.training.cross_fitting import (
    CrossFitted,
    joined_distribution,
    mean_distribution,
)
from lexppl.models import MLP
from tests.small_models import OwnExplainer

N, G = 21, 4
X = torch.randn(N, G, generator=torch.Generator().manual_seed(0))
LABELS = (X[:, 0] > 0).long()
EXACT = NestedIWAE(math.inf, estimator=Enumerate())
QUICK = {"epochs": 2, "batch_size": 20, "folds": 2, "progress": False}
README = partial(OwnExplainer, G)


def test_readmes_own_explainer(tmp_path):
    result = fit(README, (X, LABELS), objective=NestedIWAE(2), replicates=2, **QUICK)
    predictor = result.model.predictor
    assert isinstance(predictor, CrossFitted)
    one, other = (each(X) for each in predictor.predictors)
    assert not torch.equal(one, other)
    torch.testing.assert_close(predictor(X), (one + other) / 2)
    shown = explain(result, X, LABELS, draws=3)
    save(result, tmp_path)
    again = explain(load(tmp_path, model=README), X, LABELS, draws=3)
    assert (shown["posterior"]["mask"] == again["posterior"]["mask"]).all()


class Zero(OwnExplainer):
    """Without an imputer's draws, so that the bound is exact; its predictor gives what it may."""

    outputs = 2

    def __init__(self, law=None):
        super().__init__(G)
        self.predictor = Giving(law) if law else MLP(G, 2, (4,))
        self.law = law

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", KSubset(self.selector(x), k=2))
            given = self.predictor(x * mask)
            if isinstance(given, tuple):
                given = dist.Normal(*given)
            elif isinstance(given, torch.Tensor):
                given = dist.Categorical(logits=given)
            return pyro.sample("y", given, obs=y)


class Giving(nn.Module):
    def __init__(self, law):
        super().__init__()
        self.network, self.law = MLP(G, 2, (4,)), law

    def forward(self, x):
        return self.law(self.network(x))


POSITIVE, VECTORS = X[:, 1].abs() + 0.1, X[:, 1:3]
LAWS = {
    "normal": (lambda p: dist.Normal(p[..., 0], 1.0), X[:, 1]),
    "gamma": (lambda p: dist.Gamma(p[..., 0].exp(), p[..., 1].exp()), POSITIVE),
    "two events": (lambda p: dist.Normal(p, 1.0).to_event(1), VECTORS),
    "correlated": (lambda p: dist.MultivariateNormal(p, torch.eye(2)), VECTORS),
    "transformed": (lambda p: dist.LogNormal(p[..., 0], p[..., 1].exp()), POSITIVE),
    "ordered": (lambda p: dist.OrderedLogistic(p[..., 0], torch.tensor([-1.0, 1.0])), LABELS),
}
OUTPUTS = {"logits": (None, LABELS), "pair": (lambda p: (p[..., 0], p[..., 1].exp()), X[:, 1])}


@pytest.mark.parametrize(("law", "y"), [*OUTPUTS.values(), *LAWS.values()], ids=[*OUTPUTS, *LAWS])
@pytest.mark.parametrize("shift", [0, 1])
def test_the_bound_is_that_of_each_fold_under_its_predictor(law, y, shift):
    torch.manual_seed(0)
    model = Zero(law)
    keep_parameters_local(model)
    one, other = model.predictor, Zero(law).predictor
    half = (N + 1) // 2

    def exact(predictor, rows):
        model.predictor = predictor
        return EXACT.loss(model, None, X[rows], y[rows])

    with program_settings(validate=True):
        first, second = (one, other) if shift == 0 else (other, one)
        by_hand = exact(first, slice(0, half)) + exact(second, slice(half, N))
        together = CrossFitted([one, other])
        with FoldShift(shift):
            crossed = exact(together, slice(0, N))
            swapped = exact(CrossFitted([other, one]), slice(0, N))
    assert crossed == pytest.approx(by_hand, rel=1e-5)
    assert swapped != pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("name", LAWS)
def test_the_mean_of_densities(name):
    make, _ = LAWS[name]
    drawn = [torch.randn(3, N, 2, generator=torch.Generator().manual_seed(s)) for s in (0, 1)]
    each = [make(0.3 * one - torch.tensor([0.0, 1.0])) for one in drawn]
    mean = mean_distribution(each)
    assert mean.batch_shape == (3, N) and mean.event_shape == each[0].event_shape
    values = each[0].sample()
    densities = torch.stack([d.log_prob(values).exp() for d in each])
    torch.testing.assert_close(mean.log_prob(values).exp(), densities.mean(0))
    if name != "ordered":
        draws = mean.expand((2, 3, N)).sample((2000,)).flatten(0, 1)
        z = (draws.mean(0) - mean.mean) / (mean.variance / len(draws)).sqrt()
        assert float(z.abs().max()) < 5.5
        joined = joined_distribution(each)
        assert joined.sample((4,)).shape == (4, 3, 2 * N, *mean.event_shape)
        torch.testing.assert_close(joined.mean[:, :N], each[0].mean)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (lambda p: p.argmax(-1), "a tensor of floats or a tuple of these; it gives Tensor"),
        (lambda p: "no law", "it gives str"),
        (lambda p: dist.Normal(p, 1.0), r"the last dimension of its batch shape.*to_event"),
    ],
)
def test_other_outputs_are_refused(law, message):
    together = CrossFitted([Giving(law), Giving(law)])
    with FoldShift(0), pytest.raises(TypeError, match=message):
        together(X)
