"""The table of the explainable Cox model."""

from collections import defaultdict
from math import sqrt
from statistics import mean, stdev
from typing import Any

Record = dict[str, Any]


def with_error(values: list[float], signed: bool = False) -> str:
    """Mean and its standard error over divisions."""
    sign = "+" if signed else ""
    if len(values) < 2:
        return f"{values[0]:{sign}.3f}"
    return f"{mean(values):{sign}.3f} ± {stdev(values) / sqrt(len(values)):.3f}"


def cox_table(records: list[Record]) -> str:
    """Concordance of the explainer, of the full network and of Cox's own model."""
    rows = [
        "| set | rows to learn from | events | explainer | full network | explainer − network | "
        "linear Cox | entries kept | TPR | FDR | divisions |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record["data"]].append(record)
    for name, found in groups.items():
        gaps = [r["explainer"] - r["network"] for r in found]
        of_truth = [
            with_error([r[key] for r in found]) if key in found[0] else "—"
            for key in ("tpr", "fdr")
        ]
        rows.append(
            f"| {name} | {found[0]['rows']:,} | {mean(r['events'] for r in found):.0f} | "
            f"{with_error([r['explainer'] for r in found])} | "
            f"{with_error([r['network'] for r in found])} | {with_error(gaps, signed=True)} | "
            f"{with_error([r['linear'] for r in found])} | "
            f"{mean(r['kept'] for r in found):.1f} of {found[0]['entries']} | "
            f"{' | '.join(of_truth)} | {len(found)} |"
        )
    return "\n".join(rows)
