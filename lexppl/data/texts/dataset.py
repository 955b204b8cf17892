"""Texts with labels, as an explainer is fitted to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.data.checks import check_labels, folder_of, label_counts, listed
from lexppl.data.stratification import Divisible
from lexppl.data.texts.vocabulary import PADDING, End, Vocabulary, divided, encoded_words
from lexppl.summary import Summarised, Summary, counted


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
        is_part: whether a single class is no mistake.

    Raises:
        ValueError: shapes that differ, numbers that the vocabulary does not have, padding before a
            word, a row without words, labels outside ``0 … C-1``.

    Example:
        >>> data = texts_of(["good film", "bad film, really"], ["good", "bad"])
        >>> data.x.shape, data.class_names, data.words[1]
        (torch.Size([2, 3]), ('bad', 'good'), ('bad', 'film,', 'really'))
    """

    by_row: ClassVar[tuple[str, ...]] = ("x", "y", "words")

    x: Tensor
    y: Tensor
    class_names: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    vocabulary: Vocabulary
    target_name: str = "class"
    name: str = "texts"
    is_part: bool = True

    def __post_init__(self) -> None:
        _check(self)

    @property
    def length(self) -> int:
        """``T``, the words that a row has room for."""
        return self.x.shape[1]

    @property
    def n_entries(self) -> int:
        """``G = T``."""
        return self.length

    @property
    def n_classes(self) -> int:
        """``C``."""
        return len(self.class_names)

    @property
    def task(self) -> str:
        """``"classification"``."""
        return "classification"

    @property
    def entry_names(self) -> tuple[str, ...]:
        """Names of the places, the same in every row: ``word 1 … word T``."""
        return tuple(f"word {place}" for place in range(1, self.length + 1))

    def summarised(self) -> Summary:
        """What is in it."""
        sizes = (self.x != PADDING).sum(1)
        lines = {
            "x": f"at most {counted(self.length, 'word')} a row, {self.x.dtype}, {self.x.device}; "
            f"{float(sizes.double().mean()):.0f} on average",
            "vocabulary": f"{len(self.vocabulary.words):,} words",
            "y": label_counts(self.y, self.class_names, self.target_name),
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
    rows, labels = divided(texts), list(labels)
    if len(labels) != len(rows):
        raise ValueError(f"each text needs a label; there are {len(rows)} and {len(labels)}")
    classes, y = _classes(labels, class_names)
    if not isinstance(vocabulary, Vocabulary):
        vocabulary = Vocabulary.of((row.words for row in rows), vocabulary)
    x, shown = encoded_words(rows, vocabulary, length, keep)
    return TextDataset(x, y, classes, shown, vocabulary, target_name, name)


def _classes(labels: Sequence[Any], names: Sequence[str] | None) -> tuple[tuple[str, ...], Tensor]:
    missing = pd.isna(pd.Series(labels, dtype=object)).to_numpy().nonzero()[0]
    if len(missing):
        raise ValueError(f"row {missing[0]} has no label. Leave the row out")
    if names is None:
        different = set(labels)
        numbers = all(isinstance(one, int | float | np.number) for one in different)
        names = [str(one) for one in sorted(different, key=None if numbers else str)]
        if len(names) < 2:
            raise ValueError(f"there is one class only, {names[0]!r}; at least two are needed")
    codes = pd.Categorical([str(label) for label in labels], categories=list(names)).codes
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise ValueError(
            f"row {row} has the label {labels[row]!r}, which is none of the classes {listed(names)}"
        )
    return tuple(names), torch.from_numpy(codes.astype(np.int64))


def _check(data: TextDataset) -> None:
    x, y = data.x, data.y
    if x.dim() != 2 or x.numel() == 0 or not x.is_floating_point():
        raise ValueError(
            f"x must be floating, of shape (N, T); it is {x.dtype} of shape {tuple(x.shape)}"
        )
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
    check_labels(y, data.class_names, data.target_name, data.is_part)


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
    if reviews not in FILES:
        raise ValueError(f'reviews must be "all" or "5k"; it is {reviews!r}')
    frame = _frame(folder_of(root), reviews)
    parts: list[TextDataset] = []
    for split in ("train", "test"):
        part = frame[frame["split"] == split]
        data = texts_of(
            part["text"].str.replace("<br />", " ", regex=False),
            [CLASSES[int(label)] for label in part["label"]],
            vocabulary=parts[0].vocabulary if parts else vocabulary,
            length=length,
            keep=keep,
            class_names=CLASSES,
            target_name="review",
            name=f"imdb {split}",
        )
        parts.append(data)
    return parts[0], parts[1]


def _frame(root: Path, reviews: str) -> pd.DataFrame:
    for folder in (root, root / "imdb"):
        file = folder / FILES[reviews]
        if file.is_file():
            frame = pd.read_csv(file)
            if (
                not {"split", "label", "text"} <= set(frame)
                or not frame["label"].isin([0, 1]).all()
            ):
                raise ValueError(
                    f"{file} must have the columns split, label (1 positive, 0 negative) and text; "
                    f"it has {listed(frame)}, or other labels"
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
