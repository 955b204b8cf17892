"""The table of what differs between two models."""

from typing import Any

from changes import CHANGED, CONSTRAINTS


def changes_table(records: list[dict[str, Any]]) -> str:
    """By task and change: columns found of those that changed, and pairs with a false one."""
    rows = ["| answers | change | pairs | power | false discovery rate | with a false column |"]
    rows.append("|---|---|---|---|---|---|")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        if record["change"] in CHANGED:
            groups.setdefault((record["task"], record["change"]), []).append(record)
    for (task, change), runs in groups.items():
        true = set(CHANGED[change])
        found = [set(run["found"]) for run in runs]
        power = sum(len(names & true) for names in found) / max(1, len(true) * len(runs))
        false = [len(names - true) / max(1, len(names)) for names in found]
        rows.append(
            f"| {task} | {change} | {len(runs)} | {f'{power:.2f}' if true else ''} | "
            f"{sum(false) / len(runs):.3f} | {sum(rate > 0 for rate in false)} |"
        )
    return "\n".join(rows)


def constrained_table(records: list[dict[str, Any]]) -> str:
    """Mean sizes of the differences that constraints of Adult make, beside those of refits."""
    rows = [
        "| study | ratio or noise | size | mean of refits | largest of refits |",
        "|---" * 5 + "|",
    ]
    rows += [
        f"| {r['change']} | {r['constraint']:g} | {r['size']:.4f} ± {r['error']:.4f} | "
        f"{r['size_of_refits']:.4f} | {r['largest_of_refits']:.4f} |"
        for r in records
        if r["change"] in CONSTRAINTS
    ]
    return "\n".join(rows)
