"""A convolutional predictor of texts."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from lexppl.argument_checks import fraction, int_at_least
from lexppl.configured import Configured
from lexppl.models.text.embedding import WordEmbedding


class TextCNN(Configured, nn.Module):
    """Word vectors, a convolution over neighbouring words, the largest value of each filter over
    the text, and two dense layers: `(N, T)` or `(N, 2T)` to `(N, outputs)`.

    Args:
        vocabulary_size, length: V and T, as :class:`WordEmbedding`.
        outputs: size of the last layer.
        embedding: width of a word's vector.
        filters: of the convolution.
        window: words that a filter reads.
        hidden: width of the dense layer.
        dropout: share of the word vectors and of the dense layer that is dropped while training.
        seed: of the initial weights; None draws them from torch's default generator.

    Raises:
        ValueError: a number below 1, a share outside [0, 1); from a call, as
            :class:`WordEmbedding`.

    Source: Kim (2014), "Convolutional neural networks for sentence classification", EMNLP; with the
    sizes of the model that L2X explains (Chen et al. 2018, § 4.2).

    Example:
        >>> TextCNN(10, 5, 2, seed=0)(torch.ones(4, 5)).shape
        torch.Size([4, 2])
    """

    not_described: ClassVar[frozenset[str]] = frozenset({"seed"})

    def __init__(
        self,
        vocabulary_size: int,
        length: int,
        outputs: int,
        embedding: int = 50,
        filters: int = 250,
        window: int = 3,
        hidden: int = 250,
        dropout: float = 0.2,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.outputs = int_at_least("outputs", outputs)
        self.filters, self.window = int_at_least("filters", filters), int_at_least("window", window)
        self.hidden = int_at_least("hidden", hidden)
        self.dropout = fraction("dropout", dropout, zero=True)
        self.words = WordEmbedding(vocabulary_size, length, embedding, seed)
        self.vocabulary_size, self.length = self.words.vocabulary_size, self.words.length
        self.embedding = self.words.width
        with torch.random.fork_rng(enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            self.convolution = nn.Conv1d(embedding, filters, window, padding="same")
            self.dense = nn.Linear(filters, hidden)
            self.last = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        vectors = dropout(self.words(x), self.dropout, self.training)
        found = relu(self.convolution(vectors.mT)).amax(-1)
        dense = relu(dropout(self.dense(found), self.dropout, self.training))
        outputs: Tensor = self.last(dense)
        return outputs
