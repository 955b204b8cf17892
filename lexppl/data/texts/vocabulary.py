"""The words that a model knows, and their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from lexppl.argument_checks import int_at_least
from lexppl.data.texts.tokens import words_of
from lexppl.sealed_files import read_sealed, refuse_formats, refused_by_name, write_sealed
from lexppl.summary import Summarised, Summary, some_of

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
