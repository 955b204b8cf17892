"""Words as vectors, and how much of each is kept."""

from __future__ import annotations

from typing import ClassVar

import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.configured import Configured

PADDING = 0


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
        seed: of the initial vectors, which leaves the global random state as it is; None draws them
            from torch's default generator.

    Raises:
        ValueError: a number below 1 (a vocabulary of fewer than two numbers); from a call, rows of
            another length; where Pyro validates, as in the first step of a fit, numbers of no word.

    Example:
        >>> embed = WordEmbedding(10, length=3, width=2, seed=0)
        >>> half = embed(torch.tensor([[4.0, 7.0, 0.0, 0.5, 0.0, 1.0]]))
        >>> whole = embed(torch.tensor([[4.0, 7.0, 0.0]]))
        >>> bool((half[0, 0] == whole[0, 0] / 2).all()), half[0, 1:].tolist()
        (True, [[0.0, 0.0], [0.0, 0.0]])
    """

    not_described: ClassVar[frozenset[str]] = frozenset({"seed"})

    def __init__(
        self, vocabulary_size: int, length: int, width: int, seed: int | None = None
    ) -> None:
        super().__init__()
        self.vocabulary_size = int_at_least("vocabulary_size", vocabulary_size, 2)
        self.length = int_at_least("length", length)
        self.width = int_at_least("width", width)
        with torch.random.fork_rng(enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
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


def check_words(words: Tensor, vocabulary_size: int) -> None:
    """Refuse what are no word numbers.

    Raises:
        ValueError: numbers that are not whole, or not of the vocabulary.

    Example:
        >>> check_words(torch.tensor([[12.0]]), 10)
        Traceback (most recent call last):
        ...
        ValueError: texts are rows of word numbers, whole and from 0 to 9; there is 12
    """
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
