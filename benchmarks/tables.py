"""Write the tables of benchmarks/README.md from the JSON results.

python benchmarks/tables.py
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from record import read, spread
from system_tables import (
    figure_3_table,
    figure_4_table,
    mcc_table,
    real_x_table,
    tabular_table,
    xtab_table,
)

README = Path(__file__).parent / "README.md"
PUBLISHED = {"S1": (0.984, 0.107), "S2": (0.967, 0.063), "S3": (0.935, 0.026)}
LEAST_FDR = {"S1": 0.2, "S2": 0.2, "S3": 0.0}


def selection() -> str:
    """Selection and prediction on S1, S2, S3."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for record in read("selection"):
        size = f"k = {record['k']}" if "k" in record else f"λ = {record['penalty']}"
        groups[record["law"], size, record["set"]].append(record)
    rows = [
        "| masks | size | set | TPR | FDR | published TPR, FDR | control flow | mean size | gap to "
        "the oracle, nats | accuracy (oracle) | seconds a fit | data sets |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    order = sorted(groups.items(), key=lambda item: (item[0][0] == "bernoulli", *item[0]))
    for (law, size, name), found in order:
        column = {key: [r[key] for r in found] for key in found[0]}
        told = f"least FDR {LEAST_FDR[name]:.2f}"
        if law == "bernoulli":
            told = "{:.3f}, {:.3f}".format(*PUBLISHED[name])
        rows.append(
            f"| {law} | {size} | {name} | {spread(column['tpr'])} | {spread(column['fdr'])} | "
            f"{told} | {spread(column['control_flow'])} | {mean(column['size']):.2f} | "
            f"{spread(column['gap'])} | {mean(column['accuracy']):.3f} "
            f"({mean(column['oracle_accuracy']):.3f}) | {mean(column['seconds']):.0f} | "
            f"{len(found)} |"
        )
    return "\n".join(rows)


def step() -> str:
    """A training step against the hand-written loop."""
    rows = [
        "| masks | threads | library, ms | by hand, ms | ratio, median of pairs |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| {r['law']} | {r['threads']} | {r['library_ms']:.1f} | {r['by_hand_ms']:.1f} | "
        f"{r['ratio']:.2f} |"
        for r in read("step")
    ]
    return "\n".join(rows)


def estimators() -> str:
    """Gradient variance and what a fit reaches, by estimator."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in read("estimators"):
        groups[record["estimator"], record["set"]].append(record)
    rows = [
        "| estimator | unbiased | set | variance at start, half way, end | TPR | FDR "
        "| control flow | gap to the oracle, nats | one mask | seconds a fit |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, data), found in sorted(groups.items(), key=lambda item: item[0][::-1]):
        column = {key: [r[key] for r in found] for key in found[0] if key in found[-1]}
        variances = ", ".join(f"{mean(v):.1e}" for v in zip(*column["variance"], strict=True))
        stuck = sum(tpr < 0.8 for tpr in column["tpr"])
        rows.append(
            f"| {name} | {'yes' if found[0]['unbiased'] else 'no'} | {data} | {variances} | "
            f"{spread(column['tpr'])} | {spread(column['fdr'])} | "
            f"{spread(column['control_flow'])} | {spread(column['gap'])} | "
            f"{stuck} of {len(found)} | {mean(column['seconds']):.0f} |"
        )
    return "\n".join(rows)


def circumstances(name: str) -> list[str]:
    """Where and when the records were made."""
    records = read(name)
    if not records:
        return []
    dates = sorted({r["date"] for r in records})
    versions = sorted({", ".join(f"{k} {v}" for k, v in r["versions"].items()) for r in records})
    threads = sorted({r["threads"] for r in records})
    return [
        "",
        f"{records[0]['machine']}, threads {threads}, {'; '.join(versions)}; "
        f"{' to '.join(dict.fromkeys([dates[0], dates[-1]]))}.",
    ]


TABLES: dict[str, tuple[Callable[[], str], str]] = {
    "selection": (selection, "selection"),
    "step": (step, "step"),
    "estimators": (estimators, "estimators"),
    "real-x": (real_x_table, "systems"),
    "mcc": (mcc_table, "systems"),
    "xtab": (xtab_table, "xtab"),
    "lex-3": (figure_3_table, "lex_figures"),
    "lex-4": (figure_4_table, "lex_figures"),
    **{
        name: (partial(tabular_table, name), "tabular")
        for name in ("adult", "mushroom", "german_credit", "creditcard", "blog")
    },
}
"""By the name in the README: what makes the table, and of which records."""


def main() -> None:
    text = README.read_text(encoding="utf-8")
    for name, (table, records) in TABLES.items():
        start, end = f"<!-- table: {name} -->", f"<!-- end: {name} -->"
        if start not in text or not read(records):
            continue
        before, rest = text.split(start)
        made = "\n".join([table(), *circumstances(records)])
        text = f"{before}{start}\n{made}\n{end}{rest.split(end)[1]}"
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
