"""A text with its words shaded."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from lexppl.arviz_compatibility import Posterior
from lexppl.explanation.layout.importance_kind import ATTRIBUTION, PROBABILITY, kind_of, mask_means
from lexppl.explanation.layout.mask_groups import masks_of
from lexppl.explanation.reading.row_outcomes import row_outcomes
from lexppl.plots.chosen_rows import chosen_rows
from lexppl.plots.images_and_texts.panels import row_title
from lexppl.plots.style import BLUE, INK, ORANGE, NotebookFigure

LINE, MARGIN, SPACE = 0.24, 0.12, 0.06
"""Inches between lines, around the text, and between words."""
STRONGEST = 0.6
LEAST = 1e-9


def plot_words(posterior: Posterior, row: Any, words: Sequence[str], width: float = 6.4) -> Figure:
    """A text, each word the bluer the more often its entry is kept, mean over replicates; of
    attributions blue above 0 and orange below.

    Args:
        posterior: what :func:`explain` returned of texts, an entry a word.
        row: the name of the text's row.
        words: of the text, in the order of the entries; entries beyond them are padding.
        width: of the figure, in inches.

    Raises:
        TypeError: not a posterior of :func:`explain`, or words in one string.
        ValueError: a row that it does not have, no words, more words than a row has entries.

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> mask = np.zeros((2, 5, 1, 3), np.int8)
        >>> posterior = posterior_of({
        ...     "predictions": xr.Dataset({"mask": (("chain", "draw", "row", "feature"), mask)}),
        ...     "sample_stats": xr.Dataset({"selection_probability": (
        ...         ("chain", "row", "feature"), mask.mean(1), {"site": "mask"})}),
        ... }, {})
        >>> [text.get_text() for text in plot_words(posterior, 0, ["good", "film"]).texts[1:]]
        ['good', 'film']
    """
    if isinstance(words, str):
        raise TypeError("words must be a list of the text's words; it is one string")
    means, masks, kind = mask_means(posterior), masks_of(posterior), kind_of(posterior)
    names = masks["row"].values if "row" in masks.coords else np.arange(means.sizes["row"])
    (place,) = chosen_rows(list(names), [row])
    values = means.values[:, place].mean(0, dtype=np.float64)
    if not 0 < len(words) <= len(values):
        raise ValueError(f"words must be 1 to {len(values)}, an entry each; there are {len(words)}")
    values = values[: len(words)]
    most = 1.0 if kind is PROBABILITY else max(float(np.abs(values).max()), LEAST)
    title = ", ".join([row_title(names[place]), *row_outcomes(posterior)[place].lines()])
    figure = NotebookFigure(figsize=(width, 1.0))
    lines = _lines(figure, words, width)
    high = 2 * MARGIN + (1 + max(line for line, _ in lines) + 1) * LINE
    figure.set_figheight(high)
    top = 1 - MARGIN / high
    label = "attribution" if kind is ATTRIBUTION else kind.label
    figure.text(
        MARGIN / width, top, f"{title}: {label}", fontsize=8, color=INK, va="top", weight="bold"
    )
    for word, value, (line, left) in zip(words, values, lines, strict=True):
        shade = to_rgba(BLUE if value >= 0 else ORANGE, STRONGEST * min(1.0, abs(value) / most))
        figure.text(
            left / width,
            top - (line + 1.2) * LINE / high,
            word,
            fontsize=9,
            color=INK,
            va="top",
            parse_math=False,
            bbox={"facecolor": shade, "edgecolor": "none", "pad": 1.2},
        )
    return figure


def _lines(figure: Figure, words: Sequence[str], width: float) -> list[tuple[int, float]]:
    """The line of each word, and how far from the left it begins, in inches."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    found, line, left = [], 0, MARGIN
    for word in words:
        text = figure.text(0, 0, word, fontsize=9, parse_math=False)
        wide = text.get_window_extent(renderer).width / figure.dpi
        text.remove()
        if left > MARGIN and left + wide > width - MARGIN:
            line, left = line + 1, MARGIN
        found.append((line, left))
        left += wide + SPACE
    return found
