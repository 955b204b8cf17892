"""Batches of images whose floats are made as they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lexppl.argument_checks import int_at_least

Batch = TypeVar("Batch")


def as_floats(pixels: Tensor) -> Tensor:
    """Bytes as float32 in [0, 1]; floats as they are.

    Args:
        pixels: of any shape, ``torch.uint8`` or floating.

    Example:
        >>> as_floats(torch.tensor([0, 51, 255], dtype=torch.uint8))
        tensor([0.0000, 0.2000, 1.0000])
    """
    return pixels if pixels.is_floating_point() else pixels.to(torch.float32).div_(255)


@dataclass(frozen=True)
class FloatBatches:
    """Images by many places at once, as a loader fetches them.

    Args:
        pixels: ``(N, C, H, W)``, ``torch.uint8`` or floating.
        y: ``(N,)``.
    """

    pixels: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return as_floats(self.pixels[place]), self.y[place]

    def __getitems__(self, places: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Those at the places, as one batch."""
        rows = torch.as_tensor(places, device=self.y.device)
        return as_floats(self.pixels[rows]), self.y[rows]


def float_batches(
    pixels: Tensor, y: Tensor, batch_size: int, shuffle: bool, seed: int
) -> DataLoader[tuple[Tensor, Tensor]]:
    """A loader of batches of floats.

    Args:
        pixels: ``(N, C, H, W)``, ``torch.uint8`` or floating.
        y: ``(N,)``.
        batch_size: images of a batch.
        shuffle: go through them in a new random order each time.
        seed: of the orders.
    """
    rows: DataLoader[tuple[Tensor, Tensor]] = DataLoader(
        FloatBatches(pixels, y),  # type: ignore[arg-type]
        batch_size=int_at_least("batch_size", batch_size),
        shuffle=shuffle,
        # Without one, a loader draws from the global generator even where it keeps the order.
        generator=torch.Generator().manual_seed(int_at_least("seed", seed, 0)),
        collate_fn=_as_it_is,
    )
    return rows


def _as_it_is(batch: Batch) -> Batch:
    return batch
