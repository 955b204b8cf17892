"""The log-likelihood of rows with their masks summed out, as ArviZ's comparisons read it."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri

TIE = 1e-6
"""Standard deviation, in nats, of the noise between equal values."""


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
