"""What all pictures have in common: their figure, their colours, and plain axes."""

import re
from collections.abc import Mapping, Sequence
from io import BytesIO, StringIO
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE = "#0072B2"
ORANGE = "#D55E00"
GREY = "#8A8A8A"
FAINT = "#D9D9D9"
INK = "#262626"


WINDOWLESS = {"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"}  # Backends that show nothing
MOST_OPEN = 10
"""Figures of lexppl that pyplot holds at most where no window shows them."""


class NotebookFigure(Figure):
    """A figure that a notebook shows once: as the value of a cell, or at its end by pyplot."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png", dpi=110)
        return picture.getvalue()

    def _ipython_display_(self) -> None:
        # Of IPython, and called by it alone. Pyplot would show again what it holds.
        from IPython.display import Image, display  # noqa: PLC0415

        still = plt.get_backend().lower() in WINDOWLESS or "inline" in plt.get_backend()
        if still or getattr(self, "number", None) not in plt.get_fignums():
            display(Image(self._repr_png_()))
            plt.close(self)


def empty_figure(width: float, height: float, layout: str | None = "constrained") -> NotebookFigure:
    """A figure of so many inches, which pyplot shows and saves as its current one."""
    figure: Any = plt.figure(FigureClass=NotebookFigure, figsize=(width, height), layout=layout)
    if plt.get_backend().lower() in WINDOWLESS:
        held = [plt.figure(number) for number in plt.get_fignums()]
        for earlier in [other for other in held if isinstance(other, NotebookFigure)][:-MOST_OPEN]:
            plt.close(earlier)
        plt.figure(figure.number)
    return figure


def new_figure(width: float, height: float) -> tuple[NotebookFigure, Axes]:
    """A figure of so many inches with one pair of axes."""
    figure = empty_figure(width, height)
    return figure, figure.subplots()


PAGE_COLOURS: Mapping[str, str] = {
    BLUE: "var(--up)",
    ORANGE: "var(--down)",
    GREY: "var(--soft)",
    FAINT: "var(--line)",
    INK: "var(--ink)",
    "#000000": "var(--ink)",
}
"""Colours of figures as variables of a page, which has others in the dark."""


def as_svg(figure: Figure, name: str) -> Markup:
    """A figure as an SVG element for a page, with its text as text, and a name for screen readers;
    pyplot forgets the figure."""
    file = StringIO()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", dpi=150, transparent=True, metadata=nothing)
    plt.close(figure)
    drawn = file.getvalue().partition("<svg")[2].partition("viewBox=")[2]
    drawn = re.sub('<g id="[^"]*"', "<g", drawn)  # Another figure of the page has the same ids.
    for colour, variable in PAGE_COLOURS.items():
        drawn = drawn.replace(colour.lower(), variable)
    head = Markup('<svg class="chart" role="img" aria-label="{}" viewBox=').format(name)
    return head + Markup(drawn)


def plain(axes: Axes, keep_left: bool = True, grid: Literal["x", "y"] | None = None) -> None:
    """Remove the frame of axes but for the lines with a scale, and draw a faint grid if wanted."""
    if grid is not None:
        axes.grid(axis=grid, color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
    for side in ("top", "right") if keep_left else ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(GREY)
    axes.tick_params(colors=INK, labelsize=9, length=3 if keep_left else 0)


def name_ticks(axes: Axes, names: Sequence[str], most: float, turned: bool) -> None:
    """Names along the axis below, at most so many, every second or third one of more."""
    every = max(1, int(np.ceil(len(names) / most)))
    places, ends = np.arange(len(names))[::every], "right" if turned else "center"
    axes.set_xticks(places, names[::every], rotation=60 if turned else 0, ha=ends, fontsize=8)
    for label in axes.get_xticklabels():
        label.set_rotation_mode("anchor" if turned else None)


def legend_outside(figure: Figure, width: float) -> None:
    """A legend above the axes, its entries side by side where the figure is wide."""
    columns = 3 if width >= 5.0 else 1
    figure.legend(loc="outside upper right", ncols=columns, frameon=False, fontsize=8)


def check_kind(value: Any, kind: type, argument: str, source: str) -> None:
    """Refuse what is not of the kind that a picture is drawn of."""
    if not isinstance(value, kind):
        raise TypeError(
            f"{argument} must be a {kind.__name__}, {source}; it is a {type(value).__name__}"
        )
