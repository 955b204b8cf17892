"""The predictor `y ~ Φ(y | f_θ(x̃))`: a likelihood over any network."""

import copy
from collections.abc import Callable, Sequence
from math import prod
from typing import ClassVar

import pyro
from pyro.distributions import TorchDistribution
from pyro.nn import PyroModule
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.configured import Configured
from lexppl.effects import imputation_particles, mask_particles
from lexppl.models.lex import observe
from lexppl.models.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    Likelihood,
    NormalLikelihood,
)
from lexppl.models.networks import MLP


class UnmaskedPredictor(Configured, PyroModule):
    """The predictor that sees everything, as a program: `y ~ Φ(y | f_θ(x))`, without masks.

    Args:
        predictor: from x to the distribution of y.

    Example:
        >>> import torch
        >>> UnmaskedPredictor(table_predictor(3, 2, (8,)))(torch.zeros(4, 3)).shape
        torch.Size([1, 1, 4])
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
        >>> predictor = Predictor(MLP(11, 2), CategoricalLikelihood())
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
        return self.likelihood(outputs.reshape(*x.shape[:split], prod(outputs.shape[1:])))


def check_classes(classes: int | None) -> None:
    """Refuse fewer than two classes."""
    if classes is not None:
        int_at_least("classes", classes, 2, note="or None for a response")


def check_likelihood(likelihood: Likelihood, classes: int | None) -> None:
    """Refuse a likelihood of labels without their number, or of responses with one."""
    if not isinstance(likelihood, Likelihood):
        named = getattr(likelihood, "__name__", type(likelihood).__name__)
        raise TypeError(f"likelihood must be a Likelihood, as NormalLikelihood(); it is {named}")
    name = type(likelihood).__name__
    if likelihood.discrete and classes is None:
        raise ValueError(f"{name} is of labels: give classes=, how many there are")
    if not likelihood.discrete and classes is not None:
        raise ValueError(f"{name} is of responses, which have no classes: give classes=None")
    count = getattr(likelihood, "classes", classes)
    if count != classes:
        raise ValueError(f"{name} is of {count} classes, and classes is {classes}")
    if isinstance(likelihood, BernoulliLikelihood) and classes != 2:
        raise ValueError(f"{name} is of two labels, and classes is {classes}")


def predictor_with(
    network: Callable[[int], nn.Module],
    classes: int | None,
    likelihood: Likelihood | None = None,
    event_dim: int = 1,
) -> Predictor:
    """A network of as many outputs as the likelihood takes, and a copy of the likelihood that is
    given, else that of labels, or of a real response."""
    check_classes(classes)
    if likelihood is None:
        likelihood = NormalLikelihood() if classes is None else CategoricalLikelihood()
    check_likelihood(likelihood, classes)
    likelihood = copy.deepcopy(likelihood)
    return Predictor(network(likelihood.outputs or classes or 1), likelihood, event_dim)


def table_predictor(
    features: int, classes: int | None, hidden: Sequence[int], likelihood: Likelihood | None = None
) -> Predictor:
    """A perceptron with the likelihood of labels, or of a real response where classes is None."""
    return predictor_with(lambda outputs: MLP(features, outputs, hidden), classes, likelihood)
