"""Base of the imputers, and the distributions that they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from pyro.distributions.util import broadcast_shape, sum_rightmost
from pyro.infer.util import is_validation_enabled
from torch import Tensor, nn
from torch.distributions import constraints

from lexppl.argument_checks import refuse_not_finite, shaped
from lexppl.configured import Configured, constructor_arguments
from lexppl.distributions.computed_once import SharedRows
from lexppl.distributions.gradients import carries_gradient

MOST_COPIES = 20  # Of a row on average by whole weights; above, rows are drawn in proportion
DRAWN_ROWS = 5000  # Rows that others are drawn to, where they are not more already


class HiddenFeatures(SharedRows):
    """Base of the distributions of what each entry would be, were it hidden: batch shape `(…, B)`.
    A subclass without a density says why in `no_density`."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = True
    no_density: ClassVar[str]
    _soft = True
    """Whether kept entries would be something else too; of a boolean mask they are points."""

    @property
    def support(self) -> constraints.Constraint:
        """The reals, entry by entry."""
        return constraints.independent(constraints.real, len(self.event_shape))

    def log_prob_hidden(self, value: Tensor, hidden: Tensor) -> Tensor:
        """The joint log-density of the draws at the entries `hidden`, `(…, B)`."""
        raise NotImplementedError(self.no_density)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of a whole draw, `(…, B)`, which a boolean `keep` does not have."""
        if not self._soft:
            raise NotImplementedError(
                "with a boolean keep the kept entries are points and have no density; use "
                "log_prob_hidden, or the log_prob of the Imputed distribution"
            )
        return self.log_prob_hidden(value, torch.ones_like(value, dtype=torch.bool))


class Imputed(HiddenFeatures):
    """`x̃ = z ⊙ x + (1 − z) ⊙ u` with u a draw of `hidden_distribution`, `p_ι(x̃ | x, z)`.

    Entries with `keep == 1` have the bits of x, those with `keep == 0` the draw's. The gradient in
    `keep` is `x − u`, at 0 and 1 too, as straight-through estimators need it; a boolean `keep` has
    none. Source: Senetaire et al. 2023, eq. 4 and appendix B.

    Example:
        >>> keep = torch.tensor([[1.0, 0.0, 0.5]])
        >>> Imputed(torch.ones(1, 3), keep, dist.Delta(torch.zeros(3), event_dim=1)).rsample()
        tensor([[1.0000, 0.0000, 0.5000]])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "x": constraints.real,
        "keep": constraints.unit_interval,
    }

    def __init__(self, x: Tensor, keep: Tensor, hidden_distribution: TorchDistribution) -> None:
        event_shape = hidden_distribution.event_shape
        event_dim = len(event_shape)
        shaped("x", x, ("…", *event_shape), note="as of hidden_distribution")
        shape = torch.Size(broadcast_shape(x.shape, keep.shape, hidden_distribution.shape()))
        if shape[len(shape) - event_dim :] != event_shape:
            shaped("keep", keep, ("…", *event_shape), note="an entry for each feature")
        self.x = x
        self.keep = keep if keep.dtype == torch.bool else keep.to(x.dtype)
        self.hidden_distribution = hidden_distribution
        super().__init__(shape[: len(shape) - event_dim], event_shape)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether `hidden_distribution` can be drawn with a gradient."""
        return bool(self.hidden_distribution.has_rsample)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws `(*sample_shape, …, B, *event)` with gradients."""
        draw = self.hidden_distribution.expand(self.batch_shape).rsample(torch.Size(sample_shape))
        return self._keep_or_replace(draw)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws `(*sample_shape, …, B, *event)` without gradients."""
        with torch.no_grad():
            distribution = self.hidden_distribution.expand(self.batch_shape)
            draw = (distribution.rsample if distribution.has_rsample else distribution.sample)(
                torch.Size(sample_shape)
            )
            return self._keep_or_replace(draw)

    @property
    def mean(self) -> Tensor:
        """The conditional mean `E[x̃ | x, z]`, `(…, B, *event)`."""
        shape = self.batch_shape + self.event_shape
        return self._keep_or_replace(self.hidden_distribution.mean.expand(shape))

    @property
    def variance(self) -> Tensor:
        """The conditional variance of each entry, `(…, B, *event)`: 0 where kept."""
        share = 1 - self.keep.to(self.x.dtype)
        variance = share**2 * self.hidden_distribution.variance
        return variance.expand(self.batch_shape + self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of the hidden entries given the kept ones, `(…, B)`; minus infinity where
        a kept entry is not that of `x`; of a constant the log-mass."""
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


TensorOrShape = float | Sequence[Any] | np.ndarray | Tensor | Mapping[str, Any]
"""A tensor, what makes one, or `{"shape": [...], "dtype": "float32"}`: one to be loaded."""


class Imputer(Configured, nn.Module):
    """A conditional distribution `p_ι(x̃ | x, z)` of the hidden features.

    A subclass says in :meth:`hidden_distribution` what each feature would be, were it hidden, and
    in :attr:`event_shape` which rows it takes; the kept features stay as they are:

        with imputation_particles():
            x_imputed = pyro.sample("x_imputed", imputer(x, keep))

    Its tensors are buffers named like the arguments of the constructor.
    """

    event_shape: torch.Size | None = None
    """The shape of one row, or None where any will do."""

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """The distribution of what each entry would be, were it hidden, event shape `event` and a
        batch shape that broadcasts with `(…, B)`.

        Args:
            x: rows, shape `(B, *event)`.
            keep: shape `(…, B, *event)` or broadcastable to it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define hidden_distribution(x, keep)")

    def forward(self, x: Tensor, keep: Tensor) -> Imputed:
        """The distribution of the imputed rows, batch shape `(…, B)` and event shape `event`.

        Args:
            x: rows, shape `(B, *event)`: `(B, D)` for tables, `(B, C, H, W)` for images.
            keep: what is kept of each feature, boolean or in [0, 1], `(…, B, *event)` or
                broadcastable.

        Raises:
            TypeError, ValueError: an `x` of another floating-point type, shapes that do not fit.
        """
        self._check_input(x, keep)
        return Imputed(x, keep, self.hidden_distribution(x, keep))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments as JSON: of a tensor its shape and type. An imputer made of
        them holds NaN until `load_state_dict` has filled it."""
        return {
            name: _description(value) if isinstance(value, Tensor) else value
            for name, value in constructor_arguments(self).items()
        }

    def extra_repr(self) -> str:
        """The shapes of the tensors."""
        return ", ".join(f"{n}={tuple(b.shape)}" for n, b in self.named_buffers(recurse=False))

    def _register(self, name: str, value: TensorOrShape) -> bool:
        """Registers a buffer; False where its values are yet to be loaded."""
        if isinstance(value, Mapping):
            dtype = getattr(torch, value["dtype"])
            self.register_buffer(name, torch.full(tuple(value["shape"]), torch.nan, dtype=dtype))
            return False
        try:
            tensor = torch.as_tensor(value).detach().clone()
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"{name} must be a number, a tensor or an array; it is a {type(value).__name__}"
            ) from error
        if tensor.is_complex():
            raise TypeError(f"{name} must be real; it is {tensor.dtype}")
        if not tensor.is_floating_point():
            tensor = tensor.to(torch.get_default_dtype())
        refuse_not_finite(name, tensor)
        self.register_buffer(name, tensor)
        return True

    def _refuse_mixed_types(self) -> None:
        types = {name: buffer.dtype for name, buffer in self.named_buffers(recurse=False)}
        if len(set(types.values())) > 1:
            raise TypeError(f"{', '.join(types)} must be of one type; they are {types}")

    def _hard_mask(self, x: Tensor, keep: Tensor, draw: str, instead: str) -> Tensor:
        """What is kept, boolean, of a mask of 0 and 1 without a gradient."""
        self._check_input(x, keep)
        if keep.requires_grad:
            raise ValueError(
                f"{draw} has no gradient in the mask, and this estimator differentiates masks: use "
                f"one of the score, such as LeaveOneOut() (the default of lex), or {instead}"
            )
        hard = keep == 1
        if is_validation_enabled() and not bool((hard | (keep == 0)).all()):
            raise ValueError(
                f"an entry is kept or {draw}, and the mask has values between 0 and 1: use masks "
                f"that are hard, such as BernoulliSelector's, or {instead}"
            )
        return hard

    def _check_input(self, x: Tensor, keep: Tensor) -> None:
        event_shape = self.event_shape
        shaped("x", x, ("B", *(("*event",) if event_shape is None else event_shape)))
        for name, buffer in self.named_buffers(recurse=False):
            if buffer.dtype != x.dtype:
                raise TypeError(
                    f"x is {x.dtype} and the imputer's {name} is {buffer.dtype}; "
                    f"call imputer.to({x.dtype}) or convert x"
                )
        try:
            shape = torch.Size(broadcast_shape(keep.shape, x.shape))
        except ValueError:
            shape = torch.Size()
        if keep.ndim < x.ndim - 1 or shape[-x.ndim :] != x.shape:
            note = "as x, or broadcast to it: a grouping carries mask entries to features"
            shaped("keep", keep, ("…", *x.shape), note=note)


def _description(tensor: Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}


def check_training_rows(x: Tensor) -> None:
    """Refuse rows that no distribution can be fitted on."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be a floating-point tensor; it is {kind}")
    shaped("x", x, "B *event")
    if len(x) < 2:
        raise ValueError(f"x must have at least 2 rows to fit an imputer; it has {len(x)}")
    refuse_not_finite("x", x, ": drop those rows or fill the values first")


def some_rows(x: Tensor, most: int, seed: int) -> Tensor:
    """At most so many of the rows, at random."""
    if len(x) <= most:
        return x
    places = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:most]
    return x[places.to(x.device)]


def repeated_rows(x: Tensor, weights: Tensor | None, seed: int) -> Tensor:
    """Rows as often as they count, `(M, D)`: whole weights repeat, others draw 5000 or N
    systematically; the rows themselves without weights."""
    if weights is None:
        return x
    counts = weights.detach().cpu().double().numpy()
    if (counts == counts.round()).all() and counts.sum() <= MOST_COPIES * len(counts):
        times = counts.astype(np.int64)
    else:
        total = max(len(counts), DRAWN_ROWS)
        sums = counts.cumsum()
        reached = np.concatenate([[0.0], sums / sums[-1]]) * total
        start = np.random.default_rng(seed).random()
        times = np.diff(np.ceil(reached - start)).astype(np.int64)
    return x.repeat_interleave(torch.as_tensor(times, device=x.device), 0)


def fill_zero_variances(variance: Tensor) -> Tensor:
    """The variances with each 0 replaced by the smallest positive one, or by 1 without any: a unit
    for columns that are constant."""
    positive = variance > 0
    smallest = torch.where(positive, variance, torch.inf).amin()
    return torch.where(positive, variance, torch.where(smallest.isinf(), 1, smallest))
