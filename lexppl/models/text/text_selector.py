"""L2X's selector of words: what stands around a word, and the text as a whole."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from lexppl.argument_checks import fraction, int_at_least
from lexppl.configured import Configured
from lexppl.models.text.embedding import PADDING, WordEmbedding, check_words


class TextSelector(Configured, nn.Module):
    """A number, or several, for each word of a text: `(N, T)` to `(N, outputs)`.

    A convolution over word vectors; of it a global part, the largest value of each filter over the
    text and a dense layer, and a local one, two more convolutions. At every word both stand side by
    side and two layers of one word's width follow. The numbers of padding are 0, and
    :meth:`possible_entries` says which are words: selectors never keep another
    (:mod:`lexppl.models.possible_entries`).

    Args:
        vocabulary_size, length: V and T, as :class:`WordEmbedding`.
        outputs: T, or m · T: the T numbers of the first kind, then those of the second …
        embedding: width of a word's vector.
        filters: of each layer.
        window: words that a filter of the first three layers reads.
        shown: numbers that stand behind the words of a row, `(N, T + shown)`, such as the output of
            the explained model; a perceptron of three layers makes them a part beside the global
            one (MEED, Liang et al. 2020).
        dropout: share of the parts side by side that is dropped while training.
        seed: of the initial weights; None draws them from torch's default generator.

    Raises:
        ValueError: a number below 1, outputs that are no multiple of T, a share outside [0, 1);
            from a call, as :class:`WordEmbedding`.

    Source: Chen, Song, Wainwright and Jordan (2018), "Learning to explain", ICML, § 4.2 and its
    code, but for first weights that keep the scale of what they are given.

    Example:
        >>> selector = TextSelector(10, 3, 3, seed=0)
        >>> selector(torch.tensor([[4.0, 7.0, 0.0]])).shape
        torch.Size([1, 3])
        >>> selector.possible_entries(torch.tensor([[4.0, 7.0, 0.0]]))
        tensor([[ True,  True, False]])
    """

    not_described: ClassVar[frozenset[str]] = frozenset({"seed"})

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
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.words = WordEmbedding(vocabulary_size, length, embedding, seed)
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
        with torch.random.fork_rng(enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            self.first = nn.Conv1d(embedding, filters, window, padding="same")
            self.whole = nn.Linear(filters, filters)
            self.local = nn.ModuleList(
                nn.Conv1d(filters, filters, window, padding="same") for _ in range(2)
            )
            widths = [self.shown, filters, filters, filters] if self.shown else []
            self.told = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
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
            for layer in self.told:
                output = relu(layer(output))
            parts.append(output)
        for layer in self.local:
            local = relu(layer(local)) * there
        beside = [part.unsqueeze(-1).expand(*part.shape, self.length) for part in parts]
        joined = dropout(torch.cat([*beside, local], -2), self.dropout, self.training)
        numbers = self.last(relu(self.joined(joined))) * there
        return numbers.flatten(-2)
