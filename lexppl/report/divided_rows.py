"""Images or texts in their parts, as a report reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lexppl.choices.files import TEXTS, VOCABULARY
from lexppl.data.images import ImageDataset
from lexppl.data.texts import TextDataset
from lexppl.models.architectures.base import Architecture

Part = ImageDataset | TextDataset
Places = NDArray[np.int64]


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

    @property
    def test_numbers(self) -> list[int]:
        """Numbers of the held-out rows."""
        return [int(number) for number in self.part_numbers[2]]

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
