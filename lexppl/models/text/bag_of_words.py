"""A predictor that reads the kept words and not their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.models.networks import MLP
from lexppl.models.text.embedding import WordEmbedding


class BagOfWords(Configured, nn.Module):
    r"""The mean vector of kept words, and a perceptron: `(N, T)` or `(N, 2T)` to `(N, outputs)`.

        f(Σ_t z_t e(w_t) / max(1, Σ_t z_t))

    L2X's predictor of reviews, which cannot tell where words stand, nor which were hidden between
    them.

    Args:
        vocabulary_size, length: V and T, as :class:`WordEmbedding`.
        outputs: size of the last layer.
        embedding: width of a word's vector.
        hidden: widths of the perceptron.
        seed: of the initial weights; None draws them from torch's default generator.

    Source: Chen, Song, Wainwright and Jordan (2018), "Learning to explain", ICML, § 4.2; L2X
    divides by k.

    Example:
        >>> import torch
        >>> network = BagOfWords(10, 3, 2, seed=0)
        >>> rows = torch.tensor([[4.0, 7.0, 0.0], [7.0, 4.0, 0.0]])
        >>> bool((network(rows)[0] - network(rows)[1]).abs().max() < 1e-6)
        True
    """

    not_described: ClassVar[frozenset[str]] = frozenset({"seed"})

    def __init__(
        self,
        vocabulary_size: int,
        length: int,
        outputs: int,
        embedding: int = 50,
        hidden: Sequence[int] = (250,),
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.words = WordEmbedding(vocabulary_size, length, embedding, seed)
        self.network = MLP(embedding, outputs, hidden, seed=seed)
        self.vocabulary_size, self.length = self.words.vocabulary_size, self.words.length
        self.embedding, self.hidden = self.words.width, self.network.hidden
        self.outputs = self.network.outputs

    def forward(self, x: Tensor) -> Tensor:
        _, keep = self.words.read(x)
        mean = self.words(x).sum(-2) / keep.sum(-1, keepdim=True).clamp(min=1.0)
        outputs: Tensor = self.network(mean)
        return outputs
