"""The table of models from wheels."""

from collections import defaultdict
from statistics import mean
from typing import Any

Record = dict[str, Any]


def real_models_table(records: list[Record]) -> str:
    """What is found of what a model reads, and for how many calls: means over its cases."""
    rows = [
        "| model | cases | columns read | TPR, FDR | calls | SHAP: TPR, FDR | SHAP's calls "
        "| of rows | SHAP's for the rows of ours | seconds |",
        "|---" * 10 + "|",
    ]
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record["model"]].append(record)
    for name, found in sorted(groups.items()):
        cells = []
        for who in ("ours", "shap"):
            tpr, fdr, calls = (mean(r[who][key] for r in found) for key in ("tpr", "fdr", "calls"))
            cells += [f"{tpr:.2f}, {fdr:.2f}", f"{calls:,.0f}"]
        one = found[0]
        cases = ", ".join(r["case"] for r in sorted(found, key=lambda r: r["seed"]))
        rows.append(
            f"| {name} | {cases} | {one['true']} of {one['columns']} | {' | '.join(cells)} | "
            f"{one['shap']['rows']} | {one['shap']['defaults']:,} | "
            f"{mean(r['seconds'] for r in found):.0f} |"
        )
    return "\n".join(rows)
