"""Images or texts in their parts: sets by name, folders of images, a column of a table."""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch

from lexppl.argument_checks import near
from lexppl.choices.data_sets import image_names, text_names
from lexppl.cli.options.checks import check_row_numbers
from lexppl.cli.table_rows import file_format_of
from lexppl.cli.terminal import UsageError
from lexppl.data import Vocabulary, divided_folder, image_set, imdb, texts_of
from lexppl.data.cells import missing_words
from lexppl.data.files import read_frame, table_name
from lexppl.data.images import DividedImages
from lexppl.data.stratification import at_most, held_out_parts
from lexppl.data.texts import TextDataset, words_of
from lexppl.report.divided_rows import NONE, DividedRows, Places, divided_rows
from lexppl.summary import counted

ROWS = 2000  # Images or texts of each part, by default


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
    check_row_numbers(
        getattr(options, "row", ()), len(test), f"as there are {len(test):,} held-out images"
    )
    return divided_rows(
        train,
        parts.valid,
        test,
        patches=options.patches,
        flat=getattr(options, "networks", None) == "flat",
        left_out=left_out(rows, "images", [len(train), len(test)]),
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


WORDS, LENGTH = 10_000, 400  # Of the vocabulary and of a text, at most, by default; L2X's
MOST_CLASSES = 50
VALID_SHARE = 0.2  # Of the reviews to fit on, which come without a part to choose an epoch on


def read_texts(options: argparse.Namespace, device: torch.device) -> DividedRows:
    """The texts that DATA names, in three parts, with the vocabulary of those to fit on.

    Raises:
        UsageError: an unknown column.
        ValueError: files that cannot be read; a text without words, of unknown words only, or
            too long without `--keep-words`; labels that are no classes.
    """
    parts, numbered, numbers, places = (
        _imdb(options) if options.data in text_names() else _of_column(options)
    )
    train, valid, test = (None if part is None else part.to(device) for part in parts)
    if train is None or test is None:
        raise ValueError("each part needs a row")
    return divided_rows(
        train,
        valid,
        test,
        keep=_kept_end(options),
        name=table_name(Path(options.data)) if options.text else options.data,
        left_out=left_out(options.rows or ROWS, "texts", [len(train), len(test)]),
        numbered=(numbered.to(device), numbers, places),
    )


def _kept_end(options: argparse.Namespace) -> Literal["start", "end"] | None:
    """The end of a long text that is kept: of reviews the last, where they judge."""
    typed: Literal["start", "end"] | None = options.keep_words
    return "end" if typed is None and options.data in text_names() else typed


Parts = tuple[tuple[TextDataset | None, ...], TextDataset, Places, tuple[Places, Places, Places]]
"""The three parts; the rows that `--row` can name, with their numbers; numbers by part."""


def _imdb(options: argparse.Namespace) -> Parts:
    train, test = imdb(
        options.root,
        vocabulary=options.vocabulary or WORDS,
        length=options.length or LENGTH,
        keep=_kept_end(options) or "end",
    )
    train, valid = train.split(1 - VALID_SHARE, VALID_SHARE, seed=options.seed)
    rows, seed = options.rows or ROWS, options.seed
    train, valid, test = (part.take(rows, seed=seed) for part in (train, valid, test))
    numbers = np.arange(len(test))
    check_row_numbers(options.row, len(test), f"as there are {len(test):,} held-out texts")
    return (train, valid, test), test, numbers, (NONE, NONE, numbers)


def _of_column(options: argparse.Namespace) -> Parts:
    frame = read_frame(
        Path(options.data).expanduser(), file_format_of(options), column_names=options.column_names
    )
    frame.columns = [str(column) for column in frame.columns]
    target = _target(frame, options)
    if message := missing_words(frame, target):
        raise ValueError(message)
    cells = frame[[options.text, target]]
    whole = cells.dropna().reset_index(drop=True)
    if not options.strict and 0 < len(whole) < len(cells):
        gaps = counted(len(cells) - len(whole), "row")
        text = f"{gaps} without a text or a target: left out; --strict refuses the table"
        warnings.warn(text, stacklevel=2)
        cells = whole
    _check_cells(cells, target)
    labels = [str(label) for label in cells[target]]
    strata = pd.factorize(cells[target])[0].astype(np.int64)
    places = _places(strata, options)
    written = cells[options.text].tolist()
    check_row_numbers(options.row, len(written), f"as the table has {len(written):,} rows")
    used = np.unique(np.concatenate([*places, np.array(options.row, dtype=np.int64)]))
    rows = {int(row): words_of(written[row]).words for row in used}
    fitted = (rows[row] for row in places[0].tolist())
    every = texts_of(
        [written[row] for row in used],
        [labels[row] for row in used],
        vocabulary=Vocabulary.of(fitted, options.vocabulary or WORDS),
        length=options.length or min(max(map(len, rows.values())), LENGTH),
        keep=options.keep_words,
        row_name=lambda place: f"row {used[place]} of column {options.text!r}",
        target_name=target,
        name=table_name(Path(options.data)),
    )
    parts = tuple(
        every.subset(torch.from_numpy(np.searchsorted(used, part))) if len(part) else None
        for part in places
    )
    return parts, every, used, places


def _target(frame: pd.DataFrame, options: argparse.Namespace) -> str:
    """The target's column, by default the last one."""
    for option, name in (("--text", options.text), ("--target", options.target)):
        if name is not None and name not in frame:
            hint = near(name, list(frame.columns))
            raise UsageError(f"{option} {name!r} is no column of {options.data}; {hint}")
    if options.target is not None:
        return str(options.target)
    last = str(frame.columns[-1])
    if last == options.text:
        raise UsageError(f"the last column, {last!r}, has the texts: give another --target")
    return last


def _check_cells(cells: pd.DataFrame, target: str) -> None:
    """Refuse missing cells, what is no text, and a target that is no class."""
    for name, column in cells.items():
        if column.isna().any():
            row = int(np.flatnonzero(column.isna())[0])
            raise ValueError(f"{name!r} is missing in row {row}: give drop_missing=True")
    text = str(cells.columns[0])
    for row, cell in enumerate(cells[text].tolist()):
        if not isinstance(cell, str):
            shown = f"column {text!r} holds no texts: in row {row} it is {cell!r}"
            raise ValueError(f"{shown}; give another --text")
    if (different := cells[target].nunique()) > MOST_CLASSES:
        raise ValueError(
            f"target {target!r} has {different:,} different values; texts are explained by "
            f"classes, of which there can be {MOST_CLASSES}"
        )


def _places(strata: Places, options: argparse.Namespace) -> tuple[Places, Places, Places]:
    """Places of the rows of each part, at most `--rows`."""
    train, valid, test = held_out_parts(
        strata, options.valid_share, options.test_share, options.seed
    )
    parts = (train, NONE if valid is None else valid, test)
    train, valid, test = (
        part[at_most(strata[part], options.rows or ROWS, options.seed)] for part in parts
    )
    return train, valid, test
