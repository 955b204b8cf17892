"""What networks of images share: where their first weights come from, and which rows they take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def initial_weights(seed: int | None) -> Iterator[None]:
    """Draw initial weights from a seed, leaving the global random state as it is; from torch's
    default generator where the seed is None.

    Example:
        >>> with initial_weights(0):
        ...     first = torch.randn(3)
        >>> with initial_weights(0):
        ...     torch.equal(first, torch.randn(3))
        True
    """
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield


def check_images(x: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse rows that are no images of a shape.

    Raises:
        ValueError: another shape.

    Example:
        >>> check_images(torch.zeros(2, 1, 8, 8), (1, 28, 28))
        Traceback (most recent call last):
        ...
        ValueError: the network takes images (N, 1, 28, 28); it is given (2, 1, 8, 8)
    """
    if x.dim() != 1 + len(shape) or x.shape[1:] != shape:
        raise ValueError(
            f"the network takes images (N, {', '.join(map(str, shape))}); it is given "
            f"{tuple(x.shape)}"
        )
