"""The hidden words of a text given the kept ones, by a chain of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor

from lexppl.models.imputers.imputer import HiddenFeatures

PADDING = 0
"""The word number that stands behind the words of a text."""


def check_words(words: Tensor, vocabulary_size: int) -> None:
    """Refuse what are no word numbers."""
    wrong = words[(words != words.round()) | (words < 0) | (words >= vocabulary_size)]
    if wrong.numel():
        first = float(wrong[0])
        mend = (
            ""
            if first.is_integer()
            else ". A word has no half: hide words by PaddingImputer(), or by a law of words"
        )
        raise ValueError(
            f"texts are rows of word numbers, whole and from 0 to {vocabulary_size - 1}; there is "
            f"{first:g}{mend}"
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
    own. A text's length is no secret: padding is never a word, and no word padding."""

    def __init__(self, x: Tensor, kept: Tensor, chain: ClassChain) -> None:
        shape = torch.Size(broadcast_shape(x.shape, kept.shape))
        self._chain = chain
        self._row = x.detach().expand(shape).long()
        self._fixed = kept.expand(shape) | (self._row == PADDING)
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
        each = (self._chain.to_class[before] * self._chain.words.mT[row]).sum(-1).log()
        whole = torch.where(self._row == PADDING, 0.0, each).sum(-1)
        log_prob = whole - self._log_kept
        # Padding is no word, and the chain has no number for it.
        as_padding = ((row == PADDING) == (self._row == PADDING)).all(-1)
        return torch.where(as_padding, log_prob, -torch.inf)

    def log_prob(self, value: Tensor) -> Tensor:
        """As :meth:`log_prob_hidden`; a text that differs where words are kept has no mass."""
        same = ((value.long() == self._row) | ~self._fixed).all(-1)
        log_prob = self.log_prob_hidden(value, ~self._fixed)
        return torch.where(same, log_prob, -torch.inf)

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
        there = (word != PADDING).unsqueeze(-1)
        # A kept word is of its own class, and cuts the chain; padding has none.
        following = (chain.to_class[word] * after).sum(-1, keepdim=True)
        own = torch.where(there, chain.words.mT[word], 1.0) * following
        after = torch.where(is_fixed, own, after @ steps.mT)
        most = after.amax(-1, keepdim=True).clamp(min=torch.finfo(after.dtype).tiny)
        after, scale = after / most, scale + most.squeeze(-1).log()
        messages.append(after)
    messages.reverse()
    return messages, scale + (chain.to_class[0] * messages[0]).sum(-1).log()


def _categorical(weights: Tensor, shape: torch.Size) -> Tensor:
    """Places drawn by their weights, `(…, C)` broadcast to `shape`."""
    ends = weights.cumsum(-1)
    uniform = torch.rand(shape, dtype=weights.dtype, device=weights.device).unsqueeze(-1)
    # Where a product rounds up to the total, the last place would be passed.
    place = (uniform * ends[..., -1:] >= ends).sum(-1)
    return place.clamp(max=weights.shape[-1] - 1)
