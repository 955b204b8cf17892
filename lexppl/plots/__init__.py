"""Pictures of explanations and fits, as matplotlib figures that belong to nobody else.

Each function returns a `matplotlib.figure.Figure` made without pyplot, so that no global state is
touched; `figure.savefig("name.png")` writes it. Colours are from Okabe and Ito's palette, which
colour-blind readers can tell apart. `highlighted_text` returns HTML in place of a figure.
"""

from lexppl.plots.accuracy_by_size import plot_accuracy_by_size
from lexppl.plots.beeswarm import plot_beeswarm
from lexppl.plots.calibration import plot_calibration
from lexppl.plots.dependence import plot_dependence
from lexppl.plots.heatmap import plot_heatmap
from lexppl.plots.history import plot_history
from lexppl.plots.images_and_texts.highlighted_text import HighlightedText, highlighted_text
from lexppl.plots.images_and_texts.imputed import plot_imputed
from lexppl.plots.images_and_texts.selection_map import plot_selection_map
from lexppl.plots.images_and_texts.words import plot_words
from lexppl.plots.importance import plot_importance
from lexppl.plots.penalties import plot_penalty_path
from lexppl.plots.row import plot_row
from lexppl.plots.style import BLUE, FAINT, GREY, INK, ORANGE, NotebookFigure

__all__ = [
    "BLUE",
    "FAINT",
    "GREY",
    "INK",
    "ORANGE",
    "HighlightedText",
    "NotebookFigure",
    "highlighted_text",
    "plot_accuracy_by_size",
    "plot_beeswarm",
    "plot_calibration",
    "plot_dependence",
    "plot_heatmap",
    "plot_history",
    "plot_importance",
    "plot_imputed",
    "plot_penalty_path",
    "plot_row",
    "plot_selection_map",
    "plot_words",
]
