"""What a VAEAC's networks say: of the latent variable, and of the features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import softplus

from lexppl.argument_checks import finite_float
from lexppl.models.imputers.mixture.discretized_logistic import STEPS, log_mass, rounded

__all__ = ["LEAST_SCALES", "DiscretizedLogistic", "feature_distribution", "latent_distribution"]

LEAST_SCALES: Mapping[str, float] = MappingProxyType({"normal": 0.01, "pixels": 0.5 / STEPS})
"""Of the kinds of features, the least scale where none is given."""


def latent_distribution(outputs: Tensor) -> Any:
    """A normal distribution of the latent variable: means, and scales `softplus + 1e-3`.

    Args:
        outputs: of a network, `(…, 2H)`.

    Example:
        >>> latent_distribution(torch.zeros(5, 6)).event_shape
        torch.Size([3])
    """
    mean, raw = outputs.chunk(2, -1)
    return dist.Normal(mean, softplus(raw) + 1e-3, validate_args=False).to_event(1)


def feature_distribution(outputs: Tensor, kind: str, least_scale: float) -> Any:
    """Independent features, without an event dimension.

    Args:
        outputs: of a decoder, `(N, 2D)` or `(N, 2 channels, H, W)`.
        kind: "normal", or "pixels" for discretised logistics.
        least_scale: of each.

    Example:
        >>> feature_distribution(torch.zeros(5, 2, 4, 4), "pixels", 0.01).batch_shape
        torch.Size([5, 1, 4, 4])
    """
    location, raw = outputs.chunk(2, 1)
    scale = softplus(raw) + least_scale
    if kind == "normal":
        return dist.Normal(location, scale, validate_args=False)
    return DiscretizedLogistic(location, scale, validate_args=False)


def least_scale_of(kind: str, least_scale: float | None) -> float:
    """The least scale as given, or that of the kind.

    Raises:
        ValueError: a kind that is none, a scale that is not above 0.

    Example:
        >>> least_scale_of("normal", None)
        0.01
    """
    if kind not in LEAST_SCALES:
        raise ValueError(f"features must be one of {list(LEAST_SCALES)}; it is {kind!r}")
    if least_scale is None:
        return LEAST_SCALES[kind]
    return finite_float("least_scale", least_scale, above=0.0)


class DiscretizedLogistic(TorchDistribution):
    """A logistic variable rounded to one of 0/255, 1/255, … 255/255, of the probabilities of
    :func:`.log_mass`.

    Args:
        loc: μ.
        scale: s > 0, broadcasts with `loc`.

    Example:
        >>> values = torch.arange(256.0) / 255
        >>> distribution = DiscretizedLogistic(torch.tensor(0.4), torch.tensor(0.1))
        >>> torch.testing.assert_close(
        ...     distribution.log_prob(values).exp().sum(), torch.tensor(1.0)
        ... )
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.unit_interval

    def __init__(self, loc: Tensor, scale: Tensor, validate_args: bool | None = None) -> None:
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def expand(
        self, batch_shape: torch.Size, _instance: DiscretizedLogistic | None = None
    ) -> DiscretizedLogistic:
        """The same distribution over more dimensions."""
        new = self._get_checked_instance(DiscretizedLogistic, _instance)
        new.loc, new.scale = self.loc.expand(batch_shape), self.scale.expand(batch_shape)
        super(DiscretizedLogistic, new).__init__(torch.Size(batch_shape), validate_args=False)
        return new

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Values of steps, without gradients."""
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.batch_shape
            uniform = torch.rand(shape, dtype=self.loc.dtype, device=self.loc.device)
            logistic = torch.logit(uniform, eps=torch.finfo(uniform.dtype).tiny)
            return rounded(self.loc + self.scale * logistic)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-probability of the nearest step."""
        return log_mass(value, self.loc, self.scale)
