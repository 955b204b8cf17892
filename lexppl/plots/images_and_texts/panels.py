"""Panels of images in lines, with what they are above and beside them."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from lexppl.plots.style import GREY, INK, NotebookFigure, short

SIDE, WIDEST, HIGHEST = 1.25, 12.0, 30.0
"""Inches of a panel, and of a figure."""
LEFT, TOP, BOTTOM, GAP, RIGHT = 1.05, 0.15, 0.5, 0.08, 0.1
"""Inches for names, a line of a title, colour bars, and between panels."""
LETTERS, FEWEST = 15.5, 11
"""Letters of a title that an inch has room for, and of a line of one at least."""


def panel_grid(
    lines: int,
    titles: Sequence[str],
    shape: Sequence[int],
    width: float | None = None,
    *,
    bars: bool = False,
) -> tuple[NotebookFigure, list[list[Axes]]]:
    """A figure of panels of images' proportions, edge to edge.

    Args:
        lines: how many.
        titles: one for each column.
        shape: of the images, `(…, H, W)`.
        width: of the figure, in inches; by the number of columns if None.
        bars: whether colour bars shall have room below.
    """
    columns = len(titles)
    height, across = shape[-2:]
    if width is None:
        width = min(LEFT + columns * (SIDE + GAP) + RIGHT, WIDEST)
    side = (width - LEFT - RIGHT) / columns - GAP
    high = side * height / across
    letters = max(FEWEST, int(LETTERS * side))
    wrapped = [textwrap.fill(title, letters, break_long_words=False) for title in titles]
    below = BOTTOM if bars else GAP
    top = TOP * max(1 + title.count("\n") for title in wrapped) + GAP
    total = min(top + lines * (high + GAP) + below, HIGHEST)
    high = (total - top - below) / lines - GAP
    figure = NotebookFigure(figsize=(width, total))
    grid = []
    for line in range(lines):
        bottom = total - top - (line + 1) * high - line * GAP
        places = [(LEFT + i * (side + GAP), bottom, side, high) for i in range(columns)]
        grid.append([_panel(figure, place, width, total) for place in places])
    for axes, title in zip(grid[0], wrapped, strict=True):
        axes.set_title(title, fontsize=8, color=INK, pad=3)
    return figure, grid


def show(axes: Axes, colours: Any) -> None:
    """Show an image `(H, W, 3)` in a panel, pixel by pixel."""
    axes.imshow(np.clip(colours, 0.0, 1.0), interpolation="nearest")


def name_line(axes: Axes, words: Sequence[str]) -> None:
    """Say beside the first panel of a line what it is of."""
    text = "\n".join(short(line, 16) for line in words)
    axes.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=8, color=INK)


def row_title(name: Any) -> str:
    """What a row is called: numbers are of rows.

    Example:
        >>> row_title(3), row_title("scan 3")
        ('row 3', 'scan 3')
    """
    text = str(name)
    return f"row {text}" if text.isdigit() else text


def colour_bar(figure: Figure, above: Axes, colours: ScalarMappable) -> None:
    """A colour bar below a panel."""
    box = above.get_position()
    high = figure.get_figheight()
    place = (box.x0, box.y0 - 0.2 / high, box.width, 0.08 / high)
    bar = figure.colorbar(colours, cax=figure.add_axes(place), orientation="horizontal")
    bar.outline.set_linewidth(0.5)
    low, top = colours.get_clim()
    bar.set_ticks([low, 0.0, top] if low else [low, top])
    bar.ax.tick_params(length=2, labelsize=7, colors=INK)
    bar.ax.xaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
    # Those at the ends would run into the next bar's.
    first, *_, last = bar.ax.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def _panel(
    figure: Figure, place: tuple[float, float, float, float], width: float, high: float
) -> Axes:
    left, bottom, across, up = place
    axes = figure.add_axes((left / width, bottom / high, across / width, up / high))
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(color=GREY, linewidth=0.5)
    return axes
