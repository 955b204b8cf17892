"""Ranks of simulation-based calibration, and tests of their uniformity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import stats

from lexppl.argument_checks import fraction, int_at_least
from lexppl.summary import Summarised, Summary, counted

NULL_SETS = 9_999
"""Simulated sets of uniform ranks behind a p-value: its steps are of 1/10,000."""
MOST_BINS = 20
LEAST_EXPECTED = 5
"""Ranks that a bin of a histogram expects at least."""


@dataclass(frozen=True)
class UniformRanks:
    """N ranks in {0, …, S} as they would be, were they independent and uniform.

    With `z_i = (i + 1) / (S + 1)`, `i = 0 … S − 1`, and R_i ranks up to i the statistic is `γ = 2
    min_i min{ P(Bin(N, z_i) ≤ R_i), P(Bin(N, z_i) ≥ R_i) }`, its p-value that of a Monte Carlo test
    with M = 9,999 uniform sets (Säilynoja, Bürkner and Vehtari 2022, algorithm 1).
    """

    count: int
    draws: int
    seed: int = 0

    def __post_init__(self) -> None:
        int_at_least("count", self.count)
        int_at_least("draws", self.draws)

    def p_value(self, ranks: np.ndarray) -> float:
        """P(γ at most as small as that of ranks `(N,)` in 0 … S), under uniformity."""
        gamma = self._statistic(self._counts(ranks)[None])[0]
        return float((1 + (self._null <= gamma).sum()) / (len(self._null) + 1))

    def band(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays `(S,)` between which the distribution function stays with probability
        `level`."""
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

    def _counts(self, ranks: np.ndarray) -> np.ndarray:
        ranks = np.asarray(ranks)
        if ranks.shape != (self.count,):
            raise ValueError(f"ranks must have shape ({self.count},); they have {ranks.shape}")
        if not np.issubdtype(ranks.dtype, np.integer) or (
            ranks.min() < 0 or ranks.max() > self.draws
        ):
            raise ValueError(
                f"ranks must be whole numbers from 0 to {self.draws}; {ranks.min()} … {ranks.max()}"
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


LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Of the central intervals in the table."""
FALSE_ALARMS = 0.01
"""Probability that a calibrated method is called miscalibrated, over all quantities together."""
SHOWN = 6


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Summarised):
    """Ranks of simulated truths among their posterior draws: see :func:`calibration`.

    Args:
        names: of the Q quantities.
        ranks: `(N, Q)`, how many of S draws are below the truth; ties broken at random.
        draws: S.
        z: `(N, Q)`, truth minus posterior mean, by the posterior sd; NaN where all draws are equal.
        sd: `(N, Q)`, posterior sd.
        exact_sd: `(N, Q)`, that of the exact posterior; None where it was not given.
        method: how the posterior was found, in a word.
        seed: of the ties.
    """

    names: tuple[str, ...]
    ranks: np.ndarray
    draws: int
    z: np.ndarray
    sd: np.ndarray
    exact_sd: np.ndarray | None
    method: str
    seed: int = 0

    @property
    def simulations(self) -> int:
        """N."""
        return len(self.ranks)

    @cached_property
    def uniform(self) -> UniformRanks:
        return UniformRanks(self.simulations, self.draws, self.seed)

    @cached_property
    def positions(self) -> np.ndarray:
        """`(rank + V) / (S + 1)`, `(N, Q)`: where the truth stands in its posterior, in (0, 1)."""
        jitter = np.random.default_rng([self.seed, 1]).random(self.ranks.shape)
        return (self.ranks + jitter) / (self.draws + 1)

    @property
    def p_values(self) -> pd.Series:
        """By quantity, of :meth:`UniformRanks.p_value`."""
        return pd.Series(
            {name: self.uniform.p_value(self.ranks[:, q]) for q, name in enumerate(self.names)},
            name="p_value",
        )

    def alarms(self, level: float = FALSE_ALARMS) -> dict[str, str]:
        """The quantities whose ranks are not uniform, and how: "too narrow" (truths stand too often
        at the ends of the posterior), "too wide", "too low" (too often above it), "too high", or
        else "not uniform". By Holm's rule over the quantities: the probability of any alarm with
        the exact posterior is at most `level`."""
        level = fraction("level", level)
        found = {}
        values = self.p_values.sort_values()
        for place, (name, value) in enumerate(values.items()):
            if value > level / (len(values) - place):
                break
            found[str(name)] = self._direction(self.names.index(str(name)))
        return {name: found[name] for name in self.names if name in found}

    def coverage(self, levels: tuple[float, ...] = LEVELS) -> pd.DataFrame:
        """How often central intervals of each of `levels` hold the truth: `quantity`, `level`,
        `coverage`, `error`, the binomial `√(level (1 − level) / N)`, and `z = (coverage − level) /
        error`."""
        nominal = np.array([fraction("level", level) for level in levels])
        held = (np.abs(self.positions - 0.5)[..., None] <= nominal / 2).mean(0)
        error = np.broadcast_to(np.sqrt(nominal * (1 - nominal) / self.simulations), held.shape)
        index = pd.MultiIndex.from_product([self.names, levels], names=["quantity", "level"])
        columns = {"coverage": held, "error": error, "z": (held - nominal) / error}
        table = pd.DataFrame({name: values.ravel() for name, values in columns.items()}, index)
        return table.reset_index()

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row for each quantity.

        - `p_value`, of the ranks' distribution function;
        - `distance`, Kolmogorov's, of the ranks to uniform ones, and `usual_distance`, which 95 %
          of sets of uniform ranks stay below;
        - `coverage_50`, `_80`, `_90`, `_95`, of central intervals;
        - `mean_z`, 0 without bias, its standard error `mean_z_error`, and `sd_z`, near 1 for a
          posterior near normal;
        - `sd_ratio`, the geometric mean of posterior sd by exact sd, where the latter is known;
        - `verdict`: "consistent", or the alarm of :meth:`alarms`.
        """
        alarms, z = self.alarms(), pd.DataFrame(self.z, columns=list(self.names))
        z = z.where(np.isfinite(z))
        table = pd.DataFrame({"p_value": self.p_values})
        table["distance"] = [self.uniform.distance(ranks) for ranks in self.ranks.T]
        table["usual_distance"] = self.uniform.usual_distance()
        held = self.coverage()["coverage"].to_numpy().reshape(-1, len(LEVELS))
        for level, share in zip(LEVELS, held.T, strict=True):
            table[f"coverage_{round(100 * level)}"] = share
        table["mean_z"], table["mean_z_error"], table["sd_z"] = z.mean(), z.sem(), z.std()
        if self.exact_sd is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                table["sd_ratio"] = np.exp(np.log(self.sd / self.exact_sd).mean(0))
        table["verdict"] = [alarms.get(name, "consistent") for name in self.names]
        return table.rename_axis("quantity")

    def histograms(self) -> pd.DataFrame:
        """Ranks in B equal bins by quantity, B the largest divisor of S + 1 up to 20 with 5 or more
        a bin."""
        most = min(MOST_BINS, self.simulations // LEAST_EXPECTED)
        bins = max((b for b in range(1, most + 1) if (self.draws + 1) % b == 0), default=1)
        counts = {
            name: np.bincount(ranks, minlength=self.draws + 1)
            for name, ranks in zip(self.names, self.ranks.T, strict=True)
        }
        table = {name: each.reshape(bins, -1).sum(1) for name, each in counts.items()}
        return pd.DataFrame(table).rename_axis("bin")

    def summarised(self) -> Summary:
        lines = {
            str(name): f"{row['verdict']}; p {row['p_value']:.4f}, 90 % intervals hold "
            f"{100 * row['coverage_90']:.0f} %, mean z {row['mean_z']:+.2f}"
            for name, row in self.table.iloc[:SHOWN].iterrows()
        }
        if len(self.names) > SHOWN:
            lines["…"] = f"{len(self.names) - SHOWN} more in .table"
        lines["false alarms"] = f"any in {FALSE_ALARMS:.0%} of exact methods"
        count = counted(self.simulations, "simulated data set")
        return Summary(f"Calibration of {self.method}: {count}, {self.draws} draws each", lines)

    def _direction(self, q: int) -> str:
        """Place or spread, whichever is further off in standard errors of uniform positions."""
        apart = self.positions[:, q] - 0.5
        place = apart.mean() * np.sqrt(12 * self.simulations)
        spread = ((apart**2).mean() - 1 / 12) * np.sqrt(180 * self.simulations)
        if max(abs(place), abs(spread)) < 2.0:
            return "not uniform"
        if abs(place) > abs(spread):
            return "too low" if place > 0 else "too high"
        return "too narrow" if spread > 0 else "too wide"
