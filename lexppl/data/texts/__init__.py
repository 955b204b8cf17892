"""Texts as rows of word numbers: tokens, vocabularies, data sets."""

from lexppl.data.texts.encoded import encoded_texts
from lexppl.data.texts.imdb import imdb
from lexppl.data.texts.text_dataset import TextDataset, texts_of
from lexppl.data.texts.tokens import TextWords, words_of
from lexppl.data.texts.vocabulary import PADDING, UNKNOWN, Vocabulary

__all__ = [
    "PADDING",
    "UNKNOWN",
    "TextDataset",
    "TextWords",
    "Vocabulary",
    "encoded_texts",
    "imdb",
    "texts_of",
    "words_of",
]
