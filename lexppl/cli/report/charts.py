"""Charts of the report as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from lexppl.cli.report.data import TableReport
from lexppl.cli.results.scores import SizeCurve
from lexppl.explanation.reading.picture_values import (
    NARROW_LABEL,
    means_by_row,
    short,
    swarm_of,
    view,
)
from lexppl.inference.training.result import History

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 70, 12, 26, 44  # Of a picture and its margins
MOST_TURNED = 70  # Margin of turned names

Values = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """A line, dots or dashes of a chart; values that are not finite are left out.

    Args:
        style: its class in the page's styles.
        errors: half lengths of bars.
        dash: length of a dash at each point in place of a line, in units of x; 0 for dots.
        label: in the legend, if any.
    """

    x: Values
    y: Values
    style: str
    errors: Values | None = None
    points: bool = False
    dash: Values | float | None = None
    css: str = ""
    label: str = ""


@dataclass(frozen=True)
class Chart:
    """Lines on common axes.

    Args:
        name: text for screen readers.
        marked: a point with a ring, and its name.
        x_names, y_names: marks of an axis, by place; None for numbers.
        y_span: the values at which lines are cut; None for none.
    """

    lines: Sequence[Line]
    x_label: str
    y_label: str
    name: str
    marked: tuple[float, float, str] | None = None
    x_names: Mapping[float, str] | None = None
    y_names: Mapping[float, str] | None = None
    y_span: tuple[float, float] | None = None
    left: int = LEFT
    bottom: int = BOTTOM
    height: int = HEIGHT

    def svg(self) -> Markup:
        """The chart as an SVG element."""
        parts = [
            f'<svg class="chart" viewBox="0 0 {WIDTH} {self.height}" role="img" '
            f'aria-label="{escape(self.name)}">'
        ]
        parts += self._axes() + self._labels()
        for line in self.lines:
            parts += self._line(line)
        if self.marked is not None:
            x, y = self.at(*self.marked[:2])
            where = "end" if x > WIDTH * 0.7 else "start"
            parts.append(f'<circle class="ring" cx="{x}" cy="{y}" r="8"/>')
            shift = -13 if where == "end" else 13
            parts.append(_text(x + shift, y - 8, self.marked[2], where))
        return Markup("".join([*parts, "</svg>"]))

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Place of a point in the picture's units."""
        across, down = self._places(np.array([x]), np.array([y]))
        return float(across[0]), float(down[0])

    def _places(self, x: Values, y: Values) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        (low, high), (least, most) = self._spans
        across = self.left + (WIDTH - self.left - RIGHT) * (np.asarray(x) - low) / (high - low)
        inner = self.height - self.bottom - TOP
        share = ((np.asarray(y, np.float64) - least) / (most - least)).clip(0.0, 1.0)
        return across.round(1), (self.height - self.bottom - inner * share).round(1)

    @cached_property
    def _spans(self) -> tuple[tuple[float, float], tuple[float, float]]:
        return self._span("x"), self._span("y")

    def _span(self, axis: str) -> tuple[float, float]:
        if axis == "y" and self.y_span is not None:
            return self.y_span
        values = [np.asarray(getattr(line, axis), np.float64) for line in self.lines]
        for value, line in zip(values[:], self.lines, strict=True):
            if axis == "x" and line.dash is not None:
                values.append(value + line.dash)
            elif axis == "y" and line.errors is not None:
                values += [value - line.errors, value + line.errors]
        every = np.concatenate(values)
        every = every[np.isfinite(every)]
        low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
        room = 0.04 * (high - low) or 0.5
        return low - room, high + room

    def _axes(self) -> list[str]:
        foot, parts = self.height - self.bottom, []
        names = {value: _figure(value) for value in ticks(*self._spans[1])}
        for value, name in (names if self.y_names is None else self.y_names).items():
            y = self.at(0.0, value)[1]
            parts.append(f'<path class="grid" d="M{self.left} {y}H{WIDTH - RIGHT}"/>')
            parts.append(_text(self.left - 6, y + 4, name, "end"))
        names = {value: _figure(value) for value in ticks(*self._spans[0])}
        names = names if self.x_names is None else dict(self.x_names)
        for value, name in names.items():
            x = self.at(value, 0.0)[0]
            if self.bottom > BOTTOM:
                turn = f'transform="translate({x} {foot + 10}) rotate(-60)" text-anchor="end"'
                parts.append(f"<text {turn}>{escape(name)}</text>")
            else:
                parts.append(_text(x, foot + 17, name, "middle"))
        middle = (self.left + WIDTH - RIGHT) / 2
        parts.append(_text(middle, self.height - 6, self.x_label, "middle"))
        return parts

    def _labels(self) -> list[str]:
        """Label of the y axis and legend."""
        middle = (TOP + self.height - self.bottom) / 2
        turn = f'text-anchor="middle" transform="translate(13 {middle}) rotate(-90)"'
        keys = "".join(
            f'<tspan class="{line.style}">■ </tspan>{escape(line.label)}\u2003'
            for line in self.lines
            if line.label
        )
        key = f'<text class="key" x="{self.left}" y="14">{keys}</text>'
        return [f"<text {turn}>{escape(self.y_label)}</text>", key * bool(keys)]

    def _line(self, line: Line) -> list[str]:
        known = np.isfinite(np.asarray(line.x, np.float64)) & np.isfinite(np.asarray(line.y))
        if not known.any():
            return []
        x, y = np.asarray(line.x)[known], np.asarray(line.y)[known]
        across, down = self._places(x, y)
        spots = [f"{a:g} {d:g}" for a, d in zip(across, down, strict=True)]
        path = f"M{'L'.join(spots)}"
        if line.dash is not None:
            ends = self._places(x + np.broadcast_to(line.dash, known.shape)[known], y)[0]
            lengths = (ends - across).round(1).tolist()
            path = "".join(f"M{at}h{h:g}" for at, h in zip(spots, lengths, strict=True))
        parts = []
        if line.errors is not None:
            errors = np.asarray(line.errors)[known]
            low, high = self._places(x, y - errors)[1], self._places(x, y + errors)[1]
            each = zip(across, low, high, strict=True)
            bars = "".join(f"M{a:g} {one:g}V{other:g}" for a, one, other in each if one != other)
            parts.append(f'<path class="bars" d="{bars}"/>' * bool(bars))
        css = f' style="{line.css}"' if line.css else ""
        parts.append(f'<path class="{line.style}"{css} d="{path}"/>')
        if line.points:
            circle = f'<circle class="{line.style}" cx="{{:g}}" cy="{{:g}}" r="3.5"/>'
            parts += map(circle.format, across, down)
        return parts


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values of an axis.

    Example:
        >>> ticks(-0.1, 1.04), ticks(3.0, 31.0)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [5.0, 10.0, 15.0, 20.0, 25.0, 30.0])
    """
    rough = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * by for by in (1, 2, 5, 10) if unit * by >= rough * 0.8)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(step * place, 12) for place in range(first, last + 1)]


def _figure(value: float) -> str:
    return f"{value:.6g}".replace("e+0", "e").replace("-", "−")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


SWARM_FEATURES, SWARM_ROWS = 12, 300
SHOWN_ROWS, MOST_COLUMNS, MOST_EPOCHS = 50, 80, 200
"""Rows and features of the heat map, and points of a loss."""
SHADES = 8
NAMES = 140  # Margin of names


def pictures(report: TableReport, figure: str) -> dict[str, Markup | None]:
    """Pictures of a table's page by name; None for one that is missing."""
    curve, history = report.judgement.curve, report.result.history
    return {
        "swarm": _swarm(report),
        "rows": _heat_map(report),
        "sizes": None if curve is None else sizes_chart(curve, figure),
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
    name = f"Training {'and validation ' if judged else ''}loss by epoch"
    return Chart(lines, "epoch", "loss in nats a row", name, y_span=span).svg()


def _swarm(report: TableReport) -> Markup | None:
    judged = report.ranking if report.gains is None else report.ranking.dropna(subset="gain")
    names = [str(name) for name in judged.index]
    if not names:
        return None
    swarm = swarm_of(report.posterior, names[:SWARM_FEATURES], SWARM_ROWS)
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


def _heat_map(report: TableReport) -> Markup:
    """Rows by features: runs of one shade are one dash."""
    ranked = [str(name) for name in report.ranking.index]
    values, rows, names = means_by_row(report.posterior, SHOWN_ROWS, ranked)
    values, names = values[:, :MOST_COLUMNS], names[:MOST_COLUMNS]
    most = report.kind.end(values)
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
        f"Heat map of rows by features: {report.kind.meaning}",
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
