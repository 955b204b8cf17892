"""The pictures of the report."""

import math

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from lexppl.cli.judged.judging import SizeCurve
from lexppl.cli.report.charts import BOTTOM, MOST_TURNED, TOP, Chart, Line
from lexppl.cli.report.findings import ReportData
from lexppl.cli.report.words import SHOWN_ROWS, measure
from lexppl.explanation.reading.masks import PROBABILITY
from lexppl.inference.training.result import History
from lexppl.plots.fits import view
from lexppl.plots.importance import means_by_row
from lexppl.plots.rows import swarm_of
from lexppl.plots.style import NARROW_LABEL, short

SWARM_FEATURES, SWARM_ROWS = 12, 300
MOST_COLUMNS, MOST_EPOCHS = 80, 200
"""Features of the heat map and points of a loss that are drawn."""
SHADES = 8
NAMES = 140
"""Units of a margin of names."""


def pictures(findings: ReportData) -> dict[str, Markup | None]:
    """The pictures that there are, by name; None for those that there are not."""
    curve, history = findings.judgement.curve, findings.result.history
    return {
        "swarm": _swarm(findings),
        "rows": _heat_map(findings),
        "sizes": None if curve is None else sizes_chart(curve, measure(findings)),
        "history": history_chart(history) if len(history) else None,
    }


def sizes_chart(curve: SizeCurve, name: str) -> Markup:
    """Accuracy against k with its controls: as many features chosen at random, and all of them."""
    ends = [curve.sizes[0], curve.sizes[-1]]
    return Chart(
        [
            Line(ends, [curve.everything] * 2, "dashed", label="all features"),
            Line(curve.sizes, curve.at_random, "soft", points=True, label="as many at random"),
            Line(curve.sizes, curve.ranked, "first", points=True, label="most important first"),
        ],
        "features kept in each row, k",
        f"{name} of EVAL-X",
        f"{name} against the number of features kept",
    ).svg()


def history_chart(history: History) -> Markup:
    """Losses by epoch, a line a replicate."""
    train, valid = np.atleast_2d(history.train), np.atleast_2d(history.valid)
    epochs = np.arange(1, len(train) + 1)
    some = np.unique(np.linspace(0, len(train) - 1, min(len(train), MOST_EPOCHS)).astype(int))
    one, last = len(some) == 1, history.stage == history.stage[-1]
    lines = [
        Line(epochs[some], loss[some], "soft thin", points=one, label="" if place else "training")
        for place, loss in enumerate(train.T)
    ]
    judged = [loss for loss in valid.T if np.isfinite(loss[last]).any()]
    for place, loss in enumerate(judged):
        label = "" if place else "validation"
        best = np.nanargmin(np.where(last, loss, np.nan))
        lines.append(Line(epochs[some], loss[some], "first thin", label=label))
        lines.append(
            Line([epochs[best]], [loss[best]], "other", points=True, label=label and "best epoch")
        )
    span = view(np.concatenate([train, valid], 1))
    name = "Training and validation loss by epoch"
    return Chart(lines, "epoch", "loss in nats a row", name, y_span=span).svg()


def _swarm(findings: ReportData) -> Markup:
    names = [str(name) for name in findings.ranking.index]
    swarm = swarm_of(findings.posterior, names[:SWARM_FEATURES], SWARM_ROWS)
    count = len(swarm.names)
    down = -np.arange(count) - swarm.offsets
    lines = [Line([0.0, 0.0], [0.5, 0.5 - count], "zero")]
    shades = np.where(np.isnan(swarm.ranks), -1, (swarm.ranks * (SHADES - 1)).round())
    for shade in np.unique(shades):
        own, part = shades == shade, 100 * shade / (SHADES - 1)
        colour = (
            f"stroke:color-mix(in oklab,var(--down) {part:.0f}%,var(--up))" if part >= 0 else ""
        )
        lines.append(Line(swarm.points[own], down[own], "dots", dash=0.0, css=colour))
    return Chart(
        lines,
        swarm.label,
        "",
        "A line of points for each of the first features, a point a held-out row, coloured by the "
        "feature's value",
        y_names={
            -float(place): short(name, NARROW_LABEL) for place, name in enumerate(swarm.names)
        },
        y_span=(0.5 - count, 0.5),
        left=NAMES,
        height=TOP + BOTTOM + 24 * count,
    ).svg()


def _heat_map(findings: ReportData) -> Markup:
    """Rows by features: runs of one shade are one dash."""
    ranked = [str(name) for name in findings.ranking.index]
    values, rows, names = means_by_row(findings.posterior, SHOWN_ROWS, ranked)
    values, names = values[:, :MOST_COLUMNS], names[:MOST_COLUMNS]
    most = 1.0 if findings.kind is PROBABILITY else max(float(abs(values).max()), 1e-9)
    shades = (values / most * SHADES).round()
    turned = max(map(len, names)) > 3
    foot = BOTTOM + MOST_TURNED * turned
    tall = min(12, max(6, 480 // len(rows)))
    apart_rows, apart = max(1, math.ceil(10 / tall)), math.ceil(len(names) / 32)
    lines = []
    for shade in np.unique(shades[shades != 0]):
        row, start, length = _runs(shades == shade)
        colour = "var(--down)" if shade < 0 else "var(--up)"
        css = f"stroke:{colour};stroke-width:{tall};stroke-opacity:{abs(shade) / SHADES:.3g}"
        lines.append(Line(start - 0.5, -row, "tiles", dash=length, css=css))
    lines.append(Line([-0.5, len(names) - 0.5], [0.0, 0.0], "unseen"))
    return Chart(
        lines,
        "" if turned else "feature",
        f"{len(rows)} rows, similar ones together",
        f"Heat map of rows by features: {findings.kind.meaning}",
        x_names={float(g): short(name, 16) for g, name in enumerate(names) if g % apart == 0},
        y_names={-float(n): name for n, name in enumerate(rows) if n % apart_rows == 0},
        y_span=(0.5 - len(rows), 0.5),
        bottom=foot,
        height=TOP + foot + tall * len(rows),
    ).svg()


def _runs(seen: NDArray[np.bool_]) -> tuple[NDArray[np.float64], ...]:
    """Row, first place and length of each run.

    Example:
        >>> [part.tolist() for part in _runs(np.array([[True, True, False, True]]))]
        [[0.0, 0.0], [0.0, 3.0], [2.0, 1.0]]
    """
    steps = np.diff(np.pad(seen, ((0, 0), (1, 1))).astype(int), axis=1)
    row, start = np.nonzero(steps == 1)
    return (
        row.astype(float),
        start.astype(float),
        (np.nonzero(steps == -1)[1] - start).astype(float),
    )
