"""The table of random fields."""

from statistics import mean
from typing import Any

COLUMNS = ("accuracy", "plain", "refitted", "kept", "precision")


def fields_table(records: list[dict[str, Any]]) -> str:
    """Means over the seeds, a row a field, pattern and fit."""
    rows = [
        "| fit | field | pattern | seeds | accuracy | plain network | fresh network of what is "
        "selected | kept of 64 | precision |",
        "| --- " * 9 + "|",
    ]
    runs = sorted({(r["mode"], r["field"], r["pattern"]) for r in records})
    for run in runs:
        each = [r for r in records if (r["mode"], r["field"], r["pattern"]) == run]
        cells = [
            f"{mean(r[name] for r in each):.{1 if name == 'kept' else 3}f}" for name in COLUMNS
        ]
        rows.append(f"| {' | '.join((*run, str(len(each)), *cells))} |")
    return "\n".join(rows)
