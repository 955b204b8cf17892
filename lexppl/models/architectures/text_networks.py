"""Networks of texts: word vectors, a bag of words, a text CNN, L2X's selector of words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from lexppl.argument_checks import fraction, int_at_least
from lexppl.configured import Configured
from lexppl.models.imputers.hidden_words import PADDING, check_words
from lexppl.models.networks import MLP


class WordEmbedding(Configured, nn.Module):
    r"""A vector for each word of a text, times how much of the word is kept:

        v_t = z_t e(w_t),    e(0) = 0.

    Rows are the T word numbers alone, all kept, `(N, T)`; or the numbers and then z, `(N, 2T)`, as
    :class:`PaddingImputer` gives them. A hidden word is read as padding, and z has a gradient,
    also where it is 0.

    Args:
        vocabulary_size: V, the word numbers that there are, from 0 for padding to V − 1.
        length: T.
        width: of a vector.

    Raises:
        ValueError: a number below 1 (a vocabulary of fewer than two numbers); from a call, rows of
            another length; where Pyro validates, as in the first step of a fit, numbers of no word.

    Example:
        >>> embed = WordEmbedding(10, length=3, width=2)
        >>> half = embed(torch.tensor([[4.0, 7.0, 0.0, 0.5, 0.0, 1.0]]))
        >>> whole = embed(torch.tensor([[4.0, 7.0, 0.0]]))
        >>> bool((half[0, 0] == whole[0, 0] / 2).all()), half[0, 1:].tolist()
        (True, [[0.0, 0.0], [0.0, 0.0]])
    """

    def __init__(self, vocabulary_size: int, length: int, width: int) -> None:
        super().__init__()
        self.vocabulary_size = int_at_least("vocabulary_size", vocabulary_size, 2)
        self.length = int_at_least("length", length)
        self.width = int_at_least("width", width)
        # The scale of a sum of a few words is then that of a layer's usual inputs.
        self.vectors = nn.Parameter(torch.randn(self.vocabulary_size, self.width) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors `(N, T, width)`."""
        words, keep = self.read(x)
        vectors = nn.functional.embedding(words, self.vectors)
        return vectors * keep.unsqueeze(-1)

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Word numbers and how much of each word is kept, 0 for padding: each `(N, T)`."""
        if x.dim() != 2 or x.shape[-1] not in (self.length, 2 * self.length):
            raise ValueError(
                f"the network takes texts (N, {self.length}) of word numbers, or "
                f"(N, {2 * self.length}) with what is kept of each; it is given {tuple(x.shape)}"
            )
        words = x[..., : self.length].detach()
        if is_validation_enabled():
            check_words(words, self.vocabulary_size)
        there = (words != PADDING).to(x.dtype)
        keep = there if x.shape[-1] == self.length else there * x[..., self.length :]
        return words.long(), keep


class BagOfWords(Configured, nn.Module):
    r"""The mean vector of kept words, and a perceptron: `(N, T)` or `(N, 2T)` to `(N, outputs)`.

        f(Σ_t z_t e(w_t) / max(1, Σ_t z_t))

    L2X's predictor of reviews, which cannot tell where words stand, nor which were hidden between
    them.

    Args:
        vocabulary_size, length: V and T, as `WordEmbedding`.
        outputs: size of the last layer.
        embedding: width of a word's vector.
        hidden: widths of the perceptron.

    Source: Chen, Song, Wainwright and Jordan (2018), "Learning to explain", ICML, § 4.2; L2X
    divides by k.

    Example:
        >>> import torch
        >>> network = BagOfWords(10, 3, 2)
        >>> rows = torch.tensor([[4.0, 7.0, 0.0], [7.0, 4.0, 0.0]])
        >>> bool((network(rows)[0] - network(rows)[1]).abs().max() < 1e-6)
        True
    """

    def __init__(
        self,
        vocabulary_size: int,
        length: int,
        outputs: int,
        embedding: int = 50,
        hidden: Sequence[int] = (250,),
    ) -> None:
        super().__init__()
        self.words = WordEmbedding(vocabulary_size, length, embedding)
        self.network = MLP(embedding, outputs, hidden)
        self.vocabulary_size, self.length = self.words.vocabulary_size, self.words.length
        self.embedding, self.hidden = self.words.width, self.network.hidden
        self.outputs = self.network.outputs

    def forward(self, x: Tensor) -> Tensor:
        _, keep = self.words.read(x)
        mean = self.words(x).sum(-2) / keep.sum(-1, keepdim=True).clamp(min=1.0)
        outputs: Tensor = self.network(mean)
        return outputs


class TextCNN(Configured, nn.Module):
    """Word vectors, a convolution over neighbouring words, the largest value of each filter over
    the text, and two dense layers: `(N, T)` or `(N, 2T)` to `(N, outputs)`.

    Args:
        vocabulary_size, length: V and T, as `WordEmbedding`.
        outputs: size of the last layer.
        embedding: width of a word's vector.
        filters: of the convolution.
        window: words that a filter reads.
        hidden: width of the dense layer.
        dropout: share of the word vectors and of the dense layer that is dropped while training.

    Raises:
        ValueError: a number below 1, a share outside [0, 1); from a call, as
            `WordEmbedding`.

    Source: Kim (2014), "Convolutional neural networks for sentence classification", EMNLP; with the
    sizes of the model that L2X explains (Chen et al. 2018, § 4.2).

    Example:
        >>> TextCNN(10, 5, 2)(torch.ones(4, 5)).shape
        torch.Size([4, 2])
    """

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
    ) -> None:
        super().__init__()
        self.outputs = int_at_least("outputs", outputs)
        self.filters, self.window = int_at_least("filters", filters), int_at_least("window", window)
        self.hidden = int_at_least("hidden", hidden)
        self.dropout = fraction("dropout", dropout, zero=True)
        self.words = WordEmbedding(vocabulary_size, length, embedding)
        self.vocabulary_size, self.length = self.words.vocabulary_size, self.words.length
        self.embedding = self.words.width
        self.convolution = nn.Conv1d(embedding, filters, window, padding="same")
        self.dense = nn.Linear(filters, hidden)
        self.last = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        vectors = dropout(self.words(x), self.dropout, self.training)
        found = relu(self.convolution(vectors.mT)).amax(-1)
        dense = relu(dropout(self.dense(found), self.dropout, self.training))
        outputs: Tensor = self.last(dense)
        return outputs


class TextSelector(Configured, nn.Module):
    """A number, or several, for each word of a text: `(N, T)` to `(N, outputs)`.

    A convolution over word vectors; of it a global part, the largest value of each filter over the
    text and a dense layer, and a local one, two more convolutions. At every word both stand side by
    side and two layers of one word's width follow. The numbers of padding are 0, and
    :meth:`possible_entries` says which are words: selectors never keep another
    (:mod:`lexppl.models.possible_entries`).

    Args:
        vocabulary_size, length: V and T, as `WordEmbedding`.
        outputs: T, or m · T: the T numbers of the first kind, then those of the second …
        embedding: width of a word's vector.
        filters: of each layer.
        window: words that a filter of the first three layers reads.
        shown: numbers that stand behind the words of a row, `(N, T + shown)`, such as the output of
            the explained model; a perceptron of three layers makes them a part beside the global
            one (MEED, Liang et al. 2020).
        dropout: share of the parts side by side that is dropped while training.

    Raises:
        ValueError: a number below 1, outputs that are no multiple of T, a share outside [0, 1);
            from a call, as `WordEmbedding`.

    Source: Chen, Song, Wainwright and Jordan (2018), "Learning to explain", ICML, § 4.2 and its
    code, but for first weights that keep the scale of what they are given.

    Example:
        >>> selector = TextSelector(10, 3, 3)
        >>> selector(torch.tensor([[4.0, 7.0, 0.0]])).shape
        torch.Size([1, 3])
        >>> selector.possible_entries(torch.tensor([[4.0, 7.0, 0.0]]))
        tensor([[ True,  True, False]])
    """

    def __init__(
        self,
        vocabulary_size: int,
        length: int,
        outputs: int,
        embedding: int = 50,
        filters: int = 100,
        window: int = 3,
        shown: int = 0,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.words = WordEmbedding(vocabulary_size, length, embedding)
        self.vocabulary_size, self.length = self.words.vocabulary_size, self.words.length
        self.outputs = int_at_least("outputs", outputs)
        if self.outputs % self.length:
            raise ValueError(
                f"outputs must be a multiple of the text's {self.length} words; it is {outputs}"
            )
        self.embedding = self.words.width
        self.filters, self.window = int_at_least("filters", filters), int_at_least("window", window)
        self.shown = int_at_least("shown", shown, 0)
        self.dropout = fraction("dropout", dropout, zero=True)
        self.first = nn.Conv1d(embedding, filters, window, padding="same")
        self.whole = nn.Linear(filters, filters)
        self.local = nn.ModuleList(
            nn.Conv1d(filters, filters, window, padding="same") for _ in range(2)
        )
        widths = [self.shown, filters, filters, filters] if self.shown else []
        self.output_layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        parts = 3 if self.shown else 2
        self.joined = nn.Conv1d(parts * filters, filters, 1)
        self.last = nn.Conv1d(filters, self.outputs // self.length, 1)
        # Torch's own weights would leave words' numbers all but alike after so many layers.
        for layer in self.modules():
            if isinstance(layer, nn.Conv1d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def possible_entries(self, x: Tensor) -> Tensor:
        """Which places of a text are words, `(N, T)`."""
        return x[..., : self.length] != PADDING

    def check_rows(self, x: Tensor) -> None:
        """Refuse rows that are no texts, before anything is shown beside them.

        Args:
            x: `(N, T)`.

        Raises:
            ValueError: texts of another length, numbers of no word, a text of padding alone.
        """
        if x.dim() != 2 or x.shape[-1] != self.length:
            raise ValueError(
                f"the selector takes texts (N, {self.length}) of word numbers; it is given "
                f"{tuple(x.shape)}"
            )
        check_words(x, self.vocabulary_size)
        empty = (x == PADDING).all(-1)
        if bool(empty.any()):
            raise ValueError(f"row {int(empty.int().argmax())} is a text without words")

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2 or x.shape[-1] != self.length + self.shown:
            behind = f" and {self.shown} numbers behind them" if self.shown else ""
            raise ValueError(
                f"the selector takes texts (N, {self.length + self.shown}) of {self.length} word "
                f"numbers{behind}; it is given {tuple(x.shape)}"
            )
        text, output = x[:, : self.length], x[:, self.length :]
        there = self.possible_entries(text).unsqueeze(-2)
        # Padding says nothing, however much of it there is: 0 is the least that a filter gives.
        local = relu(self.first(self.words(text).mT)) * there
        parts = [relu(self.whole(local.amax(-1)))]
        if self.shown:
            for layer in self.output_layers:
                output = relu(layer(output))
            parts.append(output)
        for layer in self.local:
            local = relu(layer(local)) * there
        beside = [part.unsqueeze(-1).expand(*part.shape, self.length) for part in parts]
        joined = dropout(torch.cat([*beside, local], -2), self.dropout, self.training)
        numbers = self.last(relu(self.joined(joined))) * there
        return numbers.flatten(-2)
