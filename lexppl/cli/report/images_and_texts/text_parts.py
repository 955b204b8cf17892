"""What a report says of texts: rows by class, with the words that they keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior
from lexppl.cli.report.shown_rows import RowGroup, shown_rows
from lexppl.explanation.reading.masks import ATTRIBUTION, PROBABILITY, kind_of, mask_means, masks_of
from lexppl.explanation.reading.rows import row_outcomes
from lexppl.plots.images import row_title
from lexppl.plots.style import chosen_rows

SHADES = 5
LEAST = 1e-9
MOST_WORDS = 400
"""Words of a text that a page shows."""


@dataclass(frozen=True)
class ShadedWord:
    """A word, its value as text, and the name of its shade; no name where it has none."""

    text: str
    value: str
    shade: str


@dataclass(frozen=True)
class TextRow:
    """A row's words.

    Args:
        title: its heading.
        prediction: what is predicted.
        words: the first words.
        left_out: how many more there are.
    """

    title: str
    prediction: str
    words: tuple[ShadedWord, ...]
    left_out: int


@dataclass(frozen=True)
class TextGroup:
    """Texts under a heading."""

    heading: str
    rows: tuple[TextRow, ...]


@dataclass(frozen=True)
class TextParts:
    """What a report says of texts: rows by class, and how to read them."""

    groups: tuple[TextGroup, ...]
    caption: str


def text_parts(
    posterior: Posterior,
    words: Sequence[Sequence[str]],
    observed: Sequence[Any] | None = None,
    *,
    per_class: int = 2,
    selected: Sequence[Any] = (),
) -> TextParts:
    """The parts of a report on texts.

    Args:
        posterior: what :func:`lexppl.explain` returned of texts, an entry a word.
        words: of each row its words, in the order of the entries; entries beyond them are padding.
        observed: the rows' labels or responses; those of `observed_data` if None, where they are.
        per_class: rows that are predicted right, and that are predicted wrong, of each class.
        selected: names of rows that are shown before all others.

    Raises:
        TypeError, ValueError: not a posterior of :func:`lexppl.explain`; words of another number of
            rows, or more of them than a row has entries; names of rows that it does not have.
    """
    per_class = int_at_least("per_class", per_class)
    means = mask_means(posterior)
    values = means.values.mean(0, dtype=np.float64)
    check_words(words, values)
    masks, kind = masks_of(posterior), kind_of(posterior)
    names = list(masks["row"].values) if "row" in masks.coords else list(range(len(values)))
    outcomes = row_outcomes(posterior, observed)
    chosen = shown_rows(outcomes, per_class)
    if len(selected):
        chosen = [RowGroup("Selected rows", tuple(chosen_rows(names, selected))), *chosen]
    largest = max(
        (float(np.abs(v[: len(w)]).max()) for v, w in zip(values, words, strict=True) if len(w)),
        default=0.0,
    )
    most = 1.0 if kind is PROBABILITY else max(largest, LEAST)
    groups = []
    for group in chosen:
        rows = [
            TextRow(
                row_title(names[place])[0].upper() + row_title(names[place])[1:],
                ", ".join([row_title(names[place]), *outcomes[place].lines()]),
                tuple(shaded(words[place][:MOST_WORDS], values[place], most)),
                max(0, len(words[place]) - MOST_WORDS),
            )
            for place in group.places
        ]
        groups.append(TextGroup(group.heading, tuple(rows)))
    what = kind.meaning.replace("the feature", "the word")
    shades = (
        "Blue words speak for the prediction, orange ones against it; the stronger, the more"
        if kind is ATTRIBUTION
        else f"The bluer a word, the larger {what}"
    )
    return TextParts(
        tuple(groups),
        f"{shades}, mean over replicates. Of each class stand texts that are predicted right, an "
        "even choice, and those that are predicted wrong most surely.",
    )


def shaded(words: Sequence[str], values: NDArray[Any], most: float) -> list[ShadedWord]:
    """Words with their shades, from 1, faint, to 5; values below 0 have shades of their own.

    Example:
        >>> words = shaded(["a", "good", "film"], np.array([0.02, 0.95, -0.5]), 1.0)
        >>> [(word.text, word.shade) for word in words]
        [('a', ''), ('good', 'w5'), ('film', 'o2')]
    """
    found = []
    for word, value in zip(words, values, strict=False):
        level = min(SHADES, int(np.ceil(SHADES * abs(value) / most - 0.5)))
        side = "w" if value > 0 else "o"
        found.append(ShadedWord(str(word), f"{value:.2f}", f"{side}{level}" if level > 0 else ""))
    return found


def check_words(words: Sequence[Sequence[str]], values: NDArray[Any]) -> None:
    """Refuse words that are not those of the rows."""
    if isinstance(words, str) or any(isinstance(row, str) for row in words):
        raise TypeError("words must be a list of words for each row; there is a single string")
    if len(words) != len(values):
        raise ValueError(
            f"words must be of the posterior's {len(values)} rows; there are {len(words)} texts"
        )
    longest = max(map(len, words), default=0)
    if longest > values.shape[1]:
        raise ValueError(
            f"a text has {longest} words, and a row {values.shape[1]} entries: give the words that "
            "the model sees"
        )
