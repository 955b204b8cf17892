"""Ranks of simulated truths among posterior draws, beside what uniform ones would be."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from lexppl.argument_checks import fraction, int_at_least
from lexppl.evaluation.bayes.calibration_result import Calibration
from lexppl.plots.given import checked_given
from lexppl.plots.style import BLUE, FAINT, GREY, INK, ORANGE, NotebookFigure, plain, short

COLUMNS = 3


def plot_calibration(
    calibration: Calibration,
    kind: str = "ecdf",
    level: float = 0.95,
    most: int = 12,
    width: float = 7.0,
) -> Figure:
    """One panel a quantity; red where its ranks are not uniform.

    Of `kind="ecdf"` the ranks' distribution function less the uniform one, with the band that all
    of it stays in with a probability of `level`. A line that rises and falls says too low, its
    mirror image too high; an S that starts above zero says too narrow, one that starts below too
    wide. Of `kind="histogram"` the ranks' histogram, with the band of a single bin.

    Args:
        calibration: of :func:`lexppl.evaluation.calibration`.
        kind: "ecdf" or "histogram".
        level: of the bands, in (0, 1).
        most: quantities that are shown, the least uniform ones.
        width: of the figure, in inches.

    Raises:
        TypeError: no calibration.
        ValueError: another kind or level.

    Example:
        >>> ranks = np.random.default_rng(0).integers(0, 100, (500, 1))
        >>> found = Calibration(("slope",), ranks, 99, 0.0 * ranks, 0.0 * ranks, None, "exact")
        >>> [axes.get_title() for axes in plot_calibration(found).axes]
        ['slope: consistent']
    """
    checked_given(calibration, Calibration, "calibration", "what calibration() returned")
    if kind not in ("ecdf", "histogram"):
        raise ValueError(f"kind must be 'ecdf' or 'histogram'; it is {kind!r}")
    level, most = fraction("level", level), int_at_least("most", most)
    values, alarms = calibration.p_values.to_numpy(), calibration.alarms()
    shown = np.sort(np.argsort(values, kind="stable")[:most])
    columns = min(COLUMNS, len(shown))
    lines = math.ceil(len(shown) / columns)
    figure = NotebookFigure(figsize=(width, 0.6 + 1.9 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(shown) :]:
        axes.remove()
    for axes, q in zip(panels.flat, shown, strict=False):
        name = calibration.names[q]
        colour = ORANGE if name in alarms else BLUE
        if kind == "ecdf":
            _ecdf(axes, calibration, q, level, colour)
        else:
            _histogram(axes, calibration, q, level, colour)
        axes.set_title(
            f"{short(name, 20)}: {alarms.get(name, 'consistent')}", fontsize=9, color=INK
        )
        plain(axes)
    figure.supxlabel("rank of the truth / draws", fontsize=9)
    label = "distribution function − uniform" if kind == "ecdf" else "simulated data sets"
    figure.supylabel(label, fontsize=9)
    return figure


def _ecdf(axes: Axes, calibration: Calibration, q: int, level: float, colour: str) -> None:
    uniform = calibration.uniform
    points = uniform.points
    low, high = uniform.band(level)
    axes.fill_between(points, low - points, high - points, color=FAINT, step="mid")
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    apart = uniform.reached(calibration.ranks[:, q]) - points
    axes.plot(points, apart, color=colour, linewidth=1.4, drawstyle="steps-mid")


def _histogram(axes: Axes, calibration: Calibration, q: int, level: float, colour: str) -> None:
    counts = calibration.uniform.histogram(calibration.ranks[:, q])
    bins = len(counts)
    tail = (1.0 - level) / 2
    low, high = stats.binom.ppf([tail, 1.0 - tail], calibration.simulations, 1.0 / bins)
    axes.axhspan(low, high, color=FAINT)
    middle = (np.arange(bins) + 0.5) / bins
    axes.bar(middle, counts, width=0.9 / bins, color=colour, alpha=0.85)
