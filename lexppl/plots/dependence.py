"""Importance of a feature against its value."""

from typing import Any

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior
from lexppl.explanation.reading.feature_values import FeatureValues, feature_values, strata_of
from lexppl.explanation.reading.masks import PROBABILITY, kind_of, mask_means
from lexppl.plots.rows import LOW_TO_HIGH
from lexppl.plots.style import evenly, legend_outside, name_ticks, new_figure, plain, short

MOST_LEVELS = 12


def plot_dependence(
    posterior: Posterior, feature: str, rows: int = 500, width: float = 6.0, *, by: Any = None
) -> Figure:
    """Selection probability of a feature against its value, a point a row; or the values of soft
    masks, or attributions with their signs.

    A point is the mean over replicates of E[z | x] in that row, a thin line its range over
    replicates. A cloud that is flat says that the feature matters alike whatever its value, one
    that is spread out at one value that other features decide.

    Args:
        posterior: what :func:`explain` returned.
        feature: its name.
        rows: how many to show at most, an even choice.
        width: of the figure, in inches.
        by: what colours the points: another feature's name, or a value for each of the posterior's
            rows. Levels have a colour each; numbers are cut at their median.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`, no such feature, one whose values
            are not known, fewer than one row, values of another number of rows.

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> from lexppl.explanation.reading.feature_values import with_values
        >>> kept = np.array([[[0.1], [0.9]]])
        >>> posterior = posterior_of({
        ...     "predictions": xr.Dataset({"mask": (("chain", "draw", "row", "feature"),
        ...         np.zeros((1, 2, 2, 1), np.int8))}, {"feature": ["age"], "row": [0, 1]}),
        ...     "constant_data": xr.Dataset({"x": (("row", "input"), [[30.0], [70.0]])},
        ...         {"row": [0, 1], "input": ["age"]}),
        ...     "sample_stats": xr.Dataset({"selection_probability": (
        ...         ("chain", "row", "feature"), kept, {"site": "mask"})}, {"feature": ["age"]}),
        ... }, {})
        >>> plot_dependence(posterior, "age").axes[0].get_xlabel()
        'age'
    """
    known, across, each = dependence_points(posterior, feature, rows)
    split = ["mean of replicates"] * len(known) if by is None else by
    split = _known(posterior, by).column() if isinstance(by, str) else split
    strata = strata_of(split, len(known)).iloc[evenly(len(known), rows)]
    strata = strata.cat.remove_unused_categories()
    kind = kind_of(posterior)
    figure, axes = new_figure(width, 0.45 * width + 0.6)
    of = f"{short(by)}: " if isinstance(by, str) else ""
    colours = LOW_TO_HIGH(np.linspace(0.0, 1.0, len(strata.cat.categories)))
    for stratum, color in zip(strata.cat.categories, colours, strict=True):
        own = (strata == stratum).to_numpy()
        x, y, name = across[own], each[:, own], of + short(stratum)
        if len(y) > 1:
            axes.vlines(x, y.min(0), y.max(0), color=color, linewidth=0.8, alpha=0.35, zorder=0.9)
        axes.scatter(x, y.mean(0), s=14, color=color, alpha=0.75, linewidths=0, label=name)
    if len(each) > 1:
        axes.collections[0].set_label("range over replicates")
    if len(each) > 1 or by is not None:
        legend_outside(figure, width)
    axes.set_xlabel(short(feature))
    axes.set_ylabel(kind.label if kind is PROBABILITY else kind.name)
    if kind is PROBABILITY:
        axes.set_ylim(-0.04, 1.04)
    if known.dates:
        locator = AutoDateLocator(maxticks=5)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    elif known.levels is None:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    else:
        levels = [short(level) for level in known.levels]
        name_ticks(axes, levels, MOST_LEVELS, sum(map(len, levels)) > 40)
    plain(axes, grid="y")
    return figure


def dependence_points(
    posterior: Posterior, feature: str, rows: int
) -> tuple[FeatureValues, NDArray[np.float64], NDArray[np.float64]]:
    """The values of a feature, and where :func:`plot_dependence` has its points: across, and of
    each replicate `(R, B)`."""
    rows = int_at_least("rows", rows)
    means = mask_means(posterior)
    names = [str(name) for name in means[means.dims[-1]].values]
    if feature not in names:
        raise ValueError(
            f"feature must be one of the posterior's; {feature!r} is not among {names}"
        )
    known = _known(posterior, feature)
    each = means.values[:, :, names.index(feature)].astype(np.float64)
    places = evenly(each.shape[1], rows)
    each, numbers = each[:, places], known.numbers[places]
    return known, numbers if known.levels is None else _beside(numbers), each


def _known(posterior: Posterior, feature: str) -> FeatureValues:
    found = feature_values(posterior).get(feature)
    if found is None:
        raise ValueError(
            f"the values of {feature!r} are not known; write them into the posterior with "
            "lexppl.explanation.reading.feature_values.with_values"
        )
    return found


def _beside(numbers: np.ndarray) -> np.ndarray:
    """Places of levels, their rows side by side."""
    across = numbers.astype(np.float64).copy()
    for level in np.unique(numbers[~np.isnan(numbers)]):
        own = numbers == level
        across[own] += np.linspace(-0.3, 0.3, own.sum()) if own.sum() > 1 else 0.0
    return across
