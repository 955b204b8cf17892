"""Information of the choice of features about y, exact, where the data's distribution is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lexppl.argument_checks import check_binary, int_at_least
from lexppl.evaluation.oracle import LabelOracle
from lexppl.inference.predictive import drawing

Selection = Callable[[Tensor, Tensor], Tensor]
"""`q(v | x)`: from rows `(M, D)` and a mask for each `(M, D)` to probabilities `(M,)`."""

Redraw = Callable[[Tensor, Tensor, int], Tensor]
"""From rows and masks `(M, D)` to so many rows with the kept values and hidden ones drawn given
them, `(draws, M, D)`."""

# Elements of a block of redraws.
_BLOCK = 2**21
_HALVES = 2


@dataclass(frozen=True, eq=False)
class EncodeTruth:
    """Information of the choice of features about y, by the data's own distribution.

    Args:
        value: mean over rows of `KL(p(y | x_v, E = v) ‖ p(y | x_v))`, in nats.
        standard_error: of `value`, over rows and redraws.
        divergence: the mean over mask draws of it by row, `(N,)`; of a row it may fall below 0 by
            the redraws' noise.
        log_ratio: `log p(y_n | x_v, E = v) − log p(y_n | x_v)` by row, `(N,)`, at the labels given;
            None without. Its mean over rows of fresh labels is `value`.
        thin: share of the pairs of a row and a mask with fewer redraws than requested.
    """

    value: float
    standard_error: float
    divergence: Tensor
    log_ratio: Tensor | None
    thin: float


def oracle_encode_meter(
    selection: Selection,
    masks: Tensor,
    oracle: LabelOracle,
    x: Tensor,
    y: Tensor | None = None,
    *,
    redraw: Redraw | None = None,
    least: int = 200,
    most: int = 2**14,
    seed: int = 0,
) -> EncodeTruth:
    r"""The encode-meter of an explainer `E` on rows of a known distribution.

        M = E_x Σ_v q(v | x) KL( p(y | x_v, E = v) ‖ p(y | x_v) ),
        p(y | x_v, E = v) = E[ p(y | x′) q(v | x′) ] / E[ q(v | x′) ],

    where `x′` has the kept values of x and hidden ones drawn anew, so that both expectations are
    over the hidden features alone. `p(y | x_v)` is the oracle's. The ratio is consistent; its bias
    of order 1/H is taken off by halves, `2 f − (f_1 + f_2)/2`, row by row. Redraws come in rounds
    until a row has an effective number `(Σ q)² / Σ q²` of `least`.

    Args:
        selection: `q(v | x)` of the explainer, see :data:`Selection`; of one that does not draw, as
            :func:`of_function` makes it.
        masks: the explainer's draws at x, 0 and 1, `(L, N, D)`, or `(N, D)`. They may not have seen
            y.
        oracle: the data's distribution, such as :class:`lexppl.evaluation.oracle.Oracle`.
        x: rows, `(N, D)`.
        y: labels 0 and 1, `(N,)`, for `log_ratio`.
        redraw: of hidden features given the kept ones; independent N(0, 1) if None.
        least: effective redraws of each row and mask.
        most: redraws after which a row is left as it is. One of which none were selected counts
            itself, the one row known to be.
        seed: of the redraws. Global random state is left alone.

    Raises:
        ValueError: shapes that do not fit, masks other than of 0 and 1, numbers below 1.

    Source: Puli, Nguyen, Ranganath. Explanations that reveal all through the definition of
        encoding. NeurIPS 2024.

    Example:
        >>> from lexppl.data import synthetic
        >>> from lexppl.evaluation.oracle import Oracle
        >>> data, oracle = synthetic("S1", rows=200, seed=0), Oracle("S1")
        >>> def by_label(x):  # which of two idle features is kept says which label is likelier
        ...     likely = (oracle.probability(x, torch.ones_like(x)) > 0.5).to(x.dtype)
        ...     mask = torch.zeros_like(x)
        ...     mask[:, 7], mask[:, 8] = likely, 1 - likely
        ...     return mask
        >>> truth = oracle_encode_meter(of_function(by_label), by_label(data.x), oracle, data.x)
        >>> truth.value > 0.05
        True
        >>> honest = oracle_encode_meter(
        ...     of_function(oracle.distribution.truth), data.truth, oracle, data.x)
        >>> abs(honest.value) < 1e-6
        True
    """
    least, most = int_at_least("least", least), int_at_least("most", most)
    check_binary("masks", masks, tuple(x.shape), draws=True)
    if y is not None:
        check_binary("y", y, (len(x),))
    draws = masks.reshape(-1, *x.shape)
    rows = x.double().expand(draws.shape).reshape(-1, x.shape[1])
    kept = draws.reshape(-1, x.shape[1]).double()
    with drawing(seed, x.device):
        sums, effective = _redrawn(
            selection, oracle, redraw or _independent, rows, kept, x.dtype, least, most
        )
    plain = _probability(oracle, rows, kept)
    itself = _probability(oracle, rows, torch.ones_like(rows))
    chosen = _conditional(sums, itself)

    def divergence(one: Tensor) -> Tensor:
        terms = torch.xlogy(one, one / plain) + torch.xlogy(1 - one, (1 - one) / (1 - plain))
        return terms.reshape(len(draws), -1).mean(0)

    found = _unbiased(divergence, chosen)
    ratio = None
    if y is not None:
        labels = y.expand(draws.shape[:2]).reshape(-1)

        def log_ratio(one: Tensor) -> Tensor:
            each = torch.where(labels == 1, one / plain, (1 - one) / (1 - plain)).log()
            return each.reshape(len(draws), -1).mean(0)

        ratio = _unbiased(log_ratio, chosen)
    error = float(found.std()) / math.sqrt(len(x)) if len(x) > 1 else math.nan
    thin = float((effective < least).double().mean())
    return EncodeTruth(float(found.mean()), error, found, ratio, thin)


def of_function(explainer: Callable[[Tensor], Tensor]) -> Selection:
    """`q(v | x) = 1[E(x) = v]` of an explainer that does not draw.

    Args:
        explainer: from rows `(M, D)` to masks `(M, D)`.

    Example:
        >>> first = of_function(lambda x: torch.tensor([1.0, 0.0]).expand(len(x), 2))
        >>> first(torch.zeros(2, 2), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        tensor([1., 0.])
    """

    def selection(x: Tensor, masks: Tensor) -> Tensor:
        return (explainer(x) == masks).all(-1).to(x.dtype)

    return selection


def _redrawn(
    selection: Selection,
    oracle: LabelOracle,
    redraw: Redraw,
    rows: Tensor,
    kept: Tensor,
    dtype: torch.dtype,
    least: int,
    most: int,
) -> tuple[Tensor, Tensor]:
    """`Σ q` and `Σ q p` of each half, `(2, halves, M)`, and effective numbers, `(M,)`."""
    sums = rows.new_zeros(2, _HALVES, len(rows))
    squares = rows.new_zeros(len(rows))
    active = torch.arange(len(rows), device=rows.device)
    drawn, each = 0, min(2 * least, most)
    while len(active) and drawn < most:
        for part in active.split(max(1, _BLOCK // (each * rows.shape[1]))):
            again = redraw(rows[part], kept[part], each).flatten(0, 1)
            masks = kept[part].expand(each, -1, -1).flatten(0, 1)
            q = selection(again.to(dtype), masks.to(dtype)).double().reshape(each, -1)
            p = q.new_zeros(q.shape)
            met = q > 0
            if bool(met.any()):
                found = again[met.flatten()]
                p[met] = _probability(oracle, found, torch.ones_like(found))
            for half in range(_HALVES):
                sums[0, half, part] += q[half::_HALVES].sum(0)
                sums[1, half, part] += (q * p)[half::_HALVES].sum(0)
            squares[part] += q.square().sum(0)
        drawn += each
        effective = sums[0].sum(0).square() / squares.clamp_min(torch.finfo(rows.dtype).tiny)
        active = (effective < least).nonzero().squeeze(-1)
    return sums, effective


def _independent(rows: Tensor, kept: Tensor, draws: int) -> Tensor:
    hidden = torch.randn(draws, *rows.shape, dtype=rows.dtype, device=rows.device)
    return torch.where(kept == 1, rows, hidden)


def _conditional(sums: Tensor, itself: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`p(y = 1 | x_v, E = v)` by all redraws and by each half; without redraws it is the row's."""
    total = sums.sum(1)
    whole = torch.where(total[0] > 0, total[1] / total[0], itself)
    halves = torch.where(sums[0] > 0, sums[1] / sums[0], whole)
    # A half that knows nothing takes its correction away with it.
    both = (sums[0] > 0).all(0)
    first, second = torch.where(both, halves, whole)
    return whole, first, second


def _unbiased(f: Callable[[Tensor], Tensor], chosen: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    whole, first, second = chosen
    return 2.0 * f(whole) - 0.5 * (f(first) + f(second))


def _probability(oracle: LabelOracle, x: Tensor, masks: Tensor) -> Tensor:
    # Beyond, a log-ratio of float64 has no digits left.
    return oracle.probability(x, masks).double().clamp(1e-12, 1.0 - 1e-12)
