"""Hidden features left out: a gap, for predictors that read missing values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from pyro.infer.util import is_validation_enabled
from torch import Tensor
from torch.distributions import constraints

from lexppl.models.imputers.imputed import Imputed
from lexppl.models.imputers.imputer import Imputer

__all__ = ["GapImputer"]


class GapImputer(Imputer):
    """Every hidden feature becomes NaN: `x̃ = x` where kept, a gap where hidden.

    For predictors that read a gap as missing, as boosted trees do
    (:class:`lexppl.models.TreePredictor`), and so learn `p(y | x_S)` itself; a network gives NaN.
    A deterministic distribution: more than one imputation a mask is right but wasted. A gap has no
    gradient in the mask, so that masks must be hard and their gradient a score's.

    Raises:
        ValueError: from a call, masks that carry a gradient; where Pyro validates, as in the first
            step of a fit, masks other than 0 and 1.

    Example:
        >>> GapImputer()(torch.ones(2, 3), torch.tensor([1.0, 0.0, 1.0])).sample()
        tensor([[1., nan, 1.],
                [1., nan, 1.]])
    """

    leaves_gaps: ClassVar[bool] = True
    """Whether hidden features become NaN."""

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """A Delta at NaN, event shape `event`."""
        return dist.Delta(x.new_full(x.shape[1:], torch.nan), event_dim=x.ndim - 1)

    def forward(self, x: Tensor, keep: Tensor) -> Imputed:
        """The rows with gaps, batch shape `(…, B)` and event shape `event`.

        Args:
            x: rows, `(B, *event)`.
            keep: 0 or 1, or boolean, `(…, B, *event)` or broadcastable to it.
        """
        self._check_input(x, keep)
        if keep.requires_grad:
            raise ValueError(
                "a gap has no gradient in the mask, and this estimator differentiates masks: use "
                "one of the score, such as LeaveOneOut() or DisARM() (the default of lex), or an "
                "imputer with values, such as ConstantImputer()"
            )
        kept = keep == 1
        if is_validation_enabled() and not bool((kept | (keep == 0)).all()):
            raise ValueError(
                "a feature is kept or a gap, and the mask has values between 0 and 1: use masks "
                "that are hard, such as BernoulliSelector's, or an imputer that interpolates, such "
                "as ConstantImputer()"
            )
        return _WithGaps(x, kept, self.hidden_distribution(x, keep))


class _WithGaps(Imputed):
    """The distribution of a row with gaps, in which a gap equals a gap."""

    def expand(self, batch_shape: torch.Size, _instance: Imputed | None = None) -> Imputed:
        return super().expand(batch_shape, self._get_checked_instance(_WithGaps, _instance))

    @property
    def support(self) -> constraints.Constraint:
        """Numbers and gaps."""
        return constraints.independent(_NumberOrGap(), len(self.event_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """0 for the row with its gaps, minus infinity for any other: `(…, B)`."""
        row = self.mean
        same = (value == row) | (value.isnan() & row.isnan())
        return self._all_entries(same).to(row.dtype).log().expand(self._shape_with(value))

    def _shape_with(self, value: Tensor) -> Sequence[int]:
        batch = value.shape[: value.ndim - len(self.event_shape)]
        return torch.broadcast_shapes(batch, self.batch_shape)


class _NumberOrGap(constraints.Constraint):
    def check(self, value: Tensor) -> Tensor:
        return torch.ones_like(value, dtype=torch.bool)
