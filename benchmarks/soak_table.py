"""The table of fits that were killed and went on."""

from collections import defaultdict
from typing import Any


def soak_table(records: list[dict[str, Any]]) -> str:
    """By kind of fit, how often they were killed and whether they ended with the same bits."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups[record["case"]].append(record)
    rows = [
        "| fit | fits | kills | while a state was written | after epochs | the same bits |",
        "|---|---|---|---|---|---|",
    ]
    for case, found in groups.items():
        after = ", ".join(str(epochs) for r in found for epochs in r["after"])
        rows.append(
            f"| {case} | {len(found)} | {sum(r['kills'] for r in found)} | "
            f"{sum(r['while_writing'] for r in found)} | {after} | "
            f"{sum(r['same'] for r in found)} of {len(found)} |"
        )
    return "\n".join(rows)
