"""Sampling k of G entries without replacement: Plackett–Luce, ordered and as a mask."""

import math
from itertools import combinations, permutations
from typing import Any, ClassVar, Self

import pyro.distributions as dist
import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor
from torch.distributions import constraints

from lexppl.distributions.log_space import LOG_ZERO, gumbel, log_add, log_cumulative_sum
from lexppl.distributions.masks import (
    KHot,
    MaskDistribution,
    Vectors,
    all_k_hot,
    checked_k,
    checked_logits,
    largest_entries,
    refuse_long_list,
)


class DistinctIndices(constraints.Constraint):
    """Vectors of distinct integers from 0 to ``size`` − 1."""

    is_discrete = True
    event_dim = 1

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        inside = ((value >= 0) & (value < self.size) & (value % 1 == 0)).all(-1)
        ordered = value.sort(-1).values
        return inside & (ordered[..., 1:] != ordered[..., :-1]).all(-1)


class _WithoutReplacement(MaskDistribution):
    """Base of both: logits, an int k, and Gumbel keys."""

    arg_constraints: ClassVar[dict[str, Any]] = {"logits": Vectors(constraints.real)}
    expanded = ("logits",)

    logits: Tensor
    k: int
    ordered_draws: ClassVar[bool]

    def __init__(self, logits: Tensor, k: int, validate_args: bool | None = None) -> None:
        size = checked_logits(logits)
        self.k = checked_k(k, size)
        self.logits = logits
        event = torch.Size((self.k if self.ordered_draws else size,))
        super().__init__(logits.shape[:-1], event, validate_args, "logits")

    def uniform(self) -> Self:
        """The distribution of the same shapes and k under which all draws are alike."""
        return type(self)(torch.zeros_like(self.logits), self.k, validate_args=False)

    @torch.no_grad()
    def _order(self, sample_shape: Any) -> Tensor:
        shape = torch.Size(sample_shape) + self.logits.shape
        return (self.logits + gumbel(shape, self.logits)).topk(self.k, -1).indices


class OrderedTopK(_WithoutReplacement):
    r"""k of G entries in the order in which they are drawn without replacement (Plackett–Luce).

    .. math:: p(i_1, \dots, i_k) = \prod_{j=1}^k
              \frac{\exp \mathrm{logit}_{i_j}}{\sum_{m \notin \{i_1, \dots, i_{j-1}\}} \exp
              \mathrm{logit}_m}.

    A draw is the indices ``(…, k)`` of the k largest of ``logits`` plus Gumbel noise, in falling
    order; ``mask`` turns it into zeros and ones ``(…, G)``. ``TopKMask`` has the mask as its value.

    Args:
        logits: log-weights, finite, ``(*batch, G)``; constants cancel.
        k: how many entries are drawn, 1 ≤ k ≤ G.
        validate_args: as in every torch distribution.

    Raises:
        ValueError: k < 1 or k > G; logits without a dimension, or not finite (when validated).
        TypeError: k is not an int.

    References:
        Plackett (1975), "The analysis of permutations", Applied Statistics 24. Kool, van Hoof and
        Welling (2019), "Stochastic beams and where to find them", ICML.

    Example:
        >>> distribution = OrderedTopK(torch.tensor([0.0, 0.0, 0.0, 0.0]), k=2)
        >>> distribution.log_prob(torch.tensor([3, 1])).exp()
        tensor(0.0833)
    """

    ordered_draws = True

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> DistinctIndices:
        return DistinctIndices(self.logits.shape[-1])

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Indices in the order of the draw, ``sample_shape + batch_shape + (k,)``."""
        return self._order(sample_shape)

    def mask(self, value: Tensor) -> Tensor:
        """The k-hot mask of ordered indices: ``(…, k) → (…, G)``."""
        like = self.logits
        size = (*value.shape[:-1], like.shape[-1])
        return torch.zeros(size, dtype=like.dtype, device=like.device).scatter(-1, value, 1.0)

    def _log_prob(self, value: Tensor) -> Tensor:
        chosen, remaining = log_weights_of_picks(self.logits, value)
        return (chosen - remaining).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All G! / (G − k)! ordered draws, ``(G!/(G−k)!, *batch, k)``; at most 2^20."""
        size = self.logits.shape[-1]
        count = math.perm(size, self.k)
        refuse_long_list(
            count, f"OrderedTopK with G = {size}, k = {self.k} has {count} ordered draws"
        )
        draws = torch.tensor(list(permutations(range(size), self.k)), device=self.logits.device)
        return self._listed(draws, expand)


class TopKMask(_WithoutReplacement):
    r"""The k-hot mask of k entries drawn without replacement, whatever their order.

    With D(T) the total weight of what is not in T, and T ranging over subsets of the mask,

    .. math:: p(z) = h(z) \prod_{i: z_i = 1} e^{\mathrm{logit}_i}, \qquad
              h(T) = \sum_{i \in T} h(T \setminus i) / D(T \setminus i), \quad h(\emptyset) = 1,

    2^k terms instead of k!, in log space and in memory. Another distribution than ``KSubset`` with
    the same logits.

    Args:
        logits, validate_args: as in :class:`OrderedTopK`.
        k: how many entries are on, 1 ≤ k ≤ G; ``log_prob`` needs k ≤ 8.

    Raises:
        ValueError, TypeError: as :class:`OrderedTopK`; from ``log_prob``, k > 8.

    Example:
        >>> distribution = TopKMask(torch.tensor([0.0, 0.0, 0.0, 0.0]), k=2)
        >>> distribution.log_prob(torch.tensor([0.0, 1.0, 0.0, 1.0])).exp()
        tensor(0.1667)
    """

    MAX_K = 8
    ordered_draws = False

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> KHot:
        return KHot(self.k)

    @property
    def ordered(self) -> OrderedTopK:
        """The distribution of the ordered draw behind the mask, for any k."""
        return OrderedTopK(self.logits, self.k, validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Masks, ``sample_shape + batch_shape + (G,)`` of the logits' dtype."""
        return self.ordered.mask(self._order(sample_shape))

    @property
    def mode(self) -> Tensor:
        """The k entries of largest logit, ``(*batch, G)``: the likeliest mask."""
        return largest_entries(self.logits, self.k)

    def _log_prob(self, value: Tensor) -> Tensor:
        if self.k > self.MAX_K:
            raise ValueError(
                f"TopKMask.log_prob sums over the orders of at most {self.MAX_K} entries; k is "
                f"{self.k}. Use OrderedTopK, whose log_prob is that of the ordered draw, or KSubset"
            )
        chosen, outside = _chosen_and_outside(self.logits, value.topk(self.k, -1).indices)
        return chosen.sum(-1) + _log_sum_over_orders(chosen, outside)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All C(G, k) masks, ``(C(G, k), *batch, G)``; at most 2^20."""
        masks = all_k_hot("TopKMask", self.logits.shape[-1], self.k, like=self.logits)
        return self._listed(masks, expand)


class TopEntries(dist.Delta):
    """The k entries of largest logit, with probability one (L2X, Chen et al. 2018, § 4); k an int,
    or a tensor by row."""

    def __init__(self, logits: Tensor, k: int | Tensor, validate_args: bool | None = None) -> None:
        size = checked_logits(logits)
        self.k = k if isinstance(k, Tensor) else checked_k(k, size)
        self.logits = logits
        super().__init__(largest_entries(logits, self.k), event_dim=1, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> dist.Delta:
        """A Delta at the mask."""
        return dist.Delta(self.v, event_dim=1).expand(batch_shape)


def log_weights_of_picks(logits: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """The logit of each pick of ``order`` (…, k), and the log-sum of all still to choose from."""
    chosen, outside = _chosen_and_outside(logits, order)
    backwards = torch.cat([outside.unsqueeze(-1), chosen.flip(-1)], -1)
    return chosen, log_cumulative_sum(backwards)[..., 1:].flip(-1)


def _chosen_and_outside(logits: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """The logits (…, k) of the indices ``order``, and the log-sum (…) of all the others."""
    batch = torch.Size(broadcast_shape(logits.shape[:-1], order.shape[:-1]))
    logits = logits.expand(*batch, logits.shape[-1])
    order = order.expand(*batch, order.shape[-1])
    if order.shape[-1] == logits.shape[-1]:
        nothing = torch.full(batch, LOG_ZERO, dtype=logits.dtype, device=logits.device)
        return logits.gather(-1, order), nothing
    taken = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, True)
    return logits.gather(-1, order), logits.masked_fill(taken, LOG_ZERO).logsumexp(-1)


def _log_sum_over_orders(chosen: Tensor, outside: Tensor) -> Tensor:
    """log h of the whole set (``TopKMask``) for logits ``(…, k)`` and their complement's (…)."""
    k = chosen.shape[-1]
    # At index Σ_{i in U} 2^i: the log-weight of the outside together with U. D(T) is that of the
    # complement, whose index counts from the end.
    together = outside.unsqueeze(-1)
    for i in range(k):
        together = torch.cat([together, log_add(together, chosen[..., i : i + 1])], -1)
    log_d = together.flip(-1)
    log_h = torch.zeros_like(outside).unsqueeze(-1)
    subsets = [0]
    for number in range(1, k + 1):
        ratio = log_h - log_d[..., subsets]
        place = {subset: position for position, subset in enumerate(subsets)}
        members = list(combinations(range(k), number))
        subsets = [sum(1 << i for i in subset) for subset in members]
        without = [
            [place[code ^ (1 << i)] for i in subset]
            for code, subset in zip(subsets, members, strict=True)
        ]
        log_h = ratio[..., torch.tensor(without, device=chosen.device)].logsumexp(-1)
    return log_h.squeeze(-1)
