"""Hidden words drawn by their frequency."""

from __future__ import annotations

import torch
from torch import Tensor

from lexppl.argument_checks import finite_float
from lexppl.models.imputers.imputer import TensorOrShape
from lexppl.models.text.embedding import PADDING
from lexppl.models.text.hidden_words import ClassChain
from lexppl.models.text.word_imputer import WordImputer, check_probabilities, check_texts

__all__ = ["UnigramImputer"]


class UnigramImputer(WordImputer):
    """Hidden words are independent draws by their frequency, `x̃_t ~ p(w)` for each hidden t.

    A text keeps its length: padding is never a word.

    Args:
        frequency: p(w), `(V,)`, 0 for padding, word 0.

    Raises:
        ValueError: another shape, no probabilities; from a call, as :class:`BigramImputer`.

    Example:
        >>> imputer = UnigramImputer(torch.tensor([0.0, 0.0, 0.0, 1.0]))
        >>> imputer(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1.0, 0.0, 0.0])).sample()
        tensor([[2., 3., 0.]])
    """

    frequency: Tensor

    def __init__(self, frequency: TensorOrShape) -> None:
        super().__init__()
        loaded = self._register("frequency", frequency)
        if self.frequency.dim() != 1 or len(self.frequency) < 2:
            raise ValueError(
                f"frequency must have shape (V,), V >= 2; it has {tuple(self.frequency.shape)}"
            )
        if loaded:
            check_probabilities("frequency", self.frequency)
            if bool(self.frequency[PADDING] != 0):
                raise ValueError("frequency must give padding, number 0, the probability 0")

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return len(self.frequency)

    def make_chain(self) -> ClassChain:
        """The law of one class."""
        words = self.frequency.unsqueeze(0)
        return ClassChain.of(torch.ones_like(words).mT, words)

    @classmethod
    def fit(cls, x: Tensor, vocabulary_size: int, *, smoothing: float = 1.0) -> UnigramImputer:
        """The frequency of words in training texts.

        Args:
            x: word numbers, `(N, T)`, padding after the words.
            vocabulary_size: V.
            smoothing: added to each word's count, so that none is impossible.

        Raises:
            ValueError: x that is no texts of this vocabulary, a negative number.

        Example:
            >>> x = torch.tensor([[2.0, 2.0, 3.0, 0.0]])
            >>> UnigramImputer.fit(x, 4, smoothing=0.0).frequency
            tensor([0.0000, 0.0000, 0.6667, 0.3333])
        """
        check_texts(x, vocabulary_size)
        count = x.long().flatten().bincount(minlength=vocabulary_size).double()
        count = count + finite_float("smoothing", smoothing, least=0.0)
        count[PADDING] = 0.0
        return cls((count / count.sum()).float())
