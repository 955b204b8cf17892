"""Texts as rows of numbers, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.data.texts.tokens import TextWords, words_of
from lexppl.data.texts.vocabulary import PADDING, UNKNOWN, Vocabulary

End = Literal["start", "end"]


def divided(texts: Iterable[object]) -> list[TextWords]:
    """The words of each text.

    Raises:
        ValueError: what is no text, or a text without words, by its row.
    """
    found = []
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"row {row} must be a text; it is {text!r}. Leave the row out")
        words = words_of(text)
        if not words.words:
            raise ValueError(f"row {row} is a text without words, {text[:40]!r}. Leave the row out")
        found.append(words)
    if not found:
        raise ValueError("there are no texts")
    return found


def encoded_texts(
    texts: Iterable[str],
    vocabulary: Vocabulary,
    *,
    length: int | None = None,
    keep: End | None = None,
) -> tuple[Tensor, tuple[tuple[str, ...], ...]]:
    """Texts as rows of word numbers, and the words as they are written.

    Args:
        texts: N texts.
        vocabulary: the words that have numbers.
        length: T; the words of the longest text if None.
        keep: of a text of more than T words, which T are kept: those at its "start" or at its
            "end". If None, such a text is refused.

    Returns:
        x `(N, T)`, float32: words first, then padding; and for each text the words that x has of
        it, as written.

    Raises:
        ValueError: no texts, a text without words or of unknown words only, a text of more words
            than T where `keep` is None; by its row.

    Example:
        >>> vocabulary = Vocabulary(["a", "film"])
        >>> encoded_texts(["A film!", "A new film."], vocabulary)
        (tensor([[2., 3., 0.],
                [2., 1., 3.]]), (('A', 'film!'), ('A', 'new', 'film.')))
    """
    return encoded_words(divided(texts), vocabulary, length, keep)


def encoded_words(
    rows: Sequence[TextWords], vocabulary: Vocabulary, length: int | None, keep: End | None
) -> tuple[Tensor, tuple[tuple[str, ...], ...]]:
    """As :func:`encoded_texts`, of texts that are divided into words."""
    if keep not in (None, "start", "end"):
        raise ValueError(f'keep must be "start" or "end", or None to refuse; it is {keep!r}')
    longest = max(map(len, rows))
    length = longest if length is None else int_at_least("length", length)
    if keep is None and longest > length:
        longer = [row for row, words in enumerate(rows) if len(words) > length]
        others = f", and {len(longer) - 1} more rows are too long" if len(longer) > 1 else ""
        raise ValueError(
            f"row {longer[0]} has {len(rows[longer[0]])} words, and a row has {length}{others}: "
            'give keep="start" or keep="end" to keep that end of a longer text, or another length'
        )
    part = slice(-length, None) if keep == "end" else slice(length)
    x = torch.full((len(rows), length), PADDING, dtype=torch.float32)
    shown = []
    for row, words in enumerate(rows):
        numbers = vocabulary.numbers(words.words[part])
        if all(number == UNKNOWN for number in numbers):
            raise ValueError(
                f"row {row} has unknown words only, such as {words.words[part][0]!r}: the "
                f"vocabulary has {len(vocabulary.words)} others. Leave the row out, or fit the "
                "vocabulary to texts like it"
            )
        x[row, : len(numbers)] = torch.tensor(numbers, dtype=torch.float32)
        shown.append(words.shown[part])
    return x, tuple(shown)
