"""Switching panels: two images side by side, one of which decides the label."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.data.images.dataset import ImageDataset
from lexppl.data.images.divided_images import DividedImages
from lexppl.data.images.mnist import BY_NAME
from lexppl.data.listing import listed

ROWS = (48_000, 12_000, 10_000)
"""Rows to fit on, to choose the best epoch on, and to judge, as in the paper."""


def switching_panels(
    labelled: str,
    root: str | Path,
    *,
    rows: Sequence[int] = ROWS,
    seed: int = 0,
    download: bool = False,
) -> DividedImages:
    """Put an image of MNIST and one of Fashion-MNIST side by side, in random order.

    The label is that of the named one, and the truth its panel: the other tells nothing about the
    label, and of the panel itself a part may do. Images are paired at random; each stands in one
    row of one part at most. Rows to fit on and to choose an epoch on are of the images for
    training, those to judge of the images for tests.

    Args:
        labelled: "mnist" or "fashion".
        root: the folder with ``MNIST`` and ``FashionMNIST`` in it, as torchvision lays them out.
        rows: how many to fit on, to choose the best epoch on, and to judge.
        seed: of the pairs and their order; no global random state is touched.
        download: let torchvision get what is not there, which writes to ``root``.

    Returns:
        images ``(N, 1, 28, 56)`` with their truth ``(N, 28, 56)``.

    Raises:
        ValueError: another name, more rows than there are images; as
            :func:`lexppl.data.mnist`.

    Source: Senetaire et al. 2023 (LEX), § 5.2: SP-MNIST and SP-Fashion.
    """
    if labelled not in BY_NAME:
        raise ValueError(f"labelled must be one of {listed(BY_NAME)}; it is {labelled!r}")
    counts = [int_at_least("each of rows", count) for count in rows]
    if len(counts) != 3:
        raise ValueError(
            "rows must be three numbers, to fit on, to choose the best epoch on and to judge; "
            f"they are {tuple(rows)}"
        )
    generator = np.random.default_rng(int_at_least("seed", seed, 0))
    other = next(name for name in BY_NAME if name != labelled)
    parts = []
    for train, wanted in ((True, counts[:2]), (False, counts[2:])):
        of_label, beside = (
            BY_NAME[name].read(root, name, train, download) for name in (labelled, other)
        )
        there = min(len(of_label), len(beside))
        if sum(wanted) > there:
            raise ValueError(
                f"rows must be at most {there:,} {'in their first two' if train else 'to judge'}, "
                f"as there are so many images of each kind; they are {tuple(rows)}"
            )
        of_label = of_label.subset(torch.from_numpy(_drawn(len(of_label), sum(wanted), generator)))
        beside = beside.subset(torch.from_numpy(_drawn(len(beside), sum(wanted), generator)))
        left = torch.from_numpy(generator.integers(2, size=sum(wanted)).astype(bool))
        whole = _side_by_side(of_label, beside.pixels, left, f"panels_{labelled}")
        ends = np.cumsum(wanted).tolist()
        parts += [
            whole.subset(slice(end - count, end)) for end, count in zip(ends, wanted, strict=True)
        ]
    return DividedImages(*parts)


def _drawn(count: int, wanted: int, generator: np.random.Generator) -> NDArray[np.int64]:
    return generator.permutation(count)[:wanted]


def _side_by_side(of_label: ImageDataset, beside: Tensor, left: Tensor, name: str) -> ImageDataset:
    """Panels with the labelled image on the left where `left` says so, else on the right."""
    place = left.reshape(-1, 1, 1, 1)
    halves = (
        torch.where(place, of_label.pixels, beside),
        torch.where(place, beside, of_label.pixels),
    )
    height, width = of_label.event_shape[1:]
    half = left.reshape(-1, 1, 1).expand(-1, height, width)
    return ImageDataset(
        torch.cat(halves, dim=-1),
        of_label.y,
        of_label.class_names,
        truth=torch.cat((half, ~half), dim=-1),
        name=name,
        target_name=of_label.target_name,
        is_part=True,
    )
