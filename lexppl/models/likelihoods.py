"""Likelihoods of a predictor: from a network's outputs to the distribution of y."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.configured import Configured


def count_and_first(wrong: Tensor) -> tuple[int, int] | None:
    """How many rows are wrong, and the first of them; None where none is.

    Args:
        wrong: by row, `(N,)`.

    Example:
        >>> count_and_first(torch.tensor([False, True, True])), count_and_first(torch.zeros(2))
        ((2, 1), None)
    """
    places = wrong.nonzero()
    return (len(places), int(places[0])) if len(places) else None


def distribution_targets(distribution: Any) -> Tensor:
    """Probabilities of a distribution of labels, `(…, C)`, or the mean of another distribution,
    `(…)`.

    Example:
        >>> import pyro.distributions as dist
        >>> distribution_targets(dist.Bernoulli(torch.tensor([0.25])))
        tensor([[0.7500, 0.2500]])
        >>> distribution_targets(dist.Normal(torch.tensor([3.0]), 1.0))
        tensor([3.])
    """
    if not distribution.has_enumerate_support:
        mean: Tensor = distribution.mean
        return mean
    labels = distribution.enumerate_support(expand=False)
    return torch.as_tensor(distribution.log_prob(labels)).exp().movedim(0, -1)


class Likelihood(Configured, nn.Module, ABC):
    """The distribution `Φ(y | f)` of a label or response given the outputs `f` of a network."""

    discrete: ClassVar[bool]
    """Whether y is one of finitely many classes."""

    outputs: ClassVar[int | None] = 1
    """How many outputs of a network it takes; None for one of each class."""

    responses: ClassVar[str] = "responses"
    """What y holds where it is no label, in a word or two."""

    def check_responses(self, y: Tensor) -> None:
        """Refuse responses that the distribution cannot have, before any work; here what is given
        as probabilities of labels and is none.

        Args:
            y: labels or responses `(N,)`, or a black box's probabilities `(N, C)`.

        Raises:
            ValueError: such responses, with how many there are and the first of them.
        """
        if not self.discrete or y.dim() != 2:
            return
        wrong = (y < 0).any(1) | ((y.sum(1) - 1).abs() > 1e-3)
        if found := count_and_first(wrong):
            count, row = found
            raise ValueError(
                f"{type(self).__name__} is of labels, and y of shape {tuple(y.shape)} must hold "
                f"their probabilities, which sum to 1; {count} of {len(y)} rows do not, the first "
                f"in row {row}: {y[row].tolist()[:4]}. Survival times are of CoxLikelihood()"
            )

    @abstractmethod
    def forward(self, outputs: Tensor) -> TorchDistribution:
        """The distribution of y, batch shape `(…)`, from outputs `(…, n)`."""


class CategoricalLikelihood(Likelihood):
    """`y ~ Categorical(softmax(f))`, from C outputs.

    Example:
        >>> CategoricalLikelihood()(torch.zeros(4, 3)).probs[0]
        tensor([0.3333, 0.3333, 0.3333])
    """

    discrete = True
    outputs = None

    def forward(self, outputs: Tensor) -> TorchDistribution:
        return dist.Categorical(logits=outputs)


class BernoulliLikelihood(Likelihood):
    """`y ~ Bernoulli(σ(f))`, from one output; y is 0 or 1.

    Example:
        >>> BernoulliLikelihood()(torch.zeros(4, 1)).batch_shape
        torch.Size([4])
    """

    discrete = True

    def forward(self, outputs: Tensor) -> TorchDistribution:
        return dist.Bernoulli(logits=outputs.squeeze(-1))


class NormalLikelihood(Likelihood):
    """`y ~ Normal(f, s)`, from one output; the scale s, in the units of y, is learned.

    Args:
        scale: the scale at the start.
        learn_scale: whether it is learned.

    Raises:
        ValueError: a scale that is not positive.

    Example:
        >>> NormalLikelihood(2.0)(torch.zeros(4, 1)).stddev[0].item()
        2.0
    """

    discrete = False
    log_scale: Tensor

    def __init__(self, scale: float = 1.0, learn_scale: bool = True) -> None:
        super().__init__()
        self._first_scale = finite_float("scale", scale, above=0.0)
        self.learn_scale = learn_scale
        self.log_scale = nn.Parameter(torch.empty(()), requires_grad=learn_scale)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Put the scale back to where it started."""
        with torch.no_grad():
            self.log_scale.copy_(torch.tensor(self._first_scale).log())

    def settle(self, residuals: Tensor, weights: Tensor | None = None) -> None:
        """Put a learned scale to the most likely one given residuals, `s² = Σ w r² / Σ w`.

        A fit that ends early, because its network overfits, ends before a scale that is learned by
        gradient steps has come down to what the network is worth.

        Args:
            residuals: `y − f`, of rows that the network has not learned from, `(N,)`.
            weights: how often each row counts, `(N,)`; None for once.

        Raises:
            ValueError: residuals that are all zero or not finite, which have no such scale.

        Example:
            >>> likelihood = NormalLikelihood()
            >>> likelihood.settle(torch.tensor([3.0, -3.0]))
            >>> round(likelihood.log_scale.exp().item(), 4)
            3.0
        """
        if not self.learn_scale:
            return
        squares = residuals.detach().square()
        weights = torch.ones_like(squares) if weights is None else weights.to(squares)
        variance = (weights * squares).sum() / weights.sum()
        if not (bool(variance.isfinite()) and float(variance) > 0.0):
            raise ValueError(
                f"a normal scale needs residuals that are finite and not all zero; their mean "
                f"square is {float(variance)}"
            )
        with torch.no_grad():
            self.log_scale.copy_(variance.log() / 2)

    def config(self) -> dict[str, Any]:
        # No `scale` stands beside the learned one, which it would be taken for.
        return {"scale": self._first_scale, "learn_scale": self.learn_scale}

    def forward(self, outputs: Tensor) -> TorchDistribution:
        return dist.Normal(outputs.squeeze(-1), self.log_scale.exp())


class HeteroscedasticLikelihood(Likelihood):
    """`y ~ Normal(f₁, exp(f₂ / 2))`, from two outputs: the mean, in the units of y, and the log of
    the variance.

    Example:
        >>> HeteroscedasticLikelihood()(torch.tensor([[3.0, 0.0]])).stddev
        tensor([1.])
    """

    discrete = False
    outputs = 2

    def forward(self, outputs: Tensor) -> TorchDistribution:
        return dist.Normal(outputs[..., 0], (0.5 * outputs[..., 1]).exp())


class StudentTLikelihood(Likelihood):
    """`y ~ StudentT(ν, f, s)`, from one output: a response with outliers.

    Args:
        degrees: the degrees of freedom ν at the start.
        scale: s at the start, in the units of y.
        learn_degrees: whether ν is learned; s always is.

    The mean f exists for ν > 1, the variance s² ν / (ν − 2) for ν > 2; of a learned ν neither is
    sure.

    Raises:
        ValueError: degrees or a scale that is not positive.

    Example:
        >>> StudentTLikelihood(degrees=3.0)(torch.ones(4, 1)).mean[0].item()
        1.0
    """

    discrete = False
    log_degrees: Tensor
    log_scale: Tensor

    def __init__(
        self, degrees: float = 4.0, scale: float = 1.0, learn_degrees: bool = False
    ) -> None:
        super().__init__()
        self._first_degrees = finite_float("degrees", degrees, above=0.0)
        self._first_scale = finite_float("scale", scale, above=0.0)
        self.learn_degrees = learn_degrees
        self.log_degrees = nn.Parameter(torch.empty(()), requires_grad=learn_degrees)
        self.log_scale = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Put degrees and scale back to where they started."""
        with torch.no_grad():
            self.log_degrees.copy_(torch.tensor(self._first_degrees).log())
            self.log_scale.copy_(torch.tensor(self._first_scale).log())

    def config(self) -> dict[str, Any]:
        return {
            "degrees": self._first_degrees,
            "scale": self._first_scale,
            "learn_degrees": self.learn_degrees,
        }

    def forward(self, outputs: Tensor) -> TorchDistribution:
        mean = outputs.squeeze(-1)
        return dist.StudentT(self.log_degrees.exp(), mean, self.log_scale.exp())


class OrdinalLikelihood(Likelihood):
    r"""Labels 0 … C−1 that have an order, from one output f and C − 1 cutpoints that are learned:

        P(y ≤ c) = σ(κ_c − f),    κ_0 < κ_1 < … < κ_{C−2},

    the proportional-odds model (McCullagh 1980): a feature that raises f moves y up by the same
    odds at every cutpoint. It is Pyro's `OrderedLogistic` with each probability in logs, which
    stay finite where the difference of two sigmoids is 0; a categorical distribution, so that all
    that is of labels is of these too.

    Cutpoints are `κ_c = κ_0 + Σ_{i≤c} exp η_i`, and start as they are of C labels as frequent as
    each other at `f = 0`, `κ_c = log (c + 1)/(C − c − 1)`.

    Args:
        classes: C.

    Raises:
        ValueError: fewer than two classes.

    Example:
        >>> OrdinalLikelihood(4)(torch.zeros(1, 1)).probs.detach()
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
        >>> OrdinalLikelihood(3).check_responses(torch.tensor([0, 3, 1]))
        Traceback (most recent call last):
        ...
        ValueError: y must hold the ordered labels 0 to 2; 1 of 3 are none, the first in row 1: 3
    """

    discrete = True
    first: Tensor
    log_steps: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = int_at_least("classes", classes, 2)
        self.first = nn.Parameter(torch.empty(()))
        self.log_steps = nn.Parameter(torch.empty(self.classes - 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Put the cutpoints back to those of labels as frequent as each other."""
        reached = torch.arange(1, self.classes, dtype=torch.float64) / self.classes
        cutpoints = reached.logit()
        with torch.no_grad():
            self.first.copy_(cutpoints[0])
            self.log_steps.copy_(cutpoints.diff().log())

    def config(self) -> dict[str, Any]:
        return {"classes": self.classes}

    @property
    def cutpoints(self) -> Tensor:
        """κ, `(C − 1,)`, rising."""
        steps = torch.cat([self.first.reshape(1), self.log_steps.exp()])
        return steps.cumsum(0)

    def check_responses(self, y: Tensor) -> None:
        """Refuse labels outside 0 … C−1.

        Args:
            y: labels `(N,)`, or a black box's probabilities `(N, C)`.

        Raises:
            ValueError: such labels, or another number of classes.
        """
        if y.dim() != 1:
            if y.dim() != 2 or y.shape[1] != self.classes:
                raise ValueError(
                    f"y must hold ordered labels, shape (N,), or probabilities of {self.classes} "
                    f"labels, shape (N, {self.classes}); it has shape {tuple(y.shape)}"
                )
            super().check_responses(y)
            return
        wrong = (y < 0) | (y >= self.classes) | (y != y.round())
        if found := count_and_first(wrong):
            count, row = found
            raise ValueError(
                f"y must hold the ordered labels 0 to {self.classes - 1}; {count} of {len(y)} are "
                f"none, the first in row {row}: {float(y[row]):g}"
            )

    def forward(self, outputs: Tensor) -> TorchDistribution:
        # P(y = c) = σ(b) − σ(a) = σ(b) σ(−a) (1 − e^{a−b}), with a < b the cutpoints minus f.
        above = self.cutpoints - outputs
        upper, lower = logsigmoid(above), logsigmoid(-above)
        between = (-(-self.log_steps.exp()).expm1()).log()
        inner = upper[..., 1:] + lower[..., :-1] + between
        logits = torch.cat([upper[..., :1], inner, lower[..., -1:]], -1)
        return dist.Categorical(logits=logits)
