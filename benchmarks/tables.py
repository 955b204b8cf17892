"""Write the short tables of benchmarks/README.md from the JSON results.

python benchmarks/tables.py
python benchmarks/tables.py --full               # print the whole tables instead
python benchmarks/tables.py --results FOLDER     # print the whole tables of other records
"""

import argparse
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from believable_tables import fit_table, found_table, pooled_table, unknown_table
from calibration_table import calibration_table
from certified_table import certified_table
from changes_table import changes_table, constrained_table
from constraint_tables import constraints_table
from cox_tables import cox_table
from fields_table import fields_table
from first_and_last_table import coverage_table
from image_tables import digits_table, patches_table, radiographs_table
from leak_table import leak_table
from mask_tables import k_subset_table, large_masks_table, mask_gibbs_table, mask_sbc_table
from panel_tables import infidelity_table, panels_table
from posterior_table import posterior_table
from real_model_table import real_models_table
from record import RESULTS, read, spread
from short_tables import shortened
from soak_table import soak_table
from speed_tables import explained_table, gpu_table, growth_table, steps_table
from system_tables import (
    Record,
    figure_3_table,
    figure_4_table,
    mcc_table,
    q_fit_table,
    real_x_grid_table,
    real_x_table,
    tabular_table,
    xtab_table,
)

README = Path(__file__).parent / "README.md"
PUBLISHED = {"S1": (0.984, 0.107), "S2": (0.967, 0.063), "S3": (0.935, 0.026)}
LEAST_FDR = {"S1": 0.2, "S2": 0.2, "S3": 0.0}


def selection(records: list[Record]) -> str:
    """Selection and prediction on S1, S2, S3."""
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        size = f"λ = {record['penalty']}" if "penalty" in record else "λ chosen"
        size = f"k = {record['k']}" if "k" in record else size
        groups[record["law"], size, record["set"]].append(record)
    rows = [
        "| masks | size | set | TPR | FDR | published TPR, FDR | control flow | mean size | gap to "
        "the oracle, nats | accuracy (oracle) | seconds a fit | data sets |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    order = sorted(groups.items(), key=lambda item: (item[0][0] != "k-subset", *item[0]))
    for (law, size, name), found in order:
        column = {key: [r.get(key) for r in found] for key in found[0]}
        shown = f"least FDR {LEAST_FDR[name]:.2f}"
        if law != "k-subset":
            shown = "{:.3f}, {:.3f}".format(*PUBLISHED[name])
        rows.append(
            f"| {law} | {size} | {name} | {spread(column['tpr'])} | {spread(column['fdr'])} | "
            f"{shown} | {spread(column['control_flow'])} | {mean(column['size']):.2f} | "
            f"{spread(column['gap'])} | {mean(column['accuracy']):.3f} "
            f"({mean(column['oracle_accuracy']):.3f}) | {mean(column['seconds']):.0f} | "
            f"{len(found)} |"
        )
    return "\n".join(rows)


def switches(records: list[Record]) -> str:
    """Selection on S1, S2, S3 by one setting, and the gap beside its floor."""
    rows = [
        "| set | labels | folds | λ | TPR, FDR at p > ½ | at p > .7 | at p > .8 | of each "
        "replicate at p > ½ | control flow | gap, nats | floor | ratio | seconds of a core | data "
        "sets |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for r in records:
        if r["kind"] == "switch":
            groups[r["set"], r["labels"], r["folds"], r["penalty"]].append(r)
    for (name, labels, folds, penalty), found in sorted(groups.items()):

        def of(key: str, figure: str, found: list[Record] = found) -> float:
            each = [r[key] if isinstance(r[key], list) else [r[key]] for r in found]
            return mean(one[figure] for several in each for one in several)

        pairs = [
            f"{of(key, 'tpr'):.3f}, {of(key, 'fdr'):.3f}"
            for key in ("above 0.5", "above 0.7", "above 0.8", "each above 0.5")
        ]
        rows.append(
            f"| {name} | {labels} | {folds} | {penalty} | {' | '.join(pairs)} | "
            f"{of('above 0.5', 'control_flow'):.3f} | {mean(r['gap'] for r in found):.4f} | "
            f"{mean(r['floor'] for r in found):.4f} | "
            f"{mean(r['gap_ratio'] for r in found):.2f} | "
            f"{mean(r['cpu_seconds'] for r in found):.0f} | {len(found)} |"
        )
    return "\n".join(rows)


def branches(records: list[Record]) -> str:
    """Fits that lost a branch, by batch size."""
    rows = [
        "| batches | epochs | labels | folds | fits with a branch lost | TPR, FDR at p > ½: S1 | "
        "S2 | S3 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for r in records:
        if r["kind"] == "branches":
            groups[r["batch"], r["epochs"], r["labels"], r["folds"]].append(r)
    for key, found in sorted(groups.items()):
        by_set = {r["set"]: r["each"] for r in found}
        shown = [
            f"{mean(e['tpr'] for e in each):.3f}, {mean(e['fdr'] for e in each):.3f}"
            for each in (by_set.get(name, []) for name in ("S1", "S2", "S3"))
            if each
        ]
        lost, fits = sum(r["lost"] for r in found), sum(r["fits"] for r in found)
        rows.append(f"| {' | '.join(map(str, key))} | {lost} of {fits} | {' | '.join(shown)} |")
    return "\n".join(rows)


def step(records: list[Record]) -> str:
    """A training step against the hand-written loop."""
    rows = [
        "| loop | masks | batch | L | folds | R | threads | library, ms | by hand, ms | ratio, "
        "median of pairs | by hand against its copy |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {r['loop']} | {r['law']} | {r['batch']} | {r['masks']} | {r.get('folds', 1)} | "
        f"{r.get('replicates', 1)} | {r['threads']} | {r['library_ms']:.1f} | "
        f"{r['by_hand_ms']:.1f} | {r['ratio']:.2f} | "
        + (f"{r['control']:.2f} |" if "control" in r else "|")
        for r in records
    ]
    return "\n".join(rows)


def many_rows(records: list[Record]) -> str:
    """Seconds, memory and checksums of a large table, by where it was explained."""
    rows = [
        "| what | where | seconds on the wall | of the processor | MB at most | checksum |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {r['size']:,} rows explained | {r['workers']} | {r['seconds']:.0f} | "
        f"{r['cpu_seconds']:.0f} | {r['megabytes']:.0f} | `{r['checksum']}` |"
        for r in sorted(records, key=lambda r: (r["size"], r["workers"]))
    ]
    return "\n".join(rows)


def large_table(records: list[Record]) -> str:
    """Seconds and memory of `lexppl explain` by rows."""
    rows = [
        "| rows | seconds on the wall | of the processor | MB at most | true columns found | false "
        "ones |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {r['rows']:,} | {r['seconds']:.0f} | {r['cpu_seconds']:.0f} | {r['megabytes']:.0f} | "
        f"{r['found']} of {r['true']} | {r['false']} |"
        for r in sorted(records, key=lambda r: r["rows"])
    ]
    return "\n".join(rows)


def estimators(records: list[Record]) -> str:
    """Gradient variance and what a fit reaches, by estimator."""
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        k = record.get("k")
        masks = "free" if k is None else f"k = {k}"
        groups[record["estimator"], record["set"], masks].append(record)
    rows = [
        "| estimator | unbiased | set | masks | variance at start, half way, end | TPR | FDR "
        "| control flow | gap to the oracle, nats | one mask | seconds a fit |",
        "|---" * 11 + "|",
    ]
    for (name, data, masks), found in sorted(groups.items(), key=lambda item: item[0][::-1]):
        column = {key: [r[key] for r in found] for key in found[0] if key in found[-1]}
        variances = ", ".join(f"{mean(v):.1e}" for v in zip(*column["variance"], strict=True))
        stuck = sum(tpr < 0.8 for tpr in column["tpr"])
        rows.append(
            f"| {name} | {'yes' if found[0]['unbiased'] else 'no'} | {data} | {masks} | "
            f"{variances} | "
            f"{spread(column['tpr'])} | {spread(column['fdr'])} | "
            f"{spread(column['control_flow'])} | {spread(column['gap'])} | "
            f"{stuck} of {len(found)} | {mean(column['seconds']):.0f} |"
        )
    return "\n".join(rows)


def latency(records: list[Record]) -> str:
    """Milliseconds of a core before and after."""
    found = {(r["figure"], r["code"]): r["milliseconds"] for r in records}
    rows = ["| figure | ms of a core before | after |", "|---|---|---|"]
    for figure in dict.fromkeys(r["figure"] for r in records):
        each = [found.get((figure, code)) for code in ("before", "after")]
        rows.append(f"| {figure} | {' | '.join('—' if v is None else f'{v:.2f}' for v in each)} |")
    return "\n".join(rows)


def start_up(records: list[Record]) -> str:
    """Help and refusals, before and after."""
    rows = [
        "| `lexppl` … | exit code | seconds before | after | of a core before | after | MB "
        "before | after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[str, dict[str, Record]] = defaultdict(dict)
    for record in records:
        groups[record["command"]][record["code"]] = record
    for command, found in groups.items():
        cells = [
            format(found[code][key], digits) if code in found else "—"
            for key, digits in (("seconds", ".2f"), ("cpu_seconds", ".2f"), ("megabytes", ".0f"))
            for code in ("before", "after")
        ]
        (code,) = {record["exit_code"] for record in found.values()}
        rows.append(f"| `{command}` | {code} | {' | '.join(cells)} |")
    return "\n".join(rows)


def circumstances(records: list[Record]) -> str:
    """Where and when the records were made."""
    dates = sorted({r["date"] for r in records})
    versions = sorted({", ".join(f"{k} {v}" for k, v in r["versions"].items()) for r in records})
    threads = sorted({r["threads"] for r in records})
    small = " A small run: the figures mean nothing." if records[0].get("small") else ""
    return (
        f"{records[0]['machine']}, threads {threads}, {'; '.join(versions)}; "
        f"{' to '.join(dict.fromkeys([dates[0], dates[-1]]))}.{small}"
    )


TABLES: dict[str, tuple[Callable[[list[Record]], str], str]] = {
    "selection": (selection, "selection"),
    "switches": (switches, "switches"),
    "branches": (branches, "switches"),
    "step": (step, "step"),
    "speed": (steps_table, "speed"),
    "gpu": (gpu_table, "gpu"),
    "speed-explained": (explained_table, "speed"),
    "speed-growth": (growth_table, "speed"),
    "start-up": (start_up, "start_up"),
    "latency": (latency, "latency"),
    "soak": (soak_table, "soak"),
    "large-table": (large_table, "large_table"),
    "many-rows": (many_rows, "many_rows"),
    "k-subset": (k_subset_table, "k_subset"),
    "large-masks": (large_masks_table, "large_masks"),
    "mask-gibbs": (mask_gibbs_table, "mask_gibbs"),
    "mask-sbc": (mask_sbc_table, "mask_sbc"),
    "estimators": (estimators, "estimators"),
    "cox": (cox_table, "cox"),
    "real-x": (real_x_table, "systems"),
    "mcc": (mcc_table, "systems"),
    "q-fit": (q_fit_table, "q_fit"),
    "real-x-s3": (real_x_grid_table, "real_x"),
    "leaks": (leak_table, "leaks"),
    "certified": (certified_table, "certified"),
    "changes": (changes_table, "changes"),
    "changes-adult": (constrained_table, "changes"),
    "xtab": (xtab_table, "xtab"),
    "calibration": (calibration_table, "calibration"),
    "coverage": (coverage_table, "first_and_last"),
    "constraints": (constraints_table, "constraints"),
    "believable": (found_table, "believable"),
    "believable-pooled": (pooled_table, "believable"),
    "believable-fit": (fit_table, "believable"),
    "unknown": (unknown_table, "unknown_tables"),
    "real-models": (real_models_table, "real_models"),
    "random-fields": (fields_table, "random_fields"),
    "global-posteriors": (posterior_table, "global_posteriors"),
    "digits": (digits_table, "digits"),
    "patches": (patches_table, "patches"),
    "radiographs": (radiographs_table, "radiographs"),
    "lex-3": (figure_3_table, "lex_figures"),
    "lex-4": (figure_4_table, "lex_figures"),
    "panels": (panels_table, "panels"),
    "infidelity": (infidelity_table, "infidelity"),
    **{
        name: (partial(tabular_table, data=name), "tabular")
        for name in ("adult", "mushroom", "german_credit", "creditcard", "blog")
    },
}
"""By the name in the README: what makes the table, and of which records."""


def made(folder: Path) -> dict[str, str]:
    """The tables of a folder's records, by name."""
    tables = {}
    for name, (table, file) in TABLES.items():
        if records := read(file, folder):
            tables[name] = f"{table(records)}\n\n{circumstances(records)}"
    return tables


def written(text: str, folder: Path = RESULTS) -> str:
    """A text with a folder's short tables between their marks."""
    for name, table in made(folder).items():
        start, end = f"<!-- table: {name} -->", f"<!-- end: {name} -->"
        if start in text:
            before, rest = text.split(start)
            text = f"{before}{start}\n{shortened(name, table)}\n{end}{rest.split(end)[1]}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")
    parser.add_argument("--full", action="store_true", help="print the whole tables")
    arguments = parser.parse_args()
    folder = arguments.results
    if folder.resolve() == RESULTS.resolve() and not arguments.full:
        README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
        return
    for name, table in made(folder).items():
        print(f"{name}\n\n{table}\n")


if __name__ == "__main__":
    main()
