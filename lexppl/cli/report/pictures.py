"""The pictures of the report, each for a wide page and for a narrow one."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from lexppl.cli.judged.judging import SizeCurve
from lexppl.cli.report.figures import data_uri
from lexppl.cli.report.findings import ReportData
from lexppl.cli.report.words import SHOWN_ROWS, measure
from lexppl.explanation.beside.feature_values import feature_values
from lexppl.plots import (
    plot_accuracy_by_size,
    plot_beeswarm,
    plot_dependence,
    plot_heatmap,
    plot_history,
)
from lexppl.plots.style import GREY, INK

WIDE, NARROW, SMALL = 6.6, 3.75, 3.6
"""Inches of a picture on a page of 800 pixels, of 400, and of those that stand side by side."""
SWARM_FEATURES = 12
DEPENDENCES = 4


@dataclass(frozen=True)
class Picture:
    """A picture as data URIs, for a wide page and for a narrow one."""

    wide: str
    narrow: str


def pictures(findings: ReportData) -> dict[str, Picture | None]:
    """The pictures that there are, by name; None for those that there are not."""
    curve, posterior = findings.judgement.curve, findings.posterior
    ranked = [str(name) for name in findings.ranking.index]
    drawn: dict[str, Callable[[float], Figure] | None] = {
        "swarm": lambda width: plot_beeswarm(posterior, ranked[:SWARM_FEATURES], width=width),
        "rows": lambda width: plot_heatmap(posterior, SHOWN_ROWS, ranked, width),
        "sizes": None
        if curve is None
        else lambda width: size_picture(curve, measure(findings), width),
        "history": None
        if len(findings.result.history) == 0
        else lambda width: plot_history(findings.result.history, width),
    }
    return {name: None if draw is None else both(draw) for name, draw in drawn.items()}


def dependences(findings: ReportData) -> list[tuple[str, str]]:
    """Names and pictures of the first features whose values are known."""
    known = feature_values(findings.posterior)
    first = [name for name in map(str, findings.ranking.index) if name in known][:DEPENDENCES]
    return [
        (name, data_uri(plot_dependence(findings.posterior, name, width=SMALL))) for name in first
    ]


def both(draw: Callable[[float], Figure]) -> Picture:
    """A picture for either page."""
    return Picture(data_uri(draw(WIDE)), data_uri(draw(NARROW)))


def size_picture(curve: SizeCurve, name: str, width: float) -> Figure:
    """Accuracy against k with its controls: as many features chosen at random, and all of them."""
    figure = plot_accuracy_by_size(curve.sizes, curve.ranked, width=width)
    axes = figure.axes[0]
    axes.lines[0].set_label("most important features first")
    axes.plot(
        curve.sizes,
        curve.at_random,
        color=GREY,
        marker="s",
        markersize=4,
        linewidth=1.4,
        label="as many at random",
    )
    axes.axhline(
        curve.everything,
        color=INK,
        linestyle=(0, (5, 3)),
        linewidth=1.0,
        label=f"all features: {curve.everything:.3f}",
    )
    axes.set_xlabel("features kept in each row, k")
    axes.set_ylabel(f"{name} of EVAL-X")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure
