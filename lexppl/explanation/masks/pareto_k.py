"""How heavy the tail of importance weights is."""

import numpy as np
from numpy.typing import NDArray

FEWEST = 5
"""Weights of a tail that a distribution can be fitted to."""
PRIOR_WEIGHT, PRIOR_K = 10, 0.5


def pareto_k(log_weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """The shape k̂ of the generalised Pareto distribution of the largest importance weights.

    Of L weights those that exceed the (M + 1)-th largest, `M = ⌈min(L/5, 3 √L)⌉`, are fitted less
    that one by the empirical Bayes estimate k of Zhang and Stephens, drawn a little to ½,

        k̂ = (M k + 10 · ½) / (M + 10).

    Averages by these weights can be trusted where k̂ < 0.7; above, more proposals help little, and
    better ones are needed. It is `arviz.psislw`'s, for all columns at once.

    Args:
        log_weights: `(L, B)`, the logs of L weights for each of B rows, but for a constant.

    Returns:
        `(B,)`: infinite where one to four weights exceed the rest, as ArviZ has it; −∞ where none
        does: the largest are all alike, and there is no tail.

    Source: Vehtari, Simpson, Gelman, Yao and Gabry (2024), "Pareto smoothed importance sampling",
    JMLR 25, section 3; Zhang and Stephens (2009), "A new and efficient estimation method for the
    generalized Pareto distribution", Technometrics 51.

    Example:
        >>> uniform = (np.arange(4000) + 0.5) / 4000
        >>> [round(float(pareto_k(-k * np.log(uniform[:, None]))[0]), 1) for k in (0.3, 0.9)]
        [0.3, 0.9]
    """
    values = np.sort(np.asarray(log_weights, dtype=np.float64), 0)
    count = len(values)
    most = int(np.ceil(min(count / 5, 3 * np.sqrt(count))))
    if most >= count:
        return np.full(values.shape[1], np.inf)
    with np.errstate(invalid="ignore"):
        tail = values[-most - 1 :] - values[-1]
    cutoff = np.maximum(tail[0], np.log(np.finfo(float).tiny))
    tail = np.exp(np.where(tail[1:] > cutoff, tail[1:], cutoff)) - np.exp(cutoff)
    sizes = (tail > 0).sum(0)
    fitted = np.full(values.shape[1], np.inf)
    fitted[sizes == 0] = -np.inf
    enough = sizes >= FEWEST
    fitted[enough] = _shape(tail[:, enough], sizes[enough])
    return fitted


def _shape(excess: NDArray[np.float64], sizes: NDArray[np.intp]) -> NDArray[np.float64]:
    """k̂ by column of values `(M, B)` in ascending order, of which the last `sizes` are positive and
    the others 0, which add nothing to any sum."""
    columns = np.arange(excess.shape[1])
    candidates = 30 + np.sqrt(sizes).astype(int)
    places = np.arange(1, candidates.max(initial=30) + 1)[:, None]
    first = len(excess) - sizes
    quartile = excess[first + (sizes / 4 + 0.5).astype(int) - 1, columns]
    b = (1 - np.sqrt(candidates / (places - 0.5))) / (3 * quartile) + 1 / excess[-1]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        k = np.stack([np.log1p(-one * excess).sum(0) for one in b]) / sizes
        likelihood = sizes * (np.log(-b / k) - k - 1)
        known = (places <= candidates) & ~np.isnan(likelihood)
        likelihood = np.where(known, likelihood, -np.inf)
        weight = np.exp(likelihood - likelihood.max(0))
        weight = weight / weight.sum(0)
        weight = np.where(weight >= 10 * np.finfo(float).eps, weight, 0.0)
        chosen = np.where(weight > 0, b * weight, 0.0).sum(0) / weight.sum(0)
        shape = np.log1p(-chosen * excess).sum(0) / sizes
    pooled: NDArray[np.float64] = (sizes * shape + PRIOR_WEIGHT * PRIOR_K) / (sizes + PRIOR_WEIGHT)
    return pooled
