"""Images or texts in their parts, as a report reads them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lexppl.choices.files import TEXTS, VOCABULARY
from lexppl.data.images import ImageDataset
from lexppl.data.texts import TextDataset
from lexppl.models import flat_images, images, texts
from lexppl.models.architectures.base import Architecture

Part = ImageDataset | TextDataset
Places = NDArray[np.int64]
OfKind = tuple[Architecture, dict[str, Any]]
NONE: Places = np.zeros(0, dtype=np.int64)
PATCH, PATCHES_A_SIDE = 4, 14  # Side of a patch in pixels, and most patches of a side, by default
SMALL_OF_IMAGES: Mapping[str, Any] = {
    "blocks": (16, 32, 64),
    "pooled": True,
    "levels": 2,
    "width": 16,
    "convolutions": 1,
}
"""Convolutional networks that are fitted in a minute on a processor; of a selector that starts from
the predictor's blocks."""
SMALL_OF_TEXTS: Mapping[str, Any] = {
    "predictor": "cnn",
    "embedding": 32,
    "filters": 32,
    "hidden": 64,
}
"""Networks that are fitted in minutes on a processor."""


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

    target_scale = 1.0  # Of classes, which have no unit

    @property
    def are_texts(self) -> bool:
        """Whether these are texts."""
        return isinstance(self.train, TextDataset)

    def by_number(self, numbers: Sequence[int]) -> Part:
        """The rows with these numbers, as a data set."""
        return self.numbered.subset(torch.from_numpy(np.searchsorted(self.numbers, numbers)))

    def write_reading(self, folder: Path) -> None:
        """Write how texts are read; nothing of images."""
        if isinstance(self.train, TextDataset):
            self.train.vocabulary.save(folder / VOCABULARY)
            how = {"length": self.train.length, "keep": self.keep}
            (folder / TEXTS).write_text(json.dumps(how) + "\n", encoding="utf-8")

    def part_of(self, number: int) -> str:
        """Part of a numbered row, in words; empty of a held-out one."""
        train, valid, test = self.part_numbers
        if number in train:
            return "; the explainer was fitted on it"
        if number in valid:
            return "; the best epoch was chosen on it"
        return "" if number in test else "; it was left out of the fit"


def written_words(part: Part) -> tuple[tuple[str, ...], ...]:
    """Words of each text as they are written; none of images."""
    return part.words if isinstance(part, TextDataset) else ()


def divided_rows(
    train: Part,
    valid: Part | None,
    test: Part,
    *,
    patches: int | None = None,
    flat: bool = False,
    keep: str | None = None,
    name: str = "",
    left_out: str = "",
    numbered: tuple[Part, Places, tuple[Places, Places, Places]] | None = None,
) -> DividedRows:
    """Images or texts in three parts, with the networks that `lexppl explain` has for them.

    Args:
        train, valid, test: rows to fit on, to choose the best epoch on (None for none), to judge.
        patches: side of a patch of images in pixels; by default the least from 4 on with at most
            14 patches a side.
        flat: perceptrons of the pixels in place of convolutional networks.
        keep: as of :class:`DividedRows`.
        name, left_out: of the data, and of what was not read, in words.
        numbered: rows that can be named, their numbers, and those of each part; held-out rows by
            their places if None.

    Raises:
        TypeError: parts of images and of texts.
        ValueError: parts of other classes, shapes or vocabularies; patches larger than the images.
    """
    parts = [part for part in (train, valid, test) if part is not None]
    if len({type(part) for part in parts}) > 1:
        raise TypeError("parts must be all images or all texts; these are of both")
    for what in ("class_names", "event_shape", "vocabulary", "length"):
        if any(getattr(part, what, None) != getattr(train, what, None) for part in parts):
            raise ValueError(f"parts must have one {what}: divide one data set, or give it to each")
    if isinstance(train, TextDataset):
        networks, of_kind = _of_texts(train)
    else:
        networks, of_kind = _of_images(train, patches, flat)
    described = RowsDescribed(
        name=name or train.name,
        target_name=train.target_name,
        class_names=train.class_names,
        left_out=left_out,
        **of_kind,
    )
    numbers = np.arange(len(test))
    named = numbered or (test, numbers, (NONE, NONE, numbers))
    return DividedRows(described, train, valid, test, networks, *named, keep)


def _of_images(train: ImageDataset, patches: int | None, flat: bool) -> OfKind:
    """Networks of images, and what their rows are called."""
    channels, height, width = shape = train.event_shape
    shortest = min(height, width)
    if patches is None:
        patches = min(shortest, max(PATCH, math.ceil(max(height, width) / PATCHES_A_SIDE)))
    if patches > shortest:
        raise ValueError(
            f"patches must be at most {shortest}, as the images are {height} × {width} "
            f"pixels; it is {patches}"
        )
    sizes = {} if flat else SMALL_OF_IMAGES
    architecture = (flat_images if flat else images)(shape, patches=patches, **sizes)
    colours = {1: "grey", 3: "colour"}.get(channels, f"{channels} channels")
    return architecture, {
        "entry_names": tuple(architecture.grouping.names),
        "rows": "image",
        "entries": "pixels" if patches == 1 else f"patches of {patches} × {patches} pixels",
        "shape": f"{height} × {width} pixels, {colours}",
    }


def _of_texts(train: TextDataset) -> OfKind:
    """Networks of texts, and what their rows are called."""
    return texts(len(train.vocabulary), train.length, **SMALL_OF_TEXTS), {
        "entry_names": train.entry_names,
        "rows": "text",
        "entries": "words",
        "shape": f"at most {train.length} words of {len(train.vocabulary.words):,} known",
    }
