"""Which way each feature moves the prediction, in words and signs."""

from typing import Any

import numpy as np
import pandas as pd

from lexppl.cli.report.findings import ReportData

CLEAR = 0.5
"""A correlation from which on a direction is called one."""
FIRST_FEATURES = 12
MOST_CLASSES = 6
MOST_LEVELS = 2
"""Levels that are named of those that raise, and of those that lower."""


def about(findings: ReportData) -> str | None:
    """What the one column of directions is about: the response, or the second of two labels; None
    of more labels, which have a table of their own."""
    data = findings.source.data
    if data.class_names is None:
        return str(data.target_name)
    return str(data.class_names[1]) if len(data.class_names) == 2 else None


def direction_cells(findings: ReportData) -> dict[str, str]:
    """The direction of each feature, where there is one column of them."""
    table, towards = findings.closer.directions, about(findings)
    if table is None or towards is None:
        return {}
    if findings.source.data.class_names is not None:
        table = table[table["class"] == towards]
    return {str(name): _cell(lines) for name, lines in table.groupby("feature", sort=False)}


def class_table(findings: ReportData) -> dict[str, Any] | None:
    """Directions by class, of three classes or more: features of the first ranks by classes."""
    table, names = findings.closer.directions, findings.source.data.class_names
    if table is None or names is None or len(names) < 3:
        return None
    classes = [str(name) for name in names[:MOST_CLASSES]]
    cells = {
        (str(feature), str(label)): _cell(lines)
        for (feature, label), lines in table.groupby(["feature", "class"], sort=False)
    }
    features = [str(name) for name in findings.ranking.index[:FIRST_FEATURES]]
    rows = [[name, *(cells.get((name, label), "–") for label in classes)] for name in features]
    return {
        "head": ["feature", *classes],
        "rows": rows,
        "left_out": max(0, len(names) - MOST_CLASSES),
    }


def _cell(lines: pd.DataFrame) -> str:
    r"""A correlation with an arrow, or the levels that raise and lower most, of those that do so by
    more than the standard deviation over replicates.

    Example:
        >>> _cell(pd.DataFrame({"level": [None], "direction": [-0.93], "effect": [np.nan]}))
        '↓\xa0−0.93'
        >>> _cell(pd.DataFrame({"level": ["cook", "smith"], "effect": [-0.8, 1.3]}))
        '↑\xa0smith, ↓\xa0cook'
    """
    if "level" in lines and lines["level"].notna().any():
        known = lines[~(lines["effect"].abs() <= lines.get("spread", 0.0))]
        known = known.dropna(subset=["effect"]).sort_values("effect", ascending=False)
        raising = known["level"][known["effect"] > 0][:MOST_LEVELS]
        lowering = known["level"][known["effect"] < 0][::-1][:MOST_LEVELS]
        arrows = [f"↑\u00a0{name}" for name in raising] + [f"↓\u00a0{name}" for name in lowering]
        return ", ".join(arrows) or "–"
    value = float(lines["direction"].iloc[0])
    if np.isnan(value):
        return "–"
    arrow = "↑" if value >= CLEAR else "↓" if value <= -CLEAR else "~"
    return f"{arrow}\u00a0{value:+.2f}".replace("-", "−")
