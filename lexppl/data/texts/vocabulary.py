"""Words: tokens of a text, a vocabulary, and texts as its numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.sealed_files import read_sealed, refuse_formats, refused_by_name, write_sealed
from lexppl.summary import Summarised, Summary, some_of

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


@dataclass(frozen=True)
class TextWords:
    """The words of a text, as a vocabulary counts them and as they stand in it.

    Args:
        words: in lower case.
        shown: each word as written, with the punctuation beside it.
    """

    words: tuple[str, ...]
    shown: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)


def words_of(text: str) -> TextWords:
    """Divide a text into words.

    A word is a run of letters and digits of any alphabet; an apostrophe within it belongs to it.
    Case is dropped. Punctuation is no word: it is shown with the word that it is written at, or
    else with the one before, and nothing of it is counted. An underscore divides words.

    Args:
        text: one text.

    Raises:
        TypeError: no string.

    Example:
        >>> found = words_of("Don't miss it -- GREAT fun!")
        >>> found.words
        ("don't", 'miss', 'it', 'great', 'fun')
        >>> found.shown
        ("Don't", 'miss', 'it --', 'GREAT', 'fun!')
    """
    if not isinstance(text, str):
        raise TypeError(f"a text must be a string; it is a {type(text).__name__}")
    matches = list(_WORD.finditer(text))
    words = tuple(match.group().replace("’", "'").lower() for match in matches)
    bounds = [0, *(_bound(text, a.end(), b.start()) for a, b in pairwise(matches)), len(text)]
    shown = tuple(" ".join(text[a:b].split()) for a, b in pairwise(bounds))
    return TextWords(words, shown if words else ())


def _bound(text: str, end: int, start: int) -> int:
    """Where what is written at the next word begins: after the last space before it."""
    spaces = [place for place in range(end, start) if text[place].isspace()]
    return spaces[-1] if spaces else start


PADDING = 0
"""The number of no word: what stands behind a text's last one."""
UNKNOWN = 1
"""The number of a word that the vocabulary does not have."""
FIRST = 2
FORMAT = 2
"""With a checksum; 1 had none."""


class Vocabulary(Summarised):
    """Words and their numbers: 0 is padding, 1 an unknown word, 2 the first word.

    Fit it to the training part only (:meth:`of`): what stands in the test part alone is unknown.

    Args:
        words: different words, in the order of their numbers.

    Raises:
        ValueError: no words, or one that is given twice.

    Example:
        >>> vocabulary = Vocabulary.of(["a good film", "a bad film"], size=2)
        >>> vocabulary.words, len(vocabulary)
        (('a', 'film'), 4)
        >>> vocabulary.numbers(["a", "good", "film"])
        [2, 1, 3]
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        if not self.words:
            raise ValueError("a vocabulary needs at least one word; none is given")
        self._number = {word: FIRST + place for place, word in enumerate(self.words)}
        if len(self._number) < len(self.words):
            twice = [word for word, count in Counter(self.words).items() if count > 1]
            raise ValueError(f"words must differ from each other; repeated: {some_of(twice)}")

    @classmethod
    def of(
        cls, texts: Iterable[str], *, size: int | None = 10_000, min_count: int = 1
    ) -> Vocabulary:
        """The most frequent words of texts, most frequent first, equals in alphabetical order.

        Args:
            texts: of the training part.
            size: how many words at most; all if None.
            min_count: how often a word must stand in the texts.

        Raises:
            ValueError: no word that is frequent enough.
        """
        return cls.of_words((words_of(text).words for text in texts), size, min_count)

    @classmethod
    def of_words(
        cls, rows: Iterable[Sequence[str]], size: int | None = 10_000, min_count: int = 1
    ) -> Vocabulary:
        """As :meth:`of`, of texts that are divided into words already."""
        size = None if size is None else int_at_least("size", size, note="or None for all words")
        min_count = int_at_least("min_count", min_count)
        counts: Counter[str] = Counter()
        for words in rows:
            counts.update(words)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        kept = [word for word, count in ranked[:size] if count >= min_count]
        if not kept:
            found = f"the most frequent one has {ranked[0][1]}" if ranked else "there is no word"
            raise ValueError(
                f"no word stands {min_count} times in the texts ({found}): lower min_count, or "
                "give texts with words"
            )
        return cls(kept)

    def __len__(self) -> int:
        """The numbers that there are, padding and the unknown word among them."""
        return FIRST + len(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def __hash__(self) -> int:
        return hash(self.words)

    def numbers(self, words: Iterable[str]) -> list[int]:
        """The number of each word, 1 for one that is unknown."""
        return [self._number.get(word, UNKNOWN) for word in words]

    def word(self, number: float) -> str:
        """The word of a number; "" of padding and "?" of an unknown word.

        Raises:
            ValueError: no number of the vocabulary.
        """
        if number == PADDING:
            return ""
        if number == UNKNOWN:
            return "?"
        if number != int(number) or not FIRST <= number < len(self):
            raise ValueError(
                f"numbers of this vocabulary are whole and from 0 to {len(self) - 1}; it is "
                f"{number}"
            )
        return self.words[int(number) - FIRST]

    def save(self, file: str | Path) -> None:
        """Write the words as JSON.

        Raises:
            OSError: the file cannot be written.
        """
        write_sealed(file, {"format": FORMAT, "words": self.words})

    @classmethod
    def load(cls, file: str | Path) -> Vocabulary:
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: no such file.
            lexppl.saving.UnreadableFileError: a `ValueError` that names the file: damaged, of a
                newer version, or no vocabulary.
        """
        told, is_whole = read_sealed(file)
        refuse_formats(file, told.get("format"), FORMAT, is_whole)
        words = told.get("words")
        with refused_by_name(file):
            if not isinstance(words, list) or not all(map(_is_text, words)):
                raise ValueError("it has no list of words; it is no vocabulary")
            return cls(words)

    def summarised(self) -> Summary:
        """How many words, and the most frequent."""
        return Summary(
            f"Vocabulary: {len(self.words):,} words, padding 0 and unknown 1",
            {"words": some_of(self.words)},
        )


def _is_text(word: object) -> bool:
    return isinstance(word, str)


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
