"""The table of random fields."""

from statistics import mean
from typing import Any

MODES = ("default", "k", "post hoc")


def fields_table(records: list[dict[str, Any]]) -> str:
    """Means over the seeds, a row a field and pattern."""
    rows = [
        "| field | pattern | seeds | plain network | accuracy: default, k | post hoc | kept of 64: "
        "default | post hoc | precision: default, k | post hoc | fresh network of what is "
        "selected: default, k | post hoc |",
        "| --- " * 12 + "|",
    ]
    for field, pattern in sorted({(r["field"], r["pattern"]) for r in records}):
        found = [r for r in records if (r["field"], r["pattern"]) == (field, pattern)]
        by_mode = {mode: [r for r in found if r["mode"] == mode] for mode in MODES}

        def of(name: str, mode: str, by_mode: dict[str, list[Any]] = by_mode) -> str:
            every = [r[name] for r in by_mode[mode]]
            return f"{mean(every):.{1 if name == 'kept' else 2}f}" if every else "—"

        def pair(name: str, of: Any = of) -> list[str]:
            return [f"{of(name, 'default')}, {of(name, 'k')}", of(name, "post hoc")]

        kept = [of("kept", "default"), of("kept", "post hoc")]
        plain = f"{mean(r['plain'] for r in found):.2f}"
        cells = [*pair("accuracy"), *kept, *pair("precision"), *pair("refitted")]
        seeds = str(len({r["seed"] for r in found}))
        rows.append(f"| {' | '.join((field, pattern, seeds, plain, *cells))} |")
    return "\n".join(rows)
