"""Line charts as SVG inside a page, in the page's own colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 70, 12, 26, 44
"""Of the picture and of its margins, in its own units."""


@dataclass(frozen=True)
class Line:
    """A line of a chart; values that are not finite are left out.

    Args:
        x, y: of its points.
        style: its class in the page's styles.
        errors: half the length of a bar at each point, or None.
        points: whether its points are drawn too.
    """

    x: Sequence[float]
    y: Sequence[float]
    style: str
    errors: Sequence[float] | None = None
    points: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines on common axes.

    Args:
        lines: in the order in which they are drawn.
        x_label, y_label: of the axes.
        name: of the chart, for those who do not see it.
        marked: a point with a ring, and what it is; None for none.
    """

    lines: Sequence[Line]
    x_label: str
    y_label: str
    name: str
    marked: tuple[float, float, str] | None = None

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point stands, in the picture's units."""
        (low, high), (least, most) = self._span("x"), self._span("y")
        across = LEFT + (WIDTH - LEFT - RIGHT) * (x - low) / (high - low)
        down = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (y - least) / (most - least)
        return round(across, 1), round(down, 1)

    def svg(self) -> Markup:
        """The chart."""
        parts = [
            f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(self.name)}">'
        ]
        parts += self._axes()
        for line in self.lines:
            parts += self._line(line)
        if self.marked is not None:
            x, y = self.at(*self.marked[:2])
            where = "end" if x > WIDTH * 0.7 else "start"
            parts.append(f'<circle class="ring" cx="{x}" cy="{y}" r="8"/>')
            shift = -13 if where == "end" else 13
            parts.append(_text(x + shift, y + 16, self.marked[2], where))
        return Markup("".join([*parts, "</svg>"]))

    def _span(self, axis: str) -> tuple[float, float]:
        values = [np.asarray(getattr(line, axis), np.float64) for line in self.lines]
        if axis == "y":
            pairs = zip(values, self.lines, strict=True)
            bars = [(v, np.asarray(line.errors)) for v, line in pairs if line.errors]
            values += [v + sign * error for v, error in bars for sign in (-1, 1)]
        every = np.concatenate(values)
        every = every[np.isfinite(every)]
        low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
        room = 0.04 * (high - low) or 0.5
        return low - room, high + room

    def _axes(self) -> list[str]:
        foot = HEIGHT - BOTTOM
        parts = []
        for value in ticks(*self._span("y")):
            y = self.at(0.0, value)[1]
            parts.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
            parts.append(_text(LEFT - 6, y + 4, _figure(value), "end"))
        for value in ticks(*self._span("x")):
            parts.append(_text(self.at(value, 0.0)[0], foot + 17, _figure(value), "middle"))
        parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, self.x_label, "middle"))
        parts.append(
            f'<text text-anchor="middle" transform="translate(13 {(TOP + foot) / 2}) rotate(-90)">'
            f"{escape(self.y_label)}</text>"
        )
        return parts

    def _line(self, line: Line) -> list[str]:
        known = [
            place
            for place, both in enumerate(zip(line.x, line.y, strict=True))
            if all(map(math.isfinite, both))
        ]
        spots = [self.at(line.x[place], line.y[place]) for place in known]
        parts = [f'<path class="{line.style}" d="M{"L".join(f"{x} {y}" for x, y in spots)}"/>']
        if not spots:
            return []
        for place, (x, y) in zip(known, spots, strict=True):
            if line.errors is not None and line.errors[place] > 0:
                low = self.at(line.x[place], line.y[place] - line.errors[place])[1]
                parts.append(f'<path class="bars" d="M{x} {low}V{round(2 * y - low, 1)}"/>')
            if line.points:
                parts.append(f'<circle class="{line.style}" cx="{x}" cy="{y}" r="3.5"/>')
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
    return f"{value:.6g}".replace("-", "−")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
