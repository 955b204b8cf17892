"""Texts as rows of word numbers: words, vocabularies, data sets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple
from unicodedata import category, normalize

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.argument_checks import folder_of, int_at_least, one_of, quoted, refuse_repeated, shaped
from lexppl.data.rows import Divisible
from lexppl.sealed_files import read_sealed, refused_by_name, write_sealed
from lexppl.summary import Summarised, Summary, counted

_JOINERS = "\u200c\u200d"  # Which belong to a word as marks do, as in Persian
_MARK = "\u0300"  # What stands for all marks where words are looked for
_LETTERS = rf"(?:[^\W_]{_MARK}*)+"
_WORD = re.compile(rf"{_LETTERS}(?:['’]{_LETTERS})*")
End = Literal["start", "end"]
# The number of no word, which stands behind a text's last one; of a word that the vocabulary does
# not have; and of its first word.
PADDING, UNKNOWN, FIRST = 0, 1, 2
FORMAT = 3  # Of the file; of 2 the words were cut at their marks


class TextWords(NamedTuple):
    """The words of a text in lower case, and each as it is written, with the punctuation beside
    it."""

    words: tuple[str, ...]
    shown: tuple[str, ...]


def words_of(text: str) -> TextWords:
    """The words of a text: runs of letters and digits of any alphabet, with the marks on them, such
    as vowel signs, and apostrophes within them.

    Words are composed (NFC) and in lower case. Of an alphabet that is written without blanks, such
    as Thai, a word ends at a blank or a sign. Punctuation is shown with the word that it is written
    at, or else with the one before.

    Example:
        >>> words_of("Don't miss it -- GREAT fun!")
        TextWords(words=("don't", 'miss', 'it', 'great', 'fun'),
        shown=("Don't", 'miss', 'it --', 'GREAT', 'fun!'))
    """
    if not isinstance(text, str):
        raise TypeError(f"a text must be a string; it is a {type(text).__name__}")
    marks = {ord(sign): _MARK for sign in {*text} if category(sign)[0] == "M" or sign in _JOINERS}
    matches = list(_WORD.finditer(text.translate(marks)))
    written = [text[match.start() : match.end()] for match in matches]
    words = tuple(normalize("NFC", word.replace("’", "'").lower()) for word in written)
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
        object.__setattr__(self, "words", tuple(normalize("NFC", word) for word in self.words))
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
            raise ValueError(f"a word's number is whole, from 0 to {len(self) - 1}; it is {number}")
        return ("", "?", *self.words)[int(number)]

    def save(self, file: str | Path) -> None:
        """Write the words as JSON."""
        write_sealed(file, {"format": FORMAT, "words": self.words})

    @classmethod
    def load(cls, file: str | Path) -> Vocabulary:
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: no such file.
            lexppl.saving.UnreadableFileError: damaged, of another version, or no vocabulary.
        """
        words = read_sealed(file, FORMAT).get("words")
        with refused_by_name(file):
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ValueError("it has no list of words; it is no vocabulary")
            return cls(words)


RowName = Callable[[int], str]  # Of a row in an error, by its place


def divided(texts: Iterable[object], row_name: RowName = "row {}".format) -> list[TextWords]:
    """The words of each text; refuses what is no text, or a text without words, by its row."""
    words = []
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"{row_name(row)} must be a text; it is {text!r}. Leave the row out")
        words.append(words_of(text))
        if not words[-1].words:
            shown = f"{row_name(row)} is a text without words, {text[:40]!r}"
            raise ValueError(f"{shown}. Leave the row out")
    if not words:
        raise ValueError("there are no texts")
    return words


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
    rows: Sequence[TextWords],
    vocabulary: Vocabulary,
    length: int | None,
    keep: End | None,
    row_name: RowName = "row {}".format,
) -> tuple[Tensor, tuple[tuple[str, ...], ...]]:
    """As :func:`encoded_texts`, of texts that are divided into words."""
    one_of((None, "start", "end"), "keep", keep)
    sizes = [len(row.words) for row in rows]
    length = max(sizes) if length is None else int_at_least("length", length)
    longer = [row for row, size in enumerate(sizes) if size > length]
    if keep is None and longer:
        others = f", and {len(longer) - 1} more rows are too long" if len(longer) > 1 else ""
        raise ValueError(
            f"{row_name(longer[0])} has {sizes[longer[0]]} words, more than {length}{others}: give "
            'keep (--keep-words), "start" or "end", to keep that end of a longer text, or another '
            "length"
        )
    part = slice(-length, None) if keep == "end" else slice(length)
    x = torch.full((len(rows), length), PADDING, dtype=torch.float32)
    for row, (words, _) in enumerate(rows):
        numbers = vocabulary.numbers(words[part])
        if set(numbers) == {UNKNOWN}:
            raise ValueError(
                f"{row_name(row)} has unknown words only, such as {words[part][0]!r}: the "
                f"vocabulary has {len(vocabulary.words):,} others. Leave the row out, or fit the "
                "vocabulary to more texts or of more words (--vocabulary)"
            )
        x[row, : len(numbers)] = torch.tensor(numbers, dtype=torch.float32)
    return x, tuple(row.shown[part] for row in rows)


@dataclass(frozen=True, eq=False, repr=False)
class TextDataset(Divisible, Summarised):
    """``N`` texts of at most ``T`` words, with their classes; mask entry t keeps or hides word t.

    Args:
        x: word numbers, ``(N, T)``, float32; 0 is padding, which stands after the words, 1 an
            unknown word.
        y: class indices ``0 … C-1``, ``(N,)``, ``torch.long``.
        class_names: ``C >= 2`` names.
        words: for each row its words as they are written, for pictures.
        vocabulary: the words that have numbers.
        texts: for each row its text as it is written, for a model that reads texts, or None.
        is_part: whether a single class is no mistake.

    Raises:
        ValueError: shapes that differ, numbers that the vocabulary does not have, padding before a
            word, a row without words, labels outside ``0 … C-1``.

    Example:
        >>> data = texts_of(["good film", "bad film, really"], ["good", "bad"])
        >>> data.x.shape, data.class_names, data.words[1]
        (torch.Size([2, 3]), ('bad', 'good'), ('bad', 'film,', 'really'))
    """

    by_row: ClassVar[tuple[str, ...]] = ("x", "y", "words", "texts")
    task: ClassVar[str] = "classification"

    x: Tensor
    y: Tensor
    class_names: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    vocabulary: Vocabulary
    target_name: str = "class"
    name: str = "texts"
    is_part: bool = True
    texts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check(self)

    @property
    def length(self) -> int:
        """``T``, the words that a row has room for."""
        return self.x.shape[1]

    @property
    def n_entries(self) -> int:
        """Number of mask entries, ``G = T``: one a word."""
        return self.length

    @property
    def n_classes(self) -> int:
        """Number of classes, ``C``."""
        return len(self.class_names)

    @property
    def entry_names(self) -> tuple[str, ...]:
        """Names of the places, the same in every row: ``word 1 … word T``."""
        return tuple(f"word {place}" for place in range(1, self.length + 1))

    def summarised(self) -> Summary:
        """Summary of rows, vocabulary and labels."""
        sizes = (self.x != PADDING).sum(1)
        lines = {
            "x": f"at most {counted(self.length, 'word')} a row, {self.x.dtype}, {self.x.device}; "
            f"{float(sizes.double().mean()):.0f} on average",
            "vocabulary": f"{len(self.vocabulary.words):,} words",
            "y": self._label_counts(),
        }
        return Summary(f"TextDataset {self.name!r}: {counted(len(self), 'row')}", lines)


def texts_of(
    texts: Iterable[str],
    labels: Iterable[Any],
    *,
    vocabulary: Vocabulary | int | None = 10_000,
    length: int | None = None,
    keep: End | None = None,
    class_names: Sequence[str] | None = None,
    target_name: str = "class",
    name: str = "texts",
    row_name: RowName = "row {}".format,
) -> TextDataset:
    """Texts and their labels as a data set.

    Args:
        texts: N texts: a list, an array or a column of a frame.
        labels: N labels of any kind with different texts.
        vocabulary: given, of the training part; or how many words one that is fitted to these
            texts has at most, all if None.
        length: T; the words of the longest text if None.
        keep: of a text of more than T words, which T are kept: those at its "start" or at its
            "end". If None, such a text is refused.
        class_names: names of the classes in their order; the different labels in alphabetical order
            (of numbers in theirs) if None.
        target_name, name: of the labels and of the data set.
        row_name: of a row in an error, by its place.

    Raises:
        ValueError: texts and labels of other numbers, a label that is missing or of no class, one
            class only; as :func:`encoded_texts` and :meth:`Vocabulary.of`.

    Example:
        >>> train = texts_of(["good film", "bad film"], [1, 0], length=5)
        >>> of_train = {"vocabulary": train.vocabulary, "class_names": train.class_names}
        >>> texts_of(["a good one"], [1], length=5, **of_train).x
        tensor([[1., 4., 1., 0., 0.]])
    """
    if isinstance(texts, str):
        raise TypeError("texts must be several, such as a list of strings; it is one string")
    texts, labels = tuple(texts), list(labels)
    rows = divided(texts, row_name)
    shaped("labels", labels, (len(rows),))
    classes, y = _classes(labels, class_names)
    if not isinstance(vocabulary, Vocabulary):
        vocabulary = Vocabulary.of((row.words for row in rows), vocabulary)
    x, shown = encoded_words(rows, vocabulary, length, keep, row_name)
    return TextDataset(x, y, classes, shown, vocabulary, target_name, name, texts=texts)


def _classes(labels: Sequence[Any], names: Sequence[str] | None) -> tuple[tuple[str, ...], Tensor]:
    missing = pd.isna(pd.Series(labels, dtype=object)).to_numpy().nonzero()[0]
    if len(missing):
        raise ValueError(f"row {missing[0]} has no label. Leave the row out")
    if names is None:
        names = sorted({str(label) for label in labels})
        with suppress(ValueError):
            names = sorted(names, key=float)
        if len(names) < 2:
            raise ValueError(f"there is one class only, {names[0]!r}; at least two are needed")
    codes = pd.Categorical([str(label) for label in labels], categories=list(names)).codes
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise ValueError(
            f"row {row} has the label {labels[row]!r}, which is none of the classes {quoted(names)}"
        )
    return tuple(names), torch.from_numpy(codes.astype(np.int64))


def _check(data: TextDataset) -> None:
    x, y = data.x, data.y
    if x.dim() != 2 or x.numel() == 0 or not x.is_floating_point():
        raise ValueError(f"x must be floating (N, T); it is {x.dtype} of shape {tuple(x.shape)}")
    if y.shape != (len(x),) or y.dtype != torch.long or len(data.words) != len(x):
        raise ValueError(
            f"y and words must have one entry for each of the {len(x)} rows, y of torch.long; y is "
            f"{y.dtype} of shape {tuple(y.shape)}, and there are {len(data.words)} rows of words"
        )
    if not bool(((x == x.round()) & (x >= 0) & (x < len(data.vocabulary))).all()):
        raise ValueError(f"x must hold whole numbers from 0 to {len(data.vocabulary) - 1}")
    there = x != PADDING
    if not bool(there[:, 0].all()) or bool((there[:, 1:] & ~there[:, :-1]).any()):
        raise ValueError("each row of x must have a word, and padding, 0, after its last one only")
    data._check_labels()


CLASSES = ("negative", "positive")
FILES = {"all": "imdb_reviews.csv.xz", "5k": "imdb_reviews_5k.csv.gz"}
FOLDER = "aclImdb"
SOURCE = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"


def imdb(
    root: str | Path,
    *,
    reviews: Literal["all", "5k"] = "all",
    vocabulary: Vocabulary | int = 10_000,
    length: int = 400,
    keep: End = "end",
) -> tuple[TextDataset, TextDataset]:
    """Reviews of IMDB, training and test part: 25,000 texts each, half of them positive, without
    the line breaks `<br />`. The training part has the vocabulary.

    Args:
        root: a folder that has, itself or in its folder `imdb`, either the original `aclImdb`
            (`train/pos/0_9.txt` …) or one file `imdb_reviews.csv.xz` with the columns `split`
            (train, test), `label` (1 positive, 0 negative) and `text`.
        reviews: "all", or "5k" for the 2,500 a part of the file `imdb_reviews_5k.csv.gz`.
        vocabulary: given, or how many words one fitted to the training part has.
        length: T, words of a text; L2X keeps 400.
        keep: which end of a longer text is kept; L2X keeps the last words.

    Raises:
        ValueError: no such folder, no reviews in it, with where to get them; a file without the
            columns; as :func:`lexppl.data.texts_of`.

    Source: Maas, Daly, Pham, Huang, Ng & Potts, "Learning word vectors for sentiment analysis",
    ACL 2011.
    """
    one_of(FILES, "reviews", reviews)
    frame = _frame(folder_of(root), reviews)
    frame["text"] = frame["text"].str.replace("<br />", " ", regex=False)
    options: Any = {"length": length, "keep": keep, "class_names": CLASSES, "target_name": "review"}
    parts: list[TextDataset] = []
    for split in ("train", "test"):
        part = frame[frame["split"] == split]
        labels = [CLASSES[int(label)] for label in part["label"]]
        options |= {"vocabulary": parts[0].vocabulary if parts else vocabulary}
        parts.append(texts_of(part["text"], labels, name=f"imdb {split}", **options))
    return parts[0], parts[1]


def _frame(root: Path, reviews: str) -> pd.DataFrame:
    for folder in (root, root / "imdb"):
        file = folder / FILES[reviews]
        if file.is_file():
            frame = pd.read_csv(file)
            named = {"split", "label", "text"} <= set(frame)
            if not named or not frame["label"].isin([0, 1]).all():
                raise ValueError(
                    f"{file} must have the columns split, label (1 positive, 0 negative) and text; "
                    f"it has {quoted(frame)}, or other labels"
                )
            return frame
        rows = [
            (split, label, path.read_text(encoding="utf-8"))
            for split in ("train", "test")
            for label, name in enumerate(("neg", "pos"))
            for path in sorted((folder / FOLDER / split / name).glob("*.txt"))
        ]
        if reviews == "all" and rows:
            return pd.DataFrame(rows, columns=["split", "label", "text"])
    raise ValueError(
        f"{root} has no {FILES[reviews]}, nor texts such as {FOLDER}/train/pos/0_9.txt: unpack "
        f"{SOURCE} there"
    )
