"""Importance of features: over all rows, in each row, and against their value."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering

from lexppl.argument_checks import int_at_least, one_of, shaped
from lexppl.arviz_compatibility import Posterior
from lexppl.data.stratification import evenly
from lexppl.evaluation.effects import FeatureEffects
from lexppl.explanation.reading.feature_values import FeatureValues, feature_values, strata_of
from lexppl.explanation.reading.masks import ATTRIBUTION, PROBABILITY, kind_of, mask_means, masks_of
from lexppl.explanation.reading.picture_values import short
from lexppl.explanation.reading.tables import chain_probabilities, selection_table
from lexppl.plots.rows import LOW_TO_HIGH
from lexppl.plots.style import BLUE, FAINT, GREY, INK, legend_outside, name_ticks, new_figure, plain


def plot_importance(posterior: Posterior, features: int = 25, width: float = 6.4) -> Figure:
    """Features ranked by selection probability, with their intervals; soft masks by their
    values, attributions by their size.

    Use it first on what `explain` returned: which features count over all rows, and how far fits
    differ.

    Example:
        >>> import torch, lexppl
        >>> from lexppl.systems import lex
        >>> x, y = torch.ones(9, 3), torch.arange(9) % 2
        >>> result = lexppl.fit(lex(3, classes=2, k=1), (x, y), epochs=1, progress=False)
        >>> plot_importance(lexppl.explain(result, x)).axes[0].get_xlabel()
        'selection probability, mean over rows'

    A dot is the mean over rows and replicates of E[z | x], a bar its 95 % interval, named in the
    legend (:func:`selection_table`), and faint points are the replicates.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`, or fewer than one feature.
    """
    features = int_at_least("features", features)
    table = selection_table(posterior)
    shown = table.iloc[:features]
    by_chain = chain_probabilities(posterior)
    feature = masks_of(posterior)[by_chain.dims[-1]]
    columns = pd.Index(feature.values).get_indexer(shown.index)
    chains = by_chain.values[:, columns]

    place = np.arange(len(shown))
    figure, axes = new_figure(width, 1.1 + 0.27 * len(shown))
    kind = kind_of(posterior)
    values = shown[[by_chain.name, "lower", "upper"]].to_numpy()
    most = kind.end([np.nanmax(values), chains.max()])
    axes.hlines(place, 0, most, color=FAINT, linewidth=0.6, zorder=0)
    if len(chains) > 1:
        jitter = np.linspace(-0.2, 0.2, len(chains))[:, None]
        axes.scatter(
            chains,
            place + jitter,
            s=10,
            color=INK,
            alpha=0.4,
            linewidths=0,
            label="one replicate",
            zorder=3,
        )
    if table["lower"].notna().any():
        axes.hlines(
            place,
            shown["lower"].clip(0, most),
            shown["upper"].clip(0, most),
            color=BLUE,
            linewidth=2.2,
            alpha=0.6,
            label=table.attrs["interval"],
            zorder=1,
        )
    mean = "mean of replicates" if len(chains) > 1 else kind.label
    axes.scatter(shown[by_chain.name], place, s=34, color=BLUE, label=mean, zorder=2)
    axes.set_yticks(place, [short(name) for name in shown.index])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(-0.02 * most, 1.02 * most)
    axes.set_xlabel(f"{kind.label}, mean over rows")
    plain(axes, keep_left=False)
    if len(axes.get_legend_handles_labels()[0]) > 1:
        legend_outside(figure, width)
    if len(table) > len(shown):
        axes.set_title(f"{len(shown)} of {len(table)} features", loc="left", fontsize=9, color=GREY)
    return figure


def plot_heatmap(
    posterior: Posterior,
    rows: int = 50,
    order: Sequence[str] | None = None,
    width: float | None = None,
) -> Figure:
    """Selection probability of every feature in some rows, mean over replicates; or the values of
    soft masks, or attributions with their signs.

    Rows are in the order of a hierarchical clustering (average linkage, optimal leaf order),
    features in that of their selection probability over all rows, if no other is given.

    Args:
        rows: how many rows to show at most, an even choice.
        order: names of all features in the order wanted.
        width: of the figure, in inches; by the number of features if None.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`, fewer than one row, or an
            order of other features.

    Example:
        >>> import torch, lexppl
        >>> from lexppl.systems import lex
        >>> x, y = torch.ones(9, 3), torch.arange(9) % 2
        >>> result = lexppl.fit(lex(3, classes=2, k=1), (x, y), epochs=1, progress=False)
        >>> plot_heatmap(lexppl.explain(result, x), rows=4).axes[0].images[0].get_array().shape
        (4, 3)
    """
    probability, row_names, names = _means_by_row(posterior, rows, order)
    total = mask_means(posterior).sizes["row"]
    high, wide = probability.shape
    if width is None:
        width = min(max(3.0 + 0.24 * wide, 5.0), 12.0)
    figure, axes = new_figure(width, min(max(1.8 + 0.12 * high, 2.6), 11.0))
    kind = kind_of(posterior)
    most = kind.end(probability)
    signed = kind is ATTRIBUTION
    image = axes.imshow(
        probability,
        cmap="RdBu" if signed else "Blues",
        vmin=-most if signed else 0,
        vmax=most,
        aspect="auto",
        interpolation="nearest",
    )
    name_ticks(axes, names, min(40.0, 5.0 * (width - 1.4)), max(map(len, names)) > 3)
    if high <= 60:
        apart = 1 if high <= 30 else 2
        axes.set_yticks(np.arange(high)[::apart], row_names[::apart], fontsize=7.5)
    else:
        axes.set_yticks([])
    rows_shown = f"{high} of {total} rows" if high < total else f"{high} rows"
    axes.set_ylabel(f"{rows_shown}, similar ones together")
    first = "the most kept" if kind is PROBABILITY else "the most important"
    axes.set_xlabel(f"feature, {first} first" if order is None else "feature")
    axes.tick_params(length=0, colors=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    ticks = [0, 0.25, 0.5, 0.75, 1] if kind is PROBABILITY else None
    bar = figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02, ticks=ticks)
    bar.outline.set_visible(False)
    bar.set_label(kind.signed_label)
    bar.ax.tick_params(length=0, labelsize=8)
    return figure


def _means_by_row(
    posterior: Posterior, rows: int, order: Sequence[str] | None
) -> tuple[NDArray[np.float64], list[str], list[str]]:
    """Values of a heat map, `(B, G)`, and names of rows and features."""
    ranked, means = chain_probabilities(posterior), mask_means(posterior)
    columns = _columns(ranked, order)
    chosen = evenly(means.sizes["row"], int_at_least("rows", rows))
    values = means.isel(row=chosen).values.mean(0, dtype=np.float64)
    places = _clustered(values)
    draws = masks_of(posterior)
    names = [short(name) for name in draws[ranked.dims[-1]].values[columns]]
    row_names = [short(name) for name in draws["row"].values[chosen][places]]
    return values[places][:, columns], row_names, names


def _columns(ranked: xr.DataArray, order: Sequence[str] | None) -> np.ndarray:
    if order is None:
        return np.argsort(-ranked.values.mean(0), kind="stable")
    names = [str(name) for name in ranked[ranked.dims[-1]].values]
    if sorted(map(str, order)) != sorted(names):
        raise ValueError(f"order must have each of the features {names} once; it is {list(order)}")
    return np.array([names.index(str(name)) for name in order])


def _clustered(values: np.ndarray) -> np.ndarray:
    if len(values) < 3 or bool((values == values[:1]).all()):
        return np.arange(len(values))
    tree = linkage(values, method="average", metric="euclidean")
    if len(values) <= 300:
        tree = optimal_leaf_ordering(tree, values)
    return leaves_list(tree)


MOST_LEVELS = 12


def plot_dependence(
    posterior: Posterior,
    feature: str,
    rows: int = 500,
    width: float = 6.0,
    *,
    by: Any = None,
    effects: FeatureEffects | None = None,
) -> Figure:
    """Selection probability of a feature against its value, a point a row; or the values of soft
    masks, or attributions with their signs; or its effects on the prediction.

    A point is the mean over replicates of E[z | x] in that row, a thin line its range over
    replicates. With `effects` it is what the feature adds to the prediction in rows that keep it:
    to the log-odds of the last of two labels, or of all of them, by colour; to a response's mean.

    Args:
        rows: how many to show at most, an even choice.
        effects: of :func:`lexppl.evaluation.feature_effects` for the posterior's rows.
        by: what colours the points: another feature's name, or a value for each of the posterior's
            rows. Levels have a colour each; numbers are cut at their median.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`, no such feature, one whose values
            are not known, fewer than one row, values or effects of another number of rows, `by`
            beside effects on three labels or more.

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
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
    rows = int_at_least("rows", rows)
    means = mask_means(posterior)
    names = [str(name) for name in means[means.dims[-1]].values]
    one_of(names, "feature", feature)
    known = _known(posterior, feature)
    kind = kind_of(posterior)
    every = means.values[:, :, names.index(feature), None].astype(np.float64)
    labels: tuple[str, ...] = ()
    height = kind.label if kind is PROBABILITY else kind.name
    if effects is not None:
        every, labels = effects.of(feature)[None], effects.class_names or ()
        shaped("effects", every[0], (len(known), every.shape[-1]))
        height = f"effect on the {f'log-odds of {labels[-1]}' if labels else 'mean response'}"
    places = evenly(every.shape[1], rows)
    points, across = every[:, places], known.numbers[places]
    if known.levels is not None:
        across = _beside(across)
    split = ["mean of replicates"] * len(known) if by is None else by
    split = _known(posterior, by).column() if isinstance(by, str) else split
    strata = strata_of(split, len(known)).iloc[places]
    strata = strata.cat.remove_unused_categories()
    figure, axes = new_figure(width, 0.45 * width + 0.6)
    of = f"{short(by)}: " if isinstance(by, str) else ""
    parts = {
        of + short(stratum): (points[..., -1], (strata == stratum).to_numpy())
        for stratum in strata.cat.categories
    }
    if len(labels) > 2:
        if by is not None:
            raise ValueError("effects on three labels or more have a colour a label: leave out by=")
        height = "effect on the log-odds of each label"
        every_row = np.full(len(places), True)
        parts = {short(label): (points[..., c], every_row) for c, label in enumerate(labels)}
    colours = LOW_TO_HIGH(np.linspace(0.0, 1.0, len(parts)))
    for (name, (values, of_part)), color in zip(parts.items(), colours, strict=True):
        x, y = across[of_part], values[:, of_part]
        if len(y) > 1:
            axes.vlines(x, y.min(0), y.max(0), color=color, linewidth=0.8, alpha=0.35, zorder=0.9)
        axes.scatter(x, y.mean(0), s=14, color=color, alpha=0.75, linewidths=0, label=name)
    if len(points) > 1:
        axes.collections[0].set_label("range over replicates")
    if len(points) > 1 or by is not None or len(labels) > 2:
        legend_outside(figure, width)
    axes.set_xlabel(short(feature))
    axes.set_ylabel(height)
    if effects is not None:
        axes.axhline(0.0, color=FAINT, linewidth=0.8, zorder=0)
    elif kind is PROBABILITY:
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


def _known(posterior: Posterior, feature: str) -> FeatureValues:
    values = feature_values(posterior).get(feature)
    if values is None:
        raise ValueError(
            f"the values of {feature!r} are not known; write them into the posterior with "
            "lexppl.explanation.reading.feature_values.with_values"
        )
    return values


def _beside(numbers: np.ndarray) -> np.ndarray:
    across = numbers.astype(np.float64).copy()
    for level in np.unique(numbers[~np.isnan(numbers)]):
        at_level = numbers == level
        across[at_level] += np.linspace(-0.3, 0.3, at_level.sum()) if at_level.sum() > 1 else 0.0
    return across
