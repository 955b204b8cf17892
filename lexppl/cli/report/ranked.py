"""The ranked groups and features, line by line."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lexppl.explanation.reading.masks import ImportanceKind

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
