"""Hidden features taken from a random row of a reference set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from lexppl.models.imputers.imputer import Imputer, TensorOrShape

__all__ = ["MarginalImputer", "ReferenceRow"]


class MarginalImputer(Imputer):
    """The hidden features of a row are those of one random row of a reference set:

        x̃ = z ⊙ x + (1 − z) ⊙ r_i,    i ~ Uniform{1, …, N}.

    One index is drawn for every imputation, mask and row, so the hidden features of a draw belong
    together, whatever was kept.

    Args:
        reference: the rows `r`, shape `(N, *event)`, N at least 1, finite.

    Raises:
        ValueError: when it is empty, has no feature dimension, or a NaN or infinite value.

    Source: Senetaire et al. 2023, appendix B ("marginal").

    Example:
        >>> imputer = MarginalImputer(torch.tensor([[5.0, 6.0, 7.0]]))
        >>> imputer(torch.ones(2, 3), torch.tensor([1.0, 0.0, 0.0])).sample()
        tensor([[1., 6., 7.],
                [1., 6., 7.]])
    """

    reference: Tensor

    def __init__(self, reference: TensorOrShape) -> None:
        super().__init__()
        self._register("reference", reference)
        if self.reference.ndim < 2 or self.reference.numel() == 0:
            raise ValueError(
                "reference must have shape (N, *event) with at least one row and one feature; it "
                f"has shape {tuple(self.reference.shape)}"
            )

    @property
    def event_shape(self) -> torch.Size | None:
        """The shape of a row of `reference`."""
        return self.reference.shape[1:]

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """A uniformly drawn row of the reference set."""
        return ReferenceRow(self.reference)


class ReferenceRow(TorchDistribution):
    """The distribution of a uniformly drawn row of a reference set: batch shape `()`, event
    `event`.

    The index has no parameter, hence `rsample`: gradients flow to the reference rows.

    Args:
        reference: the rows, shape `(N, *event)`.

    Example:
        >>> ReferenceRow(torch.tensor([[1.0, 2.0], [3.0, 6.0]])).mean
        tensor([2., 4.])
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    has_rsample = True

    def __init__(self, reference: Tensor, validate_args: bool | None = None) -> None:
        self.reference = reference
        super().__init__(torch.Size(), reference.shape[1:], validate_args=validate_args)

    def expand(
        self, batch_shape: torch.Size, _instance: ReferenceRow | None = None
    ) -> ReferenceRow:
        """The same distribution over more dimensions, an index for each."""
        new = self._get_checked_instance(ReferenceRow, _instance)
        new.reference = self.reference
        super(ReferenceRow, new).__init__(
            torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        return new

    @property
    def support(self) -> constraints.Constraint:
        """The reals, entry by entry."""
        return constraints.independent(constraints.real, len(self.event_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Rows of the reference set, shape `(*sample_shape, *batch, *event)`."""
        shape = torch.Size(sample_shape) + self.batch_shape
        index = torch.randint(len(self.reference), shape, device=self.reference.device)
        return self.reference[index]

    @property
    def mean(self) -> Tensor:
        """The mean of the reference set."""
        return self.reference.mean(0).expand(self.batch_shape + self.event_shape)

    @property
    def variance(self) -> Tensor:
        """The variance (divisor N) of the reference set."""
        return self.reference.var(0, correction=0).expand(self.batch_shape + self.event_shape)

    def log_prob_hidden(self, value: Tensor, hidden: Tensor) -> Tensor:
        """Not defined: the distribution of a few hidden entries is a sum of point masses.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "the distribution of a random reference row is a set of point masses and has no "
            "density; objectives that propose x_imputed from the model do not need it, others can "
            "use a GaussianImputer or a ConditionalGaussianImputer"
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """Not defined, as :meth:`log_prob_hidden`.

        Raises:
            NotImplementedError: always.
        """
        return self.log_prob_hidden(value, torch.ones_like(value, dtype=torch.bool))
