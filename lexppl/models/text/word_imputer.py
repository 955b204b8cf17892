"""Hidden words drawn from a law of words."""

from __future__ import annotations

from abc import abstractmethod

from pyro.distributions.torch_distribution import TorchDistribution
from pyro.infer.util import is_validation_enabled
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.models.imputers.imputed import Imputed
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.text.embedding import PADDING, check_words
from lexppl.models.text.hidden_words import ClassChain, HiddenWords

__all__ = ["WordImputer", "check_probabilities", "check_texts"]


class WordImputer(Imputer):
    """Hidden words are drawn from a law of words, given the kept ones.

    A word has no half, so that masks must be hard and their gradient a score's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: tuple[list[tuple[Tensor, int]], ClassChain] | None = None

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """V."""

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
        """The imputed texts, batch shape `(…, B)` and event shape `(T,)`.

        Args:
            x: word numbers, `(B, T)`.
            keep: 0 or 1, or boolean, `(…, B, T)` or broadcastable to it.

        Raises:
            ValueError: masks that carry a gradient; where Pyro validates, as in the first step of a
                fit, masks other than 0 and 1 and numbers of no word.
        """
        self._check_input(x, keep)
        if keep.requires_grad:
            raise ValueError(
                "a drawn word has no gradient in the mask, and this estimator differentiates "
                "masks: use one of the score, such as LeaveOneOut() (the default of lex), or "
                "PaddingImputer()"
            )
        kept = keep == 1
        if is_validation_enabled():
            check_words(x, self.vocabulary_size)
            if not bool((kept | (keep == 0)).all()):
                raise ValueError(
                    "a word is kept or drawn, and the mask has values between 0 and 1: use masks "
                    "that are hard, such as BernoulliSelector's, or PaddingImputer()"
                )
        return Imputed(x, kept, self.hidden_distribution(x, kept))


def check_texts(x: Tensor, vocabulary_size: int) -> None:
    """Refuse what are no training texts.

    Raises:
        ValueError: another shape, no words, numbers of no word.
    """
    int_at_least("vocabulary_size", vocabulary_size, 2)
    if x.dim() != 2 or not x.is_floating_point():
        raise ValueError(
            f"x must be texts (N, T) of word numbers, floating; it is {x.dtype} of shape "
            f"{tuple(x.shape)}"
        )
    check_words(x, vocabulary_size)
    if not bool((x != PADDING).any()):
        raise ValueError("x must have words; it has padding only")


def check_probabilities(name: str, rows: Tensor) -> None:
    """Refuse rows `(…, V)` that are no probabilities of words, or give padding any.

    Raises:
        ValueError: negative numbers, rows that do not sum to 1.
    """
    off = float((rows.double().sum(-1) - 1.0).abs().max())
    if bool((rows < 0).any()) or off > 1e-4:
        raise ValueError(
            f"{name} must have probabilities that sum to 1 in each row; they are off by {off:.3g}, "
            f"and the least is {float(rows.min()):.3g}"
        )
