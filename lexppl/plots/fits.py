"""Fits: their history and their calibration."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lexppl.argument_checks import fraction, int_at_least
from lexppl.evaluation.bayes.calibration import Calibration
from lexppl.explanation.reading.picture_values import short, view
from lexppl.inference.training.result import History
from lexppl.plots.style import (
    BLUE,
    FAINT,
    GREY,
    INK,
    ORANGE,
    check_kind,
    empty_figure,
    legend_outside,
    new_figure,
    plain,
)


def plot_history(history: History, width: float = 6.4) -> Figure:
    """Training and validation losses by epoch, with each replicate's best epoch.

    The training loss is that of the objective as its schedules stood, the validation loss that of
    the final objective. Best epochs are marked in the last stage, where the validation loss is
    least; the start of a further stage is a thin line.

    Args:
        history: `result.history` of a fit.

    Raises:
        TypeError: no history, such as the result itself or a posterior.
        ValueError: a history without epochs.

    Example:
        >>> import numpy as np
        >>> loss = np.array([[0.7], [0.5], [0.6]])
        >>> history = History(loss, loss + 0.1, np.zeros(3, dtype=int), np.ones(3))
        >>> plot_history(history).axes[0].get_ylabel()
        'loss in nats a row'
    """
    check_kind(history, History, "history", "result.history of what fit() returned")
    if len(history) == 0:
        raise ValueError("the history has no epochs to plot")
    epochs = np.arange(1, len(history) + 1)
    train, valid = np.atleast_2d(history.train), np.atleast_2d(history.valid)
    figure, axes = new_figure(width, 3.6)
    alpha = max(0.35, min(0.9, 2.5 / train.shape[1]))
    _curves(axes, epochs, train, GREY, alpha, "training, schedules as they stood")
    if np.isfinite(valid).any():
        _curves(axes, epochs, valid, BLUE, alpha, "validation, final objective")
        last = np.flatnonzero(history.stage == history.stage[-1])
        judged = valid[last][:, np.isfinite(valid[last]).any(0)]
        if judged.size:
            axes.plot(
                epochs[last[np.nanargmin(judged, 0)]],
                np.nanmin(judged, 0),
                marker="o",
                markersize=5.5,
                color=ORANGE,
                markeredgecolor="white",
                markeredgewidth=0.7,
                linestyle="none",
                zorder=4,
                label="best epoch",
            )
    for start in np.flatnonzero(np.diff(history.stage)) + 1:
        axes.axvline(start + 0.5, color=INK, linewidth=0.7, alpha=0.5)
    low, high = view(np.concatenate([train, valid], axis=1))
    axes.set_ylim(low, high)
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss in nats a row")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, steps=[1, 2, 5, 10]))
    plain(axes, grid="y")
    legend_outside(figure, width)
    return figure


def _curves(
    axes: Axes, epochs: np.ndarray, losses: np.ndarray, color: str, alpha: float, label: str
) -> None:
    marker = "." if len(epochs) == 1 else None
    lines = axes.plot(epochs, losses, color=color, alpha=alpha, linewidth=1.3, marker=marker)
    lines[0].set_label(label)


COLUMNS = 3


def plot_calibration(
    calibration: Calibration, level: float = 0.95, most: int = 12, width: float = 7.0
) -> Figure:
    """One panel a quantity; red where its ranks are not uniform.

    A line is the ranks' distribution function less the uniform one, with the band that all of it
    stays in with a probability of `level`. One that rises and falls says too low, its mirror image
    too high; an S that starts above zero says too narrow, one that starts below too wide.

    Args:
        most: quantities that are shown, the least uniform ones.

    Raises:
        TypeError: no calibration.
        ValueError: another level.

    Example:
        >>> ranks = np.random.default_rng(0).integers(0, 100, (500, 1))
        >>> found = Calibration(("slope",), ranks, 99, 0.0 * ranks, 0.0 * ranks, None, "exact")
        >>> [axes.get_title() for axes in plot_calibration(found).axes]
        ['slope: consistent']
    """
    check_kind(calibration, Calibration, "calibration", "what calibration() returned")
    uniform, most = calibration.uniform, int_at_least("most", most)
    points, (low, high) = uniform.points, uniform.band(fraction("level", level))
    values, alarms = calibration.p_values.to_numpy(), calibration.alarms()
    shown = np.sort(np.argsort(values, kind="stable")[:most])
    columns = min(COLUMNS, len(shown))
    lines = math.ceil(len(shown) / columns)
    figure = empty_figure(width, 0.6 + 1.9 * lines)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(shown) :]:
        axes.remove()
    for axes, q in zip(panels.flat, shown, strict=False):
        name = calibration.names[q]
        colour = ORANGE if name in alarms else BLUE
        axes.fill_between(points, low - points, high - points, color=FAINT, step="mid")
        axes.axhline(0.0, color=GREY, linewidth=0.8)
        apart = uniform.reached(calibration.ranks[:, q]) - points
        axes.plot(points, apart, color=colour, linewidth=1.4, drawstyle="steps-mid")
        axes.set_title(
            f"{short(name, 20)}: {alarms.get(name, 'consistent')}", fontsize=9, color=INK
        )
        plain(axes)
    figure.suptitle(f"grey: {level * 100:g} % band of a whole line", fontsize=8, color=GREY)
    figure.supxlabel("rank of the truth / draws", fontsize=9)
    figure.supylabel("distribution function − uniform", fontsize=9)
    return figure
