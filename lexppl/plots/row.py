"""One row's explanation: of a table a waterfall, of an image its maps, of a text its words."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior, group_names
from lexppl.evaluation.revealed import RowSteps
from lexppl.explanation.beside.image_geometry import has_images
from lexppl.plots.given import checked_given
from lexppl.plots.images_and_texts.selection_map import plot_selection_map
from lexppl.plots.images_and_texts.words import plot_words
from lexppl.plots.style import BLUE, FAINT, GREY, INK, ORANGE, NotebookFigure, plain, short

IMAGE_DRAWS = 2


def plot_row(
    steps: RowSteps | Posterior,
    values: Mapping[str, Any] | None = None,
    features: int = 12,
    width: float = 6.4,
    *,
    row: Any = None,
    words: Sequence[str] | None = None,
) -> Figure:
    """One row's prediction, from the base rate to what is predicted, by a bar a feature; of an
    image its maps, of a text its words.

    Of an image or a text give the posterior and the row's name: `plot_row(posterior, row=7)` is the
    line of :func:`plot_selection_map`, and `plot_row(posterior, row=7, words=[…])` the text, its
    words shaded by how often they are kept (:func:`plot_words`).

    Of a table, bars stand end to end and add up: each is what revealing the feature adds to the log
    of the label's probability, in nats (of a response to its mean), in the order in which they are
    revealed, the most kept first (:func:`lexppl.evaluation.revealed_predictions`). The features
    that add least are one bar together.

    Args:
        steps: of the row, :meth:`lexppl.evaluation.RevealedPredictions.steps`; of an image or a
            text the posterior.
        values: of the row's features, to stand beside their names.
        features: how many have a bar of their own.
        width: of the figure, in inches.
        row: the name of the image's or the text's row in the posterior.
        words: of the text, in the order of the entries.

    Raises:
        TypeError: no steps, such as a posterior of a table; a posterior without a row.
        ValueError: fewer than one feature, a row that the posterior does not have.

    Example:
        >>> table = pd.DataFrame({"step": [0.5, -0.1], "total": [-0.2, -0.3], "kept": [1.0, 0.4]},
        ...     index=["age", "weight"])
        >>> figure = plot_row(RowSteps(table, -0.9, -0.7, -0.3, "ill"), {"age": 71})
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['base rate', 'all hidden', 'age = 71', 'weight', 'prediction']
    """
    if _is_posterior(steps) and (words is not None or has_images(steps)):
        if row is None:
            raise TypeError("row must name the row of the posterior that is wanted, such as row=0")
        if words is not None:
            return plot_words(steps, row, words, width=width)
        return plot_selection_map(steps, [row], draws=IMAGE_DRAWS, width=width)
    source = "revealed_predictions(…).steps(row)"
    if _is_posterior(steps):
        source += " (a posterior of images is taken with row=, of texts with row= and words=)"
    checked_given(steps, RowSteps, "steps", source)
    if row is not None or words is not None:
        raise TypeError("row and words are of a posterior; steps are of one row already")
    features = int_at_least("features", features)
    lines = waterfall(steps, features)
    place = np.arange(len(lines))
    figure = NotebookFigure(figsize=(width, 1.0 + 0.29 * len(lines)), layout="constrained")
    axes = figure.subplots()
    start, step = lines["start"].to_numpy(), lines["step"].to_numpy()
    colour = np.where(step > 0, BLUE, ORANGE)
    axes.barh(place, step, 0.62, start, color=colour)
    ends = start + step
    axes.vlines(ends[:-1], place[:-1], place[1:], color=GREY, linewidth=0.7)
    whole = lines["is_level"].to_numpy()
    axes.plot(ends[whole], place[whole], "D", color=INK, markersize=5)
    for i, (end, change) in enumerate(zip(ends, step, strict=True)):
        text = f"{end:.3g}" if whole[i] else f"{change:+.2f}".replace("-0.00", "+0.00")
        axes.annotate(
            text,
            (max(end, end - change), i),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
        )
    known = values or {}
    names = [f"{short(n)} = {known[n]}" if n in known else short(n) for n in lines.index]
    axes.set_yticks(place, names)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    # Bars' ends would otherwise be the axis's own.
    axes.use_sticky_edges = False
    axes.margins(x=0.12)
    of = "mean response" if steps.label is None else f"log p({short(steps.label)}), nats"
    axes.set_xlabel(of)
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    plain(axes, keep_left=False)
    return figure


def waterfall(steps: RowSteps, features: int) -> pd.DataFrame:
    """The bars of a waterfall, which end where the next begins.

    Args:
        steps: of a row.
        features: how many have a bar of their own; of the others there is one, before the last.

    Returns:
        indexed by what the bar is of: `start`, `step`, and `is_level` for the base rate and the
        prediction, which are levels and no steps.

    Example:
        >>> table = pd.DataFrame({"step": [0.5, -0.1], "total": [-0.2, -0.3]}, ["age", "weight"])
        >>> waterfall(RowSteps(table, -0.9, -0.7, -0.3, "ill"), 1).round(1)["start"].to_dict()
        {'base rate': -0.9, 'all hidden': -0.9, 'age': -0.7, '1 more': -0.2, 'prediction': -0.3}
    """
    order = steps.table["step"].abs().sort_values(ascending=False, kind="stable")
    own = steps.table.index.isin(order.index[:features])
    lines: list[tuple[str, float, float, bool]] = []
    if not np.isnan(steps.base):
        first = "base rate" if steps.label is not None else "mean"
        lines = [(first, steps.base, 0.0, True)]
        lines.append(("all hidden", steps.base, steps.first_step, False))
    else:
        lines = [("all hidden", steps.hidden, 0.0, True)]
    reached = steps.hidden
    for name, step in steps.table["step"][own].items():
        lines.append((str(name), reached, float(step), False))
        reached += float(step)
    if not own.all():
        rest = float(steps.table["step"][~own].sum())
        lines.append((f"{int((~own).sum())} more", reached, rest, False))
    lines.append(("prediction", steps.predicted, 0.0, True))
    names = pd.Index([line[0] for line in lines], name="of")
    return pd.DataFrame(
        [line[1:] for line in lines], index=names, columns=["start", "step", "is_level"]
    )


def _is_posterior(given: Any) -> bool:
    try:
        return bool(group_names(given))
    except TypeError:
        return False
