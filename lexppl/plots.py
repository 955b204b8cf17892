"""Pictures of explanations and fits, as matplotlib figures that belong to nobody else.

Each function returns a `matplotlib.figure.Figure` made without pyplot, so that no global state is
touched; `figure.savefig("name.png")` writes it. Colours are from Okabe and Ito's palette, which
colour-blind readers can tell apart.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.explanation.importance_kind import ATTRIBUTION, PROBABILITY, kind_of, mask_means
from lexppl.explanation.ranking import chain_probabilities, selection_table
from lexppl.inference.training.result import History

BLUE = "#0072B2"
ORANGE = "#D55E00"
GREY = "#8A8A8A"
FAINT = "#D9D9D9"
INK = "#262626"

LONGEST_LABEL = 28


class NotebookFigure(Figure):
    """A figure that a notebook shows as it is, whether or not pyplot is at work there."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png", dpi=110)
        return picture.getvalue()


def plot_importance(posterior: Posterior, features: int = 25) -> Figure:
    """Features ranked by selection probability, with intervals over replicates; soft masks by their
    values, attributions by their size.

    A dot is the mean over rows and replicates of E[z | x], a bar its 95 % t-interval over
    replicates (:func:`selection_table`), and faint points are the replicates.

    Args:
        posterior: what :func:`explain` returned.
        features: how many to show, the most kept first.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`, or fewer than one feature.

    Example:
        >>> import numpy as np, xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> mask = np.zeros((2, 5, 4, 3), np.int8)
        >>> posterior = posterior_of({
        ...     "posterior": xr.Dataset({"mask": (("chain", "draw", "row", "feature"), mask)},
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
    feature = group_of(posterior, "posterior")[by_chain.dims[-1]]
    columns = pd.Index(feature.values).get_indexer(shown.index)
    chains = by_chain.values[:, columns]

    place = np.arange(len(shown))
    figure = NotebookFigure(figsize=(6.4, 1.1 + 0.27 * len(shown)), layout="constrained")
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
    axes.set_yticks(place, [_short(name) for name in shown.index])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(-0.02 * most, 1.02 * most)
    axes.set_xlabel(f"{kind.label}, mean over rows")
    _plain(axes, keep_left=False)
    if len(chains) > 1:
        figure.legend(loc="outside upper right", ncols=3, frameon=False, fontsize=8)
    if len(table) > len(shown):
        axes.set_title(f"{len(shown)} of {len(table)} features", loc="left", fontsize=9, color=GREY)
    return figure


def plot_heatmap(posterior: Posterior, rows: int = 50) -> Figure:
    """Selection probability of every feature in some rows, mean over replicates; or the values of
    soft masks, or attributions with their signs.

    Rows are an even choice of the posterior's, put in the order of a hierarchical clustering
    (average linkage, optimal leaf order), so that rows that are explained alike stand together.
    Features stand in the order of their selection probability over all rows.

    Args:
        posterior: what :func:`explain` returned.
        rows: how many rows to show at most.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`, or fewer than one row.

    Example:
        >>> import numpy as np, xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> mask = np.zeros((1, 5, 4, 3), np.int8)
        >>> posterior = posterior_of({
        ...     "posterior": xr.Dataset({"mask": (("chain", "draw", "row", "feature"), mask)},
        ...         {"feature": ["age", "height", "weight"], "row": ["a", "b", "c", "d"]}),
        ...     "sample_stats": xr.Dataset({"selection_probability": (
        ...         ("chain", "row", "feature"), mask.mean(1), {"site": "mask"})}),
        ... }, {})
        >>> plot_heatmap(posterior, rows=3).axes[0].images[0].get_array().shape
        (3, 3)
    """
    rows = int_at_least("rows", rows)
    ranked = chain_probabilities(posterior)
    order = np.argsort(-ranked.values.mean(0), kind="stable")
    means = mask_means(posterior)
    total = means.sizes["row"]
    chosen = np.unique(np.linspace(0, total - 1, min(rows, total)).round().astype(int))
    part = means.isel(row=chosen)
    probability = part.values.mean(0, dtype=np.float64)
    chosen_order = _clustered(probability)
    probability = probability[chosen_order][:, order]
    draws = group_of(posterior, "posterior")
    names = [_short(name) for name in draws[ranked.dims[-1]].values[order]]
    row_names = [_short(name) for name in draws["row"].values[chosen][chosen_order]]

    high, wide = probability.shape
    figure = NotebookFigure(
        figsize=(min(max(3.0 + 0.24 * wide, 5.0), 12.0), min(max(1.8 + 0.12 * high, 2.6), 11.0)),
        layout="constrained",
    )
    axes = figure.subplots()
    kind = kind_of(posterior)
    most = 1.0 if kind is PROBABILITY else max(float(np.abs(probability).max()), 1e-9)
    signed = kind is ATTRIBUTION
    image = axes.imshow(
        probability,
        cmap="RdBu" if signed else "Blues",
        vmin=-most if signed else 0,
        vmax=most,
        aspect="auto",
        interpolation="nearest",
    )
    every = max(1, int(np.ceil(wide / 40)))
    turned = max(map(len, names)) > 3
    axes.set_xticks(
        np.arange(wide)[::every],
        names[::every],
        rotation=60 if turned else 0,
        ha="right" if turned else "center",
        rotation_mode="anchor" if turned else None,
        fontsize=8,
    )
    if high <= 60:
        axes.set_yticks(np.arange(high), row_names, fontsize=6.5)
    else:
        axes.set_yticks([])
    rows_shown = f"{high} of {total} rows" if high < total else f"{high} rows"
    axes.set_ylabel(f"{rows_shown}, similar ones together")
    first = "the most kept" if kind is PROBABILITY else "the most important"
    axes.set_xlabel(f"feature, {first} first")
    axes.tick_params(length=0, colors=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    ticks = [0, 0.25, 0.5, 0.75, 1] if kind is PROBABILITY else None
    bar = figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02, ticks=ticks)
    bar.outline.set_visible(False)
    bar.set_label("attribution" if signed else kind.label)
    bar.ax.tick_params(length=0, labelsize=8)
    return figure


def plot_accuracy_by_size(
    sizes: Sequence[float],
    accuracies: Sequence[float] | Sequence[Sequence[float]] | np.ndarray,
    reference: float | None = None,
) -> Figure:
    """Accuracy of predictions as a function of how many entries a mask keeps.

    Args:
        sizes: S numbers of entries kept.
        accuracies: `(S,)`, or `(R, S)` for R replicates, which are shown faintly under their mean.
        reference: accuracy of a predictor that sees everything, a dashed line.

    Raises:
        ValueError: accuracies of another number of sizes.

    Example:
        >>> plot_accuracy_by_size([1, 2, 4], [0.6, 0.8, 0.85], reference=0.86).axes[0].get_ylabel()
        'accuracy'
    """
    size = np.asarray(sizes, dtype=float)
    values = np.atleast_2d(np.asarray(accuracies, dtype=float))
    if size.ndim != 1 or len(size) == 0 or values.ndim != 2 or values.shape[1] != len(size):
        raise ValueError(
            f"accuracies must be ({size.size},) or (R, {size.size}), one for each of the sizes; "
            f"they have shape {np.shape(accuracies)}"
        )
    order = np.argsort(size, kind="stable")
    size, values = size[order], values[:, order]
    figure = NotebookFigure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    for i, replicate in enumerate(values if len(values) > 1 else ()):
        label = "one replicate" if i == 0 else None
        axes.plot(size, replicate, color=BLUE, alpha=0.25, linewidth=1, label=label)
    axes.plot(
        size,
        values.mean(0),
        color=BLUE,
        marker="o",
        markersize=5,
        linewidth=1.8,
        label="mean of replicates",
    )
    if len(values) > 1:
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    if reference is not None:
        axes.axhline(reference, color=GREY, linestyle=(0, (5, 3)), linewidth=1.2)
        axes.annotate(
            f"everything seen: {reference:.3f}",
            (0, reference),
            xycoords=("axes fraction", "data"),
            xytext=(6, 4),
            textcoords="offset points",
            fontsize=8,
            color=INK,
        )
    axes.margins(y=0.15)
    axes.set_xlabel("entries kept")
    axes.set_ylabel("accuracy")
    axes.xaxis.set_major_locator(_whole_numbers())
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    _plain(axes)
    return figure


def plot_history(history: History) -> Figure:
    """Training and validation losses by epoch, with each replicate's best epoch.

    The training loss is that of the objective as its schedules stood, the validation loss that of
    the final objective, so their levels may differ early on. Best epochs are marked in the last
    stage, where the validation loss is least; the start of a further stage is a thin line.

    Args:
        history: `result.history` of a fit.

    Raises:
        ValueError: a history without epochs.

    Example:
        >>> import numpy as np
        >>> loss = np.array([[0.7], [0.5], [0.6]])
        >>> history = History(loss, loss + 0.1, np.zeros(3, dtype=int), np.ones(3))
        >>> plot_history(history).axes[0].get_ylabel()
        'loss in nats a row'
    """
    if len(history) == 0:
        raise ValueError("the history has no epochs to plot")
    epochs = np.arange(1, len(history) + 1)
    train, valid = np.atleast_2d(history.train), np.atleast_2d(history.valid)
    figure = NotebookFigure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    alpha = max(0.35, min(0.9, 2.5 / train.shape[1]))
    _curves(axes, epochs, train, GREY, alpha, "training, schedules as they stood")
    if np.isfinite(valid).any():
        _curves(axes, epochs, valid, BLUE, alpha, "validation, final objective")
        last = np.flatnonzero(history.stage == history.stage[-1])
        for i, replicate in enumerate(valid.T):
            if np.isfinite(replicate[last]).any():
                best = last[np.nanargmin(replicate[last])]
                axes.plot(
                    epochs[best],
                    replicate[best],
                    marker="o",
                    markersize=5.5,
                    color=ORANGE,
                    markeredgecolor="white",
                    markeredgewidth=0.7,
                    linestyle="none",
                    zorder=4,
                    label="best epoch" if i == 0 else None,
                )
    for start in np.flatnonzero(np.diff(history.stage)) + 1:
        axes.axvline(start + 0.5, color=INK, linewidth=0.7, alpha=0.5)
    low, high = _view(np.concatenate([train, valid], axis=1))
    axes.set_ylim(low, high)
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss in nats a row")
    axes.xaxis.set_major_locator(_whole_numbers())
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    _plain(axes)
    figure.legend(loc="outside upper right", ncols=3, frameon=False, fontsize=8)
    return figure


def plot_penalty_path(table: pd.DataFrame) -> Figure:
    """Entries kept and held-out log-likelihood along a path of penalties, the chosen one marked.

    Bars are one standard error: of the size over replicates, of the log-likelihood's distance to
    the best one over rows in pairs.

    Args:
        table: of :class:`lexppl.evaluation.PenaltyPath`.

    Raises:
        KeyError: a table without its columns.

    Example:
        >>> table = pd.DataFrame({"penalty": [0.01, 0.02], "size": [4.0, 3.0],
        ...     "size_error": [0.1, 0.2], "log_likelihood": [-0.5, -0.6],
        ...     "error": [0.0, 0.01], "chosen": [True, False]})
        >>> [axes.get_ylabel() for axes in plot_penalty_path(table).axes]
        ['entries kept', 'held-out log-likelihood']
    """
    penalties = table["penalty"].to_numpy(dtype=float)
    chosen = penalties[table["chosen"].to_numpy(dtype=bool)]
    figure = NotebookFigure(figsize=(6.0, 4.4), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True)
    for axes, value, error, label, colour in (
        (upper, "size", "size_error", "entries kept", BLUE),
        (lower, "log_likelihood", "error", "held-out log-likelihood", ORANGE),
    ):
        spread = table[error].fillna(0.0)
        axes.errorbar(penalties, table[value], spread, color=colour, marker="o", markersize=5)
        for penalty in chosen:
            axes.axvline(penalty, color=GREY, linestyle=(0, (5, 3)), linewidth=1.2)
        axes.set_ylabel(label)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        _plain(axes)
    lower.set_xscale("log")
    lower.set_xticks(penalties, [f"{penalty:.2g}" for penalty in penalties])
    lower.minorticks_off()
    lower.set_xlabel("penalty λ, nats for each entry kept")
    return figure


def _curves(
    axes: Axes, epochs: np.ndarray, losses: np.ndarray, color: str, alpha: float, label: str
) -> None:
    for i, loss in enumerate(losses.T):
        axes.plot(
            epochs,
            loss,
            color=color,
            alpha=alpha,
            linewidth=1.3,
            label=label if i == 0 else None,
            marker="." if len(epochs) == 1 else None,
        )


def _view(losses: np.ndarray) -> tuple[float, float]:
    """Limits of the axis that leave out a few very large first losses."""
    finite = losses[np.isfinite(losses)]
    if finite.size == 0:
        return 0.0, 1.0
    low, high, typical = finite.min(), finite.max(), np.quantile(finite, 0.98)
    if high - low > 3 * (typical - low) > 0:
        high = typical
    margin = 0.06 * (high - low) or 0.05
    return float(low - margin), float(high + margin)


def _clustered(values: np.ndarray) -> np.ndarray:
    """An order of rows in which similar ones are neighbours."""
    if len(values) < 3 or bool((values == values[:1]).all()):
        return np.arange(len(values))
    tree = linkage(values, method="average", metric="euclidean")
    if len(values) <= 300:
        tree = optimal_leaf_ordering(tree, values)
    return leaves_list(tree)


def _plain(axes: Axes, keep_left: bool = True) -> None:
    """No frame, only the lines that carry a scale."""
    for side in ("top", "right") if keep_left else ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(GREY)
    axes.tick_params(colors=INK, labelsize=9, length=3 if keep_left else 0)


def _whole_numbers() -> MaxNLocator:
    return MaxNLocator(integer=True, nbins=10, steps=[1, 2, 5, 10])


def _short(name: Any) -> str:
    text = str(name)
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
