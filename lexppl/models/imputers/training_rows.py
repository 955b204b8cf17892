"""The check of the rows that an imputer is fitted on."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["check_training_rows"]


def check_training_rows(x: Tensor, minimum: int = 2) -> None:
    """Refuses rows that no distribution can be fitted on.

    Args:
        x: training rows, shape `(B, *event)`.
        minimum: the least number of rows.

    Raises:
        TypeError: when `x` is not a floating-point tensor.
        ValueError: when it is not `(B, *event)`, has too few rows, or NaN or infinite values.

    Example:
        >>> check_training_rows(torch.ones(1, 3))
        Traceback (most recent call last):
        ValueError: x must have at least 2 rows to fit an imputer; it has 1
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        given = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be a floating-point tensor; it is {given}")
    if x.ndim < 2:
        raise ValueError(f"x must have shape (B, *event); it has shape {tuple(x.shape)}")
    if len(x) < minimum:
        raise ValueError(f"x must have at least {minimum} rows to fit an imputer; it has {len(x)}")
    bad = int((~torch.isfinite(x)).sum())
    if bad:
        raise ValueError(
            f"x must be finite; {bad} of its {x.numel()} values are NaN or infinite. Drop those "
            "rows or fill the values first"
        )
