"""Programs of one's own, as a user would write them."""

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn

from lexppl.effects import mask_particles
from lexppl.models import MLP


class OfWeights(PyroModule):
    """A line with normal slopes and a log-normal scale: latents that all rows share."""

    def __init__(self) -> None:
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(()))
        # A prior that is made here would stay on the CPU, and check its values in every step.
        self.slopes = PyroSample(lambda self: dist.Normal(self.zeros, self.ones).to_event(1))
        self.scale = PyroSample(lambda self: dist.LogNormal(self.zeros[0], self.ones[0]))
        self.register_buffer("zeros", torch.zeros(4))
        self.register_buffer("ones", torch.ones(4))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.centre)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        slopes, scale = self.slopes, self.scale
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            place = (x * slopes).sum(-1) + self.centre
            return pyro.sample("y", dist.Normal(place, scale), obs=y)


class OfMasks(PyroModule):
    """Labels given a mask that a guide proposes."""

    class Guide(PyroModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = MLP(4, 4, (5,))

        def forward(self, x: Tensor, y: Tensor | None = None) -> None:
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                pyro.sample("mask", dist.Bernoulli(logits=self.network(x)).to_event(1))

    def __init__(self) -> None:
        super().__init__()
        self.predictor = MLP(4, 3, (5,))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            rate = x.new_full((4,), 0.5)
            mask = pyro.sample("mask", dist.Bernoulli(rate).expand((len(x), 4)).to_event(1))
            return pyro.sample("y", dist.Categorical(logits=self.predictor(x * mask)), obs=y)
