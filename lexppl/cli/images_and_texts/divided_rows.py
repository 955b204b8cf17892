"""Images or texts in their parts, with the networks that explain them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lexppl.cli.terminal.errors import UsageError
from lexppl.data import ImageDataset, TextDataset
from lexppl.models import Architecture

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
