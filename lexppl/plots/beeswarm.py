"""What each feature is worth, a point a row."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import rankdata

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.explanation.beside.feature_values import FeatureValues, feature_values
from lexppl.explanation.beside.row_gains import GAIN
from lexppl.explanation.layout.importance_kind import kind_of, mask_means
from lexppl.plots.style import (
    BLUE,
    FAINT,
    GREY,
    LONGEST_LABEL,
    NARROW_LABEL,
    ORANGE,
    NotebookFigure,
    plain,
    short,
)

BINS = 70
LOW_TO_HIGH = LinearSegmentedColormap.from_list("low to high", [BLUE, "#B8A9B6", ORANGE])


def plot_beeswarm(
    posterior: Posterior,
    features: int | Sequence[str] = 12,
    rows: int = 300,
    width: float = 6.4,
) -> Figure:
    """Row gains of the features, a point a row, coloured by the feature's value.

    A point is the mean over replicates of what keeping the feature is worth in that row, in nats
    (:func:`lexppl.evaluation.feature_gains`), where the posterior has it
    (:func:`lexppl.explanation.beside.row_gains.with_gains`), else of its selection
    probability. Colours go by the rank of the value among the rows shown, from low (blue) to high
    (orange); features of levels, and values that are not known, are grey.

    Args:
        posterior: what :func:`explain` returned.
        features: how many to show, the largest mean first; or their names, in the order wanted.
        rows: how many to show at most, an even choice.
        width: of the figure, in inches.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`, a feature that it does not have,
            fewer than one feature or row.

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> mask = np.zeros((2, 5, 4, 3), np.int8)
        >>> posterior = posterior_of({
        ...     "predictions": xr.Dataset({"mask": (("chain", "draw", "row", "feature"), mask)},
        ...         {"feature": ["age", "height", "weight"]}),
        ...     "sample_stats": xr.Dataset({"selection_probability": (
        ...         ("chain", "row", "feature"), mask.mean(1), {"site": "mask"})},
        ...         {"feature": ["age", "height", "weight"]}),
        ... }, {})
        >>> plot_beeswarm(posterior, ["weight", "age"]).axes[0].get_xlabel()
        'selection probability'
    """
    rows = int_at_least("rows", rows)
    stats = group_of(posterior, "sample_stats")
    means = mask_means(posterior)
    shown = stats.get(GAIN, means)
    names = [str(name) for name in means[means.dims[-1]].values]
    each = shown.values.mean(0, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(each).any(1))
    places = known[
        np.unique(np.linspace(0, len(known) - 1, min(rows, len(known))).round().astype(int))
    ]
    chosen = _chosen(features, names, each[known].mean(0))
    values = feature_values(posterior)
    figure = NotebookFigure(figsize=(width, 1.15 + 0.34 * len(chosen)), layout="constrained")
    axes = figure.subplots()
    points = each[places][:, [names.index(name) for name in chosen]]
    low, high = float(points.min(initial=0.0)), float(points.max(initial=0.0))
    for line, name in enumerate(chosen):
        across = points[:, line]
        axes.scatter(
            across,
            line + _offsets(across, low, high),
            c=_colours(values.get(name), places),
            s=9,
            linewidths=0,
            alpha=0.85,
        )
    axes.axvline(0.0, color=GREY, linewidth=0.8, zorder=0)
    axes.hlines(np.arange(len(chosen)), low, high, color=FAINT, linewidth=0.6, zorder=0)
    longest = LONGEST_LABEL if width >= 5.0 else NARROW_LABEL
    axes.set_yticks(np.arange(len(chosen)), [short(name, longest) for name in chosen])
    axes.set_ylim(len(chosen) - 0.4, -0.6)
    axes.set_xlabel("gain in this row, nats" if GAIN in stats else kind_of(posterior).label)
    plain(axes, keep_left=False)
    _explain_colours(figure, axes, any(n in values and values[n].levels is None for n in chosen))
    return figure


def _chosen(
    features: int | Sequence[str], names: list[str], mean: NDArray[np.float64]
) -> list[str]:
    if isinstance(features, int) and not isinstance(features, bool):
        order = np.argsort(-np.abs(mean), kind="stable")[: int_at_least("features", features)]
        return [names[g] for g in order]
    if isinstance(features, str) or not isinstance(features, Sequence):
        raise TypeError(f"features must be a number or a list of names; it is {features!r}")
    unknown = [name for name in features if name not in names]
    if unknown or not features:
        raise ValueError(f"features must be names among {names}; {unknown or 'none'} are given")
    return [str(name) for name in features]


def _offsets(across: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Up and down by turns, so that points of the same place stand side by side."""
    step = (high - low) / BINS or 1.0
    bins = np.floor((across - low) / step).astype(int)
    offsets = np.zeros(len(across))
    counts = np.bincount(bins) if len(bins) else np.zeros(1, int)
    unit = min(0.07, 0.76 / max(1, counts.max()))
    for place in np.unique(bins):
        own = np.flatnonzero(bins == place)
        turn = np.arange(len(own))
        offsets[own] = unit * np.where(turn % 2, 1, -1) * ((turn + 1) // 2)
    return offsets


def _colours(values: FeatureValues | None, places: NDArray[np.intp]) -> str | NDArray[np.float64]:
    if values is None or values.levels is not None:
        return GREY
    numbers = values.numbers[places]
    seen = ~np.isnan(numbers)
    ranks = np.full(len(numbers), np.nan)
    if seen.sum() > 1:
        ranks[seen] = (rankdata(numbers[seen]) - 1) / (seen.sum() - 1)
    shade: NDArray[np.float64] = LOW_TO_HIGH(np.nan_to_num(ranks, nan=0.5))
    shade[np.isnan(ranks)] = (0.54, 0.54, 0.54, 1.0)
    return shade


def _explain_colours(figure: Figure, axes: Axes, coloured: bool) -> None:
    if not coloured:
        return
    bar = figure.colorbar(
        ScalarMappable(cmap=LOW_TO_HIGH), ax=axes, location="top", shrink=0.5, pad=0.02, aspect=40
    )
    bar.set_ticks([0.0, 1.0], labels=["low", "high"])
    bar.set_label("the feature's value", fontsize=8)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8)
