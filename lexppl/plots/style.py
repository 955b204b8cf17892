"""What all pictures have in common: their figure, their colours, and plain axes."""

from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

BLUE = "#0072B2"
ORANGE = "#D55E00"
GREY = "#8A8A8A"
FAINT = "#D9D9D9"
INK = "#262626"

LONGEST_LABEL = 28
NARROW_LABEL = 18


class NotebookFigure(Figure):
    """A figure that a notebook shows as it is, whether or not pyplot is at work there."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png", dpi=110)
        return picture.getvalue()


def plain(axes: Axes, keep_left: bool = True) -> None:
    """No frame, only the lines that carry a scale."""
    for side in ("top", "right") if keep_left else ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(GREY)
    axes.tick_params(colors=INK, labelsize=9, length=3 if keep_left else 0)


def whole_numbers() -> MaxNLocator:
    return MaxNLocator(integer=True, nbins=10, steps=[1, 2, 5, 10])


def short(name: Any, longest: int = LONGEST_LABEL) -> str:
    text = str(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def legend_columns(width: float) -> int:
    """How many entries of a legend stand side by side in a figure of some inches."""
    return 3 if width >= 5.0 else 1
