"""The words of a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

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
