"""A signed attribution counts by its size wherever features are ranked."""

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule

from lexppl import effects, fit
from lexppl.compare import compare
from lexppl.inference import NestedIWAE

X = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 2] > 0).long()


class Against(PyroModule):
    """Gives the feature that decides a large negative attribution."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(2))

    def reset_parameters(self):
        torch.nn.init.zeros_(self.bias)

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), effects.mask_particles():
            attribution = torch.tensor([0.1, 0.2, -5.0]).expand(len(x), 3)
            pyro.sample("mask", dist.Delta(attribution, event_dim=1))
            return pyro.sample("y", dist.Categorical(logits=self.bias.expand(len(x), 2)), obs=y)


def test_the_largest_by_size_is_kept_first():
    result = fit(
        Against, (X[:100], Y[:100]), objective=NestedIWAE(1, samples=2), epochs=1, progress=False
    )
    table = compare(
        {"against": result},
        (X[:100], Y[:100]),
        (X[100:], Y[100:]),
        sizes=[1],
        fit_options={"epochs": 20, "hidden": (16,), "batch_size": 20, "learning_rate": 1e-2},
    )
    assert table.loc["against", "accuracy@1"] > 0.85
    assert table.loc["random", "accuracy@1"] < 0.75
