"""The table of what the intervals of first and last cover."""

from collections import defaultdict
from statistics import mean
from typing import Any

OF = ("first", "last")
LEAST_TABLES = 4  # Fewest tables by whose values an interval of another is judged


def coverage_table(records: list[dict[str, Any]]) -> str:
    """Of each kind and number of rows: false shares, power, and what intervals cover."""
    rows = [
        "| kind | rows | tables | false share | power | of | covers the mean of tables of its size "
        "| covers the law's own value | bias of true columns to the law | two seeds within two "
        "errors | s of a core |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in summary(records):
        shown = {k: "—" if v is None else f"{v:.2f}" for k, v in each.items() if k not in ("kind",)}
        for of in OF:
            values = (
                *(each["kind"], f"{each['rows']:,}", each["tables"]),
                *(shown["false_share"], shown["power"], of),
                *(shown[f"{of}_{what}"] for what in ("covers_size", "covers_law")),
                *(shown.get(f"{of}_bias", "—"), shown["seeds_agree"], shown["cpu_seconds"]),
            )
            rows.append(f"| {' | '.join(map(str, values))} |")
    return "\n".join(rows)


def summary(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By kind and rows: power, false shares, and coverage of both estimands by true lines and
    nulls."""
    found = []
    by_kind: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        by_kind[record["kind"], record["rows"]].append(record)
    for (kind, rows), tables in by_kind.items():
        line: dict[str, Any] = {"kind": kind, "rows": rows, "tables": len(tables)}
        for name in ("false_share", "false_share_members", "power", "cpu_seconds"):
            known = [record[name] for record in tables if record[name] is not None]
            line[name] = mean(known) if known else None
        for of in OF:
            size, law, bias = [], [], []
            for record in tables:
                for name, own in record["lines"].items():
                    others = [
                        r["lines"][name][of]
                        for r in tables
                        if r is not record and name in r["lines"]
                    ]
                    # The mean of others has its own error, for which the distance is made smaller.
                    if len(others) + 1 >= LEAST_TABLES:
                        away = (own[of] - mean(others)) / (1.0 + 1.0 / len(others)) ** 0.5
                        half = (own[f"{of}_upper"] - own[f"{of}_lower"]) / 2.0
                        size.append(abs(away) <= half)
                    law.append(own[f"{of}_lower"] <= own[f"{of}_law"] <= own[f"{of}_upper"])
                    if own[f"{of}_law"] > 0.0:
                        bias.append((own[of], own[f"{of}_law"]))
            line[f"{of}_covers_size"] = mean(size) if size else None
            line[f"{of}_covers_law"] = mean(law)
            if bias:
                value, truth = map(sum, zip(*bias, strict=True))
                line[f"{of}_bias"] = value / truth - 1.0
        pairs = [
            abs(values[of] - record["lines"][name][of])
            <= 2.0 * record["lines"][name][f"{of}_error"]
            for record in tables
            for name, values in record.get("again", {}).items()
            if record["lines"][name]["found"]
            for of in OF
        ]
        line["seeds_agree"] = mean(pairs) if pairs else None
        found.append(line)
    return found
