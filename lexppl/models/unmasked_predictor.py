"""The predictor that sees everything, as a program."""

import pyro
from pyro.nn import PyroModule
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.effects import imputation_particles, mask_particles
from lexppl.models.lex import observe


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
