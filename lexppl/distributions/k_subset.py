"""The exact k-subset distribution: independent Bernoullis given the number that are on.

With a tilt θ, p_i = σ(logit_i + θ) and E[S] ≈ k of S = Σ z_i, plain probabilities do not underflow:

    log e_k(exp logits) = −Σ log(1 − p_i) − k θ + log P(S = k).

Π_i (q_i + p_i t) is formed pair by pair in log2 G rounds; past degree 16 by characteristic
functions at as many frequencies as the spread of S needs. Draws go down the same tree, by
P(j left | c in all) ∝ P(S_left = j) P(S_right = c − j). Tensors are ``(degree + 1, *batch, n)``.
"""

import math
from typing import Any, ClassVar

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor
from torch.distributions import constraints, register_kl
from torch.nn.functional import logsigmoid, pad, softplus, threshold

from lexppl.distributions.computed_once import computed_once
from lexppl.distributions.masks import (
    KHot,
    MaskDistribution,
    Vectors,
    all_k_hot,
    checked_k,
    checked_logits,
    largest_entries,
)

SMALL = 64  # Up to so many entries polynomials alone are used; 2^-64 is well inside float32's range

_POLYNOMIAL_DEGREE = 16
# exp(-42) = 6e-19 and exp(-21) = 8e-10: below half a unit in the last place of a float64, a float32
_LOG_ALIASING, _LOG_ALIASING_SINGLE = 42.0, 21.0
_BISECTIONS, _NEWTON_STEPS = 8, 8

_FEW = 16
"""Up to so many entries in a half its counts are gone through one by one, beyond side by side."""


@torch.no_grad()
def tilt(logits: Tensor, k: int | Tensor) -> Tensor:
    """A constant θ, of the batch's shape, with Σ_i σ(logit_i + θ) ≈ k; results are exact for any θ.

    Up to ``SMALL`` entries the middle between the k-th and the next largest logit, so that P(S = k)
    ≥ 2^-G; beyond, bisection and Newton's method, a fixed number of steps.
    """
    size = logits.shape[-1]
    if size <= SMALL:
        descending = logits.sort(-1, descending=True).values
        # Below the smallest logit stands one more, so that k = G has its middle, too.
        descending = torch.cat([descending, descending[..., -1:] - 20], -1)
        middles = -(descending[..., :-1] + descending[..., 1:]) / 2
        if isinstance(k, Tensor):
            return middles.gather(-1, (k - 1).unsqueeze(-1)).squeeze(-1)
        return middles[..., k - 1]
    low = -logits.amax(-1) - math.log(2 * size)
    high = -logits.amin(-1) + math.log(2 * size)
    theta = (low + high) / 2
    for step in range(_BISECTIONS + _NEWTON_STEPS):
        on = (logits + theta.unsqueeze(-1)).sigmoid()
        excess = on.sum(-1) - k
        high = torch.where(excess > 0, theta, high)
        low = torch.where(excess > 0, low, theta)
        middle = (low + high) / 2
        if step < _BISECTIONS:
            theta = middle
        else:
            newton = theta - excess / (on - on * on).sum(-1)
            theta = torch.where((newton >= low) & (newton <= high), newton, middle)
    return theta


def multiply(a: Tensor, b: Tensor, max_degree: int) -> Tensor:
    """Products of polynomials, ``(a + 1, …) × (b + 1, …) → (min(a + b, max_degree) + 1, …)``."""
    rows, width = a.shape[0], a.shape[0] + b.shape[0] - 1
    outer = a.unsqueeze(1) * b.unsqueeze(0)
    # Rows padded to one more than the width and read at the width move right by one a row: the
    # antidiagonals, whose sums are the coefficients, become columns.
    padded = pad(outer, (0, 0) * (a.dim() - 1) + (0, rows)).flatten(0, 1)
    return padded[: rows * width].unflatten(0, (rows, width)).sum(0)[: max_degree + 1]


def frequencies(size: int, k: int | None, dtype: torch.dtype = torch.float64) -> int:
    """An odd number N of frequencies at which P(S = k) is exact in the numbers' ``dtype``; ``k =
    None``: any k.

    With N > G there is no aliasing. Otherwise Bernstein's inequality bounds what the counts k + N·j
    add, P(|S − E S| ≥ t) ≤ 2 exp(−t² / 2(V + t/3)), V ≤ k (1 − k/G), by 10^-18, in float32 by
    10^-9.
    """
    variance = size / 4 if k is None else k * (1 - k / size)
    nats = _LOG_ALIASING if dtype == torch.float64 else _LOG_ALIASING_SINGLE
    spread = nats / 3
    number = math.ceil(spread + math.sqrt(spread**2 + 2 * nats * variance)) + 1
    return min(size + 1, number) // 2 * 2 + 1


def products(off: Tensor, on: Tensor, max_k: int) -> list[Tensor]:
    """Polynomials of ever more entries, ``(degree + 1, *batch, n)``, from n = G of one entry."""
    size = off.shape[-1]
    polynomials = torch.stack([off, on])
    levels = [polynomials]
    while (n := polynomials.shape[-1]) > 1:
        if size > SMALL and polynomials.shape[0] > _POLYNOMIAL_DEGREE:
            break
        # One split, and not three slices: the gradients of slices are each padded with zeros.
        first, second, last = polynomials.split([n // 2, n // 2, n % 2], -1)
        product = multiply(first, second, max_k)
        if n % 2:
            higher = (0, product.shape[0] - last.shape[0])
            product = torch.cat([product, pad(last, (0, 0) * (last.dim() - 1) + higher)], -1)
        polynomials = product
        levels.append(polynomials)
    return levels


def log_count_probability(polynomials: Tensor, size: int, k: int | Tensor) -> Tensor:
    """log P(S = k) of ``size`` entries, ``batch``, by the last level of ``products``; the tilt must
    make k likely."""
    if polynomials.shape[-1] == 1:
        coefficients = polynomials.squeeze(-1)
        if isinstance(k, Tensor):
            return coefficients.gather(0, k.unsqueeze(0)).squeeze(0).log()
        return coefficients[k].log()
    return _probability_by_frequencies(polynomials, size, k).log()


def _probability_by_frequencies(polynomials: Tensor, size: int, k: int | Tensor) -> Tensor:
    # Real and imaginary parts apart, because compilers of tensor programs leave complex numbers.
    device, dtype = polynomials.device, polynomials.dtype
    number = frequencies(size, None if isinstance(k, Tensor) else k, dtype)
    angles = torch.arange(number, dtype=torch.float64, device=device) * (2 * math.pi / number)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    frequency = torch.arange(number // 2 + 1, device=device)
    degree = torch.arange(polynomials.shape[0], device=device)
    turns = frequency.unsqueeze(-1) * degree % number
    real = torch.tensordot(cos[turns], polynomials, 1)
    imaginary = torch.tensordot(sin[turns], polynomials, 1)
    while (n := real.shape[-1]) > 1:
        parts = [n // 2, n // 2, n % 2]
        r1, r2, rest_real = real.split(parts, -1)
        i1, i2, rest_imaginary = imaginary.split(parts, -1)
        real = torch.cat([r1 * r2 - i1 * i2, rest_real], -1)
        imaginary = torch.cat([r1 * i2 + i1 * r2, rest_imaginary], -1)
    # The spectrum of real coefficients is symmetric: each frequency but 0 stands for two.
    weight = torch.where(frequency == 0, 1.0, 2.0).to(dtype) / number
    if isinstance(k, Tensor):
        frequency = frequency.reshape(-1, *(1,) * k.dim())
        weight = weight.reshape(frequency.shape)
        turns = frequency * k % number
        spectrum = real.squeeze(-1) * cos[turns] + imaginary.squeeze(-1) * sin[turns]
        return (weight * spectrum).sum(0)
    turns = frequency * k % number
    return torch.tensordot(weight * cos[turns], real.squeeze(-1), 1) + torch.tensordot(
        weight * sin[turns], imaginary.squeeze(-1), 1
    )


@torch.no_grad()
def count_tables(levels: list[Tensor], max_k: int) -> list[Tensor]:
    """The distributions of the counts of all nodes of ``products`` but the root, ``(count + 1,
    *batch, nodes)``."""
    tables = [level.detach() for level in levels if level.shape[-1] > 1]
    if not tables or levels[-1].shape[-1] == 1:
        return tables
    # Processors are slow at numbers next to underflow. Of many entries the tilt makes the sum
    # likely, so that counts rarer than the root of the least number are in no draw.
    least = torch.finfo(tables[0].dtype).tiny ** 0.5
    tables[-1] = threshold(tables[-1], least, 0.0)
    while (n := tables[-1].shape[-1]) > 2:
        first, second, last = tables[-1].split([n // 2, n // 2, n % 2], -1)
        # Copies, because the nodes of a slice do not lie side by side.
        counts = _multiply_in_place(first.contiguous(), second.contiguous(), max_k)
        if n % 2:
            counts = torch.cat([counts, _pad_degree(last, 0, len(counts) - len(last))], -1)
        tables.append(threshold(counts, least, 0.0))
    return tables


@torch.no_grad()
def draw(
    tables: list[Tensor], weights: Tensor, k: int | Tensor, number: int, batch_shape: torch.Size
) -> Tensor:
    """``number`` draws ``(number, *batch_shape, G)`` with sum k, by ``count_tables`` and entries'
    weights ``(*batch, G)``; ``batch_shape`` may expand dimensions of size 1."""
    # Every draw has the batch of the weights, of which a function transform may hide a dimension.
    total = torch.zeros_like(weights[..., :1], dtype=torch.long)
    total = total + (k.unsqueeze(-1) if isinstance(k, Tensor) else k)
    total = total.expand(number, *batch_shape, 1)
    for counts in reversed(tables):
        n = counts.shape[-1]
        left, right = counts[..., : n // 2], counts[..., n // 2 : n // 2 * 2]
        pairs, alone = total.split([n // 2, n % 2], -1)
        divide = _divide_one_by_one if left.shape[0] <= _FEW + 1 else _divide_at_once
        first = divide(left, right, pairs)
        # Where no division is possible, by weights that underflow, the sum is right all the same.
        degree = left.shape[0] - 1
        first = torch.minimum(torch.maximum(first, pairs - degree), pairs)
        total = torch.cat([first, pairs - first, alone], -1)
    return total.to(weights.dtype)


def _divide_one_by_one(left: Tensor, right: Tensor, total: Tensor) -> Tensor:
    """Counts of the left halves, given the sums ``total``, ``(number, *batch, nodes)``."""
    degree = left.shape[0] - 1
    shape = total.shape
    # Counts below 0 and above the degree have probability 0.
    right = _pad_degree(right, degree, degree).unsqueeze(1).expand(-1, *shape)
    below = []
    reached = torch.zeros(shape, dtype=left.dtype, device=left.device)
    for share in range(degree + 1):
        rest = right.gather(0, (total - share + degree).unsqueeze(0)).squeeze(0)
        reached = torch.addcmul(reached, left[share], rest)
        below.append(reached)
    return _first_above(torch.stack(below), 0)


def _divide_at_once(left: Tensor, right: Tensor, total: Tensor) -> Tensor:
    degree = left.shape[0] - 1
    left, right = left.movedim(0, -1), right.movedim(0, -1)
    share = torch.arange(degree + 1, device=total.device)
    rest = total.unsqueeze(-1) - share
    possible = (rest >= 0) & (rest <= degree)
    right = right.expand(*total.shape, -1).gather(-1, rest.clamp(0, degree))
    return _first_above((left * right * possible).cumsum(-1), -1)


def _first_above(below: Tensor, dim: int) -> Tensor:
    """The first place at which cumulative weights exceed a uniform share of their sum."""
    most = below.narrow(dim, below.shape[dim] - 1, 1)
    level = torch.rand_like(most) * most
    # `below < most` because a product with a uniform just under 1 may round up to `most`.
    return ((below <= level) & (below < most)).sum(dim)


def _multiply_in_place(a: Tensor, b: Tensor, max_degree: int) -> Tensor:
    """Products of polynomials without gradients."""
    product = _pad_degree(a * b[0], 0, b.shape[0] - 1)[: max_degree + 1]
    for degree in range(1, min(b.shape[0], max_degree + 1)):
        rows = min(a.shape[0], product.shape[0] - degree)
        product[degree : degree + rows] += a[:rows] * b[degree]
    return product


def _pad_degree(polynomials: Tensor, below: int, above: int) -> Tensor:
    return pad(polynomials, (0, 0) * (polynomials.dim() - 1) + (below, above))


class KSubset(MaskDistribution):
    r"""Masks of G entries of which exactly k are on: the conditional Bernoulli distribution,

    .. math:: p(z) = \exp(\textstyle\sum_i z_i \, \mathrm{logit}_i) \,/\, e_k(\exp \mathrm{logits}),
              \qquad \textstyle\sum_i z_i = k,

    with the elementary symmetric polynomial :math:`e_k`. ``log_prob``, ``mean`` (inclusion
    probabilities), ``variance`` and ``entropy`` are exact and differentiable any number of times;
    draws are exact. What depends on the logits alone is computed once and shared by all that
    ``expand`` makes. Cost: log2 G rounds; at G = 1568, k = 157 and 64 rows in float32 on one core
    ``log_prob`` forward and backward takes about 20 ms, with the draw 40 ms
    (``benchmarks/k_subset.py``).

    Args:
        logits: log-odds of each entry's weight, finite, ``(*batch, G)``; constants cancel.
        k: how many entries are on, 1 ≤ k ≤ G; an int or an integer tensor that broadcasts with
            ``batch``, checked only where arguments are validated.
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
        >>> distribution.mean
        tensor([0.5000, 0.5000, 0.7876, 0.2124])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "logits": Vectors(constraints.real),
        "k": constraints.dependent,
    }

    max_k: int
    """The largest k that any row may have."""

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
        self._logits, self._k, self.max_k = logits.expand(*batch_shape, size), k, max_k
        super().__init__(batch_shape, torch.Size((size,)), validate_args, "logits")
        if (
            self._validate_args
            and isinstance(k, Tensor)
            and not bool(((k >= 1) & (k <= max_k)).all())
        ):
            raise ValueError(
                f"k must be 1 to {max_k} in every row; it is {int(k.min())} to {int(k.max())}"
            )

    @property
    def logits(self) -> Tensor:
        """The logits, ``(*batch, G)``."""
        return self._logits.expand(self._batch_shape + self._event_shape)

    @property
    def k(self) -> int | Tensor:
        """The number of entries that are on, an int or ``(*batch)``."""
        k = self._k
        return k.expand(self._batch_shape) if isinstance(k, Tensor) else k

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> KHot:
        return KHot(self.k)

    def uniform(self) -> "KSubset":
        """The distribution of the same k and shapes under which all masks are alike."""
        max_k = self.max_k if isinstance(self._k, Tensor) else None
        logits = torch.zeros_like(self._logits)
        alike = KSubset(logits, self._k, validate_args=False, max_k=max_k)
        return alike.expand(self._batch_shape)

    def _log_prob(self, value: Tensor) -> Tensor:
        """Σ value · logits − log e_k of any value, also outside the support."""
        theta, likely, constant = self._log_prob_parts()
        # Relative to each entry's likelier value the terms are small, where Σ z·logits and log e_k
        # may be large and differ by little. The second term is 0 on the support.
        score = ((self._logits + theta.unsqueeze(-1)) * (value - likely)).sum(-1)
        return score - theta * (value.sum(-1) - self._k) + constant

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Exact draws, ``sample_shape + batch_shape + (G,)``."""
        shape = self._extended_shape(sample_shape)
        lead = len(shape) - self._logits.dim()
        number, batch = math.prod(shape[:lead]), shape[lead:-1]
        return draw(self._tables(), self._logits, self._k, number, batch).reshape(shape)

    @property
    def mean(self) -> Tensor:
        """Inclusion probabilities E[z], ``(*batch, G)``; they add up to k."""
        return self._marginals()[0].expand(self._batch_shape + self._event_shape)

    @property
    def variance(self) -> Tensor:
        """E[z] (1 − E[z]), ``(*batch, G)``."""
        on, off = self._marginals()[:2]
        return (on * off).expand(self._batch_shape + self._event_shape)

    @property
    def mode(self) -> Tensor:
        """The k entries of largest logit, ``(*batch, G)``; among equals the first."""
        return largest_entries(self.logits, self.k)

    def entropy(self) -> Tensor:
        """−E[log p(z)] in nats, of the batch's shape."""
        return self._entropy().expand(self._batch_shape)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All C(G, k) masks, ``(C(G, k), *batch, G)``; ``batch`` all ones for ``expand=False``; at
        most 2^20.

        Raises:
            NotImplementedError: k differs by row.
        """
        size, k = self._event_shape[0], self._k
        if isinstance(k, Tensor):
            first = int(k.flatten()[0])
            if bool((k != first).any()):
                raise NotImplementedError("enumerate_support needs the same k in every row")
            k = first
        return self._listed(all_k_hot("KSubset", size, k, like=self._logits), expand)

    @computed_once
    def _tilted(self) -> tuple[Tensor, Tensor]:
        """The tilt θ and the tilted logits, both constants."""
        logits = self._logits.detach()
        theta = tilt(logits, self._k)
        return theta, logits + theta.unsqueeze(-1)

    def _weights(self) -> tuple[Tensor, Tensor]:
        """Weights 1 − p_i and p_i of off and on; only the second varies with the logits."""
        tilted = self._tilted()[1]
        return (-tilted).sigmoid(), tilted.sigmoid() * self._shift().exp()

    def _shift(self) -> Tensor:
        """0, with the derivative of the logits."""
        return self._logits - self._logits.detach()

    @computed_once
    def _products(self) -> list[Tensor]:
        return products(*self._weights(), self.max_k)

    @computed_once
    def _tables(self) -> list[Tensor]:
        return count_tables(self._products(), self.max_k)

    @computed_once
    def _log_count(self) -> Tensor:
        """log P(S = k) under the tilted weights, (*batch)."""
        return log_count_probability(self._products()[-1], self._logits.shape[-1], self._k)

    @computed_once
    def _log_prob_parts(self) -> tuple[Tensor, Tensor, Tensor]:
        theta, tilted = self._tilted()
        likely = (tilted > 0).to(tilted.dtype)
        at_likely = (likely * self._shift() - softplus(-tilted.abs())).sum(-1)
        return theta, likely, at_likely - self._log_count()

    @computed_once
    def _marginals(self) -> tuple[Tensor, Tensor, Tensor]:
        """P(z_i = 1), P(z_i = 0) and log P(S = k) under the tilt.

        P(S = k) is linear in each entry's two weights: its derivatives by their logarithms are the
        probabilities given S = k, sums of products without differences.
        """

        def log_count(off: Tensor, on: Tensor) -> Tensor:
            last = products(off, on, self.max_k)[-1]
            return log_count_probability(last, off.shape[-1], self._k)

        off, on = self._weights()
        value, pull_back, *_ = torch.func.vjp(log_count, off, on)
        by_off, by_on = pull_back(torch.ones_like(value))
        return on * by_on, off * by_off, value

    def _log_weights(self) -> tuple[Tensor, Tensor]:
        """Logarithms of on and off, finite where the weights themselves underflow."""
        tilted = self._tilted()[1]
        return logsigmoid(tilted) + self._shift(), logsigmoid(-tilted)

    @computed_once
    def _entropy(self) -> Tensor:
        """log P(S = k) − Σ_i E[log weight of z_i]: small terms, where log e_k may be large."""
        on, off, log_count = self._marginals()
        log_on, log_off = self._log_weights()
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
    """E_p[log p(z)] − E_p[log q(z)], exact; infinite where k differs."""
    on, off, _ = p._marginals()
    log_on, log_off = q._log_weights()
    score = (on * log_on + off * log_off).sum(-1) - q._log_count()
    divergence = -p._entropy() - score
    divergence = divergence.expand(torch.Size(broadcast_shape(p.batch_shape, q.batch_shape)))
    same = torch.as_tensor(p.k == q.k, device=divergence.device)
    return torch.where(same, divergence, torch.full_like(divergence, math.inf))
