"""Imputers of words: padding, words of their own frequencies, and a hidden Markov chain."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from pyro.distributions.util import broadcast_shape
from pyro.infer.util import is_validation_enabled
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least, int_between, shaped
from lexppl.models.imputers.imputer import HiddenFeatures, Imputed, Imputer, TensorOrShape
from lexppl.models.imputers.mixture import drawn_places

PADDING = 0  # The word number that stands behind the words of a text


def check_words(words: Tensor, vocabulary_size: int) -> None:
    """Refuse what are no word numbers."""
    wrong = words[(words != words.round()) | (words < 0) | (words >= vocabulary_size)]
    if wrong.numel():
        first = float(wrong[0])
        advice = (
            ""
            if first.is_integer()
            else ": fractional masks of texts need PaddingImputer(), or a law of words"
        )
        raise ValueError(
            f"texts are rows of word numbers, whole and from 0 to {vocabulary_size - 1}; there is "
            f"{first:g}{advice}"
        )


@dataclass(frozen=True, eq=False)
class ClassChain:
    """A law of neighbouring words of rank C, `p(w' | w) = Σ_c p(c | w) p(w' | c)`: `to_class` `(V,
    C)` (row 0 of a text's first word), `words` `(C, V)`, and the cumulative sums `ends` of `p(w |
    c, c') ∝ p(w | c) p(c' | w)`, each increased by the pair's place, `(C² V,)`."""

    to_class: Tensor
    words: Tensor
    ends: Tensor

    @classmethod
    def of(cls, to_class: Tensor, words: Tensor) -> ClassChain:
        """With the table of pairs, of 8 C² V bytes."""
        table = words.double().unsqueeze(1) * to_class.double().mT.unsqueeze(0)
        table = table.reshape(-1, words.shape[1]).cumsum(-1)
        # A pair of no mass is never drawn, and any numbers will do.
        table = table / table[:, -1:].clamp(min=torch.finfo(torch.float64).tiny)
        table[:, -1] = 1.0
        place = torch.arange(len(table), device=table.device).unsqueeze(-1)
        return cls(to_class, words, (table + place).flatten())

    @property
    def classes(self) -> int:
        """Number of classes, C."""
        return len(self.words)

    @property
    def steps(self) -> Tensor:
        """`p(c' | c) = Σ_w p(w | c) p(c' | w)`, `(C, C)`."""
        return self.words @ self.to_class


class HiddenWords(HiddenFeatures):
    """`p(w_H | w_S) = p(w) / p(w_S)` of texts `(B, T)` exactly, with `p(w) = Π_t Σ_c p(c | w_{t−1})
    p(w_t | c)`, by forward–backward in T steps; `N T C` numbers for N texts with masks of their
    own. Padding stays visible: it is never imputed, and no word becomes padding."""

    def __init__(self, x: Tensor, hard: Tensor, chain: ClassChain) -> None:
        shape = torch.Size(broadcast_shape(x.shape, hard.shape))
        self._chain = chain
        self._row = x.detach().expand(shape).long()
        self._fixed = hard.expand(shape) | (self._row == PADDING)
        self._messages, self._log_kept = _messages(self._row, self._fixed, chain)
        super().__init__(shape[:-1], shape[-1:], validate_args=False)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Texts `(*sample_shape, …, B, T)`, in the type of the chain."""
        chain, steps = self._chain, self._chain.steps
        shape = torch.Size(sample_shape) + self.batch_shape
        state = _categorical(chain.to_class[0] * self._messages[0], shape)
        drawn = []
        for t in range(self.event_shape[0]):
            word, fixed = self._row[..., t], self._fixed[..., t].unsqueeze(-1)
            weights = torch.where(fixed, chain.to_class[word], steps[state])
            if t + 1 < self.event_shape[0]:
                weights = weights * self._messages[t + 1]
            after = _categorical(weights, shape)
            drawn.append(torch.where(fixed.squeeze(-1), word, self._word(state, after)))
            state = after
        return torch.stack(drawn, -1).to(chain.words.dtype)

    def log_prob_hidden(self, value: Tensor, hidden: Tensor) -> Tensor:
        """The log-probability of the words that `kept` hides, `(…, B)`."""
        row = torch.where(self._fixed, self._row, value.detach().long())
        before = torch.cat([torch.zeros_like(row[..., :1]), row[..., :-1]], -1)
        log_words = (self._chain.to_class[before] * self._chain.words.mT[row]).sum(-1).log()
        whole = torch.where(self._row == PADDING, 0.0, log_words).sum(-1)
        log_prob = whole - self._log_kept
        # Padding is no word, and the chain has no number for it.
        as_padding = ((row == PADDING) == (self._row == PADDING)).all(-1)
        return torch.where(as_padding, log_prob, -torch.inf)

    def log_prob(self, value: Tensor) -> Tensor:
        """As :meth:`log_prob_hidden`; a text that differs where words are kept has no mass."""
        same = ((value.long() == self._row) | ~self._fixed).all(-1)
        return torch.where(same, self.log_prob_hidden(value, ~self._fixed), -torch.inf)

    def _word(self, state: Tensor, after: Tensor) -> Tensor:
        """A word given its class and the next word's."""
        vocabulary = self._chain.words.shape[1]
        pair = state * self._chain.classes + after
        uniform = torch.rand(pair.shape, dtype=torch.float64, device=pair.device)
        place = torch.searchsorted(self._chain.ends, pair + uniform, right=True)
        return (place - pair * vocabulary).clamp(0, vocabulary - 1)


def _messages(row: Tensor, fixed: Tensor, chain: ClassChain) -> tuple[list[Tensor], Tensor]:
    """`p(kept words from t on | c_t = c)` up to a factor, `(…, C)` for each t; and log p(w_S)."""
    steps = chain.steps
    after = chain.words.new_ones((*row.shape[:-1], chain.classes))
    scale = chain.words.new_zeros(row.shape[:-1])
    messages = []
    for t in reversed(range(row.shape[-1])):
        word, is_fixed = row[..., t], fixed[..., t].unsqueeze(-1)
        is_word = (word != PADDING).unsqueeze(-1)
        # A kept word is of its own class, and cuts the chain; padding has none.
        following = (chain.to_class[word] * after).sum(-1, keepdim=True)
        from_kept = torch.where(is_word, chain.words.mT[word], 1.0) * following
        after = torch.where(is_fixed, from_kept, after @ steps.mT)
        most = after.amax(-1, keepdim=True).clamp(min=torch.finfo(after.dtype).tiny)
        after, scale = after / most, scale + most.squeeze(-1).log()
        messages.append(after)
    messages.reverse()
    return messages, scale + (chain.to_class[0] * messages[0]).sum(-1).log()


def _categorical(weights: Tensor, shape: torch.Size) -> Tensor:
    """Places drawn by their weights, `(…, C)` broadcast to `shape`."""
    # Where a product rounds up to the total, the last place would be passed.
    return drawn_places(weights.cumsum(-1), shape).clamp(max=weights.shape[-1] - 1)


PAIRS_AT_ONCE = 2**22  # Numbers of one step's classes of pairs that are worked on at once: 32 MiB

MOST_ENTRIES = 2**24  # C² V, the numbers of a table of pairs of classes: 128 MiB


class PaddingImputer(Imputer):
    """Every hidden word is read as padding: `x̃ = (w, z)`, rows of 2T numbers.

    The T word numbers stay, and behind them stands how much of each is kept, which networks of
    texts multiply the words' vectors with (`WordEmbedding`), with a gradient in z. Hard masks make
    of it what `ConstantImputer(0.0)` does, whose T numbers any model of texts can read.

    Example:
        >>> imputer = PaddingImputer()
        >>> imputer(torch.tensor([[7.0, 4.0, 0.0]]), torch.tensor([1.0, 0.0, 0.5])).sample()
        tensor([[7.0000, 4.0000, 0.0000, 1.0000, 0.0000, 0.5000]])
    """

    puts_a_constant: ClassVar[bool] = True

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """A Delta at padding, event shape `(T,)`."""
        return dist.Delta(x.new_zeros(x.shape[1:]), event_dim=1)

    def forward(self, x: Tensor, keep: Tensor) -> Imputed:
        """The rows `(B, T)` with what is kept of each word, batch shape `(…, B)` and event shape
        `(2T,)`."""
        self._check_input(x, keep)
        shaped("x", x, "B T", note="of word numbers")
        keep = keep.to(x.dtype).expand(torch.Size(broadcast_shape(keep.shape, x.shape)))
        rows = torch.cat([x, torch.ones_like(x)], -1)
        mask = torch.cat([torch.ones_like(keep), keep], -1)
        return Imputed(rows, mask, dist.Delta(torch.zeros_like(rows[0]), event_dim=1))


class WordImputer(Imputer):
    """Hidden words drawn from a law of words, given the kept ones, by hard masks without a
    gradient."""

    def __init__(self) -> None:
        super().__init__()
        self._made: tuple[list[tuple[Tensor, int]], ClassChain] | None = None

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """Number of word numbers, V."""

    @abstractmethod
    def make_chain(self) -> ClassChain:
        """The law with its table."""

    def chain(self) -> ClassChain:
        """The law with its table, which is made once for the tensors that it is of."""
        now = [(buffer, buffer._version) for buffer in self.buffers()]
        if self._made is None or any(
            old is not new or before != after
            for (old, before), (new, after) in zip(self._made[0], now, strict=True)
        ):
            self._made = (now, self.make_chain())
        return self._made[1]

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """The words of texts given those that are kept."""
        return HiddenWords(x, keep == 1, self.chain())

    def forward(self, x: Tensor, keep: Tensor) -> Imputed:
        """The imputed texts of word numbers `(B, T)`, batch shape `(…, B)` and event shape
        `(T,)`."""
        hard = self._hard_mask(x, keep, "a drawn word", "PaddingImputer()")
        if is_validation_enabled():
            check_words(x, self.vocabulary_size)
        return Imputed(x, hard, self.hidden_distribution(x, hard))


def check_texts(x: Tensor, vocabulary_size: int) -> None:
    """Refuse what are no training texts."""
    int_at_least("vocabulary_size", vocabulary_size, 2)
    shaped("x", x, "N T", note="of word numbers")
    if not x.is_floating_point():
        raise ValueError(f"x must be floating word numbers; it is {x.dtype}")
    check_words(x, vocabulary_size)
    if not bool((x != PADDING).any()):
        raise ValueError("x must have words; it has padding only")


def check_probabilities(name: str, rows: Tensor, of_words: bool = False) -> None:
    """Refuse rows that are no probabilities, of words `(…, V)` those that give padding any."""
    off = float((rows.double().sum(-1) - 1.0).abs().max())
    if bool((rows < 0).any()) or off > 1e-4:
        raise ValueError(
            f"{name} must have probabilities that sum to 1 in each row; they are off by {off:.3g}, "
            f"and the least is {float(rows.min()):.3g}"
        )
    if of_words and bool(rows[..., PADDING].any()):
        raise ValueError(f"{name} must give padding, number 0, the probability 0")


class UnigramImputer(WordImputer):
    """Hidden words are independent draws by their frequency, `x̃_t ~ p(w)`; padding is never a
    word.

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
        (size,) = shaped("frequency", self.frequency, "V")
        int_at_least("the size of frequency, V,", size, 2)
        if loaded:
            check_probabilities("frequency", self.frequency, of_words=True)

    @property
    def vocabulary_size(self) -> int:
        """Number of word numbers, V."""
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
        """
        check_texts(x, vocabulary_size)
        count = x.long().flatten().bincount(minlength=vocabulary_size).double()
        count = count + finite_float("smoothing", smoothing, least=0.0)
        count[PADDING] = 0.0
        return cls((count / count.sum()).float())


class BigramImputer(WordImputer):
    """Hidden words given the kept ones beside them: `x̃_H ~ p(w_H | w_S)` exactly, where

        p(w) = Π_t p(w_t | w_{t−1}),    p(w' | w) = Σ_{c=1}^C p(c | w) p(w' | c).

    The law of neighbouring words has rank C (an aggregate Markov model), so that V words need a
    table of C² V numbers; with as many classes as words it is that of a table of bigrams.

    Args:
        to_class: `p(c | w)`, `(V, C)`; row 0 is of a text's first word.
        words: `p(w | c)`, `(C, V)`, 0 for padding, word 0.

    Raises:
        ValueError: other shapes, rows that are no probabilities, C² V above 2^24; from a call,
            masks that carry a gradient and, where Pyro validates, as in the first step of a fit,
            masks other than 0 and 1 and numbers of no word.

    Source: Saul & Pereira, "Aggregate and mixed-order Markov models for statistical language
    processing", EMNLP 1997.

    Example:
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
        classes, vocabulary = shaped("words", self.words, "C V", filled=True)
        shaped("to_class", self.to_class, (vocabulary, classes))
        _check_table(classes, vocabulary)
        if all(loaded):
            check_probabilities("to_class", self.to_class)
            check_probabilities("words", self.words, of_words=True)

    @property
    def vocabulary_size(self) -> int:
        """Number of word numbers, V."""
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


Pairs = tuple[Tensor, Tensor, Tensor]
"""Different pairs of neighbouring words, the first number 0 before a text's first word, and how
often they stand: each `(P,)`."""


def word_pairs(x: Tensor, vocabulary_size: int) -> Pairs:
    """The different pairs of neighbouring words of texts `(N, T)`, and their counts."""
    words = x.long()
    before = torch.cat([torch.zeros_like(words[:, :1]), words[:, :-1]], 1)
    code = (before * vocabulary_size + words)[words != PADDING]
    code, count = code.unique(return_counts=True)
    return code // vocabulary_size, code % vocabulary_size, count.double()


def fitted_chain(
    pairs: Pairs, vocabulary_size: int, classes: int, steps: int, smoothing: float, seed: int
) -> tuple[Tensor, Tensor]:
    """`p(c | w)` `(V, C)` and `p(w | c)` `(C, V)` by EM, float32; `smoothing` is in counts."""
    _, after, count = pairs
    device = count.device
    generator = torch.Generator().manual_seed(seed)
    frequency = torch.ones(vocabulary_size, dtype=torch.float64, device=device)
    frequency = frequency.index_add(0, after, count)
    frequency[PADDING] = 0.0
    frequency = frequency / frequency.sum()

    def start(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64).to(device) + 0.5

    to_class = _shares(start(vocabulary_size, classes))
    words = _shares(start(classes, vocabulary_size) * frequency)
    for _ in range(steps if classes > 1 else 1):
        of_before = torch.full_like(to_class, smoothing / classes)
        of_after = torch.zeros_like(to_class) + smoothing * frequency.unsqueeze(-1)
        size = max(1, PAIRS_AT_ONCE // classes)
        for first, second, number in zip(*(numbers.split(size) for numbers in pairs), strict=True):
            share = to_class[first] * words.mT[second]
            share = share * (number / share.sum(-1)).unsqueeze(-1)
            of_before.index_add_(0, first, share)
            of_after.index_add_(0, second, share)
        to_class, words = _shares(of_before), _shares(of_after.mT)
    return to_class.float(), words.float()


def _shares(weights: Tensor) -> Tensor:
    """Weights over their sum, row by row."""
    return weights / weights.sum(-1, keepdim=True)
