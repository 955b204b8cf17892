"""Checks that the attribution methods share, made before any work."""

from __future__ import annotations

from torch import Tensor

from lexppl.models import Grouping


def check_tables(grouping: Grouping | None, **tables: Tensor) -> None:
    """Refuse rows that are no tables of the same features.

    Args:
        grouping: of the features, or None.
        tables: `(N, D)` each, by the argument's name; all like the first.

    Raises:
        TypeError: no floating tensor, or of another type than the first.
        ValueError: another shape, no rows, values that are not finite, another device, or a
            grouping of other features.
    """
    first_name, first = next(iter(tables.items()))
    for name, table in tables.items():
        if not isinstance(table, Tensor) or not table.is_floating_point():
            given = table.dtype if isinstance(table, Tensor) else type(table).__name__
            raise TypeError(f"{name} must be a floating-point tensor; it is {given}")
        if table.dim() != 2 or table.numel() == 0:
            raise ValueError(
                f"{name} must be a table (N, D) with a row and a column; it has shape "
                f"{tuple(table.shape)}"
            )
        bad = int((~table.isfinite()).sum())
        if bad:
            raise ValueError(f"{name} must be finite; {bad} of its values are NaN or infinite")
        if table.shape[1] != first.shape[1]:
            raise ValueError(
                f"{name} has {table.shape[1]} features and {first_name} {first.shape[1]}; they "
                "must be the same features"
            )
        if table.dtype != first.dtype:
            raise TypeError(f"{name} is {table.dtype} and {first_name} {first.dtype}; convert one")
        if table.device != first.device:
            raise ValueError(
                f"{name} is on {table.device} and {first_name} on {first.device}; move one"
            )
    if grouping is not None and grouping.features != first.shape[1]:
        raise ValueError(
            f"grouping is of {grouping.features} features; {first_name} has {first.shape[1]}"
        )
