"""Likelihoods of counts: Poisson, negative binomial, and both with more zeros."""

from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn

from lexppl.argument_checks import finite_float
from lexppl.models.likelihoods import Likelihood, count_and_first


class CountLikelihood(Likelihood):
    """A likelihood of whole numbers from 0 on."""

    discrete = False
    responses = "counts"

    def check_responses(self, y: Tensor) -> None:
        """Refuse what is no count.

        Raises:
            ValueError: another shape, negative or broken numbers.
        """
        if y.dim() != 1:
            raise ValueError(
                f"y must hold a count for each row, shape (N,); it has shape {tuple(y.shape)}"
            )
        wrong = (y < 0) | (y != y.round()) | ~y.isfinite()
        if found := count_and_first(wrong):
            count, row = found
            raise ValueError(
                f"{type(self).__name__} is of counts, whole numbers from 0; {count} of {len(y)} "
                f"values of y are none, the first in row {row}: {float(y[row]):g}"
            )


class PoissonLikelihood(CountLikelihood):
    """`y ~ Poisson(exp f)`, from one output; y is a count.

    Example:
        >>> PoissonLikelihood()(torch.zeros(4, 1)).rate[0].item()
        1.0
    """

    def forward(self, outputs: Tensor) -> TorchDistribution:
        return dist.Poisson(outputs.squeeze(-1).exp(), is_sparse=False)


class NegativeBinomialLikelihood(CountLikelihood):
    r"""`y ~ NegativeBinomial(mean μ = exp f, dispersion α)`, from one output; α is learned:

        p(y) = Γ(y + r) / (Γ(r) y!) · (r/(r + μ))^r (μ/(r + μ))^y,    r = 1/α,

    with mean μ and variance μ + α μ²: counts that scatter more than a Poisson's, which is α → 0
    (NB2 of Cameron & Trivedi 1998).

    Args:
        dispersion: α at the start.
        learn_dispersion: whether it is learned.

    Raises:
        ValueError: a dispersion that is not positive.

    Example:
        >>> counts = NegativeBinomialLikelihood(dispersion=0.5)(torch.full((4, 1), 2.0).log())
        >>> round(counts.mean[0].item(), 4), round(counts.variance[0].item(), 4)
        (2.0, 4.0)
    """

    log_dispersion: Tensor

    def __init__(self, dispersion: float = 1.0, learn_dispersion: bool = True) -> None:
        super().__init__()
        self._first_dispersion = finite_float("dispersion", dispersion, above=0.0)
        self.learn_dispersion = learn_dispersion
        self.log_dispersion = nn.Parameter(torch.empty(()), requires_grad=learn_dispersion)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Put the dispersion back to where it started."""
        with torch.no_grad():
            self.log_dispersion.copy_(torch.tensor(self._first_dispersion).log())

    def config(self) -> dict[str, Any]:
        # As of NormalLikelihood's scale: none stands beside the learned one.
        return {"dispersion": self._first_dispersion, "learn_dispersion": self.learn_dispersion}

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
    is `(1 − σ(f₂)) μ`, the variance `(1 − σ(f₂)) μ (1 + μ (σ(f₂) + α))`; α is learned.

    Args:
        dispersion, learn_dispersion: as :class:`NegativeBinomialLikelihood` takes them.

    Raises:
        ValueError: a dispersion that is not positive.

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
