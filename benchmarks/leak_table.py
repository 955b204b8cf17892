"""The table of what explainers' choices tell."""

from collections import defaultdict
from statistics import mean
from typing import Any

from record import spread

Record = dict[str, Any]


def leak_table(records: list[Record]) -> str:
    """The encode-meter, the oracle's, and EVAL-X's score of each explainer on each set."""
    groups: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["set"], record["explainer"], record["epochs"]].append(record)
    lines = [
        "| set | explainer | epochs | encode-meter, nats | oracle's at these labels | apart | in "
        "the mean over labels | EVAL-X, nats | STRIPE-X | TPR | FDR | control flow | gap, nats | "
        "data sets |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, explainer, epochs), found in groups.items():
        column = {key: [r[key] for r in found] for key in found[0]}
        gap = "—" if column["gap"][0] is None else spread(column["gap"])
        lines.append(
            f"| {name} | {explainer} | {epochs or '—'} | {spread(column['meter'], 4)} | "
            f"{spread(column['oracle_at_y'], 4)} | {mean(column['apart']):+.4f} | "
            f"{mean(column['oracle']):.4f} | {spread(column['eval_x'])} | "
            f"{mean(column['stripe_x']):.2f} | {spread(column['tpr'])} | {spread(column['fdr'])} | "
            f"{spread(column['control_flow'])} | {gap} | {len(found)} |"
        )
    return "\n".join(lines)
