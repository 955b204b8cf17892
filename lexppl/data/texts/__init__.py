"""Texts as rows of word numbers: tokens, vocabularies, data sets."""

from lexppl.data.texts.dataset import TextDataset, imdb, texts_of
from lexppl.data.texts.vocabulary import PADDING, UNKNOWN, Vocabulary, encoded_texts, words_of

__all__ = [
    "PADDING",
    "UNKNOWN",
    "TextDataset",
    "Vocabulary",
    "encoded_texts",
    "imdb",
    "texts_of",
    "words_of",
]
