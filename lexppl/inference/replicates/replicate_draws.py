"""Draws that differ between replicates."""

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.func import vmap
from torch.overrides import TorchFunctionMode


def _normal(like: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return torch.randn_like(like) * std + mean


def _uniform(like: Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> Tensor:
    return torch.rand_like(like) * (high - low) + low


def _exponential(like: Tensor, rate: float = 1.0, **_: Any) -> Tensor:
    return -torch.log1p(-torch.rand_like(like)) / rate


def _cauchy(like: Tensor, median: float = 0.0, sigma: float = 1.0, **_: Any) -> Tensor:
    return median + sigma * torch.tan(torch.pi * (torch.rand_like(like) - 0.5))


class OutOfPlaceDraws(TorchFunctionMode):
    """Replace in-place draws such as `torch.empty(shape).normal_()` by draws of a new tensor.

    `torch.func.vmap` cannot fill a tensor that all replicates share with draws that differ, and
    torch's own distributions (Normal, Exponential, Cauchy, …) draw so. Inside this context the
    result of the call holds the draws; the tensor it was called on is left as it is.

    Attributes:
        met: whether there was such a draw.

    Example:
        >>> with OutOfPlaceDraws() as inside:
        ...     draws = torch.func.vmap(
        ...         lambda _: torch.empty(2).normal_(), randomness="different"
        ...     )(torch.zeros(3))
        >>> draws.shape, bool((draws[0] != draws[1]).all()), inside.met
        (torch.Size([3, 2]), True, True)
    """

    met = False

    _DRAWS: ClassVar[Mapping[Any, Callable[..., Tensor]]] = MappingProxyType(
        {
            torch.Tensor.normal_: _normal,
            torch.Tensor.uniform_: _uniform,
            torch.Tensor.exponential_: _exponential,
            torch.Tensor.cauchy_: _cauchy,
        }
    )

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        drawn = self._DRAWS.get(func)
        self.met = self.met or drawn is not None
        return (drawn or func)(*args, **(kwargs or {}))


class ReplicateDraws:
    """`torch.func.vmap` over replicates, with draws that differ, in place or not.

    To look for draws in place is to look at every call of torch, which costs a tenth of a small
    fit. So it is looked for once for each of the programs that are run, and again from where one
    shows itself later.

    Example:
        >>> draws = ReplicateDraws()
        >>> made = draws.run("a", lambda x: x + torch.empty(2).normal_(), (0,), (torch.zeros(3),))
        >>> bool((made[0] != made[1]).all())
        True
    """

    def __init__(self) -> None:
        self._in_place: dict[Hashable, bool] = {}

    def seen(self, which: Hashable) -> bool | None:
        """Whether a program was seen to draw in place; None where it was not looked for yet."""
        return self._in_place.get(which)

    def take_as_seen(self, which: Hashable, in_place: bool) -> None:
        """Go on from what was seen in another process."""
        self._in_place[which] = in_place

    def run(
        self,
        which: Hashable,
        one: Callable[..., Tensor],
        over: tuple[int | None, ...],
        given: tuple[Any, ...],
    ) -> Tensor:
        """Of each replicate what the function makes of it, `(R, …)`.

        Args:
            which: the same for calls that run the same program.
            one: of one replicate.
            over: for each argument its dimension of replicates, or None for one that they share.
            given: the arguments.
        """
        vectorised = vmap(one, in_dims=over, randomness="different")
        if not self._in_place.get(which, True):
            try:
                without: Tensor = vectorised(*given)
                return without
            except RuntimeError as error:
                if "inplace randomness" not in str(error):
                    raise
        with OutOfPlaceDraws() as draws:
            made: Tensor = vectorised(*given)
        self._in_place[which] = draws.met or which in self._in_place
        return made
