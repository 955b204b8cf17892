"""Pictures of explanations and fits, as matplotlib figures.

Each function returns a `matplotlib.figure.Figure`, which is pyplot's current one: `plt.show()`
shows it, `plt.savefig("name.png")` or its own `savefig` writes it, and a notebook shows it once.
Where no window shows them, pyplot holds the last ten; the others stay with whoever holds them.
Colours are from Okabe and Ito's palette, which colour-blind readers can tell apart.
`highlighted_text` and `answers` return HTML in place of a figure.
"""

from lexppl.plots.fits import plot_calibration, plot_history
from lexppl.plots.images import plot_imputed, plot_selection_map
from lexppl.plots.importance import plot_dependence, plot_heatmap, plot_importance
from lexppl.plots.rows import plot_beeswarm, plot_row
from lexppl.plots.texts import answers, highlighted_text

__all__ = [
    "answers",
    "highlighted_text",
    "plot_beeswarm",
    "plot_calibration",
    "plot_dependence",
    "plot_heatmap",
    "plot_history",
    "plot_importance",
    "plot_imputed",
    "plot_row",
    "plot_selection_map",
]
