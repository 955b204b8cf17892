"""The ranked features as lines of a table with bars in it."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from lexppl.cli.report.ranked import RankedFeature, ranked_lines
from lexppl.explanation.reading.masks import PROBABILITY, ImportanceKind

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
        ranking, groups: as in :func:`lexppl.cli.report.ranked.ranked_lines`.
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
