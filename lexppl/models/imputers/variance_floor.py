"""What stands for the variance of a feature that does not vary."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["fill_zero_variances"]


def fill_zero_variances(variance: Tensor) -> Tensor:
    """The variances with each 0 replaced by the smallest positive one, or by 1 without any.

    Constant columns are common (a rare category, the border of an image). They are imputed with a
    small share of this variance, which lends them a unit without a guess from outside the data.

    Args:
        variance: variances of features, any shape, squared units of the features.

    Example:
        >>> fill_zero_variances(torch.tensor([4.0, 0.0, 0.25]))
        tensor([4.0000, 0.2500, 0.2500])
    """
    positive = variance > 0
    smallest = torch.where(positive, variance, torch.inf).amin()
    return torch.where(positive, variance, torch.where(smallest.isinf(), 1, smallest))
