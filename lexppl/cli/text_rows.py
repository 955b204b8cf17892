"""Texts as they are named on the command line: reviews by name, or a column of a table."""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from lexppl.choices.data_sets import text_names
from lexppl.cli.image_rows import NONE, ROWS, DividedRows, Places, RowsDescribed, left_out
from lexppl.cli.options.checks import check_row_numbers
from lexppl.cli.table_rows import file_format_of
from lexppl.cli.terminal.errors import UsageError
from lexppl.cli.terminal.output import TEXTS, VOCABULARY
from lexppl.data import Vocabulary, imdb, texts_of
from lexppl.data.checks import listed
from lexppl.data.files import read_frame, table_name
from lexppl.data.stratification import at_most, stratified_parts, training_and_validation
from lexppl.data.texts import TextDataset, words_of
from lexppl.models import texts

WORDS, LENGTH = 10_000, 400
"""Of the vocabulary and of a text, at most, by default; L2X's."""
SMALL: Mapping[str, Any] = {"embedding": 32, "filters": 32, "hidden": 64}
"""Networks that are fitted in minutes on a processor."""
MOST_CLASSES = 50
VALID_SHARE = 0.2
"""Of the reviews to fit on, which come without a part to choose an epoch on."""


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
    described = RowsDescribed(
        name=table_name(Path(options.data)) if options.text else options.data,
        target_name=train.target_name,
        class_names=train.class_names,
        entry_names=train.entry_names,
        rows="text",
        entries="words",
        shape=f"at most {train.length} words of {len(train.vocabulary.words):,} known",
        left_out=left_out(options.rows or ROWS, "texts", [len(train), len(test)]),
    )
    networks = texts(len(train.vocabulary), train.length, **SMALL)
    numbered, kept = numbered.to(device), _kept_end(options)
    return DividedRows(described, train, valid, test, networks, numbered, numbers, places, kept)


def write_reading(source: DividedRows, folder: Path) -> None:
    """Write how texts are read; nothing of images."""
    if isinstance(source.train, TextDataset):
        source.train.vocabulary.save(folder / VOCABULARY)
        how = {"length": source.train.length, "keep": source.keep}
        (folder / TEXTS).write_text(json.dumps(how) + "\n", encoding="utf-8")


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
    cells = frame[[options.text, target]]
    if options.drop_missing:
        cells = cells.dropna().reset_index(drop=True)
    labels = _labels(cells[target], target)
    strata = pd.factorize(cells[target])[0].astype(np.int64)
    places = _places(strata, options)
    written = cells[options.text].tolist()
    check_row_numbers(options.row, len(written), f"as the table has {len(written):,} rows")
    _check_texts(written, options.text)
    used = np.unique(np.concatenate([*places, np.array(options.row, dtype=np.int64)]))
    rows = {int(row): words_of(written[row]).words for row in used}
    fitted = (rows[row] for row in places[0].tolist())
    vocabulary = Vocabulary.of(fitted, options.vocabulary or WORDS)
    length = options.length or min(max(map(len, rows.values())), LENGTH)
    _check_words(rows, vocabulary, length, options)
    every = texts_of(
        [written[row] for row in used],
        [labels[row] for row in used],
        vocabulary=vocabulary,
        length=length,
        keep=options.keep_words,
        class_names=sorted_labels(labels),
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
            close = difflib.get_close_matches(name, list(frame.columns), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(
                f"{option} {name!r} is no column of {options.data}; it has "
                f"{listed(frame.columns, most=20)}{hint}"
            )
    if options.target is not None:
        return str(options.target)
    last = str(frame.columns[-1])
    if last == options.text:
        raise UsageError(
            f"the last column, {last!r}, has the texts: give --target, the column to predict"
        )
    return last


def _labels(column: pd.Series, target: str) -> list[Any]:
    missing = column.isna()
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise ValueError(
            f"target {target!r} is missing in {int(missing.sum())} rows, such as row {row}: give "
            "drop_missing=True"
        )
    different = column.nunique()
    if different < 2:
        raise ValueError(
            f"target {target!r} has one class only, {column.iloc[0]!r}; at least two are needed"
        )
    if different > MOST_CLASSES:
        raise ValueError(
            f"target {target!r} has {different:,} different values; texts are explained by "
            f"classes, of which there can be {MOST_CLASSES}"
        )
    return [str(label) for label in column]


def _check_texts(written: list[Any], column: str) -> None:
    """Refuse the first row without a text."""
    for row, text in enumerate(written):
        if not isinstance(text, str):
            if pd.isna(text):
                raise ValueError(
                    f"column {column!r} is missing in row {row}: give drop_missing=True, or "
                    "another --text"
                )
            raise ValueError(
                f"column {column!r} holds no texts: in row {row} it is {text!r}; give another "
                "--text"
            )


def _check_words(
    rows: Mapping[int, Sequence[str]],
    vocabulary: Vocabulary,
    length: int,
    options: argparse.Namespace,
) -> None:
    """Refuse the first row that is empty, too long, or of unknown words."""
    known = set(vocabulary.words)
    for row, words in rows.items():
        where = f"row {row} of column {options.text!r}"
        if not words:
            raise ValueError(f"{where} is a text without words; leave the row out of the table")
        if len(words) > length and options.keep_words is None:
            longer = sum(len(one) > length for one in rows.values())
            others = f", as have {longer - 1:,} others" if longer > 1 else ""
            raise ValueError(
                f"{where} has {len(words):,} words, more than {length}{others}: give "
                "--keep-words start or end to keep that end of a longer text, or another --length"
            )
        seen = words[-length:] if options.keep_words == "end" else words[:length]
        if known.isdisjoint(seen):
            raise ValueError(
                f"{where} has unknown words only, such as {seen[0]!r}: the texts to fit on have "
                f"{len(known):,} others; give a larger --vocabulary, more --rows, or leave the row "
                "out of the table"
            )


def sorted_labels(labels: Sequence[str]) -> list[str]:
    """The different labels in alphabetical order; numbers in theirs."""
    different = sorted(set(labels))
    with suppress(ValueError):
        return sorted(different, key=float)
    return different


def _places(strata: Places, options: argparse.Namespace) -> tuple[Places, Places, Places]:
    """Places of the rows of each part, at most `--rows`."""
    rest, test = stratified_parts(
        strata, (1 - options.test_share, options.test_share), options.seed
    )
    if min(len(rest), len(test)) == 0:
        raise ValueError(
            f"each part needs a row; {len(strata)} rows give {len(rest)} to fit on and {len(test)} "
            "to judge: give more rows, or another test_share"
        )
    share = options.valid_share / (1 - options.test_share)
    train, valid = training_and_validation(strata[rest], share, options.seed)
    parts = (rest[train], NONE if valid is None else rest[valid], test)
    train, valid, test = (
        part[at_most(strata[part], options.rows or ROWS, options.seed)] for part in parts
    )
    return train, valid, test
