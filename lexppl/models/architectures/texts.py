"""Architectures of texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from lexppl.argument_checks import int_at_least
from lexppl.models.architectures.base import Architecture
from lexppl.models.architectures.text_networks import BagOfWords, TextCNN, TextSelector
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.imputers.words import PaddingImputer
from lexppl.models.networks import initial_weights

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
        if isinstance(predictor, str) and predictor not in PREDICTORS:
            raise ValueError(
                f"predictor must be one of {list(PREDICTORS)}, or a function from the number of "
                f"outputs to a module; it is {predictor!r}"
            )
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
        """`(T,)`."""
        return (self.length,)

    @property
    def hidden_shape(self) -> tuple[int, ...]:
        """`(2T,)`: word numbers, and how much of each is kept."""
        return (2 * self.length,)

    def selector(self, outputs: int) -> nn.Module:
        """L2X's network of a text's words and of the whole, `(N, T)` to `(N, outputs)`."""
        return self._selector(outputs)

    def predictor(self, outputs: int, seed: int | None = None) -> nn.Module:
        """The bag of words or the convolutional network, or the one that was given: `(N, T)` or
        `(N, 2T)` to `(N, outputs)`."""
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
