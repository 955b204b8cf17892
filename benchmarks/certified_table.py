"""The table of certified masks and calibrated stops."""

from typing import Any

from record import spread

COLUMNS = {
    "oracle": "oracle's size",
    "size": "size",
    "coverage": "coverage",
    "calls": "calls a row",
    "claimed": "claimed precision",
    "precision": "real precision",
    "risk": "risk",
    "above": "P(risk > .1)",
    "refused": "refused",
    "real": "real risk",
    "redrawn": "redrawn risk",
}


def certified_table(records: list[dict[str, Any]]) -> str:
    """By set and figure, means over seeds."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["set"], record["figure"]), []).append(record)
    rows = [f"| set | figure | {' | '.join(COLUMNS.values())} |", "|---" * (2 + len(COLUMNS)) + "|"]
    for (name, figure), found in groups.items():
        cells = []
        for column in COLUMNS:
            values = [r[column] for r in found if r.get(column) is not None]
            digits = 0 if column == "calls" else 2 if column in ("oracle", "size") else 3
            cells.append(spread(values, digits) if values else "")
        rows.append(f"| {name} | {figure} | {' | '.join(cells)} |")
    return "\n".join(rows)
