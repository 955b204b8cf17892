"""The exact k-subset distribution: independent Bernoullis given the number that are on."""

import math
from typing import Any, ClassVar

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor
from torch.distributions import constraints, register_kl
from torch.nn.functional import logsigmoid, softplus

from lexppl.distributions.computed_once import ComputedOnce, computed_once
from lexppl.distributions.counts import (
    count_tables,
    draw,
    log_count_probability,
    products,
    tilt,
)
from lexppl.distributions.masks import (
    KHot,
    MaskDistribution,
    Vectors,
    all_k_hot,
    checked_k,
    checked_logits,
    largest_entries,
)


class KSubset(MaskDistribution):
    r"""Masks of G entries of which exactly k are on: the conditional Bernoulli distribution.

    Independent Bernoullis with the given logits, conditioned on their sum:

    .. math:: p(z) = \exp(\textstyle\sum_i z_i \, \mathrm{logit}_i) \,/\, e_k(\exp \mathrm{logits}),
              \qquad \textstyle\sum_i z_i = k,

    with the elementary symmetric polynomial :math:`e_k` (the sum over all masks of k ones of the
    product of their weights). Also known as conditional Poisson sampling. ``log_prob``, ``mean``
    (the inclusion probabilities E[z]), ``variance`` and ``entropy`` are exact and differentiable
    any number of times; ``sample`` is exact, too.

    Shapes: ``logits`` is ``(*batch, G)``, ``k`` an int or an integer tensor that broadcasts with
    ``batch`` (k may differ by row); the batch shape is what both broadcast to, the event shape
    ``(G,)``. What depends on the logits alone is computed once, when it is first needed, and
    shared with every distribution that ``expand`` makes of this one: under a plate of L masks over
    B rows nothing is computed L times.

    Cost: log2 G rounds of products in place of G sequential steps (``counts``), which draws share
    (``count_sampling``). At G = 1568, k = 157 and 64 rows in float32, on one core: ``log_prob``
    forward and backward about 20 ms, with the draw 40 ms (``benchmarks/k_subset.py``).

    Args:
        logits: log-odds of each entry's weight, finite. A constant added to a row changes nothing.
        k: how many entries are on, 1 ≤ k ≤ G. An int is always checked, a tensor only where
            arguments are validated (a look at its data would make the device wait).
        validate_args: as in every torch distribution.
        max_k: for a tensor k, a bound that is known beforehand; it saves work. By default G.

    Raises:
        ValueError: k < 1 or k > G; logits without a dimension, or not finite (when validated).
        TypeError: k is not an integer.

    References:
        Chen and Liu (1997), "Statistical applications of the Poisson-binomial and conditional
        Bernoulli distributions", Statistica Sinica 7. Ahmed, Zeng, Niepert and Van den Broeck
        (2023), "SIMPLE: a gradient estimator for k-subset sampling", ICLR.

    Example:
        >>> distribution = KSubset(torch.tensor([0.0, 0.0, 1.0, -1.0]), k=2)
        >>> distribution.sample().sum().item()
        2.0
        >>> distribution.mean
        tensor([0.5000, 0.5000, 0.7876, 0.2124])
        >>> KSubset(torch.zeros(3, 4), k=torch.tensor([1, 2, 4])).entropy().exp()
        tensor([4.0000, 6.0000, 1.0000])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "logits": Vectors(constraints.real),
        "k": constraints.dependent,
    }

    def __init__(
        self,
        logits: Tensor,
        k: int | Tensor,
        validate_args: bool | None = None,
        *,
        max_k: int | None = None,
    ) -> None:
        size = checked_logits(logits)
        k, max_k = _checked_k(k, size, max_k)
        batch_shape = logits.shape[:-1]
        if isinstance(k, Tensor):
            batch_shape = torch.Size(broadcast_shape(batch_shape, k.shape))
            k = k.expand(batch_shape)
        self._rows = _Rows(logits.expand(*batch_shape, size), k, max_k)
        super().__init__(batch_shape, torch.Size((size,)), validate_args=validate_args)
        self._refuse_infinite("logits")
        if (
            self._validate_args
            and isinstance(k, Tensor)
            and not bool(((k >= 1) & (k <= max_k)).all())
        ):
            raise ValueError(
                f"k must lie between 1 and {max_k} in every row; it runs from {int(k.min())} to "
                f"{int(k.max())}"
            )

    @property
    def logits(self) -> Tensor:
        """The logits, ``(*batch, G)``."""
        return self._rows.logits.expand(self._batch_shape + self._event_shape)

    @property
    def k(self) -> int | Tensor:
        """The number of entries that are on: an int, or a tensor of the batch's shape."""
        k = self._rows.k
        return k.expand(self._batch_shape) if isinstance(k, Tensor) else k

    @property
    def max_k(self) -> int:
        """The largest k that any row may have."""
        return self._rows.max_k

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> KHot:
        return KHot(self.k)

    def uniform(self) -> "KSubset":
        """The distribution with the same k and shapes under which all masks are alike."""
        rows = self._rows
        max_k = rows.max_k if isinstance(rows.k, Tensor) else None
        distribution = KSubset(
            torch.zeros_like(rows.logits), rows.k, validate_args=False, max_k=max_k
        )
        return distribution.expand(self._batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), of shape ``sample_shape + batch_shape``.

        Without validation a value that has not k ones gets the formula's value, as elsewhere in
        torch: Σ value · logits − log e_k.
        """
        if self._validate_args:
            self._validate_sample(value)
        rows = self._rows
        theta, likely, constant = rows.log_prob_parts()
        # Relative to each entry's likelier value the terms are small, where Σ z·logits and log e_k
        # may be large and differ by little. The second term is 0 on the support.
        score = ((rows.logits + theta.unsqueeze(-1)) * (value - likely)).sum(-1)
        result = score - theta * (value.sum(-1) - rows.k) + constant
        batch = self._batch_shape
        if result.shape[result.dim() - len(batch) :] != batch:
            # Plates expand a distribution; a value of fewer rows has a density in each of them.
            result = result.expand(torch.Size(broadcast_shape(result.shape, batch)))
        return result

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Exact draws, of shape ``sample_shape + batch_shape + (G,)`` and the logits' dtype."""
        shape = self._extended_shape(sample_shape)
        own = self._rows.logits.dim() - 1
        lead, batch = shape[: len(shape) - 1 - own], shape[len(shape) - 1 - own : -1]
        masks = self._rows.draw(math.prod(lead), batch)
        return masks.reshape(shape)

    @property
    def mean(self) -> Tensor:
        """Inclusion probabilities E[z], ``(*batch, G)``; they add up to k."""
        return self._rows.marginals()[0].expand(self._batch_shape + self._event_shape)

    @property
    def variance(self) -> Tensor:
        """E[z] (1 − E[z]), ``(*batch, G)``."""
        on, off = self._rows.marginals()[:2]
        return (on * off).expand(self._batch_shape + self._event_shape)

    @property
    def mode(self) -> Tensor:
        """The k entries of largest logit, ``(*batch, G)``; among equals the first."""
        return largest_entries(self.logits, self.k)

    def entropy(self) -> Tensor:
        """−E[log p(z)] in nats, of the batch's shape."""
        return self._rows.entropy().expand(self._batch_shape)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All C(G, k) masks, ``(C(G, k), *batch, G)``; ``batch`` all ones for ``expand=False``.

        Raises:
            NotImplementedError: k differs by row.
            ValueError: there are more than 2^20 masks.
        """
        size = self._event_shape[0]
        k = self._rows.k
        if isinstance(k, Tensor):
            first = int(k.flatten()[0])
            if bool((k != first).any()):
                raise NotImplementedError(
                    "enumerate_support needs the same k in every row; k differs by row"
                )
            k = first
        return self._listed(all_k_hot("KSubset", size, k, like=self._rows.logits), expand)


class _Rows(ComputedOnce):
    """The rows of a distribution before any expansion, with what has been computed of them so
    far."""

    def __init__(self, logits: Tensor, k: int | Tensor, max_k: int) -> None:
        super().__init__()
        self.logits = logits
        self.k = k
        self.max_k = max_k

    @computed_once
    def _tilted(self) -> tuple[Tensor, Tensor]:
        """The tilt θ and the tilted logits, both constants."""
        logits = self.logits.detach()
        theta = tilt(logits, self.k)
        return theta, logits + theta.unsqueeze(-1)

    def _weights(self) -> tuple[Tensor, Tensor]:
        """Weights 1 − p_i and p_i of off and on. Only the second varies with the logits."""
        tilted = self._tilted()[1]
        return (-tilted).sigmoid(), tilted.sigmoid() * self._shift().exp()

    def _shift(self) -> Tensor:
        """0, with the derivative of the logits."""
        return self.logits - self.logits.detach()

    @computed_once
    def products(self) -> list[Tensor]:
        """What both draws and log P(S = k) are made of."""
        return products(*self._weights(), self.max_k)

    @computed_once
    def _tables(self) -> list[Tensor]:
        return count_tables(self.products(), self.max_k)

    def draw(self, number: int, batch_shape: torch.Size) -> Tensor:
        return draw(self._tables(), self.logits, self.k, number, batch_shape)

    @computed_once
    def log_count(self) -> Tensor:
        """log P(S = k) under the tilted weights, (*batch)."""
        return log_count_probability(self.products()[-1], self.logits.shape[-1], self.k)

    @computed_once
    def log_prob_parts(self) -> tuple[Tensor, Tensor, Tensor]:
        theta, tilted = self._tilted()
        likely = (tilted > 0).to(tilted.dtype)
        at_likely = (likely * self._shift() - softplus(-tilted.abs())).sum(-1)
        return theta, likely, at_likely - self.log_count()

    @computed_once
    def marginals(self) -> tuple[Tensor, Tensor, Tensor]:
        """P(z_i = 1), P(z_i = 0) and log P(S = k) under the tilt.

        P(S = k) is linear in each entry's two weights, so its derivative by the logarithm of one
        of them is the probability of that value given S = k: a sum of products, no difference.
        """

        def log_count(off: Tensor, on: Tensor) -> Tensor:
            last = products(off, on, self.max_k)[-1]
            return log_count_probability(last, off.shape[-1], self.k)

        off, on = self._weights()
        value, pull_back, *_ = torch.func.vjp(log_count, off, on)
        by_off, by_on = pull_back(torch.ones_like(value))
        return on * by_on, off * by_off, value

    def log_weights(self) -> tuple[Tensor, Tensor]:
        """Logarithms of on and off, finite where the weights themselves underflow."""
        tilted = self._tilted()[1]
        return logsigmoid(tilted) + self._shift(), logsigmoid(-tilted)

    @computed_once
    def entropy(self) -> Tensor:
        """log P(S = k) − Σ_i E[log weight of z_i]: small terms, where log e_k may be large."""
        on, off, log_count = self.marginals()
        log_on, log_off = self.log_weights()
        return log_count - (on * log_on + off * log_off).sum(-1)


def _checked_k(k: int | Tensor, size: int, max_k: int | None) -> tuple[int | Tensor, int]:
    if isinstance(k, Tensor):
        if k.is_floating_point() or k.is_complex() or k.dtype == torch.bool:
            raise TypeError(f"k must be an int or an integer tensor; its dtype is {k.dtype}")
        if max_k is not None and not 1 <= max_k <= size:
            raise ValueError(f"max_k must lie between 1 and G = {size}; it is {max_k}")
        return k.long(), size if max_k is None else max_k
    k = checked_k(k, size)
    if max_k is not None:
        raise ValueError("max_k is for a tensor k; with an int k leave it out")
    return k, k


@register_kl(KSubset, KSubset)
def _kl_k_subset(p: KSubset, q: KSubset) -> Tensor:
    """E_p[log p(z)] − E_p[log q(z)], exact, from p's marginals; infinite where k differs."""
    on, off, _ = p._rows.marginals()
    log_on, log_off = q._rows.log_weights()
    score = (on * log_on + off * log_off).sum(-1) - q._rows.log_count()
    divergence = -p._rows.entropy() - score
    divergence = divergence.expand(torch.Size(broadcast_shape(p.batch_shape, q.batch_shape)))
    same = torch.as_tensor(p.k == q.k, device=divergence.device)
    return torch.where(same, divergence, torch.full_like(divergence, math.inf))
