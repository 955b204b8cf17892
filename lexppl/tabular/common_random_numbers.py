"""The same random numbers for all rows under vmap, also where a distribution's parameters are the
row's."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

GAMMA_TRIES = 24
"""Proposals for a gamma draw; each is refused with probability below 0.05."""


class CommonRandomNumbers(TorchFunctionMode):
    """Draw from a row's distribution by numbers that are not the row's.

    `torch.func.vmap(…, randomness="same")` gives all rows the same numbers, but refuses samplers
    whose parameters differ by row. Here these draw numbers of a fixed distribution first, and then
    carry them to the row's: Bernoulli and categorical by the inverse distribution function, normal
    by location and scale, gamma by the first accepted of 24 proposals (Marsaglia and Tsang 2000).

    Example:
        >>> def draw(p):
        ...     with CommonRandomNumbers():
        ...         return torch.bernoulli(p.expand(5))
        >>> drawn = torch.func.vmap(draw, randomness="same")(torch.tensor([0.3, 0.3]))
        >>> torch.equal(drawn[0], drawn[1])
        True
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _samplers().get(func, func)(*args, **(kwargs or {}))


def _samplers() -> Mapping[Any, Callable[..., Tensor]]:
    return MappingProxyType(
        {
            torch.bernoulli: _bernoulli,
            torch.multinomial: _multinomial,
            torch.normal: _normal,
            torch._standard_gamma: standard_gamma,
        }
    )


def _uniform(like: Tensor, *shape: int) -> Tensor:
    return torch.rand(shape, dtype=like.dtype, device=like.device)


def _bernoulli(p: Tensor) -> Tensor:
    return (_uniform(p, *p.shape) < p).to(p.dtype)


def _multinomial(p: Tensor, count: int, replacement: bool = False, **_: Any) -> Tensor:
    if count > 1 and not replacement:
        raise NotImplementedError("draws without replacement have no common random numbers")
    reached = p.cumsum(-1)
    level = _uniform(p, *p.shape[:-1], count) * reached[..., -1:]
    passed = reached[..., None, :-1] <= level[..., None]
    return passed.sum(-1)


def _normal(mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Tensor:
    if size is not None:
        return torch.randn(size, **options) * std + mean
    like = mean if isinstance(mean, Tensor) else std
    shape = torch.broadcast_shapes(*(v.shape for v in (mean, std) if isinstance(v, Tensor)))
    return mean + std * torch.randn(shape, dtype=like.dtype, device=like.device)


def standard_gamma(alpha: Tensor, tries: int = GAMMA_TRIES) -> Tensor:
    """Draws of Gamma(α, 1) by numbers whose distribution does not depend on α.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> bool((standard_gamma(torch.full((1000,), 0.5)).mean() - 0.5).abs() < 0.1)
        True
    """
    raised = torch.where(alpha < 1.0, alpha + 1.0, alpha)
    d = raised - 1.0 / 3.0
    z = torch.randn((tries, *alpha.shape), dtype=alpha.dtype, device=alpha.device)
    u = _uniform(alpha, tries, *alpha.shape)
    v = (1.0 + z / (9.0 * d).sqrt()) ** 3
    bound = 0.5 * z.square() + d - d * v + d * v.clamp(min=torch.finfo(v.dtype).tiny).log()
    accepted = (v > 0.0) & (u.log() < bound)
    # The first accepted one: the earlier, the larger.
    order = torch.arange(tries, 0, -1, device=alpha.device).reshape(-1, *[1] * alpha.dim())
    first = (accepted * order).argmax(0, keepdim=True)
    drawn = d * v.gather(0, first).squeeze(0)
    less = _uniform(alpha, *alpha.shape) ** (1.0 / alpha)
    return torch.where(alpha < 1.0, drawn * less, drawn)
