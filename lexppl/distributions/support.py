"""All masks that a distribution can draw, and its family's uniform member."""

from functools import singledispatch
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Independent, constraints

from lexppl.argument_checks import shaped
from lexppl.distributions.masks import KHot, all_bits, bernoulli_base
from lexppl.distributions.random_size import AllowedSizes
from lexppl.distributions.top_k import OrderedTopK

DEFAULT_LIMIT = 2**16


@singledispatch
def mask_support(distribution: Any, limit: int = DEFAULT_LIMIT) -> Tensor:
    """All masks that a distribution can draw, ``(M,) + (1,) * len(batch_shape) + (G,)``.

    The 2^G of ``Bernoulli(...).to_event(1)``, else ``enumerate_support(expand=False)``. Register a
    function for a distribution of your own by ``@mask_support.register``.

    Args:
        distribution: a distribution of masks of G zeros and ones.
        limit: the largest M that is listed.

    Raises:
        ValueError: the distribution has more than ``limit`` masks, or cannot list them.
        TypeError: an independent distribution of other than Bernoullis.

    Example:
        >>> from lexppl.distributions import KSubset
        >>> mask_support(KSubset(torch.zeros(8, 3), k=2)).shape
        torch.Size([3, 1, 3])
    """
    try:
        masks = distribution.enumerate_support(expand=False)
    except (AttributeError, NotImplementedError) as error:
        raise ValueError(
            f"{type(distribution).__name__} cannot list its masks "
            f"({str(error) or 'no enumerate_support'}); register a function that lists them with "
            "@mask_support.register, or use an estimator that draws masks"
        ) from None
    _refuse_too_many(distribution, len(masks), limit)
    return masks


@mask_support.register
def _(distribution: OrderedTopK, limit: int = DEFAULT_LIMIT) -> Tensor:
    raise ValueError("OrderedTopK draws ordered indices, not masks; use TopKMask")


@mask_support.register
def _(distribution: Independent, limit: int = DEFAULT_LIMIT) -> Tensor:
    probabilities = bernoulli_base(distribution, "mask_support").mean
    size = distribution.event_shape[0]
    _refuse_too_many(distribution, 2**size, limit)
    # Their number is known without a look at a tensor, as it must be on other devices.
    masks = all_bits(size, probabilities.device).to(probabilities.dtype)
    return masks.reshape(-1, *(1,) * len(distribution.batch_shape), size)


def draws_zeros_and_ones(distribution: Any) -> bool:
    """Whether every draw is of zeros and ones, by the distribution's support."""
    try:
        support = distribution.support
    except NotImplementedError:
        return False
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support is constraints.boolean or isinstance(support, KHot | AllowedSizes)


def lists_labels(distribution: Any) -> bool:
    """Whether a distribution is of labels; a count of trials is a response, as each row may have a
    number of trials of its own."""
    base = distribution
    while hasattr(base, "base_dist"):
        base = base.base_dist
    return bool(distribution.has_enumerate_support) and not hasattr(base, "total_count")


def distribution_targets(distribution: Any) -> Tensor:
    """Probabilities of a distribution of labels, `(…, C)`, or another distribution's mean,
    `(…)`."""
    if not lists_labels(distribution):
        return distribution.mean
    labels = distribution.enumerate_support(expand=False)
    return torch.as_tensor(distribution.log_prob(labels)).exp().movedim(0, -1)


def unlike_labels(y: Tensor, classes: int) -> Tensor:
    """Which values `(N,)` are none of the labels 0 … C−1, `(N,)`."""
    return (y < 0) | (y >= classes) | (y != y.long())


def refuse_labels(y: Tensor, classes: int) -> None:
    """Refuse y that is neither labels 0 … C−1, `(N,)`, nor probabilities of them, `(N, C)`.

    >>> refuse_labels(torch.tensor([0, 3, 1]), 3)
    Traceback (most recent call last):
    ValueError: labels must be 0 … 2 for classes=3; y has 3 in row 1
    """
    column = y.dim() == 2 and y.shape[1] == 1
    note = f"labels, or their probabilities for classes={classes}{': give y[:, 0]' * column}"
    if len(shaped("y", y, "N", ("N", classes), note=note)) == 2:
        return
    rows = unlike_labels(y, classes).nonzero()[:, 0].tolist()
    if rows:
        value = float(y[rows[0]])
        more = f", and {len(rows) - 1} more rows have others" if len(rows) > 1 else ""
        soft = "" if value.is_integer() else f"; probabilities of labels are y (N, {classes})"
        raise ValueError(
            f"labels must be 0 … {classes - 1} for classes={classes}; y has {value:g} in row "
            f"{rows[0]}{more}{soft}"
        )


@singledispatch
def uniform_masks(distribution: Any) -> Any:
    """The distribution of the same family, batch shape, size and k under which all masks are alike.

    Bernoulli(½) for independent Bernoullis and ``ChainMask``; zero logits and the same k for
    ``KSubset``, ``TopKMask`` and ``OrderedTopK``; all masks of sizes that can be for
    ``RandomSizeSubset``. Register your own by ``@uniform_masks.register``.

    Raises:
        TypeError: none is registered for the distribution.

    Example:
        >>> from lexppl.distributions import KSubset
        >>> uniform_masks(KSubset(torch.tensor([3.0, -1.0, 0.0]), k=1)).mean
        tensor([0.3333, 0.3333, 0.3333])
    """
    if hasattr(distribution, "uniform"):
        return distribution.uniform()
    raise TypeError(
        f"the uniform distribution of the family of {type(distribution).__name__} is not known; "
        "register a function that makes it with @uniform_masks.register"
    )


@uniform_masks.register
def _(distribution: Independent) -> Independent:
    logits = torch.zeros_like(bernoulli_base(distribution, "uniform_masks").mean)
    return dist.Bernoulli(logits=logits, validate_args=False).to_event(1)


def _refuse_too_many(distribution: Any, count: int, limit: int) -> None:
    if count > limit:
        raise ValueError(
            f"{type(distribution).__name__} with G = {distribution.event_shape[-1]} has {count} "
            f"masks, more than limit = {limit}; use an estimator that draws masks, or raise the "
            "limit"
        )
