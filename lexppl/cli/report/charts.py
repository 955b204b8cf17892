"""Charts as SVG inside a page, in the page's own colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 70, 12, 26, 44
"""Of the picture and of its margins, in its own units."""
MOST_TURNED = 70
"""Units of a margin that turned names have."""

Values = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """A line of a chart, or dots or dashes of one colour; values that are not finite are left out.

    Args:
        x, y: of its points.
        style: its class in the page's styles.
        errors: half the length of a bar at each point, or None.
        points: whether its points are drawn too.
        dash: the length of a dash that stands at each point in place of a line, in units of x; 0
            for dots. None for a line.
        css: further styles.
        label: what it is, above the chart; empty for nothing.
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
        lines: in the order in which they are drawn.
        x_label, y_label: of the axes.
        name: of the chart, for those who do not see it.
        marked: a point with a ring, and what it is; None for none.
        x_names, y_names: what stands on an axis, by place; None for numbers.
        y_span: the least and the largest value, at which lines are cut; None for all there are.
        left, bottom, height: of the margins and the picture, in its own units.
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
        """The chart."""
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
        """Where a point stands, in the picture's units."""
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
        """What the y axis and the lines are."""
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
