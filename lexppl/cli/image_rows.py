"""Images or texts in their parts; images by name or from a folder."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lexppl.choices.data_sets import image_names
from lexppl.cli.options.checks import check_row_numbers
from lexppl.data import divided_folder, image_set
from lexppl.data.images.dataset import DividedImages, ImageDataset
from lexppl.data.texts import TextDataset
from lexppl.models import flat_images, images
from lexppl.models.architectures.base import Architecture

Part = ImageDataset | TextDataset
Places = NDArray[np.int64]

ROWS = 2000
"""Images or texts of each part, by default."""
NONE: Places = np.zeros(0, dtype=np.int64)
PATCH, PATCHES_A_SIDE = 4, 14
"""Side of a patch in pixels, and most patches of a side, by default."""
SMALL: Mapping[str, Any] = {"blocks": (16, 32), "levels": 2, "width": 8}
"""Convolutional networks that are fitted in minutes on a processor."""


@dataclass(frozen=True)
class RowsDescribed:
    """Data set of images or texts.

    Args:
        entry_names: of the G entries of a mask.
        rows: name of a row, such as "image".
        entries: name of the entries, such as "patches of 4 × 4 pixels".
        shape: of a row, in words.
        left_out: what was not read, in words.
    """

    name: str
    target_name: str
    class_names: tuple[str, ...]
    entry_names: tuple[str, ...]
    rows: str
    entries: str
    shape: str
    left_out: str = ""
    task: Literal["classification"] = "classification"

    @property
    def n_entries(self) -> int:
        """Number of mask entries, G."""
        return len(self.entry_names)


@dataclass(frozen=True, eq=False)
class DividedRows:
    """Images or texts to fit on, to choose the best epoch on, and to judge.

    Args:
        numbered: rows that `--row` can name.
        numbers: their numbers, rising.
        part_numbers: of the rows of each part; none of a part that `--row` cannot name.
        keep: end of a long text that is kept.
    """

    data: RowsDescribed
    train: Part
    valid: Part | None
    test: Part
    architecture: Architecture
    numbered: Part
    numbers: Places
    part_numbers: tuple[Places, Places, Places]
    keep: str | None = None

    target_scale = 1.0
    """Of classes, which have no unit."""

    @property
    def are_texts(self) -> bool:
        """Whether these are texts."""
        return isinstance(self.train, TextDataset)

    @property
    def test_numbers(self) -> list[int]:
        """Numbers of the held-out rows."""
        return [int(number) for number in self.part_numbers[2]]

    def by_number(self, numbers: Sequence[int]) -> Part:
        """The rows with these numbers, as a data set."""
        return self.numbered.subset(torch.from_numpy(np.searchsorted(self.numbers, numbers)))

    def part_of(self, number: int) -> str:
        """Part of a numbered row, in words; empty of a held-out one."""
        train, valid, test = self.part_numbers
        if number in train:
            return "; the explainer was fitted on it"
        if number in valid:
            return "; the best epoch was chosen on it"
        return "" if number in test else "; it was left out of the fit"


def words_of(part: Part) -> tuple[tuple[str, ...], ...]:
    """Words of each text as they are written; none of images."""
    return part.words if isinstance(part, TextDataset) else ()


def left_out(rows: int, what: str, sizes: Sequence[int]) -> str:
    """What was not read of parts of some sizes, in words."""
    if max(sizes) < rows:
        return ""
    return f"at most {rows:,} {what} of each part are read, at random; --rows takes more"


def read_images(options: argparse.Namespace, device: torch.device) -> DividedRows:
    """The images that DATA names, in three parts.

    Raises:
        ValueError: files that cannot be read, patches larger than the images.
    """
    rows = options.rows or ROWS
    parts = _read(options, rows).to(device)
    train, test = parts.train, parts.test
    channels, height, width = train.event_shape
    patch = _patch(options.patches, height, width)
    is_flat = getattr(options, "networks", None) in (None, "flat")
    architecture = (
        flat_images(train.event_shape, patches=patch)
        if is_flat
        else images(train.event_shape, patches=patch, **SMALL)
    )
    colours = {1: "grey", 3: "colour"}.get(channels, f"{channels} channels")
    described = RowsDescribed(
        name=train.name,
        target_name=train.target_name,
        class_names=train.class_names,
        entry_names=tuple(architecture.grouping.names),
        rows="image",
        entries="pixels" if patch == 1 else f"patches of {patch} × {patch} pixels",
        shape=f"{height} × {width} pixels, {colours}",
        left_out=left_out(rows, "images", [len(train), len(test)]),
    )
    numbers = np.arange(len(test))
    has = f"as there are {len(numbers):,} held-out images"
    check_row_numbers(getattr(options, "row", ()), len(numbers), has)
    places = (NONE, NONE, numbers)
    return DividedRows(described, train, parts.valid, test, architecture, test, numbers, places)


def _read(options: argparse.Namespace, rows: int) -> DividedImages:
    if options.data in image_names():
        return image_set(
            options.data, options.root, rows=rows, seed=options.seed, download=options.download
        )
    valid, test = getattr(options, "valid_share", None), options.test_share
    rest = 1.0 - test - (valid or 0.0)
    parts = divided_folder(
        Path(options.data).expanduser(),
        size=options.size,
        grayscale=options.grayscale or None,
        rows=math.ceil(rows / rest),
        valid_share=valid,
        test_share=test,
        seed=options.seed,
    )
    return parts.take(rows, seed=options.seed)


def _patch(typed: int | None, height: int, width: int) -> int:
    """Side of a patch: as typed, or so that there are not too many."""
    shortest = min(height, width)
    if typed is None:
        return min(shortest, max(PATCH, math.ceil(max(height, width) / PATCHES_A_SIDE)))
    if typed > shortest:
        raise ValueError(
            f"--patches must be at most {shortest}, as the images are {height} × {width} pixels; "
            f"it is {typed}"
        )
    return typed
