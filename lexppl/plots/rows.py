"""Rows: one as a sum of steps, all as a swarm."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import rankdata

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.data.stratification import evenly
from lexppl.evaluation.effects import RowSteps
from lexppl.explanation.reading.feature_values import GAIN, FeatureValues, feature_values
from lexppl.explanation.reading.masks import kind_of, mask_means
from lexppl.explanation.reading.picture_values import LONGEST_LABEL, NARROW_LABEL, short
from lexppl.plots.style import BLUE, FAINT, GREY, INK, ORANGE, check_kind, new_figure, plain


def plot_row(
    steps: RowSteps, values: Mapping[str, Any] | None = None, features: int = 12, width: float = 6.4
) -> Figure:
    """One row's prediction, from the base rate to what is predicted, by a bar a feature.

    Bars stand end to end: each is what revealing the feature adds to the log of the label's
    probability, in nats (of a response to its mean), the most kept first
    (:func:`lexppl.evaluation.revealed_predictions`). The features that add least are one bar.

    Args:
        steps: of the row, :meth:`lexppl.evaluation.RevealedPredictions.steps`.
        values: of the row's features, to stand beside their names.
        features: how many have a bar of their own.

    Raises:
        TypeError: no steps.
        ValueError: fewer than one feature.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"step": [0.5, -0.1], "total": [-0.2, -0.3], "kept": [1.0, 0.4]},
        ...     index=["age", "weight"])
        >>> figure = plot_row(RowSteps(table, -0.9, -0.7, -0.3, "ill"), {"age": 71})
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['base rate', 'all hidden', 'age = 71', 'weight', 'prediction']
    """
    check_kind(steps, RowSteps, "steps", "revealed_predictions(…).steps(row)")
    features = int_at_least("features", features)
    lines = steps.bars(features)
    place = np.arange(len(lines))
    figure, axes = new_figure(width, 1.0 + 0.29 * len(lines))
    start, step = lines["start"].to_numpy(), lines["step"].to_numpy()
    colour = np.where(step > 0, BLUE, ORANGE)
    axes.barh(place, step, 0.62, start, color=colour)
    ends = start + step
    axes.vlines(ends[:-1], place[:-1], place[1:], color=GREY, linewidth=0.7)
    whole = lines["is_level"].to_numpy()
    axes.plot(ends[whole], place[whole], "D", color=INK, markersize=5)
    for i, (end, change) in enumerate(zip(ends, step, strict=True)):
        text = f"{end:.3g}" if whole[i] else f"{change:+.2f}".replace("-0.00", "+0.00")
        axes.annotate(
            text,
            (max(end, end - change), i),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
        )
    known = values or {}
    names = [f"{short(n)} = {known[n]}" if n in known else short(n) for n in lines.index]
    axes.set_yticks(place, names)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    # Bars' ends would otherwise be the axis's own.
    axes.use_sticky_edges = False
    axes.margins(x=0.12)
    of = "mean response" if steps.label is None else f"log p({short(steps.label)}), nats"
    axes.set_xlabel(of)
    plain(axes, keep_left=False, grid="x")
    return figure


BINS = 70  # Of a line of points
LOW_TO_HIGH = LinearSegmentedColormap.from_list("low to high", [BLUE, "#B8A9B6", ORANGE])


def plot_beeswarm(
    posterior: Posterior, features: int | Sequence[str] = 12, rows: int = 300, width: float = 6.4
) -> Figure:
    """Row gains of the features, a point a row, coloured by the feature's value.

    A point is what the feature says beyond all others in that row, in nats
    (:func:`lexppl.evaluation.importance`), where the posterior has it, else its selection
    probability. Colours go by the rank of the value among the rows shown, from low (blue) to high
    (orange); features of levels, and values that are not known, are grey.

    Args:
        features: how many to show, the largest mean first; or their names, in the order wanted.
        rows: how many to show at most, an even choice.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`, a feature that it does not have,
            fewer than one feature or row.

    Example:
        >>> import torch, lexppl
        >>> from lexppl.systems import lex
        >>> x, y = torch.ones(9, 3), torch.arange(9) % 2
        >>> result = lexppl.fit(lex(3, classes=2, k=1), (x, y), epochs=1, progress=False)
        >>> plot_beeswarm(lexppl.explain(result, x), ["x3", "x1"]).axes[0].get_xlabel()
        'selection probability'
    """
    rows = int_at_least("rows", rows)
    stats, means = group_of(posterior, "sample_stats"), mask_means(posterior)
    gains = stats.get(GAIN, means).values.astype(np.float64)
    if GAIN not in stats:
        gains = gains.mean(0)
    # Of some features no gain is known.
    judged = ~np.isnan(gains).all(0)
    every, gains = means[means.dims[-1]].values[judged].astype(str).tolist(), gains[:, judged]
    known = np.flatnonzero(~np.isnan(gains).any(1))
    places = known[evenly(len(known), rows)]
    names = _chosen(features, every, gains[known].mean(0))
    points = gains[places][:, [every.index(name) for name in names]]
    values = feature_values(posterior)
    ranks = np.stack([_ranks(values.get(name), places) for name in names], 1)
    low, high = float(points.min(initial=0.0)), float(points.max(initial=0.0))
    figure, axes = new_figure(width, 1.15 + 0.34 * len(names))
    for line, (across, rank) in enumerate(zip(points.T, ranks.T, strict=True)):
        shade = LOW_TO_HIGH(np.nan_to_num(rank, nan=0.5))
        shade[np.isnan(rank)] = to_rgba(GREY)
        up = line + _offsets(across, rank, low, high)
        axes.scatter(across, up, c=shade, s=9, linewidths=0, alpha=0.85, rasterized=True)
    place = np.arange(len(names))
    axes.axvline(0.0, color=GREY, linewidth=0.8, zorder=0)
    axes.hlines(place, low, high, color=FAINT, linewidth=0.6, zorder=0)
    longest = LONGEST_LABEL if width >= 5.0 else NARROW_LABEL
    axes.set_yticks(place, [short(name, longest) for name in names])
    axes.set_ylim(len(place) - 0.4, -0.6)
    axes.set_xlabel("gain in this row, nats" if GAIN in stats else kind_of(posterior).label)
    plain(axes, keep_left=False)
    if not np.isnan(ranks).all():
        colours = ScalarMappable(cmap=LOW_TO_HIGH)
        bar = figure.colorbar(colours, ax=axes, location="top", shrink=0.5, pad=0.02, aspect=40)
        bar.set_ticks([0.0, 1.0], labels=["low", "high"])
        bar.set_label("the feature's value", fontsize=8)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, labelsize=8)
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


def _offsets(
    across: NDArray[np.float64], ranks: NDArray[np.float64], low: float, high: float
) -> NDArray[np.float64]:
    """Downwards, so that points of the same place stand one below the other, high values first."""
    bins = np.floor((across - low) / ((high - low) / BINS or 1.0)).astype(int)
    counts = np.bincount(bins)
    unit = min(0.07, 0.76 / max(1, counts.max(initial=0)))
    order = np.lexsort((-np.nan_to_num(ranks), bins))
    size = counts[bins[order]]
    offsets = np.empty(len(across))
    offsets[order] = unit * (np.arange(len(size)) - np.cumsum(counts)[bins[order]] + (size + 1) / 2)
    return offsets


def _ranks(values: FeatureValues | None, places: NDArray[np.intp]) -> NDArray[np.float64]:
    ranks = np.full(len(places), np.nan)
    if values is not None and values.levels is None:
        numbers = values.numbers[places]
        seen = ~np.isnan(numbers)
        if seen.sum() > 1:
            ranks[seen] = (rankdata(numbers[seen]) - 1) / (seen.sum() - 1)
    return ranks
