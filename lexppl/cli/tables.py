"""Tables for a terminal."""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lexppl.cli.judged.judging import ScoreRow

FIGURE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "accuracy": "accuracy",
        "auroc": "AUROC",
        "average_precision": "avg precision",
        "log_likelihood": "log-likelihood",
        "rmse": "RMSE",
        "r2": "R²",
        "agreement": "agrees with the black box",
    }
)


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Columns in line: the first to the left, the others to the right.

    Example:
        >>> print(text_table(["who", "r̂"], [["age", "1.00"]]))
          who    r̂
          age  1.00
    """
    widths = [max(_width(line[c]) for line in [head, *rows]) for c in range(len(head))]
    lines = []
    for line in [head, *rows]:
        cells = [
            cell + " " * (w - _width(cell)) if c == 0 else " " * (w - _width(cell)) + cell
            for c, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def score_cells(scores: Sequence[ScoreRow]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of held-out scores, figures with their spread over replicates."""
    names = [name for name in FIGURE_NAMES if any(name in row.figures for row in scores)]
    head = ["", "features", *(FIGURE_NAMES[name] for name in names)]
    rows = [
        [row.who, size_text(row.size), *(_figure(row, name) for name in names)] for row in scores
    ]
    return head, rows


def size_text(size: float) -> str:
    """A mean number of features.

    Example:
        >>> size_text(30.0), size_text(5.13)
        ('30', '5.1')
    """
    return f"{size:.0f}" if float(size).is_integer() else f"{size:.1f}"


def _figure(row: ScoreRow, name: str) -> str:
    if math.isnan(row.figures.get(name, math.nan)):
        return "–"
    spread = f" ± {row.spreads[name]:.3f}" if name in row.spreads else ""
    if name == "rmse":
        spread = f" ± {row.spreads[name]:.3g}" if name in row.spreads else ""
        return f"{row.figures[name]:.4g}{spread}"
    text = f"{row.figures[name]:.3f}"
    return f"{'0.000' if text == '-0.000' else text}{spread}"


def _width(text: str) -> int:
    return sum(1 for character in text if not unicodedata.combining(character))
