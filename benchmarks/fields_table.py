"""The table of random fields."""

from statistics import mean
from typing import Any

MODES = ("default", "k", "post hoc")
COLUMNS = ("accuracy", "kept", "precision", "refitted")


def cell(records: list[dict[str, Any]], name: str) -> str:
    """The mean of a figure over the seeds."""
    digits = 1 if name == "kept" else 2
    return f"{mean(r[name] for r in records):.{digits}f}" if records else "—"


def fields_table(records: list[dict[str, Any]]) -> str:
    """Means over the seeds, a row a field and pattern, at the usual amplitudes."""
    records = [r for r in records if r["strength"] == 1.0]
    rows = [
        "| field | pattern | seeds | plain network | accuracy: default, k | post hoc | kept of 64: "
        "default | post hoc | precision: default, k | post hoc | fresh network of what is "
        "selected: default, k | post hoc |",
        "| --- " * 12 + "|",
    ]
    for field, pattern in sorted({(r["field"], r["pattern"]) for r in records}):
        found = [r for r in records if (r["field"], r["pattern"]) == (field, pattern)]
        cells = [cell(found, "plain")]
        for name in COLUMNS:
            default, k, post_hoc = (
                cell([r for r in found if r["mode"] == mode], name) for mode in MODES
            )
            # A fit of k keeps k.
            cells += [default if name == "kept" else f"{default}, {k}", post_hoc]
        seeds = str(len({r["seed"] for r in found}))
        rows.append(f"| {' | '.join((field, pattern, seeds, *cells))} |")
    return "\n".join(rows)
