"""Accuracy against the number of features that are kept."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from lexppl.plots.style import BLUE, FAINT, GREY, INK, NotebookFigure, plain, whole_numbers


def plot_accuracy_by_size(
    sizes: Sequence[float],
    accuracies: Sequence[float] | Sequence[Sequence[float]] | np.ndarray,
    reference: float | None = None,
    width: float = 6.0,
) -> Figure:
    """Accuracy of predictions as a function of how many entries a mask keeps.

    Args:
        sizes: S numbers of entries kept.
        accuracies: `(S,)`, or `(R, S)` for R replicates, which are shown faintly under their mean.
        reference: accuracy of a predictor that sees everything, a dashed line.
        width: of the figure, in inches.

    Raises:
        ValueError: accuracies of another number of sizes.

    Example:
        >>> plot_accuracy_by_size([1, 2, 4], [0.6, 0.8, 0.85], reference=0.86).axes[0].get_ylabel()
        'accuracy'
    """
    size = np.asarray(sizes, dtype=float)
    values = np.atleast_2d(np.asarray(accuracies, dtype=float))
    if size.ndim != 1 or len(size) == 0 or values.ndim != 2 or values.shape[1] != len(size):
        raise ValueError(
            f"accuracies must be ({size.size},) or (R, {size.size}), one for each of the sizes; "
            f"they have shape {np.shape(accuracies)}"
        )
    order = np.argsort(size, kind="stable")
    size, values = size[order], values[:, order]
    figure = NotebookFigure(figsize=(width, 3.6), layout="constrained")
    axes = figure.subplots()
    for i, replicate in enumerate(values if len(values) > 1 else ()):
        label = "one replicate" if i == 0 else None
        axes.plot(size, replicate, color=BLUE, alpha=0.25, linewidth=1, label=label)
    axes.plot(
        size,
        values.mean(0),
        color=BLUE,
        marker="o",
        markersize=5,
        linewidth=1.8,
        label="mean of replicates",
    )
    if len(values) > 1:
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    if reference is not None:
        axes.axhline(reference, color=GREY, linestyle=(0, (5, 3)), linewidth=1.2)
        axes.annotate(
            f"everything seen: {reference:.3f}",
            (0, reference),
            xycoords=("axes fraction", "data"),
            xytext=(6, 4),
            textcoords="offset points",
            fontsize=8,
            color=INK,
        )
    axes.margins(y=0.15)
    axes.set_xlabel("entries kept")
    axes.set_ylabel("accuracy")
    axes.xaxis.set_major_locator(whole_numbers())
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    plain(axes)
    return figure
