"""What a path of penalties found."""

import pandas as pd
from matplotlib.figure import Figure

from lexppl.plots.given import checked_given
from lexppl.plots.style import BLUE, FAINT, GREY, ORANGE, NotebookFigure, plain

COLUMNS = ("penalty", "size", "size_error", "log_likelihood", "error", "chosen")


def plot_penalty_path(table: pd.DataFrame, width: float = 6.0) -> Figure:
    """Entries kept and held-out log-likelihood along a path of penalties, the chosen one marked.

    Bars are one standard error: of the size over replicates, of the log-likelihood's distance to
    the best one over rows in pairs.

    Args:
        table: of :class:`lexppl.evaluation.PenaltyPath`.
        width: of the figure, in inches.

    Raises:
        TypeError: no table, such as the path itself.
        ValueError: a table without its columns.

    Example:
        >>> table = pd.DataFrame({"penalty": [0.01, 0.02], "size": [4.0, 3.0],
        ...     "size_error": [0.1, 0.2], "log_likelihood": [-0.5, -0.6],
        ...     "error": [0.0, 0.01], "chosen": [True, False]})
        >>> [axes.get_ylabel() for axes in plot_penalty_path(table).axes]
        ['entries kept', 'held-out log-likelihood']
    """
    checked_given(table, pd.DataFrame, "table", "path.table of what penalty_path() returned")
    lacking = [name for name in COLUMNS if name not in table]
    if lacking:
        raise ValueError(
            f"table must be path.table of what penalty_path() returned; it lacks {lacking}"
        )
    penalties = table["penalty"].to_numpy(dtype=float)
    chosen = penalties[table["chosen"].to_numpy(dtype=bool)]
    figure = NotebookFigure(figsize=(width, 4.4), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True)
    for axes, value, error, label, colour in (
        (upper, "size", "size_error", "entries kept", BLUE),
        (lower, "log_likelihood", "error", "held-out log-likelihood", ORANGE),
    ):
        spread = table[error].fillna(0.0)
        axes.errorbar(penalties, table[value], spread, color=colour, marker="o", markersize=5)
        for penalty in chosen:
            axes.axvline(penalty, color=GREY, linestyle=(0, (5, 3)), linewidth=1.2)
        axes.set_ylabel(label)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        plain(axes)
    lower.set_xscale("log")
    lower.set_xticks(penalties, [f"{penalty:.2g}" for penalty in penalties])
    lower.minorticks_off()
    lower.set_xlabel("penalty λ, nats for each entry kept")
    return figure
