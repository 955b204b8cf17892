"""The distribution of a row whose hidden entries were replaced, and of what replaces them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from pyro.distributions.util import broadcast_shape, sum_rightmost
from torch import Tensor
from torch.distributions import constraints

from lexppl.distributions.gradients import carries_gradient


class HiddenFeatures(TorchDistribution):
    """Base of the distributions of what each entry would be, were it hidden: batch shape `(…, B)`.

    Expanding shares what was computed when the distribution was built (a factorisation, say). A
    subclass with a density defines :meth:`log_prob_hidden`; one without says why in `no_density`.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = True
    no_density: ClassVar[str]

    def expand(self, batch_shape: torch.Size, _instance: Any = None) -> Self:
        """The same distribution over more dimensions; nothing is computed again."""
        new: Self = self._get_checked_instance(type(self), _instance)
        new.__dict__.update(self.__dict__)
        TorchDistribution.__init__(
            new, torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        new._validate_args = self._validate_args
        return new

    @property
    def support(self) -> constraints.Constraint:
        """The reals, entry by entry."""
        return constraints.independent(constraints.real, len(self.event_shape))

    def log_prob_hidden(self, value: Tensor, hidden: Tensor) -> Tensor:
        """The joint log-density of the draws at the entries `hidden`, `(…, B)`.

        Raises:
            NotImplementedError: where there is none.
        """
        raise NotImplementedError(self.no_density)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of a whole draw, `(…, B)`."""
        return self.log_prob_hidden(value, torch.ones_like(value, dtype=torch.bool))


POINTS = (
    "with a boolean keep the kept entries are points and have no density; use log_prob_hidden, or "
    "the log_prob of the Imputed distribution"
)
"""Why a whole draw has no density where masks are boolean."""


class Imputed(HiddenFeatures):
    """The distribution `p_ι(x̃ | x, z)`: what was kept stays, what was hidden is drawn.

    With a draw `u ~ hidden_distribution` of what each entry would be, were it hidden,

        x̃ = z ⊙ x + (1 − z) ⊙ u.

    Entries with `keep == 1` come back with the bits of `x` and entries with `keep == 0` with those
    of the draw; a fractional `keep` interpolates. The gradient with respect to `keep` is `x − u`
    everywhere, at exactly 0 and 1 too, as straight-through estimators need it; a boolean `keep`
    carries no gradient and is the cheapest. The gradients with respect to `x` and to the parameters
    of `hidden_distribution` are those of the formula.

    Draws of the expanded distribution are independent over the new dimensions, and what
    `hidden_distribution` computed when it was built (a factorisation, say) is shared by them.

    Args:
        x: the rows, shape `(B, *event)`; finite.
        keep: what is kept of each feature, in [0, 1] or boolean, of shape `(…, B, *event)` or
            broadcastable with `x` to it.
        hidden_distribution: a distribution of event shape `event` whose batch shape broadcasts with
            `(…, B)`. Where it has `rsample`, so has this distribution.

    Raises:
        ValueError: when the shapes do not fit; with argument validation on, also when `x` has a NaN
            or `keep` leaves [0, 1].

    Source: Senetaire et al. 2023, eq. 4 and appendix B.

    Example:
        >>> x = torch.tensor([[1.0, 2.0, 3.0]])
        >>> keep = torch.tensor([[1.0, 0.0, 0.5]])
        >>> distribution = Imputed(x, keep, dist.Delta(torch.zeros(3), event_dim=1))
        >>> distribution.rsample()
        tensor([[1.0000, 0.0000, 1.5000]])
        >>> distribution.expand((4, 1)).rsample().shape
        torch.Size([4, 1, 3])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "x": constraints.real,
        "keep": constraints.unit_interval,
    }

    def __init__(
        self,
        x: Tensor,
        keep: Tensor,
        hidden_distribution: TorchDistribution,
        validate_args: bool | None = None,
    ) -> None:
        event_shape = hidden_distribution.event_shape
        event_dim = len(event_shape)
        if x.shape[x.ndim - event_dim :] != event_shape:
            raise ValueError(
                f"x must end in the event shape of hidden_distribution, {tuple(event_shape)}; "
                f"it has shape {tuple(x.shape)}"
            )
        shape = torch.Size(broadcast_shape(x.shape, keep.shape, hidden_distribution.shape()))
        if shape[len(shape) - event_dim :] != event_shape:
            raise ValueError(
                f"keep must have an entry for each feature, event shape {tuple(event_shape)}; "
                f"it has shape {tuple(keep.shape)}"
            )
        self.x = x
        self.keep = keep if keep.dtype == torch.bool else keep.to(x.dtype)
        self.hidden_distribution = hidden_distribution
        super().__init__(shape[: len(shape) - event_dim], event_shape, validate_args=validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether `hidden_distribution` can be drawn with a gradient."""
        return bool(self.hidden_distribution.has_rsample)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws of shape `(*sample_shape, …, B, *event)` with gradients."""
        draw = self.hidden_distribution.expand(self.batch_shape).rsample(torch.Size(sample_shape))
        return self._keep_or_replace(draw)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws of shape `(*sample_shape, …, B, *event)` without gradients."""
        with torch.no_grad():
            distribution = self.hidden_distribution.expand(self.batch_shape)
            draw = (distribution.rsample if distribution.has_rsample else distribution.sample)(
                torch.Size(sample_shape)
            )
            return self._keep_or_replace(draw)

    @property
    def mean(self) -> Tensor:
        """The conditional mean `E[x̃ | x, z]`, shape `(…, B, *event)`."""
        shape = self.batch_shape + self.event_shape
        return self._keep_or_replace(self.hidden_distribution.mean.expand(shape))

    @property
    def variance(self) -> Tensor:
        """The conditional variance of each entry: 0 where kept; shape `(…, B, *event)`."""
        share = 1 - self.keep.to(self.x.dtype)
        variance = share**2 * self.hidden_distribution.variance
        return variance.expand(self.batch_shape + self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of the hidden entries given the kept ones, shape `(…, B)`.

        It is minus infinity where a kept entry of `value` is not that of `x`. Where `keep` is
        fractional it is the density of the interpolated entry. A constant (Delta) hidden
        distribution has the log-mass 0 or minus infinity.

        Raises:
            NotImplementedError: where `hidden_distribution` neither factorises over the entries (a
                Delta, or an Independent of univariate distributions) nor has a method
                `log_prob_hidden(value, hidden)`.
        """
        if self._validate_args:
            self._validate_sample(value)
        event_dim = len(self.event_shape)
        if isinstance(self.hidden_distribution, dist.Delta):
            return self._all_entries(value == self.mean).to(value.dtype).log()
        keep = self.keep.to(value.dtype)
        hidden = keep != 1
        share = torch.where(hidden, 1 - keep, 1)
        draw = torch.where(hidden, (value - keep * self.x) / share, self.x)
        log_prob = self._log_prob_of(draw, hidden) - sum_rightmost(share.log(), event_dim)
        as_kept = self._all_entries(hidden | (value == self.x))
        batch_shape = torch.Size(broadcast_shape(log_prob.shape, as_kept.shape, self.batch_shape))
        return torch.where(as_kept, log_prob, -torch.inf).expand(batch_shape)

    def _log_prob_of(self, draw: Tensor, hidden: Tensor) -> Tensor:
        distribution = self.hidden_distribution
        if hasattr(distribution, "log_prob_hidden"):
            return distribution.log_prob_hidden(draw, hidden)
        event_dim = len(self.event_shape)
        if (
            isinstance(distribution, dist.Independent)
            and distribution.reinterpreted_batch_ndims == event_dim
        ):
            entries = distribution.base_dist.log_prob(draw)
            return sum_rightmost(torch.where(hidden, entries, 0), event_dim)
        raise NotImplementedError(
            f"the hidden distribution {type(distribution).__name__} does not factorise over the "
            "entries, so the density of the hidden ones alone is not known; use an Independent "
            "distribution, or give it a method log_prob_hidden(value, hidden)"
        )

    def _all_entries(self, condition: Tensor) -> Tensor:
        return condition.flatten(condition.ndim - len(self.event_shape)).all(-1)

    def _keep_or_replace(self, draw: Tensor) -> Tensor:
        if self.keep.dtype == torch.bool:
            return torch.where(self.keep, self.x, draw)
        interpolated = torch.lerp(draw, self.x, self.keep)
        value = torch.where(self.keep == 1, self.x, interpolated)
        if not (torch.is_grad_enabled() and carries_gradient(interpolated)):
            return value
        # What is subtracted is +0.0, which leaves every bit alone; adding it would turn -0.0 into
        # +0.0.
        return value.detach() - (interpolated.detach() - interpolated)
