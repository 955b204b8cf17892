"""The log-likelihood of rows with their masks summed out, as ArviZ's comparisons read it."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri
from torch import Tensor

TIE = 1e-6
"""Standard deviation, in nats, of what tells equal values apart."""


class LogLikelihood:
    """log p(y | x, θ) of rows, for each chain and each of its P values θ of what rows share.

    ArviZ's `loo` reads `log_likelihood` as the values of posterior draws, and takes from each row
    what it has itself told them:

        elpd = Σ_n −log 1/S Σ_s 1 / p(y_n | x_n, θ_s)          (smoothed by Pareto's distribution)

    Where θ_s are such draws, given these rows, each has its own value here. Where nothing was drawn
    (plain fits), or the rows have told the draws nothing (held-out ones), there is nothing to take
    away, and all draws have the one value

        log p(y_n | x_n) = log 1/S Σ_s p(y_n | x_n, θ_s),

    of which `loo` gives the sum over rows, the log score. ArviZ 1.x refuses draws that are all
    alike, so they differ by normal scores of 1e-6 nats, which move the sum by 1e-12 a row.

    Args:
        chains: C.
        rows: B.

    Source: Vehtari, Gelman and Gabry (2017), "Practical Bayesian model evaluation using
    leave-one-out cross-validation and WAIC", Statistics and Computing 27.

    Example:
        >>> import torch
        >>> values = LogLikelihood(chains=2, rows=1)
        >>> values.write(0, slice(0, 1), torch.tensor([[-1.0]]))
        >>> values.write(1, slice(0, 1), torch.tensor([[-3.0]]))
        >>> values.by_draw(2, are_draws=False).round(3).tolist()
        [[[-1.566], [-1.566]], [[-1.566], [-1.566]]]
    """

    def __init__(self, chains: int, rows: int) -> None:
        self._shape = (chains, rows)
        self._values = np.zeros((chains, 0, rows))

    def write(self, chain: int, rows: slice, values: Tensor) -> None:
        """Put the values `(P, B')` of a chunk of rows into their place."""
        if not self._values.shape[1]:
            chains, count = self._shape
            self._values = np.zeros((chains, len(values), count))
        self._values[chain, :, rows] = values.detach().double().cpu().numpy()

    @property
    def is_written(self) -> bool:
        """Whether rows have a likelihood of their own."""
        return self._values.shape[1] > 0

    def by_chain(self) -> NDArray[np.float64]:
        """log 1/P Σ_p p(y | x, θ_p) of each chain, `(C, B)`."""
        return _log_mean(self._values, (1,))

    def by_draw(self, draws: int, are_draws: bool) -> NDArray[np.float64]:
        """`(C, D, B)`.

        Args:
            draws: D.
            are_draws: whether the values are those of posterior draws given these rows.
        """
        chains, rows = self._shape
        values = self._values
        if not are_draws:
            values = np.broadcast_to(_log_mean(values, (0, 1)), (chains, 1, rows))
        if values.shape[1] == draws and draws > 1:
            return values
        return values + TIE * _normal_scores(chains * draws).reshape(chains, draws, 1)


def _log_mean(values: NDArray[np.float64], axis: tuple[int, ...]) -> NDArray[np.float64]:
    count = np.prod([values.shape[a] for a in axis])
    mean: NDArray[np.float64] = logsumexp(values, axis) - np.log(count)
    return mean


def _normal_scores(count: int) -> NDArray[np.float64]:
    """Quantiles of a standard normal distribution, each once, in an order without a trend."""
    places = np.random.default_rng(0).permutation(count)
    scores: NDArray[np.float64] = ndtri((places + 0.5) / count)
    return scores
