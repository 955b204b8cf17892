"""What a mask law can draw: all of its masks, and its family's uniform member."""

from functools import singledispatch
from math import comb
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor

from lexppl.distributions.k_subset import KSubset

DEFAULT_LIMIT = 2**16


@singledispatch
def mask_support(law: Any, limit: int = DEFAULT_LIMIT) -> Tensor:
    r"""All masks that a law can draw, of shape ``(M,) + (1,) * len(batch_shape) + (G,)``."""
    try:
        masks = law.enumerate_support(expand=False)
    except (AttributeError, NotImplementedError) as error:
        raise ValueError(
            f"{type(law).__name__} cannot list its masks; register a function for it with "
            f"@mask_support.register ({error})"
        ) from None
    _refuse_too_many(law, len(masks), limit)
    return masks


@mask_support.register
def _(law: KSubset, limit: int = DEFAULT_LIMIT) -> Tensor:
    if isinstance(law.k, int):
        _refuse_too_many(law, comb(law.event_shape[0], law.k), limit)
    masks = law.enumerate_support(expand=False)
    _refuse_too_many(law, len(masks), limit)
    return masks


@mask_support.register
def _(law: dist.Independent, limit: int = DEFAULT_LIMIT) -> Tensor:
    base = _bernoulli_base(law, "mask_support")
    size = law.event_shape[0]
    _refuse_too_many(law, 2**size, limit)
    probs = base.mean
    code = torch.arange(2**size, device=probs.device)
    bits = (code[:, None] >> torch.arange(size, device=probs.device)) & 1
    return bits.to(probs.dtype).reshape(-1, *(1,) * len(law.batch_shape), size)


@singledispatch
def uniform_masks(law: Any) -> Any:
    """The uniform law of the same family, batch shape and size as ``law``."""
    raise TypeError(
        f"no uniform member is known for {type(law).__name__}; register one with "
        "@uniform_masks.register"
    )


@uniform_masks.register
def _(law: KSubset) -> KSubset:
    logits = torch.zeros_like(law._rows.logits)
    max_k = law.max_k if isinstance(law.k, Tensor) else None
    uniform = KSubset(logits, law._rows.k, validate_args=False, max_k=max_k)
    return uniform.expand(law.batch_shape)


@uniform_masks.register
def _(law: dist.Independent) -> dist.Independent:
    base = _bernoulli_base(law, "uniform_masks")
    logits = torch.zeros_like(base.mean)
    return dist.Bernoulli(logits=logits, validate_args=False).to_event(1)


def _bernoulli_base(law: dist.Independent, function: str) -> Any:
    base = law.base_dist
    if not isinstance(base, torch.distributions.Bernoulli) or len(law.event_shape) != 1:
        raise TypeError(
            f"{function} knows Bernoulli(...).to_event(1) among independent laws; it was given "
            f"{type(base).__name__} with event shape {tuple(law.event_shape)}"
        )
    return base


def _refuse_too_many(law: Any, count: int, limit: int) -> None:
    if count > limit:
        raise ValueError(
            f"{type(law).__name__} with G = {law.event_shape[-1]} has {count} masks, more than "
            f"limit = {limit}; use a sampling estimator or raise the limit"
        )
