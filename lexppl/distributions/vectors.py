"""Vectors whose every number is of a kind."""

from torch import Tensor
from torch.distributions import constraints


class Vectors(constraints.independent):
    """`torch.distributions.constraints.independent` of vectors, of which there may be none: torch's
    own stops where a batch has no rows.

    Args:
        numbers: the constraint of each.

    Example:
        >>> import torch
        >>> Vectors(constraints.real).check(torch.zeros(0, 3)).shape
        torch.Size([0])
        >>> Vectors(constraints.boolean).check(torch.tensor([[0.0, 1.0], [0.0, 2.0]]))
        tensor([ True, False])
    """

    def __init__(self, numbers: constraints.Constraint) -> None:
        super().__init__(numbers, 1)

    def check(self, value: Tensor) -> Tensor:
        """Of each vector, whether all its numbers are of the kind."""
        inside: Tensor = self.base_constraint.check(value)
        return inside.all(-1)
