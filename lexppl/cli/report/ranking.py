"""The ranking line by line: bars, gains and directions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from lexppl.cli.report.data import ReportData
from lexppl.explanation.layout.importance_kind import PROBABILITY, ImportanceKind

INTERVAL, RANGE = "95 % interval", "range of fits"
SHOWN_MEMBERS = 3
"""Members of a group that have a line of their own."""
GAIN_COLUMNS = ("gain", "gain_lower", "gain_upper")


@dataclass(frozen=True)
class Gain:
    """A feature's gain in nats a row, and whether it is found."""

    mean: float
    lower: float
    upper: float
    found: bool

    @property
    def cells(self) -> list[str]:
        """Gain, interval and whether it is found as text.

        Example:
            >>> Gain(0.1234, 0.08, 0.167, True).cells, Gain(-0.0004, -0.2, 0.2, False).cells
            (['0.123', '0.080 – 0.167', 'yes'], ['0.000', '-0.200 – 0.200', '–'])
        """
        mean, lower, upper = (_nats(value) for value in (self.mean, self.lower, self.upper))
        return [mean, f"{lower} – {upper}", "yes" if self.found else "–"]


@dataclass(frozen=True)
class RankedFeature:
    """A feature's line in the ranking; NaN where one replicate has no value, and no gain where
    masks do not select. Of Markov chains `agreement` is their r̂."""

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
        if math.isnan(self.lower):
            return "–"
        return f"{self.lower:.2f} – {self.upper:.2f}"

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
    """What stands above :attr:`RankedFeature.cells`."""
    gain = ["gain", "interval", "found"] if gains else []
    span = RANGE if in_folds else INTERVAL
    return ["group" if gains else "feature", *gain, kind.name, span, consistency]


def ranked_features(table: pd.DataFrame) -> list[RankedFeature]:
    """The lines of a :func:`lexppl.explanation.selection_table`, with gains where it has them, in
    its order."""
    last = "r_hat" if "r_hat" in table else "agreement"
    values = table[[table.columns[0], "lower", "upper", last]].to_numpy(dtype=np.float64)
    gains = _gains(table)
    return [
        RankedFeature(str(name), importance, lower, upper, agreement, gain)
        for name, (importance, lower, upper, agreement), gain in zip(
            table.index, values.tolist(), gains, strict=True
        )
    ]


def ranked_lines(ranking: pd.DataFrame, groups: pd.DataFrame | None) -> list[RankedFeature]:
    """The lines of the ranking: groups by their gain, below each that is found the members that
    are found, and those kept most.

    Args:
        ranking: of the features, with the gains and the `group` of each where there are any.
        groups: the same of the groups, or None.
    """
    if groups is None:
        return ranked_features(ranking)
    lines = []
    for group, several in zip(ranked_features(groups), groups["members"] > 1, strict=True):
        lines.append(group)
        if several and group.gain is not None and group.gain.found:
            members = ranking[ranking["group"] == group.name]
            order = np.lexsort((-members.iloc[:, 0], ~members["found"].to_numpy(dtype=bool)))
            shown = ranked_features(members.iloc[order[:SHOWN_MEMBERS]])
            lines += [replace(member, is_member=True) for member in shown]
    return lines


def _gains(table: pd.DataFrame) -> list[Gain | None]:
    if "gain" not in table:
        return [None] * len(table)
    values = table[list(GAIN_COLUMNS)].to_numpy(dtype=np.float64)
    return [
        Gain(mean, lower, upper, bool(found))
        for (mean, lower, upper), found in zip(values.tolist(), table["found"], strict=True)
    ]


def _nats(value: float) -> str:
    """Three digits, and no minus before a zero."""
    text = f"{value:.3f}"
    return "0.000" if text == "-0.000" else text


REACH = 1.5
"""How far an interval is drawn, in lengths of the longest bar; further ones end there."""


def ranking_lines(
    ranking: pd.DataFrame,
    groups: pd.DataFrame | None,
    kind: ImportanceKind,
    directions: Mapping[str, str],
) -> list[dict[str, Any]]:
    """What the template says of each group and feature: its name, its bar and its cells.

    Bars are of what the features are ranked by: gains where there are any, from their 0, else what
    the masks say.

    Args:
        ranking, groups: as in :func:`lexppl.cli.report.ranking.ranked_lines`.
        kind: what their masks say.
        directions: the direction of each, where there is one column of them.
    """
    every = ranked_lines(ranking, groups)
    low, high = _ends(every, kind)
    lines = []
    for feature in every:
        gain = feature.gain
        value, lower, upper = (
            (feature.importance, feature.lower, feature.upper)
            if gain is None
            else (gain.mean, gain.lower, gain.upper)
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
    """The values at the left and the right end of all bars."""
    if every[0].gain is None:
        if kind is PROBABILITY:
            return 0.0, 1.0
        ends = [v for f in every for v in (f.importance, f.upper) if not math.isnan(v)]
        return 0.0, max(*ends, 1e-9)
    gains = [f.gain for f in every if f.gain is not None]
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
