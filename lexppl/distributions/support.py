"""What a mask law can draw: all of its masks, and its family's uniform member."""

import math
from functools import singledispatch
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Independent

from lexppl.distributions.k_subset.law import KSubset
from lexppl.distributions.top_k import OrderedTopK, TopKMask

DEFAULT_LIMIT = 2**16


@singledispatch
def mask_support(law: Any, limit: int = DEFAULT_LIMIT) -> Tensor:
    """All masks that a law can draw, ``(M,) + (1,) * len(batch_shape) + (G,)``.

    For independent Bernoullis (``Bernoulli(...).to_event(1)``) the 2^G, for ``KSubset`` and
    ``TopKMask`` the C(G, k), for any other law what its ``enumerate_support(expand=False)`` lists.
    Register a function for a law of your own by ``@mask_support.register``.

    Args:
        law: a law of masks of G zeros and ones.
        limit: the largest M that is listed.

    Raises:
        ValueError: the law has more than ``limit`` masks, or cannot list them.
        TypeError: an independent law of other than Bernoullis.

    Example:
        >>> mask_support(KSubset(torch.zeros(8, 3), k=2)).shape
        torch.Size([3, 1, 3])
    """
    try:
        masks = law.enumerate_support(expand=False)
    except (AttributeError, NotImplementedError) as error:
        raise ValueError(
            f"{type(law).__name__} cannot list its masks ({error or 'no enumerate_support'}); "
            "register a function that lists them with @mask_support.register, or use an estimator "
            "that draws masks"
        ) from None
    _refuse_too_many(law, len(masks), limit)
    return masks


@mask_support.register
def _(law: KSubset, limit: int = DEFAULT_LIMIT) -> Tensor:
    k = law.k
    if isinstance(k, Tensor):
        if bool((k != k.flatten()[0]).any()):
            raise ValueError(
                "KSubset cannot list its masks where k differs by row; use an estimator that "
                "draws masks"
            )
        k = int(k.flatten()[0])
    _refuse_too_many(law, math.comb(law.event_shape[0], k), limit)
    return law.enumerate_support(expand=False)


@mask_support.register
def _(law: TopKMask, limit: int = DEFAULT_LIMIT) -> Tensor:
    _refuse_too_many(law, math.comb(law.event_shape[0], law.k), limit)
    return law.enumerate_support(expand=False)


@mask_support.register
def _(law: OrderedTopK, limit: int = DEFAULT_LIMIT) -> Tensor:
    raise ValueError(
        "OrderedTopK draws ordered indices, not masks; use TopKMask, whose draws are their masks"
    )


@mask_support.register
def _(law: Independent, limit: int = DEFAULT_LIMIT) -> Tensor:
    probabilities = _bernoulli(law, "mask_support").mean
    size = law.event_shape[0]
    _refuse_too_many(law, 2**size, limit)
    code = torch.arange(2**size, device=probabilities.device)
    bits = (code.unsqueeze(-1) >> torch.arange(size, device=probabilities.device)) & 1
    return bits.to(probabilities.dtype).reshape(-1, *(1,) * len(law.batch_shape), size)


@singledispatch
def uniform_masks(law: Any) -> Any:
    """The law of the same family, batch shape, size and k under which all masks are alike.

    Bernoulli(½) for independent Bernoullis; zero logits and the same k for ``KSubset``,
    ``TopKMask`` and ``OrderedTopK``. Register a function for a law of your own by
    ``@uniform_masks.register``.

    Raises:
        TypeError: none is registered for the law.

    Example:
        >>> uniform_masks(KSubset(torch.tensor([3.0, -1.0, 0.0]), k=1)).mean
        tensor([0.3333, 0.3333, 0.3333])
    """
    raise TypeError(
        f"the uniform law of the family of {type(law).__name__} is not known; register a function "
        "that makes it with @uniform_masks.register"
    )


@uniform_masks.register
def _(law: KSubset) -> KSubset:
    return law.uniform()


@uniform_masks.register
def _(law: TopKMask) -> TopKMask:
    return TopKMask(torch.zeros_like(law.logits), law.k, validate_args=False)


@uniform_masks.register
def _(law: OrderedTopK) -> OrderedTopK:
    return OrderedTopK(torch.zeros_like(law.logits), law.k, validate_args=False)


@uniform_masks.register
def _(law: Independent) -> Independent:
    logits = torch.zeros_like(_bernoulli(law, "uniform_masks").mean)
    return dist.Bernoulli(logits=logits, validate_args=False).to_event(1)


def _bernoulli(law: Independent, function: str) -> Bernoulli:
    base = law.base_dist
    if not isinstance(base, Bernoulli) or len(law.event_shape) != 1:
        raise TypeError(
            f"{function} knows Bernoulli(...).to_event(1) among independent laws; it was given "
            f"{type(base).__name__} with event shape {tuple(law.event_shape)}"
        )
    return base


def _refuse_too_many(law: Any, count: int, limit: int) -> None:
    if count > limit:
        raise ValueError(
            f"{type(law).__name__} with G = {law.event_shape[-1]} has {count} masks, more than "
            f"limit = {limit}; use an estimator that draws masks, or raise the limit"
        )
