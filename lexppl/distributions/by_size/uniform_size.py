"""Masks of any size, all sizes alike."""

from collections.abc import Sequence

import torch

from lexppl.argument_checks import int_at_least
from lexppl.distributions.by_size.exchangeable_masks import ExchangeableMasks


class UniformSize(ExchangeableMasks):
    r"""Masks of G entries whose size is uniform on 0, …, G:

    .. math:: p(z) = \frac{1}{(G + 1) \tbinom{G}{|z|}} = \int_0^1 u^{|z|} (1 - u)^{G - |z|} \, du ,

    that is entries kept independently with a rate u that is itself uniform. What is to predict
    from any set of features learns from these.

    Args:
        entries: G ≥ 1.
        batch_shape: of the distribution.
        dtype, device: of the masks.
        validate_args: as in every torch distribution.

    Raises:
        ValueError: fewer than one entry.

    Source: Jethani, Sudarshan, Covert, Lee and Ranganath (2022), "FastSHAP: real-time Shapley value
    estimation", ICLR: the masks of its surrogate.

    Example:
        >>> UniformSize(2).log_prob(torch.tensor([[0.0, 0], [1.0, 0], [1.0, 1]])).exp()
        tensor([0.3333, 0.1667, 0.3333])
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
        size = int_at_least("entries", entries)
        super().__init__(
            [1.0] * (size + 1),
            batch_shape,
            dtype=dtype,
            device=device,
            validate_args=validate_args,
        )
