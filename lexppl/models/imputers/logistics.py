"""Discretised logistics: the distribution of a pixel, and imputers of mixtures of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import logsigmoid, softplus

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.distributions.computed_once import SharedRows
from lexppl.models.imputers.imputer import TensorOrShape
from lexppl.models.imputers.mixture import (
    ComponentDistribution,
    ComponentFeatures,
    FeatureMeans,
    MixtureImputer,
    check_component_fit,
    start_by_clusters,
)

STEPS = 255  # Steps from 0 to 1: pixels are 0/255, 1/255, … 255/255

BATCH = 200  # Rows of a step of a fit

NUMBERS_AT_ONCE = 2**22
"""Most numbers of a tensor with dimensions for rows or steps, features and components."""


def log_mass(value: Tensor, means: Tensor, scales: Tensor) -> Tensor:
    """The log-probability of a pixel's nearest value j/255 under a logistic variable of mean μ and
    scale s, rounded and held within 0 and 1, with h = 1/510 (Salimans et al. 2017, eq. 2):

        P(v) = σ((v + h − μ)/s) − σ((v − h − μ)/s),
        P(0) = σ((h − μ)/s),    P(1) = 1 − σ((1 − h − μ)/s).
    """
    step = (value.detach() * STEPS).round().clamp(0, STEPS)
    above = ((step + 0.5) / STEPS - means) / scales
    below = ((step - 0.5) / STEPS - means) / scales
    width = 1 / (STEPS * scales)
    between = logsigmoid(above) + logsigmoid(-below) + (-torch.expm1(-width)).log()
    return torch.where(
        step == 0, logsigmoid(above), torch.where(step == STEPS, logsigmoid(-below), between)
    )


class DiscretizedLogistic(SharedRows):
    """A logistic variable rounded to one of 0/255 … 255/255: the probabilities of
    :func:`.log_mass`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.unit_interval
    expanded = ("loc", "scale")

    def __init__(self, loc: Tensor, scale: Tensor, validate_args: bool | None = None) -> None:
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)
        super().__init__(self.loc.shape, torch.Size(), validate_args)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Values of steps, without gradients."""
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.batch_shape
            uniform = torch.rand(shape, dtype=self.loc.dtype, device=self.loc.device)
            logistic = torch.logit(uniform, eps=torch.finfo(uniform.dtype).tiny)
            step = ((self.loc + self.scale * logistic) * STEPS).round()
            return step.clamp(0, STEPS) / STEPS

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-probability of the nearest step."""
        return log_mass(value, self.loc, self.scale)

    @property
    def mean(self) -> Tensor:
        """`E[v] = Σ_j P(v ≥ j/255) / 255`, j = 1 … 255."""
        return self._sum_of_ends(lambda j: torch.full_like(j, 1 / STEPS))

    @property
    def variance(self) -> Tensor:
        """`E[v²] − E[v]²`, with `E[v²] = Σ_j (2j − 1) P(v ≥ j/255) / 255²`."""
        second = self._sum_of_ends(lambda j: (2 * j - 1) / STEPS**2)
        return (second - self.mean**2).clamp(min=0)

    def _sum_of_ends(self, weight: Callable[[Tensor], Tensor]) -> Tensor:
        total = torch.zeros_like(self.loc)
        steps = torch.arange(1, STEPS + 1, device=total.device, dtype=total.dtype)
        for part in steps.split(max(1, NUMBERS_AT_ONCE // total.numel())):
            j = part.reshape(-1, *(1,) * total.dim())
            total = total + (
                weight(j) * torch.sigmoid((self.loc - (j - 0.5) / STEPS) / self.scale)
            ).sum(0)
        return total


class DiscretizedLogisticMixtureImputer(MixtureImputer):
    """Hidden pixels from their exact conditional distribution under a mixture of discretised
    logistics:

        x_H | x_S ~ Σ_c r_c Π_{d ∈ H} P(x_d; μ_cd, s_cd),
        r_c ∝ π_c Π_{d ∈ S} P(x_d; μ_cd, s_cd),

    with the probabilities P of the 256 values 0, 1/255, … 1 (:func:`.log_mass`). Fractional masks
    and their gradients are those of :class:`GaussianMixtureImputer`; kept pixels are read by the
    nearest value. The `log_prob` is a log-probability; `− log 255` for each hidden pixel makes a
    density of it.

    Args:
        weights: π, shape `(C,)`, positive, of sum 1.
        means: the logistics' means μ, shape `(C, *event)`, where pixels are in [0, 1].
        scales: the logistics' scales s > 0, shape `(C, *event)`; the standard deviation is `π s /
            √3`.

    Raises:
        TypeError, ValueError: types, shapes or values other than these.

    Source: Senetaire et al. 2023, appendix B ("mixture of logistics"); Salimans et al. 2017.

    Example:
        >>> imputer = DiscretizedLogisticMixtureImputer(
        ...     [0.5, 0.5], [[0.1, 0.2], [0.9, 0.8]], [[0.01, 1e-4], [0.01, 1e-4]]
        ... )
        >>> imputer(torch.tensor([[0.9, 0.0]]), torch.tensor([True, False])).sample()
        tensor([[0.9000, 0.8000]])
    """

    family: ClassVar[Any] = DiscretizedLogistic
    step: ClassVar[float] = 1 / STEPS
    """Between two values of a pixel, each of which has a probability."""

    @classmethod
    def fit(
        cls,
        x: Tensor,
        components: int = 20,
        seed: int = 0,
        least_scale: float | None = None,
        *,
        epochs: int = 10,
        learning_rate: float = 0.01,
    ) -> Self:
        """The mixture of high likelihood that Adam finds from the clusters of k-means.

        Args:
            x: training rows, shape `(B, *event)`, in [0, 1].
            components: C, from 1 to B.
            seed: of the start and of the batches; the global random state is not touched.
            least_scale: a least scale, above 0; a step, 1/255, if None.
            epochs: passes over the rows, in batches of 200; 0 leaves the clusters as they are.
            learning_rate: Adam's at the beginning; it falls to 0 along a cosine.

        Raises:
            TypeError, ValueError: rows that are no finite floats in [0, 1], or fewer than 2; a
                number out of range.
        """
        check_component_fit(x, components, seed)
        check_pixels(x)
        least = 1 / STEPS if least_scale is None else least_scale
        least = finite_float("least_scale", least, above=0.0)
        epochs = int_at_least("epochs", epochs, 0)
        rate = finite_float("learning_rate", learning_rate, above=0.0)
        rows = x.detach().flatten(1)
        share, start, deviation = start_by_clusters(rows, components, seed, least)
        # The scale of a logistic variable of a standard deviation.
        scale = (deviation * 3**0.5 / torch.pi).clamp(min=1.01 * least)
        above = (scale - least) / least
        logits, means = share.log().requires_grad_(), start.clone().requires_grad_()
        # softplus makes `above` of it.
        free = (above + (-torch.expm1(-above)).log()).requires_grad_()

        def scales() -> Tensor:
            return least * (1 + softplus(free))

        steps = epochs * -(-len(rows) // BATCH)
        optimizer = torch.optim.Adam([logits, means, free], lr=rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
        generator = torch.Generator().manual_seed(seed)
        # A batch is summed in parts, so that memory has a bound.
        part = max(1, NUMBERS_AT_ONCE // means.numel())
        with torch.enable_grad():
            for _ in range(epochs):
                order = torch.randperm(len(rows), generator=generator).to(rows.device)
                for places in order.split(BATCH):
                    optimizer.zero_grad()
                    for few in places.split(part):
                        terms = log_mass(rows[few].unsqueeze(-1), means.mT, scales().mT).sum(-2)
                        total = (logits.softmax(-1).log() + terms).logsumexp(-1).sum()
                        (-total / len(places)).backward()
                    optimizer.step()
                    schedule.step()
        shape = (-1, *x.shape[1:])
        weights, scale = logits.detach().softmax(-1), scales().detach()
        return cls(weights, means.detach().reshape(shape), scale.reshape(shape))

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> ComponentDistribution:
        """The mixture given the kept pixels, batch shape `(…, B)`."""
        if is_validation_enabled():
            check_pixels(x)
        return super().hidden_distribution(x, keep)


class DiscretizedLogisticMeansImputer(DiscretizedLogisticMixtureImputer):
    """Hidden pixels are the means of a random component of a mixture of discretised logistics:

        x̃ = z ⊙ x + (1 − z) ⊙ m_c,    c ~ r,    m_cd = Σ_v v P(v; μ_cd, s_cd),

    with r and the arguments of :class:`DiscretizedLogisticMixtureImputer`; there is no `log_prob`.

    Source: Senetaire et al. 2023, appendix B ("means of mixture of logistics").

    Example:
        >>> imputer = DiscretizedLogisticMeansImputer([1.0], [[-9.0, 0.5]], [[0.1, 0.1]])
        >>> imputer(torch.zeros(1, 2), torch.zeros(2)).sample()
        tensor([[0.0000, 0.5000]])
    """

    pixel_means: Tensor

    def __init__(self, weights: TensorOrShape, means: TensorOrShape, scales: TensorOrShape) -> None:
        super().__init__(weights, means, scales)
        self.register_buffer("pixel_means", self.densities().means.reshape(self.means.shape))

    def component_features(self) -> ComponentFeatures:
        """The means of each component."""
        return FeatureMeans(self.pixel_means.flatten(1))


def check_pixels(x: Tensor) -> None:
    """Refuse pixels outside [0, 1]."""
    low, high = float(x.min()), float(x.max())
    if low < 0 or high > 1:
        hint = ". Divide by 255" if low >= 0 and high > 1 else ""
        raise ValueError(f"pixels must be in [0, 1]; they go from {low:g} to {high:g}{hint}")
