"""The table of calibration: the miscalibration as a number beside each method's name."""

from typing import Any

Record = dict[str, Any]
ORDER = ("line", "Q-FIT", "masks")


def calibration_table(records: list[Record]) -> str:
    """One row a program and method."""
    rows = [
        "| program | method | data sets, draws | verdict | least p | distance to uniform (95 % of "
        "exact methods) | 90 % intervals hold | sd by the exact one's | seconds of a core |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in sorted(records, key=lambda r: (ORDER.index(r["program"]), r["method"])):
        ratio = "" if r["sd_ratio"] is None else f"{r['sd_ratio']:.2f}"
        method = r["method"].replace("|", "given")
        rows.append(
            f"| {r['program']} | {method} | {r['simulations']}, {r['draws']} | "
            f"{r['verdict']} | {r['p_value']:.4f} | {r['distance']:.3f} "
            f"({r['usual_distance']:.3f}) | {100 * r['coverage_90']:.0f} % | {ratio} | "
            f"{r['seconds']:.0f} |"
        )
    return "\n".join(rows)
