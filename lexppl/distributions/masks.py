"""Base of the distributions of masks: their constraints, lists of all masks, checks of k."""

import math
import operator
from itertools import combinations

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor
from torch.distributions import Bernoulli, Independent, constraints

from lexppl.argument_checks import refuse_not_finite
from lexppl.distributions.computed_once import SharedRows

ENUMERATION_LIMIT = 2**20


class Vectors(constraints.independent):
    """`torch.distributions.constraints.independent` of vectors, which also checks batches without
    rows.

    Example:
        >>> import torch
        >>> Vectors(constraints.real).check(torch.zeros(0, 3)).shape
        torch.Size([0])
        >>> Vectors(constraints.boolean).check(torch.tensor([[0.0, 1.0], [0.0, 2.0]]))
        tensor([ True, False])
    """

    def __init__(self, numbers: constraints.Constraint) -> None:
        super().__init__(numbers, 1)

    def check(self, value: Tensor) -> Tensor:
        return self.base_constraint.check(value).all(-1)


class KHot(constraints.Constraint):
    """Vectors of zeros and ones with exactly ``k`` ones; k an int or a tensor of batch shape."""

    is_discrete = True
    event_dim = 1

    def __init__(self, k: int | Tensor) -> None:
        self.k = k
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        binary = ((value == 0) | (value == 1)).all(-1)
        return binary & (value.sum(-1) == self.k)


def all_k_hot(distribution: str, size: int, k: int, like: Tensor) -> Tensor:
    """All C(G, k) masks ``(C(G, k), G)``, at most 2^20, of type and device of ``like``."""
    count = math.comb(size, k)
    refuse_long_list(count, f"{distribution} with G = {size}, k = {k} has {count} masks")
    chosen = torch.tensor(list(combinations(range(size), k)), device=like.device)
    masks = torch.zeros(count, size, dtype=like.dtype, device=like.device)
    return masks.scatter(-1, chosen, 1.0)


def all_of_sizes(distribution: str, allowed: Tensor, like: Tensor) -> Tensor:
    """All masks ``(M, G)`` whose size is allowed, by ``(G + 1,)`` booleans; 2^G at most 2^20.

    Example:
        >>> all_of_sizes("Some", torch.tensor([True, False, True]), torch.zeros(1)).tolist()
        [[0.0, 0.0], [1.0, 1.0]]
    """
    entries = len(allowed) - 1
    refuse_long_list(2**entries, f"{distribution} with G = {entries} has about 2^{entries} masks")
    bits = all_bits(entries, like.device)
    return bits[allowed[bits.sum(-1)]].to(like.dtype)


def all_bits(entries: int, device: torch.device) -> Tensor:
    """All 2^G masks ``(2^G, G)`` as integers."""
    code = torch.arange(2**entries, device=device).unsqueeze(-1)
    return (code >> torch.arange(entries, device=device)) & 1


def refuse_long_list(count: int, what: str) -> None:
    """Refuse to list more draws than ``ENUMERATION_LIMIT``."""
    if count > ENUMERATION_LIMIT:
        raise ValueError(
            f"{what}, more than {ENUMERATION_LIMIT}, the most that enumerate_support lists; draw "
            "samples instead"
        )


def bernoulli_base(distribution: Independent, function: str) -> Bernoulli:
    """The Bernoulli distribution under ``Bernoulli(...).to_event(1)``; others are refused."""
    base = distribution.base_dist
    if not isinstance(base, Bernoulli) or len(distribution.event_shape) != 1:
        raise TypeError(
            f"{function} knows Bernoulli(...).to_event(1) among independent distributions, and not "
            f"{type(base).__name__} with event shape {tuple(distribution.event_shape)}; use "
            "Bernoulli masks, or an estimator that needs none of it, such as LeaveOneOut"
        )
    return base


def largest_entries(logits: Tensor, k: int | Tensor) -> Tensor:
    """The mask of the k largest logits of each row, among equals the first: ``(*batch, G)``."""
    rank = logits.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    size = k.unsqueeze(-1) if isinstance(k, Tensor) else k
    return (rank < size).to(logits.dtype)


def checked_logits(logits: Tensor) -> int:
    """G, the size of the last dimension of ``logits``."""
    if logits.dim() < 1:
        raise ValueError("logits must have a last dimension of G mask entries; they have none")
    return logits.shape[-1]


def checked_k(k: object, size: int) -> int:
    """k as an int between 1 and G."""
    try:
        number = operator.index(k)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"k must be an int; it is a {type(k).__name__}") from None
    if not 1 <= number <= size:
        raise ValueError(f"k must lie between 1 and G = {size}, the number of entries; it is {k}")
    return number


class MaskDistribution(SharedRows):
    """Base of distributions of masks, whose arguments named as `finite` must be so where arguments
    are validated."""

    has_rsample = False
    has_enumerate_support = True

    def __init__(
        self,
        batch_shape: torch.Size,
        event_shape: torch.Size,
        validate_args: bool | None,
        *finite: str,
    ) -> None:
        super().__init__(batch_shape, event_shape, validate_args)
        for name in finite if self._validate_args else ():
            refuse_not_finite(name, getattr(self, name))

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), ``sample_shape + batch_shape``."""
        if self._validate_args:
            self._validate_sample(value)
        result, batch = self._log_prob(value), self._batch_shape
        if result.shape[result.dim() - len(batch) :] != batch:
            # Plates expand a distribution; a value of fewer rows has a density in each of them.
            result = result.expand(torch.Size(broadcast_shape(result.shape, batch)))
        return result

    def _log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def variance(self) -> Tensor:
        """E[z] (1 − E[z]), ``(*batch, G)``."""
        return self.mean * (1.0 - self.mean)

    def __repr__(self) -> str:
        k = getattr(self, "k", None)
        size = "" if k is None else f", k: {tuple(k.shape) if isinstance(k, Tensor) else k}"
        shape = (*self._batch_shape, *self._event_shape)
        return f"{type(self).__name__}({shape}{size})"

    def _listed(self, draws: Tensor, expand: bool) -> Tensor:
        """Draws `(M, …)` beside the batch's dimensions, `(M, *batch, …)`."""
        draws = draws.reshape(len(draws), *(1,) * len(self._batch_shape), draws.shape[-1])
        return draws.expand(-1, *self._batch_shape, -1) if expand else draws
