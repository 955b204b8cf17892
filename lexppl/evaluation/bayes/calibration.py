"""Simulation-based calibration of posterior inferences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor
from tqdm.auto import tqdm

from lexppl.argument_checks import fraction, int_at_least, shaped
from lexppl.evaluation.bayes.mask_table import mask_table
from lexppl.evaluation.bayes.simulated import (
    GuideFits,
    Infer,
    Simulated,
    check_rows,
    name_of,
    parts_of_program,
    posteriors_of,
    refuse_penalties,
    seeds_of,
    simulate,
)
from lexppl.inference.posterior.global_draws import PosteriorInference, Samples
from lexppl.inference.predictive import drawing
from lexppl.summary import Summarised, Summary, counted

NULL_SETS = 9_999  # Simulated sets of uniform ranks behind a p-value: its steps are of 1/10,000
MOST_BINS = 20
LEAST_EXPECTED = 5  # Ranks that a bin of a histogram expects at least


@dataclass(frozen=True)
class UniformRanks:
    """N ranks in {0, …, S} as they would be, were they independent and uniform.

    With `z_i = (i + 1) / (S + 1)`, `i = 0 … S − 1`, and R_i ranks up to i the statistic is

        γ = 2 min_i min{ P(Bin(N, z_i) ≤ R_i), P(Bin(N, z_i) ≥ R_i) },

    its p-value by M = 9,999 uniform sets (Säilynoja, Bürkner and Vehtari 2022, algorithm 1).
    """

    count: int
    draws: int
    seed: int = 0

    def __post_init__(self) -> None:
        int_at_least("count", self.count)
        int_at_least("draws", self.draws)

    def p_value(self, ranks: np.ndarray) -> float:
        """P(γ at most as small as that of ranks `(N,)` in 0 … S), under uniformity; where no
        simulated set is as far, at most its bound S γ."""
        gamma = self._statistic(self._counts(ranks)[None])[0]
        as_far = int((self._null <= gamma).sum())
        simulated = (1 + as_far) / (len(self._null) + 1)
        return float(simulated if as_far else min(simulated, self.draws * gamma))

    def band(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays `(S,)` that hold the distribution function with probability `level`."""
        level = fraction("level", level)
        gamma = np.quantile(self._null, 1.0 - level, method="lower")
        low = stats.binom.ppf(gamma / 2, self.count, self.points)
        high = stats.binom.isf(gamma / 2, self.count, self.points)
        return low / self.count, high / self.count

    def reached(self, ranks: np.ndarray) -> np.ndarray:
        """The distribution function of some ranks at `points`, `(S,)`."""
        return self._counts(ranks).cumsum()[:-1] / self.count

    def distance(self, ranks: np.ndarray) -> float:
        """Kolmogorov's: the largest distance of the distribution function to the uniform one."""
        return float(np.abs(self.reached(ranks) - self.points).max())

    def usual_distance(self, level: float = 0.95) -> float:
        """The quantile of :meth:`distance` among uniform ranks."""
        reached = self._null_counts.cumsum(1)[:, :-1] / self.count
        return float(np.quantile(np.abs(reached - self.points).max(1), level))

    @property
    def points(self) -> np.ndarray:
        """Points `z_i` at which the ranks are compared, `(S,)`."""
        return np.arange(1, self.draws + 1) / (self.draws + 1)

    def _counts(self, ranks: np.ndarray) -> np.ndarray:
        ranks = np.asarray(ranks)
        shaped("ranks", ranks, (self.count,))
        if not np.issubdtype(ranks.dtype, np.integer) or (
            ranks.min() < 0 or ranks.max() > self.draws
        ):
            raise ValueError(f"ranks must be 0 … {self.draws}; {ranks.min()} … {ranks.max()}")
        return np.bincount(ranks, minlength=self.draws + 1)

    def _statistic(self, counts: np.ndarray) -> np.ndarray:
        """γ `(M,)` of `(M, S + 1)` counts."""
        reached = counts.cumsum(1)[:, :-1]
        return self._tails[np.arange(self.draws), reached].min(1)

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
        return np.random.default_rng(self.seed).multinomial(self.count, share, size=NULL_SETS)

    @cached_property
    def _null(self) -> np.ndarray:
        return self._statistic(self._null_counts)


LEVELS = (0.5, 0.8, 0.9, 0.95)
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
        """Number of simulated data sets, N."""
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
        directions = {}
        values = self.p_values.sort_values()
        for place, (name, value) in enumerate(values.items()):
            if value > level / (len(values) - place):
                break
            directions[str(name)] = self._direction(self.names.index(str(name)))
        return {name: directions[name] for name in self.names if name in directions}

    def coverage(self, levels: tuple[float, ...] = LEVELS) -> pd.DataFrame:
        """How often central intervals of each of `levels` hold the truth: `quantity`, `level`,
        `coverage`, its binomial `error` `√(level (1 − level) / N)`, and `z`, the distance in
        errors.
        """
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
        """Ranks in B equal bins by quantity: B divides S + 1, is at most 20 and expects 5 a bin."""
        most = min(MOST_BINS, self.simulations // LEAST_EXPECTED)
        bins = max((b for b in range(1, most + 1) if (self.draws + 1) % b == 0), default=1)
        counts = {
            name: np.bincount(ranks, minlength=self.draws + 1)
            for name, ranks in zip(self.names, self.ranks.T, strict=True)
        }
        table = {name: by_rank.reshape(bins, -1).sum(1) for name, by_rank in counts.items()}
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
        apart = self.positions[:, q] - 0.5
        place = apart.mean() * np.sqrt(12 * self.simulations)
        spread = ((apart**2).mean() - 1 / 12) * np.sqrt(180 * self.simulations)
        if max(abs(place), abs(spread)) < 2.0:
            return "not uniform"
        if abs(place) > abs(spread):
            return "too low" if place > 0 else "too high"
        return "too narrow" if spread > 0 else "too wide"


Quantity = Callable[[Samples, Tensor, Tensor], Tensor]
"""From draws by site `(S, *event)`, x and y to a number for each draw, `(S,)`."""


def calibration(
    program: Any,
    x: Tensor,
    infer: GuideFits | PosteriorInference | Infer,
    *,
    simulations: int = 500,
    draws: int = 99,
    quantities: Mapping[str, Quantity] | None = None,
    exact: Infer | None = None,
    name: str | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Calibration:
    """Simulation-based calibration of an inference, on a program of your own.

    Use it to test whether an inference gives the right posterior of your program: data are
    simulated for which the truth is known. `alarms()` of the result names what is not calibrated.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> def program(x, y=None):
        ...     mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", len(x)):
        ...         pyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        >>> def narrow(x, y, seed):
        ...     noise = torch.randn(99, generator=torch.Generator().manual_seed(seed))
        ...     return {"mean": y.sum() / (1 + len(y)) + noise * 0.5 * (1 + len(y)) ** -0.5}
        >>> calibration(program, torch.zeros(5, 1), narrow, progress=False).alarms()
        {'mean': 'too narrow'}

    Parameters and data are drawn from the program, and draws given these data by the inference:

        θ*_n ~ p(θ),  y_n ~ p(y | x, θ*_n),  θ_n1 … θ_nS ~ q(θ | x, y_n),
        rank_n = #{s: θ_ns < θ*_n}.

    If q is the exact posterior and its draws are independent, each rank is uniform on {0, …, S};
    ties are broken at random. Simulated are the latents outside `mask_particles()` and the masks.
    Draws of a Markov chain are not independent: give more than S, which are thinned evenly to S. A
    method that gives the prior has uniform ranks of θ too: quantities that read the data, such as a
    log-likelihood, find it.

    Args:
        program: called as `program(x, y)`, with y None to draw it; or a :class:`System` of one
            program. Parameters without a prior stay as they are; penalties are refused.
        x: rows `(B, *event)`, the same in all data sets.
        infer: a function from x, y and a seed to at least `draws` draws by site, `(S, *event)`; a
            :class:`GuideFits`; or a posterior inference, such as NUTS.
        simulations, draws: N data sets, and S.
        quantities: by name, a function from draws by site, x and y to a number a draw. None for
            every entry of every site that `infer` gives.
        exact: gives draws of the exact posterior, whose sd is then compared.
        name: of the method, for tables.

    Raises:
        ValueError, TypeError: counts below 1, rows that are not finite, a program with penalties,
            or that draws no y or no latents; samples of other sites or shapes, or too few.
        FloatingPointError: draws or quantities that are not finite.

    Source: Talts et al. (2018); Modrák et al. (2023) for quantities that read the data.
    """
    simulations = int_at_least("simulations", simulations)
    draws = int_at_least("draws", draws, 2)
    seed = int_at_least("seed", seed, 0)
    check_rows(x)
    parts = parts_of_program(program)
    sets = [simulate(parts.model, x, of_set) for of_set in seeds_of(seed, 0, simulations)]
    if not (sets[0].shared or sets[0].masks):
        raise ValueError("the program draws no latents but y, so there is no posterior to check")
    if sets[0].shared:
        refuse_penalties(sets[0].penalties)
    ys = [drawn.y for drawn in sets]
    posteriors = posteriors_of(infer, parts, x, ys, seeds_of(seed, 1, len(ys)), draws)
    bar = tqdm(posteriors, total=len(ys), desc="data sets", disable=None if progress else True)
    values, truths, exact_sd = [], [], []
    functions: Mapping[str, Callable[..., Tensor]] = {}
    for drawn, samples in zip(sets, bar, strict=True):
        samples_of_set = {n: thinned(v, draws, n) for n, v in _checked(samples, drawn).items()}
        functions = _entries(samples_of_set) if quantities is None else quantities
        value, truth = _numbers(
            functions, samples_of_set, _truth(drawn, samples_of_set), x, drawn.y
        )
        values.append(value)
        truths.append(truth)
    if exact is not None:
        for drawn, of_set in zip(sets, seeds_of(seed, 2, len(ys)), strict=True):
            known = _checked(exact(x, drawn.y, of_set), drawn)
            value, _ = _numbers(functions, known, _truth(drawn, known), x, drawn.y)
            exact_sd.append(value.std(0, ddof=1))
    sds = np.stack(exact_sd) if exact_sd else None
    method = name_of(infer) if name is None else name
    return ranked(tuple(functions), np.stack(values), np.stack(truths), sds, method, seed)


def ranked(
    names: tuple[str, ...],
    values: np.ndarray,
    truths: np.ndarray,
    exact_sd: np.ndarray | None,
    method: str,
    seed: int,
) -> Calibration:
    """Truths `(N, Q)` ranked among values `(N, S, Q)` of the draws, ties broken at random."""
    for kind, numbers in (("posterior draws", values), ("truths", truths)):
        finite = np.isfinite(numbers).reshape(-1, len(names)).all(0)
        if not finite.all():
            raise FloatingPointError(f"{kind} of {names[int(finite.argmin())]!r} are not finite")
    below = (values < truths[:, None]).sum(1)
    ties = (values == truths[:, None]).sum(1)
    ranks = below + np.random.default_rng([seed, 0]).integers(0, ties + 1)
    sd = values.std(1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(sd > 0, (truths - values.mean(1)) / sd, np.nan)
    return Calibration(names, ranks, values.shape[1], z, sd, exact_sd, method, seed)


def thinned(values: Tensor, draws: int, name: str) -> Tensor:
    """S of the draws `(S′, …)` of a site, evenly."""
    if len(values) < draws:
        raise ValueError(f"infer gave {len(values)} draws of {name!r}, fewer than draws={draws}")
    return values[torch.arange(draws) * len(values) // draws]


def _checked(samples: Any, drawn: Simulated) -> dict[str, Tensor]:
    """Posterior draws whose sites and shapes are those of the program."""
    if not isinstance(samples, Mapping) or not samples:
        raise TypeError(f"infer must give a mapping by site; it gave {type(samples).__name__}")
    known = {**drawn.shared, **drawn.masks}
    checked = {name: torch.as_tensor(values) for name, values in samples.items()}
    for name, values in checked.items():
        if name not in known:
            raise ValueError(f"infer gave a site {name!r}; the program's are {sorted(known)}")
        shaped(f"draws of {name!r}", values, ("S", *known[name].shape))
    return checked


def _truth(drawn: Simulated, samples: Samples) -> dict[str, Tensor]:
    known = {**drawn.shared, **drawn.masks}
    return {name: known[name].unsqueeze(0) for name in samples}


def _entries(samples: Samples) -> dict[str, Callable[..., Tensor]]:
    functions: dict[str, Callable[..., Tensor]] = {}
    for name, values in samples.items():
        for place in np.ndindex(*values.shape[1:]):
            label = f"{name}[{', '.join(map(str, place))}]" if place else name
            functions[label] = lambda s, *_, name=name, place=place: s[name].movedim(0, -1)[place]
    return functions


def _numbers(
    functions: Mapping[str, Callable[..., Tensor]], samples: Any, truth: Any, *rows: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Quantities of S draws `(S, …, Q)` and of the truth `(…, Q)`."""
    values, truths = [], []
    first = samples if isinstance(samples, Tensor) else next(iter(samples.values()))
    shape = first.shape[:-1] if isinstance(samples, Tensor) else first.shape[:1]
    for name, function in functions.items():
        value, at_truth = function(samples, *rows), function(truth, *rows)
        if value.shape != shape or at_truth.shape != (1, *shape[1:]):
            raise ValueError(
                f"quantity {name!r} must give a number for each draw, {tuple(shape)}, and for one "
                f"draw {(1, *shape[1:])}; it gave {tuple(value.shape)} and {tuple(at_truth.shape)}"
            )
        values.append(value.detach().double().cpu().numpy())
        truths.append(at_truth[0].detach().double().cpu().numpy())
    return np.stack(values, -1), np.stack(truths, -1)


MaskInfer = Callable[[Tensor, Tensor, int], Tensor]
"""From x, y and a seed to masks `(S, B, G)`, draws of each row's p(z | x, y)."""
MaskQuantity = Callable[[Tensor], Tensor]  # From masks `(S, B, G)` to a number of each, `(S, B)`


def mask_calibration(
    program: Any,
    x: Tensor,
    infer: MaskInfer | None = None,
    *,
    simulations: int = 500,
    draws: int = 99,
    quantities: Mapping[str, MaskQuantity] | None = None,
    name: str | None = None,
    seed: int = 0,
) -> Calibration:
    """Simulation-based calibration of p(z | x, y), the masks of a row given its outcome:

        z*_n ~ p(z | x_n),  y_n ~ p(y | x_n, z*_n),  z_n1 … z_nS ~ q(z | x_n, y_n),

    each row a data set of its own. Ranked are the size of a mask, each of its entries, and
    log p(y | x, z), which finds draws that have not looked at y; ties are broken at random.

    Args:
        program: a program without latents outside `mask_particles()`, fitted or not, of up to
            65,536 masks.
        x: rows `(B, *event)`; they are repeated in their order up to N.
        infer: gives draws of p(z | x, y), `(S, N, G)`; None for exact ones by enumeration.
        simulations, draws: N and S.
        quantities: by name, a function from masks `(S, N, G)` to numbers `(S, N)`; None for `size`
            and every entry. `log p(y | x, z)` is always there.

    Raises:
        ValueError, TypeError: as :func:`calibration`; a program with latents that rows share;
            masks of another shape, or that the program cannot draw.

    Source: Talts et al. (2018); Modrák et al. (2023).

    Example:
        >>> from lexppl.systems import lex
        >>> program = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,)).program()
        >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        >>> mask_calibration(program, x).alarms()
        {}
    """
    simulations = int_at_least("simulations", simulations)
    draws = int_at_least("draws", draws, 2)
    seed = int_at_least("seed", seed, 0)
    check_rows(x)
    model = parts_of_program(program).model
    x = x[torch.arange(simulations) % len(x)]
    of_data, of_infer, of_table = seeds_of(seed, 0, 3)
    drawn = simulate(model, x, of_data)
    if drawn.shared:
        raise ValueError(
            f"rows share {sorted(drawn.shared)}, so that a row is no data set of its own; "
            "condition the program on them by pyro.poutine.condition, or use calibration()"
        )
    if len(drawn.masks) != 1:
        raise ValueError(f"the program must draw one mask a row; it draws {sorted(drawn.masks)}")
    ((site, truth),) = drawn.masks.items()
    with drawing(of_table, x.device):
        table = mask_table(model, x, drawn.y)
    if table.log_prior.shape[-1] != len(x):
        raise ValueError(f"all rows share {site!r}; the program must draw a mask for each row")
    if infer is None:
        masks, method = table.draws(draws, of_infer), "enumeration"
    else:
        masks, method = infer(x, drawn.y, of_infer), name_of(infer)
    shaped("masks of infer", masks, ("S", *truth.shape))
    masks = thinned(torch.as_tensor(masks), draws, site)
    functions = dict({} if quantities is None else quantities)
    if quantities is None:
        functions["size"] = lambda masks: masks.sum(-1)
        for entry in range(truth.shape[-1]):
            functions[f"{site}[{entry}]"] = partial(torch.select, dim=-1, index=entry)
    functions["log p(y | x, z)"] = table.likelihood_of
    values, truths = _numbers(functions, masks, truth.unsqueeze(0))
    method = method if name is None else name
    return ranked(tuple(functions), values.swapaxes(0, 1), truths, None, method, seed)
