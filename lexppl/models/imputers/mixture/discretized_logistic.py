"""The logistic distribution of a pixel in one of 256 steps from black to white."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from lexppl.models.imputers.mixture.blocks import NUMBERS_AT_ONCE

__all__ = [
    "STEPS",
    "LogisticEvidence",
    "LogisticFeatures",
    "inverse_softplus",
    "log_mass",
    "rounded",
    "scale_of_deviation",
]

STEPS = 255
"""Steps from 0 to 1: pixels are 0/255, 1/255, … 255/255."""


def log_mass(value: Tensor, means: Tensor, scales: Tensor) -> Tensor:
    r"""The logarithm of the probability of a pixel's value, for a logistic variable X of mean μ and
    scale s, rounded to the nearest step and held within 0 and 1:

        P(v) = σ((v + h − μ)/s) − σ((v − h − μ)/s),    h = 1/510,
        P(0) = σ((h − μ)/s),    P(1) = 1 − σ((1 − h − μ)/s),

    so that the 256 probabilities sum to 1. With `a < b` the arguments of the two sigmoids,
    `log(σ(b) − σ(a)) = log σ(b) + log σ(−a) + log(1 − e^{a − b})`, which loses no digits far from
    the mean, where both sigmoids are near 0 or near 1.

    Args:
        value: pixels; the nearest step is read, and what lies beyond 0 and 1 as these.
        means: μ, broadcasts with `value`.
        scales: s > 0, the same.

    Source: Salimans, Karpathy, Chen, Kingma. PixelCNN++. ICLR 2017, eq. 2, with its logarithms.

    Example:
        >>> value = torch.arange(256.0) / 255
        >>> torch.testing.assert_close(
        ...     log_mass(value, torch.tensor(0.3), torch.tensor(0.2)).exp().sum(), torch.tensor(1.0)
        ... )
    """
    step = (value.detach() * STEPS).round().clamp(0, STEPS)
    above = ((step + 0.5) / STEPS - means) / scales
    below = ((step - 0.5) / STEPS - means) / scales
    width = 1 / (STEPS * scales)
    between = logsigmoid(above) + logsigmoid(-below) + (-torch.expm1(-width)).log()
    return torch.where(
        step == 0, logsigmoid(above), torch.where(step == STEPS, logsigmoid(-below), between)
    )


class LogisticFeatures(NamedTuple):
    """Independent discretised logistic pixels, of the distribution of :func:`log_mass`.

    Args:
        locations: μ, the logistics' means, shape `(C, D)`.
        scales: s, shape `(C, D)`.

    Example:
        >>> features = LogisticFeatures(torch.zeros(3, 2), torch.ones(3, 2))
        >>> features.draw(torch.tensor([[0], [2], [1], [0]])).shape
        torch.Size([4, 2])
    """

    locations: Tensor
    scales: Tensor

    @property
    def means(self) -> Tensor:
        """`E[v] = Σ_j P(v ≥ j/255) / 255`, j = 1 … 255."""
        return self._sum_of_ends(power=1)

    @property
    def variances(self) -> Tensor:
        """`E[v²] − E[v]²`, with `E[v²] = Σ_j (2j − 1) P(v ≥ j/255) / 255²`."""
        return (self._sum_of_ends(power=2) - self.means**2).clamp(min=0)

    def draw(self, component: Tensor) -> Tensor:
        feature = torch.arange(self.locations.shape[-1], device=self.locations.device)
        mean, scale = self.locations[component, feature], self.scales[component, feature]
        uniform = torch.rand(mean.shape, dtype=mean.dtype, device=mean.device)
        # torch.rand may give 0, whose logit is infinite; the draw is held within 0 and 1 anyhow.
        return rounded(mean + scale * torch.logit(uniform, eps=torch.finfo(mean.dtype).tiny))

    def log_prob(self, value: Tensor, components: slice) -> Tensor:
        return log_mass(
            value.unsqueeze(-1), self.locations[components].mT, self.scales[components].mT
        )

    def _sum_of_ends(self, power: int) -> Tensor:
        total = torch.zeros_like(self.locations)
        steps = torch.arange(1, STEPS + 1, device=total.device, dtype=total.dtype)
        for some in steps.split(max(1, NUMBERS_AT_ONCE // total.numel())):
            j = some.reshape(-1, 1, 1)
            beyond = torch.sigmoid((self.locations - (j - 0.5) / STEPS) / self.scales)
            weight = 1 / STEPS if power == 1 else (2 * j - 1) / STEPS**2
            total = total + (weight * beyond).sum(0)
        return total


class LogisticEvidence(NamedTuple):
    """The log-probability of each pixel under each component.

    Args:
        x: rows, shape `(B, D)`.
        means: μ, shape `(C, D)`.
        scales: s, shape `(C, D)`.

    Example:
        >>> evidence = LogisticEvidence(torch.zeros(5, 2), torch.zeros(3, 2), torch.ones(3, 2))
        >>> evidence.of(slice(0, 2)).shape
        torch.Size([5, 2, 2])
    """

    x: Tensor
    means: Tensor
    scales: Tensor

    def of(self, components: slice) -> Tensor:
        return log_mass(self.x.unsqueeze(-1), self.means[components].mT, self.scales[components].mT)


def rounded(value: Tensor) -> Tensor:
    """The nearest step within 0 and 1.

    Example:
        >>> rounded(torch.tensor([-3.0, 0.999, 1.5]))
        tensor([0., 1., 1.])
    """
    return (value * STEPS).round().clamp(0, STEPS) / STEPS


def scale_of_deviation(deviation: Tensor) -> Tensor:
    """The scale s of a logistic variable of a standard deviation, `s = √3 sd / π`.

    Example:
        >>> scale_of_deviation(torch.tensor(1.0))
        tensor(0.5513)
    """
    return deviation * 3**0.5 / torch.pi


def inverse_softplus(value: Tensor) -> Tensor:
    """What `softplus` makes the value of, `v + log(1 − e^{−v})`.

    Example:
        >>> torch.nn.functional.softplus(inverse_softplus(torch.tensor(0.25)))
        tensor(0.2500)
    """
    return value + (-torch.expm1(-value)).log()
