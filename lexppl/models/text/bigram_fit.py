"""The law of neighbouring words, fitted to texts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lexppl.models.text.embedding import PADDING

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
