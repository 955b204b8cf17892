"""Where a mouth is in a face: a box along the line between its corners."""

from __future__ import annotations

import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least


def mouth_box(
    corners: Tensor,
    side: int,
    patch: int = 1,
    *,
    width: float = 1.0,
    height: float = 2.0,
) -> Tensor:
    r"""Mark the patches of a square image whose centre lies in the box of a mouth.

    With a and b the corners, ``ℓ = |b − a|``, ``c = (a + b)/2``, u the unit vector from a to b and
    v at a right angle to it, a point p lies in the box where

        |(p − c) · u| ≤ width ℓ / 2   and   |(p − c) · v| ≤ height ℓ / 2.

    The pixel in column i and row j has its centre at (i, j), as landmarks have it.

    Args:
        corners: of N mouths, in pixels of the image, shape ``(N, 2, 2)``: left and right corner,
            each as column and row. They may lie outside the image.
        side: height and width of the image, in pixels.
        patch: side of a patch, a divisor of ``side``.
        width: of the box along the mouth, in lengths of the mouth.
        height: of the box across it, in lengths of the mouth.

    Returns:
        ``(N, side/patch, side/patch)`` bool, by row and column.

    Raises:
        ValueError: corners of another shape, not finite or of a mouth without length, a patch that
            does not divide the side, a width or height that is not above 0.

    Source: Senetaire et al. 2023 (LEX), CelebA smile: as wide as the mouth is long, twice as high.

    Example:
        >>> corners = torch.tensor([[[2.0, 3.0], [4.0, 3.0]]])
        >>> mouth_box(corners, side=7, height=1.0)[0].int()
        tensor([[0, 0, 0, 0, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0],
                [0, 0, 1, 1, 1, 0, 0],
                [0, 0, 1, 1, 1, 0, 0],
                [0, 0, 1, 1, 1, 0, 0],
                [0, 0, 0, 0, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0]], dtype=torch.int32)
    """
    if corners.ndim != 3 or corners.shape[1:] != (2, 2):
        raise ValueError(f"corners must have shape (N, 2, 2); they have {tuple(corners.shape)}")
    size, step = int_at_least("side", side), int_at_least("patch", patch)
    if size % step:
        raise ValueError(f"patch must divide the side, {side}; it is {patch}")
    across = finite_float("width", width, above=0.0) / 2
    down = finite_float("height", height, above=0.0) / 2
    points = corners.to(torch.float64)
    along = points[:, 1] - points[:, 0]
    length = along.norm(dim=-1, keepdim=True)
    if not points.isfinite().all() or (length == 0).any():
        raise ValueError("corners must be finite, and those of a mouth two different points")
    u = along / length
    v = torch.stack((-u[:, 1], u[:, 0]), dim=-1)
    centre = points.mean(1)
    middles = torch.arange(0, size, step, dtype=torch.float64) + (step - 1) / 2

    def distance(axis: Tensor) -> Tensor:
        columns = (middles - centre[:, :1]) * axis[:, :1]
        rows = (middles - centre[:, 1:]) * axis[:, 1:]
        return (columns.unsqueeze(1) + rows.unsqueeze(2)).abs()

    # A corner is on the edge: it must not fall outside by the last digit of a root.
    bound = length.unsqueeze(-1) * (1 + 1e-9)
    return (distance(u) <= across * bound) & (distance(v) <= down * bound)
