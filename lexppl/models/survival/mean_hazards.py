"""What distributions of survival times share, whose density is the mean of several hazards'."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions.constraints import Constraint


class _SurvivalTimes(Constraint):
    """Rows of a positive time, an event of 0 or 1, and perhaps a stratum: `(…, 2 or 3)`."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        time, event = value[..., 0], value[..., 1]
        return (time > 0) & time.isfinite() & ((event == 0) | (event == 1))


survival_times = _SurvivalTimes()


NO_MEAN = (
    "a survival time has no mean that rows followed for a while could tell: ask "
    "lexppl.evaluation for predict_survival, or log_hazard_ratio"
)


class MeanHazards(TorchDistribution):
    """Times under the hazards `h₀(t) exp f_c` of C models, whose densities are averaged.

    Args:
        log_hazard: f, `(…, B)`, of one model.
        stratified: whether a row has a stratum beside time and event.
        components: f of several models, `(C, …, B)`, in place of `log_hazard`.

    Raises:
        ValueError: neither.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = survival_times
    has_rsample = False

    def __init__(
        self,
        log_hazard: Tensor | None,
        stratified: bool,
        components: Tensor | None,
        validate_args: bool | None,
    ) -> None:
        if components is None:
            if log_hazard is None:
                raise ValueError("give log_hazard (…, B), or components (C, …, B)")
            components = log_hazard.unsqueeze(0)
        self.components, self.stratified = components, stratified
        event = torch.Size([3 if stratified else 2])
        super().__init__(components.shape[1:], event, validate_args=validate_args)

    @property
    def log_hazard(self) -> Tensor:
        """f, `(…, B)`; of several models the log of their mean hazard ratio."""
        return log_mean(self.components)

    @property
    def mean(self) -> Tensor:
        """Not told.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(NO_MEAN)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        shape = (len(self.components), *torch.Size(batch_shape))
        return self._like(_aligned(self.components, len(shape)).expand(shape))

    @classmethod
    def mean_of(cls, distributions: Sequence[Self]) -> Self:
        """The mean of several models' densities, under one baseline."""
        return distributions[0]._like(torch.cat([d.components for d in distributions]))

    @classmethod
    def joined(cls, distributions: Sequence[Self]) -> Self:
        """The rows of several models, block after block."""
        return distributions[0]._like(torch.cat([d.components for d in distributions], -1))

    @abstractmethod
    def _like(self, components: Tensor) -> Self:
        """The same distribution of other hazards."""

    def _waited(self, sample_shape: torch.Size) -> Tensor:
        """The cumulative baseline hazard at the event: `E/e^f` of a component at random."""
        components = self.components
        shape = (*sample_shape, *components.shape[1:])
        which = torch.randint(len(components), shape, device=components.device)
        full = components.reshape(len(components), *(1,) * len(sample_shape), *components.shape[1:])
        log_hazard = full.expand(len(components), *shape).gather(0, which.unsqueeze(0)).squeeze(0)
        return torch.empty_like(log_hazard).exponential_() / log_hazard.exp()


def log_mean(value: Tensor) -> Tensor:
    """`log 1/C Σ exp` over the first dimension.

    Example:
        >>> log_mean(torch.zeros(2, 3))
        tensor([0., 0., 0.])
    """
    if len(value) == 1:
        return value[0]
    return value.logsumexp(0) - math.log(len(value))


def _aligned(components: Tensor, dims: int) -> Tensor:
    """Components `(C, …)` with as many dimensions, new ones after the first."""
    shape = (len(components), *(1,) * (dims - components.dim()), *components.shape[1:])
    return components.reshape(shape)
