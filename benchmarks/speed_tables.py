"""The tables of `speed.py`."""

from collections import defaultdict
from typing import Any

import numpy as np

Record = dict[str, Any]
SLOPES_FROM = 4
"""Sizes of which a slope is: the largest ones."""


def steps_table(records: list[Record]) -> str:
    """A step of `fit` against the loop by hand, and R replicates against theirs."""
    rows = [
        "| system | batch | widths | R | by hand, ms | `fit`, ms | ratio of `fit` | by graph, ms | "
        "by graph | compiled, ms | compiled |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    found: dict[tuple[Any, ...], dict[bool | str, Record]] = defaultdict(dict)
    for r in records:
        if r["section"] in ("steps", "replicates"):
            place = (r["section"] == "replicates", r["name"], r["batch"], r["width"])
            found[*place, r.get("replicates") or 1][r["compiled"]] = r
    for (_, name, batch, width, count), by in found.items():
        cells = []
        for compiled in (False, "graph", True):
            r = by.get(compiled)
            cells += ["—", "—"] if r is None else [f"{r['library_ms']:.2f}", f"{r['ratio']:.2f}"]
        hand = next(iter(by.values()))["by_hand_ms"]
        rows.append(f"| {name} | {batch} | {width} | {count} | {hand:.2f} | {' | '.join(cells)} |")
    return "\n".join(rows)


def gpu_table(records: list[Record]) -> str:
    """Milliseconds of a step on a GPU, by the ways to run it."""
    found = [r for r in records if r["section"] == "steps"]
    ways = list(dict.fromkeys(way for r in found for way in r["milliseconds"]))
    ways = [way for way in ways if all(way in r["milliseconds"] for r in found)]
    rows = [f"| system | batch | {' | '.join(ways)} |", "|---" * (2 + len(ways)) + "|"]
    for r in found:
        cells = " | ".join(f"{r['milliseconds'][way]:.1f}" for way in ways)
        rows.append(f"| {r['name']} | {r['batch']:,} | {cells} |")
    return "\n".join(rows)


def explained_table(records: list[Record]) -> str:
    """Rows a second and memory of each method."""
    rows = [
        "| explained by | rows at once | rows a second | times LIME | times permutation SHAP | MB "
        "above the start | MB at most |",
        "|---|---|---|---|---|---|---|",
    ]
    found = {r["name"]: r for r in records if r["section"] == "explained"}
    for name, r in found.items():
        times = [
            number(r["rows_a_second"] / found[other]["rows_a_second"]) if other in found else "—"
            for other in ("lime", "shap, permutation")
        ]
        rows.append(
            f"| {name} | {r['size']:,} | {number(r['rows_a_second'])} | {' | '.join(times)} | "
            f"{r['megabytes']:.0f} | {r['peak']:.0f} |"
        )
    return "\n".join(rows)


def number(value: float) -> str:
    """Two digits, and of larger numbers whole ones."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def growth_table(records: list[Record]) -> str:
    """Milliseconds by size, and the slope over the larger sizes."""
    rows = ["| grows | milliseconds, by size | slope |", "|---|---|---|"]
    found: dict[str, list[Record]] = defaultdict(list)
    for r in records:
        if r["section"] == "growth":
            found[r["name"]].append(r)
    for name, of_name in found.items():
        ordered = sorted(of_name, key=lambda r: r["size"])
        times = ", ".join(f"{r['size']:,}: {r['milliseconds']:.3g}" for r in ordered)
        rows.append(f"| {name} | {times} | {slope(ordered):.2f} |")
    return "\n".join(rows)


def slope(records: list[Record]) -> float:
    """Of log time on log size, over the largest sizes."""
    last = records[-SLOPES_FROM:]
    sizes, times = ([r[key] for r in last] for key in ("size", "milliseconds"))
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
