"""The time that a fit of a table will take, and its ranking so far, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

from lexppl.cli.terminal import printable
from lexppl.data.stratification import evenly
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.objective.program import ParticleProgram, row_marginals
from lexppl.inference.training.watch import Epoch

RANKED_ROWS, RANKED = 200, 5
"""Rows over which selection probabilities are averaged, and the most groups that are shown."""
APART = 0.05  # Probability by which the first group is ahead of the median where a ranking is shown
TIMED = 0.03  # Share of the epochs from which the rest is timed
AFTER_FIT, AFTER_EACH = 1.1, 4.0
"""What follows a fit (judges, gains, the report) takes about this many times as long, and so many
seconds more; of tables of 300 to 20,000 rows."""


class FirstAnswer:
    """A callback of a fit: shows the time to go once, and after every tenth of the fit the groups
    kept most so far, at the usual penalty of several.

    Example:
        >>> ranking_line(0.1, np.array([0.2, 0.9, 0.6]), FeatureGroups.alone(["a", "b", "c"]))
        'kept most so far (10 % of the fit): b .90, c .60, a .20'
    """

    def __init__(self, rows: tuple[Tensor, Tensor], groups: FeatureGroups, seed: int) -> None:
        places = evenly(len(rows[0]), RANKED_ROWS)
        self._rows = tuple(column[places] for column in rows)
        self._groups, self._seed = groups, seed
        self._begin = time.perf_counter()
        self._first: tuple[float, float] | None = None
        self._is_timed, self._tenths = False, 0
        self._line: Any = None

    def __call__(self, epoch: Epoch) -> None:
        if not self._is_timed:
            self._time(epoch.progress)
        tenths = int(10 * epoch.progress + 1e-9)
        if tenths > self._tenths and epoch.progress < 1.0:
            self._tenths = tenths
            self._show(ranking_line(epoch.progress, self._kept(epoch.models()), self._groups))
        elif epoch.progress >= 1.0 and self._line is not None:
            self._line.close()

    def _time(self, progress: float) -> None:
        """Show the time to go, by the epochs after the first if there are some."""
        now = time.perf_counter()
        if progress < TIMED:
            self._first = self._first or (progress, now)
            return
        share, begin = self._first or (0.0, self._begin)
        fit = (now - begin) / (progress - share)
        rest = fit * (1.0 - progress + AFTER_FIT) + AFTER_EACH
        tqdm.write(f"lexppl: {time_to_go(rest)}", file=sys.stderr)
        self._is_timed = True

    def _kept(self, replicates: Sequence[Any]) -> NDArray[np.float64]:
        """Mean probability that an entry is kept, `(G,)`."""
        means = []
        draws = seeded(self._seed, self._rows[0].device)
        with torch.no_grad(), draws, program_settings(validate=False):
            for system in replicates:
                term = system.stages[-1].terms[0]
                run = ParticleProgram(term.model, term.guide, self._rows).run()
                for site in run.mask_sites:
                    # Shares and attributions keep nothing, and some laws state no mean.
                    value = torch.as_tensor(site.value)
                    if not bool(((value == 0) | (value == 1)).all()):
                        return np.empty(0)
                    if (mean := row_marginals(site)) is not None:
                        means.append(mean.double().mean(0).cpu().numpy())
        return np.mean(means, axis=0) if means else np.empty(0)

    def _show(self, line: str) -> None:
        if not line:
            return
        if self._line is None:
            self._line = tqdm(total=0, position=1, bar_format="{desc}", file=sys.stderr)
        self._line.set_description_str(printable(line))


def first_answer(
    rows: tuple[Tensor, Tensor], groups: FeatureGroups, seed: int, quiet: bool
) -> tuple[FirstAnswer, ...]:
    """The callback, if standard error is a terminal."""
    return (FirstAnswer(rows, groups, seed),) if sys.stderr.isatty() and not quiet else ()


def time_to_go(seconds: float) -> str:
    """Seconds in two digits, or minutes.

    Example:
        >>> time_to_go(8.4), time_to_go(47.0), time_to_go(130.0)
        ('about 8 s to go', 'about 45 s to go', 'about 2.2 min to go')
    """
    if seconds < 90.0:
        step = 1 if seconds < 20.0 else 5
        return f"about {step * round(seconds / step)} s to go"
    return f"about {seconds / 60.0:.1f} min to go"


def ranking_line(progress: float, probability: NDArray[np.float64], groups: FeatureGroups) -> str:
    """The groups kept most, with the probability that a member is kept; empty for masks of other
    entries."""
    if probability.shape != (sum(map(len, groups.members)),):
        return ""
    by_group = groups.kept(probability)
    order = np.argsort(by_group)[::-1][:RANKED]
    if by_group.max() - np.median(by_group) < APART:
        return f"nothing stands out so far ({progress:.0%} of the fit)".replace("%", " %")
    parts = [f"{groups.names[k]} {by_group[k]:.2f}".replace(" 0.", " .") for k in order]
    return f"kept most so far ({progress:.0%} of the fit): {', '.join(parts)}".replace("%", " %")
