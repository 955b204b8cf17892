"""Images or texts in their parts; images by name or from a folder."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lexppl.choices.data_sets import image_names
from lexppl.cli.terminal.errors import UsageError
from lexppl.data import DividedImages, ImageDataset, TextDataset, divided_folder, image_set
from lexppl.models import Architecture, flat_images, images

Part = ImageDataset | TextDataset
Places = NDArray[np.int64]

ROWS = 2000
"""Images or texts of each part, where nobody says how many."""
NONE: Places = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class RowsDescribed:
    """What the rows are of.

    Args:
        name: of the data set.
        target_name: of what is predicted.
        class_names: of its classes.
        entry_names: of the entries of a mask.
        rows: what a row is, such as "image".
        entries: what the entries are, such as "patches of 4 × 4 pixels".
        shape: of a row, in words.
        left_out: what was not read, in words; empty where all was.
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
        """Return G."""
        return len(self.entry_names)


@dataclass(frozen=True, eq=False)
class DividedRows:
    """Images or texts to fit on, to choose the best epoch on, and to judge.

    Args:
        data: what they are of.
        train, valid, test: the parts.
        architecture: the networks.
        numbered: the rows that `--row` can name.
        numbers: their numbers, rising.
        part_numbers: of the rows of each part; none of a part that `--row` cannot name.
        keep: which end of a text that is too long is kept, or None for none.
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

    @property
    def target_scale(self) -> float:
        """Return 1: there are classes, and no unit of a response."""
        return 1.0

    @property
    def are_texts(self) -> bool:
        """Return whether these are texts."""
        return isinstance(self.train, TextDataset)

    @property
    def test_numbers(self) -> list[int]:
        """Return the numbers of the held-out rows."""
        return [int(number) for number in self.part_numbers[2]]

    def by_number(self, numbers: Sequence[int]) -> Part:
        """Return some rows by their numbers."""
        return self.numbered.subset(torch.from_numpy(np.searchsorted(self.numbers, numbers)))

    def part_of(self, number: int) -> str:
        """What the fit knows of a numbered row, in words; empty of one that is held out."""
        train, valid, test = self.part_numbers
        if number in train:
            return "; the explainer was fitted on it"
        if number in valid:
            return "; the best epoch was chosen on it"
        return "" if number in test else "; it was left out of the fit"


def words_of(part: Part) -> tuple[tuple[str, ...], ...]:
    """The words of each text as they are written; none of images."""
    return part.words if isinstance(part, TextDataset) else ()


def check_rows(numbers: Sequence[int], count: int, has: str, what: str) -> None:
    """Refuse numbers of rows that are not there.

    Raises:
        UsageError: such a row.
    """
    for row in numbers:
        if row >= count:
            raise UsageError(
                f"--row must be 0 to {count - 1}, as {has} {count:,} {what}; it is {row}"
            )


def left_out(rows: int, what: str, sizes: Sequence[int]) -> str:
    """What was not read, in words; empty where there was no more to read.

    Example:
        >>> left_out(2000, "images", [2000, 800])
        'at most 2,000 images of each part are read, at random; --rows takes more'
        >>> left_out(2000, "images", [900, 800])
        ''
    """
    if max(sizes) < rows:
        return ""
    return f"at most {rows:,} {what} of each part are read, at random; --rows takes more"


PATCH, PATCHES_A_SIDE = 4, 14
"""Side of a patch in pixels, and how many of them a side has at most, where nobody says."""
SMALL: Mapping[str, Any] = MappingProxyType({"blocks": (16, 32), "levels": 2, "width": 8})
"""Convolutional networks that are fitted in minutes on a processor."""


def read_images(options: argparse.Namespace, device: torch.device) -> DividedRows:
    """Read the images that DATA names, in their three parts.

    Args:
        options: as typed.
        device: to put them on.

    Raises:
        ValueError: files that are not there or cannot be read, patches larger than the images.
    """
    rows = options.rows or ROWS
    parts = _read(options, rows).to(device)
    channels, height, width = parts.train.event_shape
    patch = _patch(options.patches, height, width)
    networks = getattr(options, "networks", None) or "flat"
    architecture = _architecture(networks, parts.train.event_shape, patch)
    grouping = architecture.grouping
    if grouping is None:
        raise ValueError("images have a grouping by patches; these networks have none")
    colours = {1: "grey", 3: "colour"}.get(channels, f"{channels} channels")
    described = RowsDescribed(
        name=parts.train.name,
        target_name=parts.train.target_name,
        class_names=parts.train.class_names,
        entry_names=tuple(grouping.names),
        rows="image",
        entries="pixels" if patch == 1 else f"patches of {patch} × {patch} pixels",
        shape=f"{height} × {width} pixels, {colours}",
        left_out=left_out(rows, "images", [len(parts.train), len(parts.test)]),
    )
    numbers = np.arange(len(parts.test))
    check_rows(getattr(options, "row", ()), len(numbers), "there are", "held-out images")
    return DividedRows(
        described,
        parts.train,
        parts.valid,
        parts.test,
        architecture,
        parts.test,
        numbers,
        (NONE, NONE, numbers),
    )


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


def _patch(given: int | None, height: int, width: int) -> int:
    """The side of a patch: as typed, or so that there are not too many."""
    shortest = min(height, width)
    if given is None:
        return min(shortest, max(PATCH, math.ceil(max(height, width) / PATCHES_A_SIDE)))
    if given > shortest:
        raise ValueError(
            f"--patches must be at most {shortest}, as the images are {height} × {width} pixels; "
            f"it is {given}"
        )
    return given


def _architecture(networks: str, shape: Sequence[int], patch: int) -> Architecture:
    if networks == "flat":
        return flat_images(shape, patches=patch)
    return images(shape, patches=patch, **SMALL)
