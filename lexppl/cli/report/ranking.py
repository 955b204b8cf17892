"""The ranking line by line: bars, gains and directions."""

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lexppl.cli.report.data import TableReport
from lexppl.explanation.reading.masks import PROBABILITY, ImportanceKind

INTERVAL, RANGE = "95 % interval", "range of fits"
SHOWN_MEMBERS = 3  # Members of a group that have a line
REACH = 1.5  # Longest interval drawn, in lengths of the longest bar
CLEAR = 0.5  # Least correlation that has an arrow
CLASS_FEATURES, MOST_CLASSES, MOST_LEVELS = 12, 6, 2
"""Features and classes of directions by class; levels that raise, and that lower."""


def ranked_lines(ranking: pd.DataFrame, groups: pd.DataFrame | None) -> pd.DataFrame:
    """Groups by what they say, below each that is found its found and its most kept members;
    features where there are no groups. Without replicates or gains a value is NaN."""
    if groups is None:
        return ranking.drop(columns="gain", errors="ignore").assign(member=False)
    parts = []
    for place, name in enumerate(groups.index):
        parts.append(groups.iloc[[place]].assign(member=False))
        if groups["members"].iloc[place] > 1 and groups["found"].iloc[place]:
            members = ranking[ranking["group"] == name].assign(member=True)
            order = np.lexsort((-members.iloc[:, 0], ~members["found"].to_numpy(dtype=bool)))
            parts.append(members.iloc[order[:SHOWN_MEMBERS]])
    return pd.concat(parts)


def ranking_head(
    kind: ImportanceKind, gains: bool, consistency: str = "agreement", *, in_folds: bool = False
) -> list[str]:
    """Heads of :func:`ranking_cells`."""
    gain = ["gain", "interval", "alone", "interval", "found"] if gains else []
    span = RANGE if in_folds else INTERVAL
    return ["group" if gains else "feature", *gain, kind.name, span, consistency]


def ranking_cells(lines: pd.DataFrame) -> list[list[str]]:
    """Name, gain and what it says alone with their intervals and whether it is found, where there
    are gains, importance, interval and agreement (or r̂ of chains) as text.

    Example:
        >>> lines = pd.DataFrame({"kept": [0.912], "lower": [0.81], "upper": [1.0],
        ...     "agreement": [np.nan], "member": [True]}, index=["age"])
        >>> ranking_cells(lines)
        [['  age', '0.91', '0.81 – 1.00', '–']]
    """
    last = "r_hat" if "r_hat" in lines else "agreement"
    every = []
    for name, line in zip(lines.index, lines.to_dict("records"), strict=True):
        gain = []
        if "gain" in lines:
            for of in ("gain", "first"):
                ends = line[of], line[f"{of}_lower"], line[f"{of}_upper"]
                mean, *span = (f"{nats:.3f}".replace("-0.000", "0.000") for nats in ends)
                gain += [mean, " – ".join(span)]
            gain.append("yes" if line["found"] else "–")
            gain = ["–"] * len(gain) if math.isnan(line["gain"]) else gain
        known = f"{line['lower']:.2f} – {line['upper']:.2f}"
        agree = "–" if math.isnan(line[last]) else f"{line[last]:.2f}"
        mean = f"{line[str(lines.columns[0])]:.2f}"
        span_text = "–" if math.isnan(line["lower"]) else known
        every.append([f"{'  ' * line['member']}{name}", *gain, mean, span_text, agree])
    return every


def ranking_bars(report: TableReport) -> list[dict[str, Any]]:
    """Name, bar and cells of each line for the page: bars of gains from 0, or of the masks."""
    lines = ranked_lines(report.ranking, None if report.gains is None else report.gains.groups)
    columns = [str(lines.columns[0]), "lower", "upper"]
    if has_gains := "gain" in lines:
        columns = ["gain", "gain_lower", "gain_upper"]
    values = lines[columns].to_numpy(dtype=np.float64)
    low, high = _ends(values, has_gains, report.kind)
    directions = direction_cells(report)
    bars = []
    rows = zip(lines.index, values.tolist(), ranking_cells(lines), strict=True)
    for place, (name, (value, lower, upper), cells) in enumerate(rows):
        value = float(np.nan_to_num(value))
        *gain, importance, interval, agreement = cells[1:]
        bars.append(
            {
                "name": str(name),
                "is_member": bool(lines["member"].iloc[place]),
                "gain": [cell.replace("-", "−") for cell in gain],
                "direction": directions.get(str(name), "–") if directions else None,
                "importance": importance,
                "interval": interval,
                "agreement": agreement,
                "lost": has_gains and not lines["found"].iloc[place],
                "bar": _part(min(value, 0.0), max(value, 0.0), low, high),
                "span": None if math.isnan(lower) else _part(lower, upper, low, high),
                "zero": f"{100 * -low / (high - low):.1f}" if low < 0 else None,
            }
        )
    return bars


def _ends(
    values: NDArray[np.float64], has_gains: bool, kind: ImportanceKind
) -> tuple[float, float]:
    """Values at the left and the right end of all bars, of values with their intervals."""
    mean, lower, upper = values[~np.isnan(values[:, 0])].T
    if not has_gains or not len(mean):
        return 0.0, 1.0 if kind is PROBABILITY else max(float(np.nanmax(values)), 1e-9)
    longest = max(float(np.abs(mean).max()), 1e-9)
    high = min(float(upper.max()), REACH * longest)
    low = max(float(lower.min()), -REACH * longest / 3)
    return min(low, float(mean.min()), 0.0), max(high, float(mean.max()), 1e-9)


def _part(start: float, end: float, low: float, high: float) -> dict[str, str]:
    """Left and width in percent, of what can be seen.

    Example:
        >>> _part(-1.0, 0.5, 0.0, 2.0)
        {'left': '0.0', 'width': '25.0'}
    """
    start, end = min(max(start, low), high), max(min(end, high), low)
    scale = 100.0 / (high - low)
    return {"left": f"{(start - low) * scale:.1f}", "width": f"{(end - start) * scale:.1f}"}


def direction_target(report: TableReport) -> str | None:
    """Outcome of the column of directions: the response, or the second of two labels."""
    data = report.source.data
    if data.class_names is None:
        return str(data.target_name)
    return str(data.class_names[1]) if len(data.class_names) == 2 else None


def direction_cells(report: TableReport) -> dict[str, str]:
    """Direction of each feature, where there is one column of them."""
    table, towards = report.details.directions, direction_target(report)
    if table is None or towards is None:
        return {}
    if report.source.data.class_names is not None:
        table = table[table["class"] == towards]
    return {str(name): _cell(lines) for name, lines in table.groupby("feature", sort=False)}


def class_table(report: TableReport) -> dict[str, Any] | None:
    """Directions of the first features by class, of three classes or more."""
    table, names = report.details.directions, report.source.data.class_names
    if table is None or names is None or len(names) < 3:
        return None
    classes = [str(name) for name in names[:MOST_CLASSES]]
    cells = {
        (str(feature), str(label)): _cell(lines)
        for (feature, label), lines in table.groupby(["feature", "class"], sort=False)
    }
    features = [str(name) for name in report.ranking.index[:CLASS_FEATURES]]
    rows = [[name, *(cells.get((name, label), "–") for label in classes)] for name in features]
    return {
        "head": ["feature", *classes],
        "rows": rows,
        "left_out": max(0, len(names) - MOST_CLASSES),
    }


def _cell(lines: pd.DataFrame) -> str:
    r"""A correlation with an arrow, or the levels that raise and lower most, by more than the
    standard deviation over replicates.

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
