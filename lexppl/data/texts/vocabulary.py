"""Words of texts, and vocabularies that number them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.data.checks import refuse_repeated
from lexppl.sealed_files import read_sealed, refuse_formats, refused_by_name, write_sealed

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")

End = Literal["start", "end"]
PADDING, UNKNOWN, FIRST = 0, 1, 2
"""The number of no word, which stands behind a text's last one; of a word that the vocabulary does
not have; and of its first word."""
FORMAT = 2
"""Of the file; the first had no checksum."""


class TextWords(NamedTuple):
    """The words of a text in lower case, and each as it is written, with the punctuation beside
    it."""

    words: tuple[str, ...]
    shown: tuple[str, ...]


def words_of(text: str) -> TextWords:
    """The words of a text: runs of letters and digits of any alphabet, with apostrophes within
    them.

    Punctuation is shown with the word that it is written at, or else with the one before.

    Example:
        >>> words_of("Don't miss it -- GREAT fun!")
        TextWords(words=("don't", 'miss', 'it', 'great', 'fun'),
        shown=("Don't", 'miss', 'it --', 'GREAT', 'fun!'))
    """
    if not isinstance(text, str):
        raise TypeError(f"a text must be a string; it is a {type(text).__name__}")
    matches = list(_WORD.finditer(text))
    words = tuple(match.group().replace("’", "'").lower() for match in matches)
    # What is written at a word begins after the last space before it.
    bounds = [
        b.start() - len(re.split(r"\s", text[a.end() : b.start()])[-1])
        if re.search(r"\s", text[a.end() : b.start()])
        else a.end()
        for a, b in pairwise(matches)
    ]
    shown = tuple(" ".join(text[a:b].split()) for a, b in pairwise([0, *bounds, len(text)]))
    return TextWords(words, shown if words else ())


@dataclass(frozen=True)
class Vocabulary:
    """Words and their numbers: 0 is padding, 1 an unknown word, 2 the first word.

    Fit it to the training part only (:meth:`of`): what stands in the test part alone is unknown.

    Raises:
        ValueError: no words, or one that is given twice.

    Example:
        >>> vocabulary = Vocabulary.of(["a good film", "a bad film"], size=2)
        >>> vocabulary.words, vocabulary.numbers(["a", "good", "film"])
        (('a', 'film'), [2, 1, 3])
    """

    words: Sequence[str] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(self.words))
        if not self.words:
            raise ValueError("a vocabulary needs at least one word; none is given")
        refuse_repeated("words", self.words)

    @classmethod
    def of(cls, texts: Iterable[str | Sequence[str]], size: int | None = 10_000) -> Vocabulary:
        """The ``size`` most frequent words of texts, most frequent first, equals in alphabetical
        order.

        Raises:
            ValueError: texts without a word.
        """
        size = None if size is None else int_at_least("size", size, note="or None for all words")
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(words_of(text).words if isinstance(text, str) else text)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls([word for word, _ in ranked[:size]])

    def __len__(self) -> int:
        """The numbers that there are, padding and the unknown word among them."""
        return FIRST + len(self.words)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {word: FIRST + place for place, word in enumerate(self.words)}

    def numbers(self, words: Iterable[str]) -> list[int]:
        """The number of each word, 1 for one that is unknown."""
        return [self._number.get(word, UNKNOWN) for word in words]

    def word(self, number: float) -> str:
        """The word of a number; "" of padding and "?" of an unknown word."""
        if number != int(number) or not 0 <= number < len(self):
            raise ValueError(
                f"numbers of this vocabulary are whole and from 0 to {len(self) - 1}; it is "
                f"{number}"
            )
        return ("", "?", *self.words)[int(number)]

    def save(self, file: str | Path) -> None:
        """Write the words as JSON."""
        write_sealed(file, {"format": FORMAT, "words": self.words})

    @classmethod
    def load(cls, file: str | Path) -> Vocabulary:
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: no such file.
            lexppl.saving.UnreadableFileError: damaged, of a newer version, or no vocabulary.
        """
        described, is_whole = read_sealed(file)
        refuse_formats(file, described.get("format"), FORMAT, is_whole)
        words = described.get("words")
        with refused_by_name(file):
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ValueError("it has no list of words; it is no vocabulary")
            return cls(words)


def divided(texts: Iterable[object]) -> list[TextWords]:
    """The words of each text; refuses what is no text, or a text without words, by its row."""
    found = []
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"row {row} must be a text; it is {text!r}. Leave the row out")
        found.append(words_of(text))
        if not found[-1].words:
            raise ValueError(f"row {row} is a text without words, {text[:40]!r}. Leave the row out")
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
    """Texts as rows of word numbers ``(N, T)``, float32, words first, then padding; and for each
    text the words that x has of it, as written.

    Args:
        vocabulary: the words that have numbers.
        length: T; the words of the longest text if None.
        keep: of a text of more than T words, which T are kept: those at its "start" or at its
            "end". If None, such a text is refused.

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
    sizes = [len(row.words) for row in rows]
    length = max(sizes) if length is None else int_at_least("length", length)
    longer = [row for row, size in enumerate(sizes) if size > length]
    if keep is None and longer:
        others = f", and {len(longer) - 1} more rows are too long" if len(longer) > 1 else ""
        raise ValueError(
            f"row {longer[0]} has {sizes[longer[0]]} words, and a row has {length}{others}: "
            'give keep="start" or keep="end" to keep that end of a longer text, or another length'
        )
    part = slice(-length, None) if keep == "end" else slice(length)
    x = torch.full((len(rows), length), PADDING, dtype=torch.float32)
    for row, (words, _) in enumerate(rows):
        numbers = vocabulary.numbers(words[part])
        if set(numbers) == {UNKNOWN}:
            raise ValueError(
                f"row {row} has unknown words only, such as {words[part][0]!r}: the "
                f"vocabulary has {len(vocabulary.words)} others. Leave the row out, or fit the "
                "vocabulary to texts like it"
            )
        x[row, : len(numbers)] = torch.tensor(numbers, dtype=torch.float32)
    return x, tuple(row.shown[part] for row in rows)
