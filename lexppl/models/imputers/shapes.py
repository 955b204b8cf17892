"""Shapes that broadcast."""

import torch


def common_shape(*shapes: torch.Size) -> torch.Size:
    """`torch.broadcast_shapes`, which costs more than a small network's layer, without it where the
    other shapes are ends of the longest.

    Raises:
        RuntimeError: shapes that do not broadcast.

    Example:
        >>> common_shape(torch.Size([3, 2]), torch.Size([5, 3, 2])), common_shape(torch.Size([]))
        (torch.Size([5, 3, 2]), torch.Size([]))
        >>> common_shape(torch.Size([3, 1]), torch.Size([2]))
        torch.Size([3, 2])
    """
    longest = max(shapes, key=len)
    if all(longest[len(longest) - len(shape) :] == shape for shape in shapes):
        return longest
    return torch.broadcast_shapes(*shapes)
