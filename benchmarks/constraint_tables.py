"""The table of constraints.py: constraints against how far they move an explanation."""

from typing import Any

Record = dict[str, Any]


def constraints_table(records: list[Record]) -> str:
    """A line a model, by study, from the unconstrained one on."""
    lines = [
        "| study | constraint | percentage rule | ε | accuracy | KL to the unconstrained | "
        "above replicates | first three variables |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in sorted(records, key=lambda r: r["study"]):
        free = one["constraint"] in ("none", "noise 0")
        epsilon = "∞" if one["epsilon"] is None else f"{one['epsilon']:.3g}"
        lines.append(
            f"| {one['study']} | {one['constraint']}{' (control)' if free else ''} | "
            f"{one['rule']:.2f} | {epsilon if one['study'] == 'privacy' else '—'} | "
            f"{100 * one['accuracy']:.1f} | {one['nats']:.2f} ± {one['error']:.2f} | "
            f"{one['excess']:+.2f} ± {one['excess_error']:.2f} | {', '.join(one['first'])} |"
        )
    return "\n".join(lines)
