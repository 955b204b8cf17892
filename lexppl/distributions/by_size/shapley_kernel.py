"""The coalitions by which Shapley values are a regression."""

from collections.abc import Sequence

import torch

from lexppl.argument_checks import int_at_least
from lexppl.distributions.by_size.exchangeable_masks import ExchangeableMasks


class ShapleyKernel(ExchangeableMasks):
    r"""Coalitions of G players, neither none nor all of them, by the Shapley kernel:

    .. math:: p(S) \propto \frac{G - 1}{\tbinom{G}{|S|} \, |S| \, (G - |S|)}, \qquad
              P(|S| = s) = \frac{G}{2 H_{G-1}} \cdot \frac{1}{s (G - s)}, \quad 0 < s < G,

    with the harmonic number :math:`H_n = \sum_{i \le n} 1/i`. Least squares of a game's values
    under this distribution, with the values of no and of all players kept, has the Shapley values
    as its solution. A coalition and its complement are equally likely.

    Args:
        entries: G ≥ 2.
        batch_shape: of the distribution.
        dtype, device: of the masks.
        validate_args: as in every torch distribution.

    Raises:
        ValueError: fewer than two entries.

    References:
        Charnes, Golany, Keane and Rousseau (1988), "Extremal principle solutions of games in
        characteristic function form". Lundberg and Lee (2017), "A unified approach to interpreting
        model predictions", NeurIPS, theorem 2.

    Example:
        >>> distribution = ShapleyKernel(4)
        >>> distribution.log_prob(torch.tensor([[1.0, 0, 0, 0], [1.0, 1, 0, 0]])).exp()
        tensor([0.0909, 0.0455])
        >>> distribution.mean
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """

    def __init__(
        self,
        entries: int,
        batch_shape: Sequence[int] = (),
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        validate_args: bool | None = None,
    ) -> None:
        size = int_at_least("entries", entries, 2)
        between = [1.0 / (s * (size - s)) for s in range(1, size)]
        super().__init__(
            [0.0, *between, 0.0],
            batch_shape,
            dtype=dtype,
            device=device,
            validate_args=validate_args,
        )
