"""The exact k-subset law: independent Bernoullis given the number that are on."""

import math
from itertools import combinations
from typing import Any

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints, register_kl

ENUMERATION_LIMIT = 2**20
_FLOOR = -1e30


class KHot(constraints.Constraint):
    """Vectors of zeros and ones with exactly ``k`` ones."""

    is_discrete = True
    event_dim = 1

    def __init__(self, k: int | Tensor) -> None:
        self.k = k
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        binary = ((value == 0) | (value == 1)).all(-1)
        return binary & (value.sum(-1) == self.k)


class KSubset(TorchDistribution):
    arg_constraints = {"logits": constraints.real_vector, "k": constraints.dependent}
    has_rsample = False
    has_enumerate_support = True

    def __init__(
        self,
        logits: Tensor,
        k: int | Tensor,
        validate_args: bool | None = None,
        *,
        max_k: int | None = None,
    ) -> None:
        if logits.dim() < 1:
            raise ValueError("logits must have at least one dimension (G,); they have none")
        size = logits.shape[-1]
        batch_shape = logits.shape[:-1]
        if isinstance(k, Tensor):
            if k.is_floating_point() or k.is_complex() or k.dtype == torch.bool:
                raise TypeError(f"k must be an int or an integer tensor; its dtype is {k.dtype}")
            batch_shape = torch.broadcast_shapes(batch_shape, k.shape)
            self._max_k = size if max_k is None else max_k
        else:
            if not 1 <= k <= size:
                raise ValueError(f"k must lie between 1 and G = {size}, the mask's size; it is {k}")
            self._max_k = k
        self.logits = logits.expand(*batch_shape, size)
        self.k = k.expand(batch_shape) if isinstance(k, Tensor) else k
        self._shared = self
        self._cache: dict[str, Any] = {}
        super().__init__(batch_shape, torch.Size((size,)), validate_args=validate_args)
        if self._validate_args and isinstance(k, Tensor) and not bool(
            ((k >= 1) & (k <= self._max_k)).all()
        ):
            raise ValueError(f"k must lie between 1 and {self._max_k} in every row")

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> KHot:
        return KHot(self.k)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "KSubset":
        new = self._get_checked_instance(KSubset, _instance)
        batch_shape = torch.Size(batch_shape)
        new.logits = self.logits.expand(*batch_shape, *self.event_shape)
        new.k = self.k.expand(batch_shape) if isinstance(self.k, Tensor) else self.k
        new._max_k = self._max_k
        new._shared = self._shared
        new._cache = {}
        super(KSubset, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _table(self) -> list[Tensor]:
        """R[i][..., j] = log e_j(w_i, ..., w_G)."""
        law = self._shared
        grad = torch.is_grad_enabled() and law.logits.requires_grad
        cached = law._cache.get("table")
        if cached is not None and (cached[0] or not grad):
            return cached[1]
        logits = law.logits
        last = logits.new_full((*logits.shape[:-1], law._max_k + 1), _FLOOR)
        last = torch.cat([torch.zeros_like(last[..., :1]), last[..., 1:]], -1)
        floor = torch.full_like(last[..., :1], _FLOOR)
        table = [last]
        for i in range(logits.shape[-1] - 1, -1, -1):
            taken = logits[..., i, None] + torch.cat([floor, table[-1][..., :-1]], -1)
            table.append(torch.logaddexp(table[-1], taken))
        table.reverse()
        law._cache["table"] = (grad, table)
        return table

    def _at_k(self, x: Tensor) -> Tensor:
        law = self._shared
        if isinstance(law.k, Tensor):
            return x.gather(-1, law.k[..., None])[..., 0]
        return x[..., law.k]

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return (self._shared.logits * value).sum(-1) - self._at_k(self._table()[0])

    def _chain(self) -> tuple[Tensor, Tensor]:
        law = self._shared
        table = self._table()
        start = torch.zeros_like(table[0])
        if isinstance(law.k, Tensor):
            left = start.scatter(-1, law.k[..., None], 1.0)
        else:
            left = torch.cat(
                [start[..., : law.k], torch.ones_like(start[..., :1]), start[..., law.k + 1 :]], -1
            )
        zero = torch.zeros_like(left[..., :1])
        means = []
        entropy: Tensor | float = 0.0
        for i in range(law.event_shape[0]):
            rest = table[i + 1]
            logit = law.logits[..., i, None]
            log_on = (logit + rest[..., :-1] - table[i][..., 1:]).clamp(max=0)
            log_off = (rest - table[i]).clamp(min=-1e30, max=0)
            on = torch.cat([zero, log_on.exp()], -1)
            off = log_off.exp()
            h = torch.cat([zero, on[..., 1:] * log_on], -1) + off * log_off
            entropy = entropy - (left * h).sum(-1)
            taken = left * on
            means.append(taken.sum(-1))
            left = left * off + torch.cat([taken[..., 1:], zero], -1)
        return torch.stack(means, -1), torch.as_tensor(entropy)

    @property
    def mean(self) -> Tensor:
        return self._chain()[0].expand(self.batch_shape + self.event_shape)

    @property
    def variance(self) -> Tensor:
        mean = self.mean
        return mean * (1 - mean)

    def entropy(self) -> Tensor:
        return self._chain()[1].expand(self.batch_shape)

    @property
    def mode(self) -> Tensor:
        rank = self.logits.argsort(-1, descending=True).argsort(-1)
        k = self.k[..., None] if isinstance(self.k, Tensor) else self.k
        return (rank < k).to(self.logits.dtype)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        law = self._shared
        with torch.no_grad():
            table = self._table()
            shape = self._extended_shape(sample_shape)
            left = torch.as_tensor(law.k, device=self.logits.device).expand(shape[:-1])
            uniform = torch.rand(shape, dtype=self.logits.dtype, device=self.logits.device)
            draws = []
            for i in range(shape[-1]):
                log_on = law.logits[..., i, None] + table[i + 1] - table[i].roll(-1, -1)
                log_on = log_on.expand(*shape[:-1], log_on.shape[-1])
                p = log_on.gather(-1, (left - 1).clamp(min=0)[..., None])[..., 0].exp()
                on = (uniform[..., i] < p) & (left > 0)
                left = left - on.to(left.dtype)
                draws.append(on)
            return torch.stack(draws, -1).to(self.logits.dtype)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        size = self.event_shape[0]
        if isinstance(self.k, Tensor):
            k = int(self.k.flatten()[0])
            if bool((self.k != k).any()):
                raise NotImplementedError("enumerate_support needs the same k in every row")
        else:
            k = self.k
        count = math.comb(size, k)
        if count > ENUMERATION_LIMIT:
            raise ValueError(
                f"KSubset has C({size}, {k}) = {count} masks, more than {ENUMERATION_LIMIT}, the "
                "most that enumerate_support lists"
            )
        chosen = torch.tensor(list(combinations(range(size), k)), device=self.logits.device)
        masks = self.logits.new_zeros(count, size).scatter_(-1, chosen, 1.0)
        masks = masks.reshape(count, *(1,) * len(self.batch_shape), size)
        return masks.expand(count, *self.batch_shape, size) if expand else masks


@register_kl(KSubset, KSubset)
def _kl_k_subset(p: KSubset, q: KSubset) -> Tensor:
    difference = (p.logits - q.logits) * p.mean
    return difference.sum(-1) - p._at_k(p._table()[0]) + q._at_k(q._table()[0])



