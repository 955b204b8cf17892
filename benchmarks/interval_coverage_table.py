"""The table of what the intervals of `lexppl explain` cover."""

from collections import defaultdict
from math import sqrt
from statistics import mean, stdev
from typing import Any

Record = dict[str, Any]
LEVELS = (0.9, 0.95)
LEAST_SETS = 3
"""Fewest data sets by whose fits an interval of another is judged."""


def coverage_table(records: list[Record]) -> str:
    """Shares of intervals that cover, with their standard errors over data sets."""
    rows = [
        "| set | rows | of | 90 % intervals cover the estimator's mean | 95 % | the worst feature, "
        "95 % | mean width, 95 % | by the estimates' own spread | 95 % cover the distribution's "
        "own | data sets |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["set"], record["rows"]].append(record)
    for (name, size), found in sorted(groups.items()):
        if len(found) < LEAST_SETS:
            continue
        for what in ("selection", "gain"):
            nominal = [_share(_covers(found, what, level)) for level in LEVELS]
            of_features = [mean(each) for each in zip(*_covers(found, what, 0.95), strict=True)]
            widths = [_width(f, what) for r in found for f in r["features"].values()]
            spreads = [
                stdev(r["features"][feature][what] for r in found)
                for feature in found[0]["features"]
            ]
            own = _share(_own(found)) if what == "gain" else "—"
            rows.append(
                f"| {name} | {size:,} | {what} | {nominal[0]} | {nominal[1]} | "
                f"{min(of_features):.2f} | {mean(widths):.3f} | "
                f"{mean(widths) / (2 * 1.96 * sqrt(mean(s**2 for s in spreads))):.2f} | {own} | "
                f"{len(found)} |"
            )
    return "\n".join(rows)


def _covers(found: list[Record], what: str, level: float) -> list[list[bool]]:
    """Of each data set and feature, whether the interval has the mean of the others' estimates."""
    each = []
    for record in found:
        others = [r for r in found if r is not record]
        line = []
        for name, feature in record["features"].items():
            lower, upper = feature[f"{what}_{level:g}"]
            line.append(lower <= mean(r["features"][name][what] for r in others) <= upper)
        each.append(line)
    return each


def _own(found: list[Record]) -> list[list[bool]]:
    return [
        [
            feature["gain_0.95"][0] <= record["own_gains"][name] <= feature["gain_0.95"][1]
            for name, feature in record["features"].items()
        ]
        for record in found
    ]


def _width(feature: dict[str, Any], what: str) -> float:
    lower, upper = feature[f"{what}_0.95"]
    return float(upper - lower)


def _share(covers: list[list[bool]]) -> str:
    """Mean over data sets and features; its error is that of the data sets' shares."""
    shares = [mean(line) for line in covers]
    return f"{mean(shares):.2f} ± {stdev(shares) / sqrt(len(shares)):.2f}"
