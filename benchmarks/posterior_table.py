"""The table of posteriors of global latents."""

from collections import defaultdict
from statistics import mean
from typing import Any

Record = dict[str, Any]


def posterior_table(records: list[Record]) -> str:
    """Sd ratio, coverage and seconds of each inference on each problem."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["problem"], record["method"]].append(record)
    lines = [
        "| problem | inference | sd ratio | coverage of 90 % intervals | seconds a set | sets |",
        "|---|---|---|---|---|---|",
    ]
    order = ["regression", "explainer", "network"]
    for (problem, method), found in sorted(
        groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1].lower())
    ):
        ratios = [r["sd_ratio"] for r in found if r["sd_ratio"] is not None]
        lines.append(
            f"| {problem} | {method} | {f'{mean(ratios):.2f}' if ratios else '—'} | "
            f"{mean(r['covered'] for r in found):.2f} | {mean(r['seconds'] for r in found):.0f} | "
            f"{len(found)} |"
        )
    return "\n".join(lines)
