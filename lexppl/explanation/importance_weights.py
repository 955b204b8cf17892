"""Importance weights of masks: reliability, resampling, and the log-likelihood of rows."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri
from torch import Tensor

FEWEST = 5  # Weights of a tail that a distribution can be fitted to
PRIOR_WEIGHT, PRIOR_K = 10, 0.5


def pareto_k(log_weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """The shape k̂ `(B,)` of the generalised Pareto distribution of the largest of L importance
    weights.

    The M = ⌈min(L/5, 3 √L)⌉ largest weights, less the next, are fitted by the empirical Bayes
    estimate k of Zhang and Stephens, drawn a little to ½: `k̂ = (M k + 10 · ½) / (M + 10)`. It is
    `arviz.psislw`'s for all columns of log-weights `(L, B)` at once; infinite where one to four
    weights exceed the rest, −∞ where none does.

    Source: Vehtari, Simpson, Gelman, Yao and Gabry (2024), JMLR 25, section 3; Zhang and Stephens
    (2009), Technometrics 51.
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
    """k̂ by column of ascending values `(M, B)`, of which the last `sizes` are positive."""
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


def reliability(share: Tensor, impossible: Tensor) -> tuple[Tensor, Tensor]:
    """The effective number of proposals and k̂ `(E,)` of normalised weights `(L, E)`."""
    found = torch.from_numpy(pareto_k(share.log().cpu().numpy())).to(share)
    ess = torch.where(impossible, 0.0, 1.0 / share.square().sum(0))
    return ess, torch.where(impossible, math.inf, found)


def shares(log_weight: Tensor) -> Tensor:
    """Weights normalised over dimension −2; where all are zero none is better than another."""
    impossible = log_weight.isneginf().all(-2, keepdim=True)
    return torch.where(impossible, 1.0 / log_weight.shape[-2], torch.softmax(log_weight, -2))


def systematic_resampling(probabilities: Tensor, draws: int) -> Tensor:
    """Choose proposals by their probabilities, with replacement: their indices `(D, B)`.

    One uniform number `U` a row places an even grid, and draw `d` is the proposal at which the
    distribution function passes

        (d + U) / D,    d = 0 … D−1.

    Proposal `l` is chosen `⌊D p_l⌋` or `⌈D p_l⌉` times and `D p_l` times in expectation. The order
    of a row's draws is then shuffled, so that they are exchangeable. Proposals of probability zero
    are never chosen. Randomness is that of torch's default generator.

    Args:
        probabilities: `p`, `(N, B)`: N proposals for each of B rows, columns summing to one.
        draws: D.

    Source: Douc, Cappé and Moulines (2005), "Comparison of resampling schemes for particle
    filtering", section 2.4.

    Example:
        >>> systematic_resampling(torch.tensor([[0.0], [0.5], [0.5]]), 4).sort(0).values.T
        tensor([[1, 1, 2, 2]])
    """
    proposals, rows = probabilities.shape
    dtype, device = probabilities.dtype, probabilities.device
    reached = probabilities.T.cumsum(-1)
    reached = reached / reached[:, -1:]
    start = torch.rand(rows, 1, dtype=dtype, device=device)
    grid = (torch.arange(draws, dtype=dtype, device=device) + start) / draws
    # Rounding must not carry the grid to 1, past the last proposal that has a probability.
    grid = grid.clamp(max=1.0 - torch.finfo(dtype).eps)
    chosen = torch.searchsorted(reached, grid, right=True).clamp(max=proposals - 1)
    order = torch.rand(rows, draws, device=device).argsort(-1)
    return chosen.gather(-1, order).T


TIE = 1e-6  # Standard deviation, in nats, of the noise between equal values


def log_mean(values: NDArray[np.float64], axis: tuple[int, ...]) -> NDArray[np.float64]:
    """log of the mean of exp over some axes, such as log 1/P Σ_p p(y | x, θ_p)."""
    count = np.prod([values.shape[a] for a in axis])
    mean: NDArray[np.float64] = logsumexp(values, axis) - np.log(count)
    return mean


def by_draw(values: NDArray[np.float64], draws: int, are_draws: bool) -> NDArray[np.float64]:
    """log p(y | x, θ) for each draw, `(C, D, B)`, of values `(C, P, B)`.

    ArviZ's `loo` leaves each row out of posterior draws θ_s by
    `elpd = Σ_n −log 1/S Σ_s 1 / p(y_n | x_n, θ_s)`. Where nothing was drawn, or the draws have not
    learned from the rows, all draws have the value `log 1/S Σ_s p(y_n | x_n, θ_s)`, of which `loo`
    gives the sum over rows, the log score; ArviZ 1.x refuses draws that are all alike, so they
    differ by normal scores of 1e-6 nats, which move the sum by 1e-12 a row.

    Source: Vehtari, Gelman and Gabry (2017), Statistics and Computing 27.

    >>> by_draw(np.array([[[-1.0]], [[-3.0]]]), 2, are_draws=False).round(3).tolist()
    [[[-1.566], [-1.566]], [[-1.566], [-1.566]]]
    """
    chains, _, rows = values.shape
    if not are_draws:
        values = np.broadcast_to(log_mean(values, (0, 1)), (chains, 1, rows))
    if values.shape[1] == draws and draws > 1:
        return values
    # Quantiles of a normal distribution, each once, in an order without a trend.
    places = np.random.default_rng(0).permutation(chains * draws)
    scores = ndtri((places + 0.5) / (chains * draws)).reshape(chains, draws, 1)
    differing: NDArray[np.float64] = values + TIE * scores
    return differing
