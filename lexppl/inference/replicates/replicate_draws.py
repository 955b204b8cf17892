"""Draws that differ between replicates."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor
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
    """Replace in-place draws such as `torch.empty(shape).normal_()` by draws of a new tensor, as
    `torch.func.vmap` cannot fill a shared tensor with draws that differ."""

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
        return self._DRAWS.get(func, func)(*args, **(kwargs or {}))
