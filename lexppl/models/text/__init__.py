"""Parts of explainers of texts: rows are word numbers, 0 for padding."""

from lexppl.models.text.bag_of_words import BagOfWords
from lexppl.models.text.bigram import BigramImputer
from lexppl.models.text.embedding import WordEmbedding
from lexppl.models.text.padding import PaddingImputer
from lexppl.models.text.text_cnn import TextCNN
from lexppl.models.text.text_selector import TextSelector
from lexppl.models.text.unigram import UnigramImputer

__all__ = [
    "BagOfWords",
    "BigramImputer",
    "PaddingImputer",
    "TextCNN",
    "TextSelector",
    "UnigramImputer",
    "WordEmbedding",
]
