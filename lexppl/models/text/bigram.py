"""Hidden words drawn from what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least, int_between
from lexppl.models.imputers.imputer import TensorOrShape
from lexppl.models.text.embedding import PADDING
from lexppl.models.text.hidden_words import ClassChain
from lexppl.models.text.word_imputer import WordImputer, check_probabilities, check_texts

__all__ = ["BigramImputer"]

PAIRS_AT_ONCE = 2**22
"""Numbers of one step's classes of pairs that are worked on at once: 32 MiB."""


@dataclass(frozen=True, eq=False)
class WordPairs:
    """Different pairs of neighbouring words and how often they stand: each `(P,)`.

    Args:
        before: the first word's number, 0 before a text's first word.
        after: the second's.
        count: float64.
    """

    before: Tensor
    after: Tensor
    count: Tensor


def word_pairs(x: Tensor, vocabulary_size: int) -> WordPairs:
    """Count the neighbouring words of texts `(N, T)`.

    Example:
        >>> pairs = word_pairs(torch.tensor([[2.0, 3.0, 0.0], [2.0, 3.0, 2.0]]), 4)
        >>> list(zip(pairs.before.tolist(), pairs.after.tolist(), pairs.count.tolist()))
        [(0, 2, 2.0), (2, 3, 2.0), (3, 2, 1.0)]
    """
    words = x.long()
    before = torch.cat([torch.zeros_like(words[:, :1]), words[:, :-1]], 1)
    code = (before * vocabulary_size + words)[words != PADDING]
    code, count = code.unique(return_counts=True)
    return WordPairs(code // vocabulary_size, code % vocabulary_size, count.double())


def fitted_chain(
    pairs: WordPairs, vocabulary_size: int, classes: int, steps: int, smoothing: float, seed: int
) -> tuple[Tensor, Tensor]:
    """`p(c | w)` `(V, C)` and `p(w | c)` `(C, V)` by EM, float32.

    Args:
        pairs: of the training texts.
        vocabulary_size: V.
        classes: C.
        steps: of EM.
        smoothing: of both laws, in counts.
        seed: of the first laws.
    """
    device = pairs.count.device
    generator = torch.Generator().manual_seed(seed)
    frequency = torch.ones(vocabulary_size, dtype=torch.float64, device=device)
    frequency = frequency.index_add(0, pairs.after, pairs.count)
    frequency[PADDING] = 0.0
    frequency = frequency / frequency.sum()

    def random(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64).to(device) + 0.5

    to_class = _rows(random(vocabulary_size, classes))
    words = _rows(random(classes, vocabulary_size) * frequency)
    for _ in range(steps if classes > 1 else 1):
        of_before = torch.full_like(to_class, smoothing / classes)
        of_after = torch.zeros_like(to_class) + smoothing * frequency.unsqueeze(-1)
        for part in torch.arange(len(pairs.count), device=device).split(
            max(1, PAIRS_AT_ONCE // classes)
        ):
            before, after = pairs.before[part], pairs.after[part]
            share = to_class[before] * words.mT[after]
            share = share * (pairs.count[part] / share.sum(-1)).unsqueeze(-1)
            of_before.index_add_(0, before, share)
            of_after.index_add_(0, after, share)
        to_class, words = _rows(of_before), _rows(of_after.mT)
    return to_class.float(), words.float()


def _rows(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)


MOST_ENTRIES = 2**24
"""C² V, the numbers of a table of pairs of classes: 128 MiB."""


class BigramImputer(WordImputer):
    r"""Hidden words given the kept ones beside them: `x̃_H ~ p(w_H | w_S)` exactly, where

        p(w) = Π_t p(w_t | w_{t−1}),    p(w' | w) = Σ_{c=1}^C p(c | w) p(w' | c).

    The law of neighbouring words has rank C (an aggregate Markov model), so that a vocabulary of
    10,000 words needs 2 C V numbers and a table of C² V, and not V². Conditioning is exact, by
    forward–backward over each run of hidden words (:class:`HiddenWords`); with as many classes as
    words it is that of a table of bigrams.

    Args:
        to_class: `p(c | w)`, `(V, C)`; row 0 is of a text's first word.
        words: `p(w | c)`, `(C, V)`, 0 for padding, word 0.

    Raises:
        ValueError: other shapes, rows that are no probabilities, C² V above 2^24; from a call, see
            :meth:`forward`.

    Source: Saul & Pereira, "Aggregate and mixed-order Markov models for statistical language
    processing", EMNLP 1997.

    Example:
        >>> import torch
        >>> # 2 is followed by 3, and 3 by 2
        >>> imputer = BigramImputer(
        ...     torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0], [1.0, 0.0]]),
        ...     torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]),
        ... )
        >>> x = torch.tensor([[2.0, 3.0, 2.0, 0.0]])
        >>> imputer(x, torch.tensor([0.0, 1.0, 0.0, 0.0])).sample()
        tensor([[2., 3., 2., 0.]])
    """

    to_class: Tensor
    words: Tensor

    def __init__(self, to_class: TensorOrShape, words: TensorOrShape) -> None:
        super().__init__()
        loaded = [self._register("to_class", to_class), self._register("words", words)]
        classes, vocabulary = self.words.shape if self.words.dim() == 2 else (0, 0)
        if self.to_class.shape != (vocabulary, classes) or not self.words.numel():
            raise ValueError(
                "to_class must have shape (V, C) and words (C, V); they have "
                f"{tuple(self.to_class.shape)} and {tuple(self.words.shape)}"
            )
        _check_table(classes, vocabulary)
        if all(loaded):
            check_probabilities("to_class", self.to_class)
            check_probabilities("words", self.words)
            if bool(self.words[:, PADDING].any()):
                raise ValueError("words must give padding, number 0, the probability 0")

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self.words.shape[1]

    def make_chain(self) -> ClassChain:
        """The law with its table of C² V numbers."""
        return ClassChain.of(self.to_class, self.words)

    @classmethod
    def fit(
        cls,
        x: Tensor,
        vocabulary_size: int,
        *,
        classes: int = 16,
        steps: int = 30,
        smoothing: float = 1.0,
        seed: int = 0,
    ) -> BigramImputer:
        """The law of training texts, by EM.

        Args:
            x: word numbers, `(N, T)`, padding after the words.
            vocabulary_size: V.
            classes: C ≥ 1.
            steps: of EM.
            smoothing: counts that each word's classes share evenly, and each class's words by their
                frequency with 1 more each: no word is impossible.
            seed: of the first classes.

        Raises:
            ValueError: x that is no texts of this vocabulary, numbers out of range.

        Example:
            >>> import torch
            >>> x = torch.tensor([[2.0, 3.0, 2.0, 3.0], [3.0, 2.0, 3.0, 0.0]])
            >>> BigramImputer.fit(x, 4, classes=2).words.shape
            torch.Size([2, 4])
        """
        check_texts(x, vocabulary_size)
        classes = int_between("classes", classes, 1, vocabulary_size)
        steps, seed = int_at_least("steps", steps), int_at_least("seed", seed, 0)
        smoothing = finite_float("smoothing", smoothing, above=0.0)
        _check_table(classes, vocabulary_size)
        pairs = word_pairs(x, vocabulary_size)
        return cls(*fitted_chain(pairs, vocabulary_size, classes, steps, smoothing, seed))


def _check_table(classes: int, vocabulary: int) -> None:
    if classes**2 * vocabulary > MOST_ENTRIES:
        raise ValueError(
            f"{classes} classes of {vocabulary} words need a table of {classes}² · {vocabulary} "
            f"numbers, and the most is {MOST_ENTRIES}: take at most "
            f"{int((MOST_ENTRIES / vocabulary) ** 0.5)} classes, or fewer words"
        )
