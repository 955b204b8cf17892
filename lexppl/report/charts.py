"""Figures of a table's report as SVG."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from markupsafe import Markup

from lexppl.evaluation.effects import LEAST_KEPT
from lexppl.evaluation.penalty_path import PenaltyPath
from lexppl.explanation.reading.feature_values import feature_values
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference.training.result import History
from lexppl.plots.fits import plot_history
from lexppl.plots.importance import plot_dependence, plot_heatmap
from lexppl.plots.rows import plot_beeswarm
from lexppl.plots.style import BLUE, INK, as_svg, new_figure, plain
from lexppl.report.data import TableReport

WIDTH = 4.9  # Of a figure in inches
SWARM_FEATURES, SHOWN_ROWS = 12, 50
DEPENDENCE_FEATURES, DEPENDENCE_ROWS = 3, 300


def rows_figures(report: TableReport) -> dict[str, Markup | None]:
    """Swarm of the first features, if any, and heat map of rows."""
    judged = report.ranking if report.gains is None else report.ranking.dropna(subset="gain")
    first, swarm = [str(name) for name in judged.index[:SWARM_FEATURES]], None
    if first:
        swarm = as_svg(
            plot_beeswarm(report.posterior, first, width=WIDTH),
            "A line of points for each of the first features, a point a held-out row, coloured by "
            "the feature's value",
        )
    order = [str(name) for name in report.ranking.index]
    heat_map = plot_heatmap(report.posterior, SHOWN_ROWS, order, WIDTH)
    name = f"Heat map of rows by features: {report.kind.meaning}"
    return {"swarm": swarm, "rows": as_svg(heat_map, name)}


def dependence_figures(report: TableReport) -> list[Markup]:
    """Effects of the first features that some rows keep, against their values."""
    effects = report.details.effects
    if effects is None:
        return []
    count = min(effects.kept.shape[1], len(masks_of(report.posterior)["row"]))
    effects = replace(effects, effects=effects.effects[:, :count], kept=effects.kept[:, :count])
    shares = dict(zip(effects.entry_names, effects.kept.mean(0).sum(0).tolist(), strict=True))
    posterior = report.posterior.isel(row=slice(count))
    known, figures = feature_values(posterior), []
    names = [n for n in map(str, report.ranking.index) if n in known and shares[n] >= LEAST_KEPT]
    for name in names[:DEPENDENCE_FEATURES]:
        figure = plot_dependence(posterior, name, DEPENDENCE_ROWS, WIDTH, effects=effects)
        for points in figure.axes[0].collections:
            points.set_rasterized(True)
        figures.append(as_svg(figure, f"Effect of {name} on the prediction, by its value"))
    return figures


def history_figure(history: History) -> Markup | None:
    """The loss by epoch."""
    losses = "Training and validation" if np.isfinite(history.valid).any() else "Training"
    drawn = plot_history(history, WIDTH) if len(history) else None
    return None if drawn is None else as_svg(drawn, f"{losses} loss by epoch")


def dial_figure(path: PenaltyPath) -> Markup:
    """Held-out log-likelihood against the number of features kept."""
    table = path.table.sort_values("size")
    size, fit = table["size"], table["log_likelihood"]
    drawn, axes = new_figure(WIDTH, 2.8)
    axes.errorbar(size, fit, table["error"], fmt="o-", color=BLUE, elinewidth=0.7)
    axes.plot(size[path.index], fit[path.index], "o", markersize=11, fillstyle="none", color=INK)
    axes.annotate(
        "in use",
        (size[path.index], fit[path.index]),
        xytext=(9, -12),
        textcoords="offset points",
        color=INK,
    )
    axes.set(xlabel="features that a row keeps, mean", ylabel="log-likelihood, nats a row")
    plain(axes, grid="y")
    return as_svg(drawn, "Held-out log-likelihood against the number of features kept")
