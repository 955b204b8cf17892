"""Whether ranks are uniform: by their distribution function, and by their histogram."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from lexppl.argument_checks import fraction, int_at_least

NULL_SETS = 9_999
"""Sets of uniform ranks that a p-value is told from: its steps are of 1/10,000."""
MOST_BINS = 20
LEAST_EXPECTED = 5
"""Ranks that a bin of a histogram expects at least, for χ² to have its distribution."""


@dataclass(frozen=True)
class UniformRanks:
    r"""N ranks in {0, …, S} as they would be, were they independent and uniform.

    At `z_i = (i + 1) / (S + 1)`, `i = 0 … S − 1`, the number of ranks up to i is `Bin(N, z_i)`. The
    statistic is the smallest tail of them all, on both sides,

        γ = 2 min_i min{ P(Bin(N, z_i) ≤ R_i), P(Bin(N, z_i) ≥ R_i) },

    small where the distribution function leaves its diagonal anywhere. Its distribution is drawn:
    M = 9,999 sets of uniform ranks from a seed. The p-value `(1 + #{γ_m ≤ γ}) / (M + 1)` is then a
    Monte Carlo test's, and falls below α with a probability of at most α, whatever N and S.

    Args:
        count: N.
        draws: S, the posterior draws among which each truth was ranked.
        seed: of the null sets.

    Source: Säilynoja, Bürkner and Vehtari (2022), "Graphical test for discrete uniformity and its
    applications in goodness-of-fit evaluation and multiple sample comparison", algorithm 1.

    Example:
        >>> null = UniformRanks(200, draws=9)
        >>> null.p_value(np.arange(200) % 10) > 0.9, null.p_value(np.arange(200) % 7) < 0.001
        (True, True)
    """

    count: int
    draws: int
    seed: int = 0

    def __post_init__(self) -> None:
        int_at_least("count", self.count)
        int_at_least("draws", self.draws)

    def p_value(self, ranks: np.ndarray) -> float:
        """P(γ at most as small as that of these ranks), under uniformity.

        Args:
            ranks: `(N,)`, whole numbers from 0 to S.

        Raises:
            ValueError: another number of ranks, or ranks outside 0 … S.
        """
        gamma = self._statistic(self._counts(ranks)[None])[0]
        return float((1 + (self._null <= gamma).sum()) / (len(self._null) + 1))

    def band(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Between what the whole distribution function of uniform ranks stays with a probability of
        `level`, as shares of N at `points`: two arrays `(S,)`.

        Args:
            level: in (0, 1).
        """
        level = fraction("level", level)
        gamma = np.quantile(self._null, 1.0 - level, method="lower")
        low = stats.binom.ppf(gamma / 2, self.count, self.points)
        high = stats.binom.isf(gamma / 2, self.count, self.points)
        return low / self.count, high / self.count

    def reached(self, ranks: np.ndarray) -> np.ndarray:
        """The distribution function of some ranks at `points`, `(S,)`."""
        reached: np.ndarray = self._counts(ranks).cumsum()[:-1] / self.count
        return reached

    def distance(self, ranks: np.ndarray) -> float:
        """Kolmogorov's: the largest distance of the distribution function to the uniform one."""
        return float(np.abs(self.reached(ranks) - self.points).max())

    def usual_distance(self, level: float = 0.95) -> float:
        """The quantile of :meth:`distance` among uniform ranks."""
        reached = self._null_counts.cumsum(1)[:, :-1] / self.count
        return float(np.quantile(np.abs(reached - self.points).max(1), level))

    @property
    def points(self) -> np.ndarray:
        """`z_i`, `(S,)`."""
        return np.arange(1, self.draws + 1) / (self.draws + 1)

    @property
    def bins(self) -> int:
        """B of the histogram: the largest divisor of S + 1 up to 20 whose bins expect at least 5
        ranks; 1 where there is none."""
        most = min(MOST_BINS, self.count // LEAST_EXPECTED)
        fitting = [b for b in range(1, most + 1) if (self.draws + 1) % b == 0]
        return max(fitting, default=1)

    def histogram(self, ranks: np.ndarray) -> np.ndarray:
        """Ranks in each of B equal bins, `(B,)`."""
        counts: np.ndarray = self._counts(ranks).reshape(self.bins, -1).sum(1)
        return counts

    def chi_square(self, ranks: np.ndarray) -> tuple[float, float]:
        """χ² of the histogram and its p-value, with B − 1 degrees of freedom; NaN with one bin.

        The p-value is asymptotic: close to its name where bins expect 5 or more.
        """
        if self.bins == 1:
            return float("nan"), float("nan")
        expected = self.count / self.bins
        value = float(((self.histogram(ranks) - expected) ** 2 / expected).sum())
        return value, float(stats.chi2.sf(value, self.bins - 1))

    def _counts(self, ranks: np.ndarray) -> np.ndarray:
        ranks = np.asarray(ranks)
        if ranks.shape != (self.count,):
            raise ValueError(f"ranks must have shape ({self.count},); they have {ranks.shape}")
        if not np.issubdtype(ranks.dtype, np.integer) or (
            ranks.min() < 0 or ranks.max() > self.draws
        ):
            raise ValueError(
                f"ranks among {self.draws} draws must be whole numbers from 0 to {self.draws}; "
                f"they go from {ranks.min()} to {ranks.max()}"
            )
        return np.bincount(ranks, minlength=self.draws + 1)

    def _statistic(self, counts: np.ndarray) -> np.ndarray:
        """γ `(M,)` of `(M, S + 1)` counts."""
        reached = counts.cumsum(1)[:, :-1]
        tails: np.ndarray = self._tails[np.arange(self.draws), reached]
        return tails.min(1)

    @cached_property
    def _tails(self) -> np.ndarray:
        """Twice the smaller tail of `Bin(N, z_i)` at each R, `(S, N + 1)`."""
        every = np.arange(self.count + 1)
        below = stats.binom.cdf(every, self.count, self.points[:, None])
        above = stats.binom.sf(every - 1, self.count, self.points[:, None])
        return 2.0 * np.minimum(below, above)

    @cached_property
    def _null_counts(self) -> np.ndarray:
        share = np.full(self.draws + 1, 1.0 / (self.draws + 1))
        generator = np.random.default_rng(self.seed)
        return generator.multinomial(self.count, share, size=NULL_SETS)

    @cached_property
    def _null(self) -> np.ndarray:
        return self._statistic(self._null_counts)
