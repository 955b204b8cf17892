"""The predictor `y ~ Φ(y | f_θ(x̃))`: a likelihood over any network."""

from math import prod
from typing import ClassVar

import pyro
from pyro.distributions import TorchDistribution
from pyro.nn import PyroModule
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.effects import imputation_particles, mask_particles
from lexppl.models.lex import observe
from lexppl.models.likelihoods import Likelihood


class UnmaskedPredictor(Configured, PyroModule):
    """The predictor that sees everything, as a program: `y ~ Φ(y | f_θ(x))`, without masks.

    Args:
        predictor: from x to the distribution of y.

    Example:
        >>> import torch
        >>> from lexppl.models import MLP, CategoricalLikelihood, Predictor
        >>> program = UnmaskedPredictor(Predictor(MLP(3, 2, seed=0), CategoricalLikelihood()))
        >>> program(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))
        tensor([0, 0, 0, 0])
    """

    def __init__(self, predictor: nn.Module) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        # The bound reads what is observed inside the particle plates; there is one particle.
        with pyro.plate("data", len(x), dim=-1), mask_particles(), imputation_particles():
            return observe("y", self.predictor(x), y)


class Predictor(Configured, nn.Module):
    """The distribution of y given imputed rows.

    Args:
        network: any module from `(N, *event)` to outputs `(N, n)`; particles and rows are put
            into the one batch dimension N that it sees.
        likelihood: what the outputs mean.
        event_dim: number of dimensions of a row: 1 for tables, 3 for images.

    Example:
        >>> import torch
        >>> from lexppl.models import MLP, CategoricalLikelihood
        >>> predictor = Predictor(MLP(11, 2, seed=0), CategoricalLikelihood())
        >>> predictor(torch.zeros(2, 10, 5, 11)).batch_shape
        torch.Size([2, 10, 5])
    """

    sees_particles: ClassVar[bool] = True
    """Whether it is called with a row once for each of its particles."""

    def __init__(self, network: nn.Module, likelihood: Likelihood, event_dim: int = 1) -> None:
        super().__init__()
        if not isinstance(likelihood, Likelihood):
            raise TypeError(f"likelihood must be a Likelihood; it is {type(likelihood).__name__}")
        self.network = network
        self.likelihood = likelihood
        self.event_dim = event_dim

    def forward(self, x: Tensor) -> TorchDistribution:
        split = x.dim() - self.event_dim
        outputs = self.network(x.reshape(-1, *x.shape[split:]))
        each = prod(outputs.shape[1:])
        distribution: TorchDistribution = self.likelihood(outputs.reshape(*x.shape[:split], each))
        return distribution
