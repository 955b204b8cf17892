"""Likelihoods of a predictor: from a network's outputs to the distribution of y."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from scipy import stats
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lexppl.argument_checks import finite_float, int_at_least, shaped
from lexppl.configured import Configured
from lexppl.distributions.support import refuse_labels


def refuse_values(expected: str, y: Tensor, wrong: Tensor) -> None:
    """Refuse values of which some are wrong, by row `(N,)`; the message counts them."""
    places = wrong.nonzero()
    if len(places):
        row = int(places[0])
        first = f"{float(y[row]):g}" if y.dim() == 1 else str(y[row].tolist()[:4])
        raise ValueError(
            f"{expected}; {len(places)} of {len(y)} are not, the first in row {row}: {first}"
        )


class Likelihood(Configured, nn.Module, ABC):
    """The distribution `Φ(y | f)` of a label or response given the outputs `f` of a network."""

    discrete: ClassVar[bool]
    """Whether y is one of finitely many classes."""

    outputs: ClassVar[int | None] = 1
    """How many outputs of a network it takes; None for one of each class."""

    responses: ClassVar[str] = "responses"
    """What y holds where it is no label, in a word or two."""

    def check_responses(self, y: Tensor) -> None:
        """Refuse responses that the distribution cannot have; here rows that are no probabilities
        of labels.

        Args:
            y: labels or responses `(N,)`, or a black box's probabilities `(N, C)`.

        Raises:
            ValueError: such responses, with how many there are and the first of them.
        """
        if not self.discrete or y.dim() != 2:
            return
        wrong = (y < 0).any(1) | ((y.sum(1) - 1).abs() > 1e-3)
        refuse_values(
            f"{type(self).__name__} is of labels (survival times are of CoxLikelihood()), and the "
            f"rows of y of shape {tuple(y.shape)} must be probabilities that sum to 1",
            y,
            wrong,
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


class _WithNumbers(Likelihood):
    """A likelihood with positive numbers, which are parameters in logs: `log_scale` of `scale`."""

    def __init__(self, numbers: dict[str, float], **learned: bool) -> None:
        super().__init__()
        # No `scale` stands beside the learned one, which it would be taken for.
        self._first = {n: finite_float(n, value, above=0.0) for n, value in numbers.items()}
        self._learned = learned
        for name in numbers:
            param = nn.Parameter(torch.empty(()), requires_grad=learned.get(f"learn_{name}", True))
            self.register_parameter(f"log_{name}", param)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Put the numbers back to where they started."""
        with torch.no_grad():
            for name, value in self._first.items():
                getattr(self, f"log_{name}").copy_(torch.tensor(value).log())

    def config(self) -> dict[str, Any]:
        return {**self._first, **self._learned}


class NormalLikelihood(_WithNumbers):
    """`y ~ Normal(f, s)`, from one output; the scale s, in the units of y, is learned.

    Args:
        scale: the scale at the start, positive.
        learn_scale: whether it is learned.

    Example:
        >>> NormalLikelihood(2.0)(torch.zeros(4, 1)).stddev[0].item()
        2.0
    """

    discrete = False
    log_scale: Tensor

    def __init__(self, scale: float = 1.0, learn_scale: bool = True) -> None:
        super().__init__({"scale": scale}, learn_scale=learn_scale)

    def settle(self, residuals: Tensor, weights: Tensor | None = None) -> None:
        """Put a learned scale to the most likely one given residuals, `s² = Σ w r² / Σ w`: a fit
        that ends early ends before the scale has come down to what the network is worth.

        Args:
            residuals: `y − f`, of rows that the network has not learned from, `(N,)`.
            weights: how often each row counts, `(N,)`; None for once.

        Raises:
            ValueError: residuals that are all zero or not finite, which have no such scale.
        """
        if not self.log_scale.requires_grad:
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


class StudentTLikelihood(_WithNumbers):
    """`y ~ StudentT(ν, f, s)`, from one output: a response with outliers. The mean f exists for ν >
    1, the variance s² ν / (ν − 2) for ν > 2.

    Args:
        degrees: the degrees of freedom ν at the start, positive.
        scale: s at the start, in the units of y, positive.
        learn_degrees: whether ν is learned; s always is.

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
        super().__init__({"degrees": degrees, "scale": scale}, learn_degrees=learn_degrees)

    def forward(self, outputs: Tensor) -> TorchDistribution:
        mean = outputs.squeeze(-1)
        return dist.StudentT(self.log_degrees.exp(), mean, self.log_scale.exp())


TINY = torch.finfo(torch.float32).tiny
LEAST_GAIN, LEAST_TOTAL, MOST_SKEW = 0.05, 5.0, 0.25
"""Nats a value, with so many more of all values, by which Student's t must be likelier than a
normal distribution, and most skewness of the middle 80 %, as the t is symmetric: .46 of an
exponential distribution."""


def response_likelihood(y: Tensor) -> tuple[Likelihood, float]:
    """The likelihood of responses `(N,)` without x, normal or, where a tail stays heavy, Student's
    t of four degrees of freedom, with the scale that makes them likeliest, and their location.

    Example:
        >>> y = torch.linspace(-1.0, 1.0, 100)
        >>> type(response_likelihood(y)[0]).__name__
        'NormalLikelihood'
        >>> type(response_likelihood(torch.cat([y, torch.full((2,), 40.0)]))[0]).__name__
        'StudentTLikelihood'
    """
    values = y.detach().double().cpu().numpy()
    mean, scale = values.mean(), max(values.std(ddof=min(1, len(values) - 1)), TINY)
    if len(values) < 2 or scale == TINY:
        return NormalLikelihood(float(scale)), float(mean)
    _, location, spread = stats.t.fit(values, fdf=4)
    low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
    skewed = abs(high + low - 2.0 * middle) >= MOST_SKEW * (high - low)
    normal = stats.norm.logpdf(values, mean, scale).mean()
    gain = stats.t.logpdf(values, 4, location, spread).mean() - normal
    if skewed or not gain > LEAST_GAIN + LEAST_TOTAL / len(values):
        return NormalLikelihood(float(scale)), float(mean)
    return StudentTLikelihood(4.0, float(spread)), float(location)


class OrdinalLikelihood(Likelihood):
    """Labels 0 … C−1 that have an order, from one output f and C − 1 cutpoints that are learned:

        P(y ≤ c) = σ(κ_c − f),    κ_0 < κ_1 < … < κ_{C−2},

    the proportional-odds model (McCullagh 1980): a feature that raises f moves y up by the same
    odds at every cutpoint. A categorical distribution, with each probability in finite logs.

    Cutpoints are `κ_c = κ_0 + Σ_{i≤c} exp η_i`, and start at `κ_c = log (c + 1)/(C − c − 1)`.

    Args:
        classes: C, at least two.

    Example:
        >>> OrdinalLikelihood(4)(torch.zeros(1, 1)).probs.detach()
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
        >>> OrdinalLikelihood(3).check_responses(torch.tensor([0, 3, 1]))
        Traceback (most recent call last):
        ValueError: labels must be 0 … 2 for classes=3; y has 3 in row 1
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

    @property
    def cutpoints(self) -> Tensor:
        """κ, `(C − 1,)`, rising."""
        return torch.cat([self.first.reshape(1), self.log_steps.exp()]).cumsum(0)

    def check_responses(self, y: Tensor) -> None:
        """Refuse labels outside 0 … C−1, or probabilities of another number of classes."""
        refuse_labels(y, self.classes)
        super().check_responses(y)

    def forward(self, outputs: Tensor) -> TorchDistribution:
        # P(y = c) = σ(b) − σ(a) = σ(b) σ(−a) (1 − e^{a−b}), with a < b the cutpoints minus f.
        above = self.cutpoints - outputs
        upper, lower = logsigmoid(above), logsigmoid(-above)
        between = (-(-self.log_steps.exp()).expm1()).log()
        inner = upper[..., 1:] + lower[..., :-1] + between
        logits = torch.cat([upper[..., :1], inner, lower[..., -1:]], -1)
        return dist.Categorical(logits=logits)


class CountLikelihood(Likelihood):
    """A likelihood of whole numbers from 0 on."""

    discrete = False
    responses = "counts"

    def check_responses(self, y: Tensor) -> None:
        """Refuse what is no count."""
        shaped("y", y, "N", note="of counts")
        wrong = (y < 0) | (y != y.round()) | ~y.isfinite()
        refuse_values(f"{type(self).__name__} is of counts, whole numbers from 0", y, wrong)


class PoissonLikelihood(CountLikelihood):
    """`y ~ Poisson(exp f)`, from one output; y is a count.

    Example:
        >>> PoissonLikelihood()(torch.zeros(4, 1)).rate[0].item()
        1.0
    """

    def forward(self, outputs: Tensor) -> TorchDistribution:
        return dist.Poisson(outputs.squeeze(-1).exp(), is_sparse=False)


class NegativeBinomialLikelihood(CountLikelihood, _WithNumbers):
    """`y ~ NegativeBinomial(mean μ = exp f, dispersion α)`, from one output; α is learned:

        p(y) = Γ(y + r) / (Γ(r) y!) · (r/(r + μ))^r (μ/(r + μ))^y,    r = 1/α,

    with mean μ and variance μ + α μ² (NB2 of Cameron & Trivedi 1998); α → 0 is a Poisson's.

    Args:
        dispersion: α at the start, positive.
        learn_dispersion: whether it is learned.

    Example:
        >>> counts = NegativeBinomialLikelihood(dispersion=0.5)(torch.full((4, 1), 2.0).log())
        >>> round(counts.mean[0].item(), 4), round(counts.variance[0].item(), 4)
        (2.0, 4.0)
    """

    log_dispersion: Tensor

    def __init__(self, dispersion: float = 1.0, learn_dispersion: bool = True) -> None:
        super().__init__({"dispersion": dispersion}, learn_dispersion=learn_dispersion)

    def forward(self, outputs: Tensor) -> TorchDistribution:
        log_mean = outputs.squeeze(-1)
        return dist.NegativeBinomial(
            (-self.log_dispersion).exp(), logits=log_mean + self.log_dispersion
        )


class ZeroInflatedPoissonLikelihood(CountLikelihood):
    """`y = 0` with probability `σ(f₂)`, else `y ~ Poisson(exp f₁)`, from two outputs (Lambert
    1992). The mean is `(1 − σ(f₂)) exp f₁`.

    Example:
        >>> ZeroInflatedPoissonLikelihood()(torch.zeros(4, 2)).mean[0].item()
        0.5
    """

    outputs = 2

    def forward(self, outputs: Tensor) -> TorchDistribution:
        rate, gate = outputs[..., 0].exp(), outputs[..., 1]
        return dist.ZeroInflatedPoisson(rate, gate_logits=gate)


class ZeroInflatedNegativeBinomialLikelihood(NegativeBinomialLikelihood):
    """`y = 0` with probability `σ(f₂)`, else `y ~ NegativeBinomial(mean μ = exp f₁, dispersion α)`,
    from two outputs (Greene 1994): more zeros than the scatter of the others accounts for. The mean
    is `(1 − σ(f₂)) μ`, the variance `(1 − σ(f₂)) μ (1 + μ (σ(f₂) + α))`; arguments as
    :class:`NegativeBinomialLikelihood`.

    Example:
        >>> found = ZeroInflatedNegativeBinomialLikelihood(dispersion=0.5)(torch.zeros(4, 2))
        >>> round(found.mean[0].item(), 4), round(found.variance[0].item(), 4)
        (0.5, 1.0)
    """

    outputs = 2

    def forward(self, outputs: Tensor) -> TorchDistribution:
        log_mean, gate = outputs[..., 0], outputs[..., 1]
        return dist.ZeroInflatedNegativeBinomial(
            (-self.log_dispersion).exp(), logits=log_mean + self.log_dispersion, gate_logits=gate
        )
