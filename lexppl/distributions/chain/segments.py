r"""Sums, maxima and draws over the paths of a binary chain, in log2 G rounds.

A step from z_{g−1} to z_g has a 2 × 2 matrix of scores s_g. Neighbouring segments of steps are
joined two by two, with the state m between them summed out,

    log M_{ab}[i, j] = log Σ_m exp(log M_a[i, m] + log M_b[m, j]),

until one matrix is left, of log Σ over all paths by their first and last state: the forward and the
backward pass of a chain, done in parallel (Särkkä & García-Fernández 2021, "Temporal
parallelization of Bayesian smoothers", IEEE TAC 66). From the top, the state between two segments
is then drawn given the states at their ends,

    P(m | i, j) ∝ M_a[i, m] M_b[m, j].

Everything here is ``(2, 2, *batch, n)``: state before and after, batch, segments.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

Join = Callable[[Tensor, Tensor], Tensor]


def segments(steps: Tensor, join: Join) -> list[Tensor]:
    """Scores of ever longer segments, from the steps ``(2, 2, *batch, G)`` to one ``(…, 1)``.

    Args:
        steps: scores of the steps.
        join: ``log_add`` to sum over states, ``torch.maximum`` for the best path.
    """
    levels = [steps]
    while (n := levels[-1].shape[-1]) > 1:
        pairs, last = levels[-1].split([n - n % 2, n % 2], -1)
        first, second = pairs.unflatten(-1, (n // 2, 2)).unbind(-1)
        through = [first[:, m].unsqueeze(1) + second[m].unsqueeze(0) for m in (0, 1)]
        levels.append(torch.cat([join(*through), last], -1))
    return levels


def log_add(a: Tensor, b: Tensor) -> Tensor:
    """log(exp a + exp b), with finite derivatives of any order, which torch's own has not where its
    arguments lie far apart."""
    larger = a >= b
    most, least = torch.where(larger, a, b), torch.where(larger, b, a)
    return most + softplus(least - most)


def log_total(levels: list[Tensor]) -> Tensor:
    """log Σ over all paths, of the batch's shape: the state before the first step is of no effect
    and taken to be 0."""
    off, on = levels[-1][0, ..., 0].unbind(0)
    return log_add(off, on)


@torch.no_grad()
def path(levels: list[Tensor], choose: Callable[[Tensor], Tensor], lead: tuple[int, ...]) -> Tensor:
    """States ``(*lead, G)`` of a path, as booleans.

    Args:
        levels: of ``segments``.
        choose: from the log-odds of state 1 ``(*lead, n)`` to whether it is taken.
        lead: shape that the batch's own expands to.
    """
    top = levels[-1][0, ..., 0]
    after = choose((top[1] - top[0]).unsqueeze(-1).expand(*lead, 1))
    for level in reversed(levels[:-1]):
        n = level.shape[-1]
        pairs = level[..., : n - n % 2].unflatten(-1, (n // 2, 2))
        first, second = pairs[..., 0], pairs[..., 1]
        # By the state before and after the two segments.
        odds = (first[:, 1].unsqueeze(1) + second[1]) - (first[:, 0].unsqueeze(1) + second[0])
        before = torch.cat([torch.zeros_like(after[..., :1]), after[..., :-1]], -1)
        before, end = before[..., : n // 2], after[..., : n // 2]
        given = [torch.where(end, odds[i, 1], odds[i, 0]) for i in (0, 1)]
        between = choose(torch.where(before, given[1], given[0]))
        both = torch.stack([between, end], -1).flatten(-2)
        after = torch.cat([both, after[..., n // 2 :]], -1)
    return after


def drawn(log_odds: Tensor) -> Tensor:
    """Whether state 1 is taken, at random."""
    return torch.rand_like(log_odds) < log_odds.sigmoid()


def likelier(log_odds: Tensor) -> Tensor:
    """Whether state 1 is the likelier one; of two alike, state 0."""
    return log_odds > 0
