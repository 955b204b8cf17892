"""The ranking line by line: bars, gains and directions."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from lexppl.cli.report.data import TableReport
from lexppl.explanation.reading.masks import PROBABILITY, ImportanceKind

INTERVAL, RANGE = "95 % interval", "range of fits"
SHOWN_MEMBERS = 3  # Members of a group that have a line
REACH = 1.5  # Longest interval drawn, in lengths of the longest bar
CLEAR = 0.5  # Least correlation that has an arrow
CLASS_FEATURES, MOST_CLASSES, MOST_LEVELS = 12, 6, 2
"""Features and classes of directions by class; levels that raise, and that lower."""


@dataclass(frozen=True)
class Gain:
    """What a feature says beyond all others and alone, in nats a row, and whether it is found."""

    mean: float
    lower: float
    upper: float
    alone: float
    alone_lower: float
    alone_upper: float
    found: bool

    @property
    def cells(self) -> list[str]:
        """Gain and interval, what it says alone and interval, and whether it is found, as text.

        Example:
            >>> Gain(0.002, -0.01, 0.014, 0.32, 0.25, 0.39, True).cells
            ['0.002', '-0.010 – 0.014', '0.320', '0.250 – 0.390', 'yes']
        """
        if math.isnan(self.mean):
            return ["–"] * 5
        values = self.mean, self.lower, self.upper, self.alone, self.alone_lower, self.alone_upper
        texts = [f"{nats:.3f}".replace("-0.000", "0.000") for nats in values]
        both = [texts[0], " – ".join(texts[1:3]), texts[3], " – ".join(texts[4:])]
        return [*both, "yes" if self.found else "–"]


@dataclass(frozen=True)
class RankedFeature:
    """A feature's line in the ranking; NaN where one replicate has no value, r̂ of chains as
    `agreement`, no gain of masks that do not select."""

    name: str
    importance: float
    lower: float
    upper: float
    agreement: float
    gain: Gain | None = None
    is_member: bool = False

    @property
    def interval(self) -> str:
        """The 95 % interval, or the range of the fits."""
        return "–" if math.isnan(self.lower) else f"{self.lower:.2f} – {self.upper:.2f}"

    @property
    def agreement_text(self) -> str:
        """The agreement as it is printed."""
        return "–" if math.isnan(self.agreement) else f"{self.agreement:.2f}"

    @property
    def cells(self) -> list[str]:
        """Name, gain if there is one, importance, interval and agreement as text.

        Example:
            >>> RankedFeature("age", 0.912, 0.81, 1.0, 0.97).cells
            ['age', '0.91', '0.81 – 1.00', '0.97']
        """
        gain = [] if self.gain is None else self.gain.cells
        name = f"  {self.name}" if self.is_member else self.name
        return [name, *gain, f"{self.importance:.2f}", self.interval, self.agreement_text]


def ranking_head(
    kind: ImportanceKind, gains: bool, consistency: str = "agreement", *, in_folds: bool = False
) -> list[str]:
    """Heads of :attr:`RankedFeature.cells`."""
    gain = ["gain", "interval", "alone", "interval", "found"] if gains else []
    span = RANGE if in_folds else INTERVAL
    return ["group" if gains else "feature", *gain, kind.name, span, consistency]


def ranked_features(table: pd.DataFrame) -> list[RankedFeature]:
    """Lines of a :func:`lexppl.explanation.selection_table`, with gains where it has them."""
    last = "r_hat" if "r_hat" in table else "agreement"
    values = table[[table.columns[0], "lower", "upper", last]].to_numpy(dtype=np.float64)
    gains: list[Gain | None] = [None] * len(table)
    if "gain" in table:
        names = [f"{of}{end}" for of in ("gain", "first") for end in ("", "_lower", "_upper")]
        each = table[names].to_numpy(dtype=np.float64).tolist()
        found = table["found"].astype(bool).tolist()
        gains = [
            Gain(*of_group) for of_group in [(*e, f) for e, f in zip(each, found, strict=True)]
        ]
    return [
        RankedFeature(str(name), importance, lower, upper, agreement, gain)
        for name, (importance, lower, upper, agreement), gain in zip(
            table.index, values.tolist(), gains, strict=True
        )
    ]


def ranked_lines(ranking: pd.DataFrame, groups: pd.DataFrame | None) -> list[RankedFeature]:
    """Groups by what they say, below each that is found its found and its most kept members;
    features where there are no groups."""
    if groups is None:
        return ranked_features(ranking.drop(columns="gain", errors="ignore"))
    lines = []
    for group, several in zip(ranked_features(groups), groups["members"] > 1, strict=True):
        lines.append(group)
        if several and group.gain is not None and group.gain.found:
            members = ranking[ranking["group"] == group.name]
            order = np.lexsort((-members.iloc[:, 0], ~members["found"].to_numpy(dtype=bool)))
            shown = ranked_features(members.iloc[order[:SHOWN_MEMBERS]])
            lines += [replace(member, is_member=True) for member in shown]
    return lines


def ranking_bars(report: TableReport) -> list[dict[str, Any]]:
    """Name, bar and cells of each line for the page: bars of gains from 0, or of the masks."""
    every = ranked_lines(report.ranking, None if report.gains is None else report.gains.groups)
    low, high = _ends(every, report.kind)
    directions = direction_cells(report)
    lines = []
    for feature in every:
        gain = feature.gain
        value, lower, upper = (
            (feature.importance, feature.lower, feature.upper)
            if gain is None
            else (float(np.nan_to_num(gain.mean)), gain.lower, gain.upper)
        )
        cells = [] if gain is None else [cell.replace("-", "−") for cell in gain.cells]
        lines.append(
            {
                "name": feature.name,
                "is_member": feature.is_member,
                "gain": cells,
                "direction": directions.get(feature.name, "–") if directions else None,
                "importance": f"{feature.importance:.2f}",
                "interval": feature.interval,
                "agreement": feature.agreement_text,
                "lost": gain is not None and not gain.found,
                "bar": _part(min(value, 0.0), max(value, 0.0), low, high),
                "span": None if math.isnan(lower) else _part(lower, upper, low, high),
                "zero": f"{100 * -low / (high - low):.1f}" if low < 0 else None,
            }
        )
    return lines


def _ends(every: list[RankedFeature], kind: ImportanceKind) -> tuple[float, float]:
    """Values at the left and the right end of all bars."""
    gains = [f.gain for f in every if f.gain is not None and not math.isnan(f.gain.mean)]
    if not gains:
        if kind is PROBABILITY:
            return 0.0, 1.0
        ends = [v for f in every for v in (f.importance, f.upper) if not math.isnan(v)]
        return 0.0, max(*ends, 1e-9)
    longest = max(*(abs(gain.mean) for gain in gains), 1e-9)
    high = min(max(gain.upper for gain in gains), REACH * longest)
    low = max(min(gain.lower for gain in gains), -REACH * longest / 3)
    least = min(gain.mean for gain in gains)
    return min(low, least, 0.0), max(high, *(gain.mean for gain in gains), 1e-9)


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
