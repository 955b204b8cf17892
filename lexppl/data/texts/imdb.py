"""Reviews of films, positive and negative."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pandas as pd

from lexppl.data.images.needed_files import folder_of
from lexppl.data.texts.encoded import End, divided
from lexppl.data.texts.text_dataset import TextDataset, dataset_of_words
from lexppl.data.texts.vocabulary import Vocabulary

CLASSES = ("negative", "positive")
FILES = {"all": ("imdb_reviews.csv.xz",), "5k": ("imdb_reviews_5k.csv.gz",)}
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
    """Reviews of IMDB, the training and the test part: 25,000 texts each, half of them positive.

    Args:
        root: a folder that has, itself or in its folder `imdb`, either the original `aclImdb`
            (`train/pos/0_9.txt` …) or one file `imdb_reviews.csv.xz` with the columns `split`
            (train, test), `label` (1 positive, 0 negative) and `text`.
        reviews: "all", or "5k" for the 2,500 a part of the file `imdb_reviews_5k.csv.gz`.
        vocabulary: given, or how many words one fitted to the training part has.
        length: T, words of a text; L2X keeps 400.
        keep: which end of a longer text is kept. L2X keeps the last words, where a review comes to
            its judgement.

    Line breaks of the reviews, `<br />`, are dropped.

    Returns:
        `(train, test)`, with the training part's vocabulary.

    Raises:
        ValueError: no such folder, no reviews in it, with where to get them; a file without the
            columns; as :func:`lexppl.data.texts_of`.

    Source: Maas, Daly, Pham, Huang, Ng & Potts, "Learning word vectors for sentiment analysis",
    ACL 2011.

    Example:
        >>> imdb("/no/such/place")
        Traceback (most recent call last):
        ...
        ValueError: root must be a folder that is there; it is '/no/such/place'
    """
    if reviews not in FILES:
        raise ValueError(f'reviews must be "all" or "5k"; it is {reviews!r}')
    frame = _frame(folder_of(root), reviews)
    parts: list[TextDataset] = []
    for split in ("train", "test"):
        part = frame[frame["split"] == split]
        if part.empty:
            raise ValueError(f"there are no rows of split {split!r} among the {len(frame)} reviews")
        texts = part["text"].str.replace("<br />", " ", regex=False)
        data = dataset_of_words(
            divided(texts),
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
    (file,) = FILES[reviews]
    for folder in (root, root / "imdb"):
        if (folder / file).is_file():
            return _checked(pd.read_csv(folder / file), folder / file)
        if reviews == "all" and (folder / FOLDER).is_dir():
            return _of_folder(folder / FOLDER)
    original = f" nor the folder {FOLDER}" if reviews == "all" else ""
    where = f"unpack {SOURCE} there" if reviews == "all" else 'or ask for reviews="all"'
    has = "has neither" if original else "has no"
    raise ValueError(f"{root} {has} {file}{original}: {where}")


def _checked(frame: pd.DataFrame, file: Path) -> pd.DataFrame:
    lacking = [name for name in ("split", "label", "text") if name not in frame]
    if lacking:
        raise ValueError(f"{file} must have the columns split, label and text; it lacks {lacking}")
    if not frame["label"].isin([0, 1]).all():
        raise ValueError(f"{file} must have labels 1 (positive) and 0 (negative)")
    return frame


def _of_folder(folder: Path) -> pd.DataFrame:
    rows = [
        (split, label, path.read_text(encoding="utf-8"))
        for split in ("train", "test")
        for label, name in enumerate(("neg", "pos"))
        for path in sorted((folder / split / name).glob("*.txt"))
    ]
    if not rows:
        raise ValueError(f"{folder} has no texts such as train/pos/0_9.txt: unpack {SOURCE}")
    return pd.DataFrame(rows, columns=["split", "label", "text"])
