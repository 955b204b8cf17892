"""Hidden features replaced by a constant."""

from __future__ import annotations

from typing import ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor

from lexppl.models.imputers.imputer import Imputer, TensorOrShape

__all__ = ["ConstantImputer"]


class ConstantImputer(Imputer):
    """Every hidden feature becomes a constant: `x̃ = z ⊙ x + (1 − z) ⊙ c`.

    A deterministic distribution: more than one imputation a mask is right but wasted.

    Args:
        value: the constant `c`, in the units of the features: a number, or a tensor of shape
            `event`.

    Raises:
        ValueError: when it is NaN or infinite.

    Source: Senetaire et al. 2023, appendix B; with 0 it is the masking of L2X, INVASE and REAL-X.

    Example:
        >>> imputer = ConstantImputer(-1.0)
        >>> imputer(torch.ones(2, 3), torch.tensor([1.0, 0.0, 1.0])).sample()
        tensor([[ 1., -1.,  1.],
                [ 1., -1.,  1.]])
    """

    puts_a_constant: ClassVar[bool] = True
    """Whether hidden features become a number, not a draw."""

    value: Tensor

    def __init__(self, value: TensorOrShape = 0.0) -> None:
        super().__init__()
        self._register("value", value)

    @property
    def event_shape(self) -> torch.Size | None:
        """The shape of `value`; None for a number."""
        return self.value.shape if self.value.ndim else None

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """A Delta at the constant, event shape `event`."""
        return dist.Delta(self.value.expand(x.shape[1:]), event_dim=x.ndim - 1)
