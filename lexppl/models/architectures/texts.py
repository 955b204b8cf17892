"""Networks of texts, and the architecture of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from lexppl.argument_checks import fraction, int_at_least, one_of, shaped
from lexppl.configured import Configured
from lexppl.models.architectures.base import Architecture
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.imputers.words import PADDING, PaddingImputer, check_words
from lexppl.models.networks import MLP, initial_weights


class WordEmbedding(Configured, nn.Module):
    """`v_t = z_t e(w_t)`, `e(0) = 0`: a vector for each word, times how much of the word is kept,
    of rows `(N, T)` of word numbers, all kept, or `(N, 2T)`, the numbers and then z, with a
    gradient in z."""

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
        return nn.functional.embedding(words, self.vectors) * keep.unsqueeze(-1)

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Word numbers and how much of each word is kept, 0 for padding: each `(N, T)`."""
        shaped("texts", x, ("N", self.length), ("N", 2 * self.length))
        words = x[..., : self.length].detach()
        if is_validation_enabled():
            check_words(words, self.vocabulary_size)
        there = (words != PADDING).to(x.dtype)
        keep = there if x.shape[-1] == self.length else there * x[..., self.length :]
        return words.long(), keep


class _OfWords(Configured, nn.Module):
    """Base of the networks whose first layer is a :class:`WordEmbedding`."""

    def __init__(self, vocabulary_size: int, length: int, embedding: int) -> None:
        super().__init__()
        self.words = WordEmbedding(vocabulary_size, length, embedding)
        self.vocabulary_size, self.length = self.words.vocabulary_size, self.words.length
        self.embedding = self.words.width


class BagOfWords(_OfWords):
    """`f(Σ_t z_t e(w_t) / max(1, Σ_t z_t))`, a perceptron of the kept words' mean vector: `(N, T)`
    or `(N, 2T)` to `(N, outputs)`; L2X's predictor (Chen et al. 2018, § 4.2), which divides by
    k."""

    def __init__(
        self,
        vocabulary_size: int,
        length: int,
        outputs: int,
        embedding: int = 50,
        hidden: Sequence[int] = (250,),
    ) -> None:
        super().__init__(vocabulary_size, length, embedding)
        self.network = MLP(embedding, outputs, hidden)
        self.hidden, self.outputs = self.network.hidden, self.network.outputs

    def forward(self, x: Tensor) -> Tensor:
        _, keep = self.words.read(x)
        mean = self.words(x).sum(-2) / keep.sum(-1, keepdim=True).clamp(min=1.0)
        return self.network(mean)


class TextCNN(_OfWords):
    """Word vectors, a convolution, the largest value of each filter and two dense layers: `(N, T)`
    or `(N, 2T)` to `(N, outputs)` (Kim 2014, in the sizes of Chen et al. 2018, § 4.2)."""

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
        super().__init__(vocabulary_size, length, embedding)
        self.outputs = int_at_least("outputs", outputs)
        self.filters, self.window = int_at_least("filters", filters), int_at_least("window", window)
        self.hidden = int_at_least("hidden", hidden)
        self.dropout = fraction("dropout", dropout, zero=True)
        self.convolution = nn.Conv1d(embedding, filters, window, padding="same")
        self.dense = nn.Linear(filters, hidden)
        self.last = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        vectors = dropout(self.words(x), self.dropout, self.training)
        features = relu(self.convolution(vectors.mT)).amax(-1)
        return self.last(relu(dropout(self.dense(features), self.dropout, self.training)))


class TextSelector(_OfWords):
    """L2X's selector (Chen et al. 2018, § 4.2): a convolution, of it a global part, the largest
    value of each filter, and a local one, both side by side at every word: `(N, T)`, and `shown`
    numbers behind the words, to `(N, outputs)`, outputs a multiple of T; 0 for padding, which is
    never kept."""

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
        super().__init__(vocabulary_size, length, embedding)
        self.outputs = int_at_least("outputs", outputs)
        if self.outputs % self.length:
            raise ValueError(f"outputs must be a multiple of {self.length} words; it is {outputs}")
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
        """Refuse rows that are no texts `(N, T)`, or a text of padding alone."""
        shaped("texts", x, ("N", self.length))
        check_words(x, self.vocabulary_size)
        empty = (x == PADDING).all(-1)
        if bool(empty.any()):
            raise ValueError(f"row {int(empty.int().argmax())} is a text without words")

    def forward(self, x: Tensor) -> Tensor:
        note = f"of {self.length} word numbers and {self.shown} numbers behind them"
        shaped("texts", x, ("N", self.length + self.shown), note=note)
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
        return (self.last(relu(self.joined(joined))) * there).flatten(-2)


PREDICTORS = ("bag", "cnn")


class TextArchitecture(Architecture):
    """The networks of explainers of texts, rows of T word numbers with padding, 0, behind them.

    A mask has an entry for each of the T places. Padding is never kept and is no part of k: a text
    of fewer words than k keeps all it has. The selector is L2X's; hidden words are read as padding
    (:class:`lexppl.models.PaddingImputer`), with gradients in relaxed masks; for hard ones
    `imputer=UnigramImputer.fit(…)` or `BigramImputer.fit(…)` draws words in their place. A black
    box whose attributions a method reads (MEED's fading prior) must read rows of 2T numbers, as
    networks of `WordEmbedding` do; give `prior=0` for another.

    Fit with `weight_decay=0.0`: the weight decay of a fit makes the numbers of words all alike
    where masks' gradient is weak.

    Args:
        vocabulary_size: V, the word numbers that there are: `len(vocabulary)`.
        length: T.
        predictor: "bag", the mean vector of the kept words and a perceptron, which L2X has; "cnn",
            the convolutional network that its reviews are judged by (`TextCNN`); or a function from
            the number of outputs to a module.
        embedding: width of a word's vector, of each network its own.
        filters: of each layer of the selector.
        window: words that a filter reads.
        hidden: width of the predictor's layers.
        dropout: share dropped while training.

    Raises:
        ValueError: a number below 1, a share outside [0, 1), another predictor.

    Example:
        >>> texts(100, length=20, filters=8).entries
        20
    """

    def __init__(
        self,
        vocabulary_size: int,
        length: int,
        *,
        predictor: str | Callable[[int], nn.Module] = "bag",
        embedding: int = 50,
        filters: int = 100,
        window: int = 3,
        hidden: int = 250,
        dropout: float = 0.2,
    ) -> None:
        self.vocabulary_size = int_at_least("vocabulary_size", vocabulary_size, 2)
        self.length = int_at_least("length", length)
        if isinstance(predictor, str):
            one_of(PREDICTORS, "predictor", predictor)
        self._predictor, self._embedding = predictor, int_at_least("embedding", embedding)
        self._window, self._hidden, self._dropout = window, hidden, dropout
        self._selector = partial(
            TextSelector,
            self.vocabulary_size,
            self.length,
            embedding=embedding,
            filters=filters,
            window=window,
            dropout=dropout,
        )
        # What does not fit is refused here, and not where a system is built of it.
        with initial_weights(0):
            self.selector(self.length)
            TextCNN(2, 1, 1, 1, 1, window, hidden, dropout)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of a text, `(T,)`."""
        return (self.length,)

    @property
    def hidden_shape(self) -> tuple[int, ...]:
        """Shape of an imputed text, `(2T,)`: word numbers, and how much of each is kept."""
        return (2 * self.length,)

    def selector(self, outputs: int) -> nn.Module:
        """L2X's network of a text's words and of the whole, `(N, T)` to `(N, outputs)`."""
        network = self._selector(outputs)
        if self._fitted is not None:
            network.words.load_state_dict(self._fitted.words.state_dict())
        return network

    def predictor(self, outputs: int, seed: int | None = None) -> nn.Module:
        """The bag of words or the convolutional network, or the one that was given: `(N, T)` or
        `(N, 2T)` to `(N, outputs)`."""
        if self._fitted is not None and self._fitted.outputs == outputs:
            return copy.deepcopy(self._fitted)
        sizes = (self.vocabulary_size, self.length, outputs, self._embedding)
        with initial_weights(seed):
            if not isinstance(self._predictor, str):
                return self._predictor(outputs)
            if self._predictor == "bag":
                return BagOfWords(*sizes, (self._hidden,))
            # Of a model, as many filters as its dense layer is wide.
            return TextCNN(*sizes, self._hidden, self._window, self._hidden, self._dropout)

    def feedback(self, outputs: int, shown: int) -> tuple[nn.Module, nn.Module | None]:
        """The selector with a perceptron of the output beside the whole."""
        return self._selector(outputs, shown=shown), None

    def imputer(self) -> Imputer:
        """Hidden words are read as padding."""
        return PaddingImputer()


texts = TextArchitecture
