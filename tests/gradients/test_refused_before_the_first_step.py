"""What an estimator cannot do is refused by a fit before it steps, and told what would work."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule

from lexppl.distributions import KSubset
from lexppl.effects import mask_particles
from lexppl.inference import (
    REBAR,
    DisARM,
    LeaveOneOut,
    NestedIWAE,
    Pathwise,
    SelfNormalized,
    StraightThrough,
    TrainingOptions,
)
from lexppl.models import MLP
from tests.small_models import quick

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()

LAWS = {
    "geometric": lambda logits: dist.Geometric(logits=logits).to_event(1),
    "k-subset": lambda logits: KSubset(logits, 2),
    "bernoulli": lambda logits: dist.Bernoulli(logits=logits).to_event(1),
}


class Explainer(PyroModule):
    def __init__(self, distribution):
        super().__init__()
        self.distribution = LAWS[distribution]
        self.selector, self.predictor = MLP(3, 3, (4,)), MLP(3, 2, (4,))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", self.distribution(self.selector(x)))
            return pyro.sample("y", dist.Categorical(logits=self.predictor(mask * x)), obs=y)


@pytest.mark.parametrize(
    ("distribution", "estimator", "options", "message"),
    [
        *(
            ("geometric", estimator, {"masks": 2}, r"knows Bernoulli.*such as LeaveOneOut")
            for estimator in (StraightThrough(), Pathwise(), REBAR())
        ),
        ("geometric", DisARM(), {"masks": 1, "samples": 2}, "LeaveOneOut works for any"),
        ("k-subset", REBAR(), {"masks": 2}, r"use TopKMask or Bernoulli masks, or LeaveOneOut"),
        ("k-subset", StraightThrough(), {"masks": 2}, "TopKMask, or MarginalStraightThrough"),
        ("bernoulli", LeaveOneOut(), {"masks": 1}, "set masks=2 or more .* or samples=2 or more"),
        ("bernoulli", SelfNormalized(), {"masks": 1}, "masks=2 or more"),
        ("bernoulli", DisARM(), {"masks": 2}, "samples must be even"),
    ],
)
def test_refused(distribution, estimator, options, message):
    seen = []
    model = Explainer(distribution)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises((ValueError, TypeError), match=message):
        objective = NestedIWAE(estimator=estimator, **options)
        quick(model, (X, Y), objective=objective, training=TrainingOptions(callbacks=[seen.append]))
    assert not seen
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
