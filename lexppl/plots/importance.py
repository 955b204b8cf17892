"""Features ranked by how often they are kept."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior
from lexppl.explanation.layout.importance_kind import PROBABILITY, kind_of
from lexppl.explanation.layout.mask_groups import masks_of
from lexppl.explanation.reading.ranking import chain_probabilities, selection_table
from lexppl.plots.style import BLUE, FAINT, GREY, INK, NotebookFigure, legend_columns, plain, short


def plot_importance(posterior: Posterior, features: int = 25, width: float = 6.4) -> Figure:
    """Features ranked by selection probability, with intervals over replicates; soft masks by their
    values, attributions by their size.

    A dot is the mean over rows and replicates of E[z | x], a bar its 95 % t-interval over
    replicates (:func:`selection_table`), and faint points are the replicates.

    Args:
        posterior: what :func:`explain` returned.
        features: how many to show, the most kept first.
        width: of the figure, in inches.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`, or fewer than one feature.

    Example:
        >>> import numpy as np, xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> mask = np.zeros((2, 5, 4, 3), np.int8)
        >>> posterior = posterior_of({
        ...     "predictions": xr.Dataset({"mask": (("chain", "draw", "row", "feature"), mask)},
        ...         {"feature": ["age", "height", "weight"]}),
        ...     "sample_stats": xr.Dataset({"selection_probability": (
        ...         ("chain", "row", "feature"), mask.mean(1), {"site": "mask"})}),
        ... }, {})
        >>> plot_importance(posterior).axes[0].get_xlabel()
        'selection probability, mean over rows'
    """
    features = int_at_least("features", features)
    table = selection_table(posterior)
    shown = table.iloc[:features]
    by_chain = chain_probabilities(posterior)
    feature = masks_of(posterior)[by_chain.dims[-1]]
    columns = pd.Index(feature.values).get_indexer(shown.index)
    chains = by_chain.values[:, columns]

    place = np.arange(len(shown))
    figure = NotebookFigure(figsize=(width, 1.1 + 0.27 * len(shown)), layout="constrained")
    axes = figure.subplots()
    kind = kind_of(posterior)
    values = shown[[by_chain.name, "lower", "upper"]].to_numpy()
    most = 1.0 if kind is PROBABILITY else max(np.nanmax(values), chains.max(), 1e-9)
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
        axes.hlines(
            place,
            shown["lower"].clip(0, most),
            shown["upper"].clip(0, most),
            color=BLUE,
            linewidth=2.2,
            alpha=0.6,
            label="95 % interval over replicates",
            zorder=1,
        )
    mean = "mean of replicates" if len(chains) > 1 else kind.label
    axes.scatter(shown[by_chain.name], place, s=34, color=BLUE, label=mean, zorder=2)
    axes.set_yticks(place, [short(name) for name in shown.index])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(-0.02 * most, 1.02 * most)
    axes.set_xlabel(f"{kind.label}, mean over rows")
    plain(axes, keep_left=False)
    if len(chains) > 1:
        figure.legend(
            loc="outside upper right", ncols=legend_columns(width), frameon=False, fontsize=8
        )
    if len(table) > len(shown):
        axes.set_title(f"{len(shown)} of {len(table)} features", loc="left", fontsize=9, color=GREY)
    return figure
