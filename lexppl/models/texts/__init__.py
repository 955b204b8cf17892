"""Parts of explainers of texts: rows are word numbers, 0 for padding."""

from lexppl.models.texts.bag_of_words import BagOfWords
from lexppl.models.texts.bigram import BigramImputer
from lexppl.models.texts.embedding import WordEmbedding
from lexppl.models.texts.padding import PaddingImputer
from lexppl.models.texts.text_cnn import TextCNN
from lexppl.models.texts.text_selector import TextSelector
from lexppl.models.texts.unigram import UnigramImputer

__all__ = [
    "BagOfWords",
    "BigramImputer",
    "PaddingImputer",
    "TextCNN",
    "TextSelector",
    "UnigramImputer",
    "WordEmbedding",
]
