"""Tables of the published systems, with the papers' figures beside ours."""

from collections import defaultdict
from statistics import mean
from typing import Any

from record import spread

REAL_X = {
    "real_x": {"S1": (100, 98.4, 10.7), "S2": (100, 96.7, 6.3), "S3": (100, 93.5, 2.6)},
    "l2x": {"S1": (24,), "S2": (31,), "S3": (62,)},
    "invase": {"S1": (41,), "S2": (47,), "S3": (38,)},
    "base_x": {"S1": (35,), "S2": (25,), "S3": (27,)},
}
REAL_X_SCORES = {"S1": (70.1, 68.6, 0.774), "S2": (71.5, 71.2, 0.804), "S3": (79.6, 79.3, 0.873)}
MCC = {
    "q_fit_global": {"Syn1": 1.0, "Syn2": 1.0, "Syn3": 0.85},
    "q_fit": {"Syn1": 1.0, "Syn2": 1.0, "Syn3": 0.936, "S1": 0.819, "S2": 0.86, "S3": 0.852},
    "l2x": {"Syn1": 1.0, "Syn2": 1.0, "Syn3": 0.951, "S1": 0.66, "S2": 0.645, "S3": 0.738},
    "invase": {"Syn1": 1.0, "Syn2": 1.0, "Syn3": 0.81, "S1": 0.573, "S2": 0.5, "S3": 0.361},
}
ADULT = {"q_fit_global": (78.2, 76.5, 82.4), "q_fit": (77.9, 78.5, 80.1)}
CREDIT = {"q_fit": (89.8, 91.5, 93.5)}
Record = dict[str, Any]
SETS = ("Syn1", "Syn2", "Syn3", "S1", "S2", "S3")


def grouped(found: list[Record], *keys: str) -> dict[tuple[str, ...], list[Record]]:
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in found:
        groups[tuple(str(record[key]) for key in keys)].append(record)
    return groups


def penalties(found: list[Record]) -> str:
    """The λ of the fits, as set or as chosen."""
    given = dict.fromkeys(r["penalty"] for r in found if r.get("penalty") is not None)
    return ", ".join(f"{value:.4f}" for value in sorted(given)) or "—"


def real_x_table(records: list[Record]) -> str:
    """REAL-X, Table 1."""
    rows = [
        "| method | set | CFSR | TPR | FDR | ACC | eACC | eAUROC "
        "| paper: CFSR, TPR, FDR (ACC, eACC, eAUROC) | λ, nats an entry | seconds | data sets |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (method, name), found in sorted(grouped(records, "method", "set").items()):
        if name not in REAL_X_SCORES or method.startswith("q_fit"):
            continue
        column = {key: [100 * r[key] for r in found] for key in ("cfsr", "tpr", "fdr", "accuracy")}
        judged = [100 * r["evalx_accuracy"] for r in found]
        paper = ", ".join(f"{v:g}" for v in REAL_X.get(method, {}).get(name, ()))
        if method == "real_x":
            paper += " ({:g}, {:g}, {:g})".format(*REAL_X_SCORES[name])
        rows.append(
            f"| {method} | {name} | {spread(column['cfsr'], 1)} | {spread(column['tpr'], 1)} | "
            f"{spread(column['fdr'], 1)} | {spread(column['accuracy'], 1)} | {spread(judged, 1)} | "
            f"{spread([r['evalx_auroc'] for r in found])} | {paper or '—'} | {penalties(found)} | "
            f"{mean(r['seconds'] for r in found):.0f} | {len(found)} |"
        )
    return "\n".join(rows)


def real_x_grid_table(records: list[Record]) -> str:
    """REAL-X by λ, by its schedule and by how its selector is annealed."""
    rows = [
        "| set | epochs, batch, rate | variant | λ | TPR | FDR | CFSR | ACC | data sets | REBAR |",
        "|---" * 10 + "|",
    ]
    key = ("set", "epochs", "batch_size", "rate", "variant", "penalty", "numbers")
    numbered = [{**r, "numbers": r.get("numbers", "")} for r in records]
    for run, found in sorted(grouped(numbered, *key).items()):
        name, epochs, batch, rate, variant, penalty, numbers = run
        cells = (spread([r[key] for r in found]) for key in ("tpr", "fdr", "cfsr", "accuracy"))
        rows.append(
            f"| {name} | {epochs}, {batch}, {rate} | {variant} | {penalty} | "
            f"{' | '.join(cells)} | {len(found)} | {'mended' if numbers else 'before'} |"
        )
    return "\n".join(rows)


def mcc_table(records: list[Record]) -> str:
    """Q-FIT, Table 1."""
    groups = grouped(records, "method", "set")
    rows = [
        "| method | " + " | ".join(SETS) + " |",
        "|---" * (1 + len(SETS)) + "|",
    ]
    for method in dict.fromkeys(method for method, _ in groups):
        cells = []
        for name in SETS:
            found = groups.get((method, name), [])
            paper = MCC.get(method, {}).get(name)
            ours = spread([r["mcc"] for r in found]) if found else "not run"
            cells.append(ours + ("" if paper is None else f" (paper {paper:g})"))
        rows.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def q_fit_table(records: list[Record]) -> str:
    """Q-FIT by row, of the model as given and of the adapted one."""
    sets = [f"Syn{number}" for number in range(1, 7)]
    paper = {new: MCC["q_fit"].get(old) for new, old in zip(sets, SETS, strict=True)}
    rows = [
        "| what is explained | weight of the KL | " + " | ".join(sets) + " | seeds |",
        "|---" * (3 + len(sets)) + "|",
        "| *paper* | | " + " | ".join(f"{paper[name]:g}" for name in sets) + " | |",
    ]
    groups = grouped(records, "explained", "kl_weight")
    named = {"adapted": "batch norms that adapt", "frozen": "the model as given"}
    for (explained, weight), found in sorted(groups.items()):
        by_set = {name: [r["mcc"] for r in found if r["set"] == name] for name in sets}
        cells = [spread(by_set[name]) if by_set[name] else "not run" for name in sets]
        counts = sorted({len(values) for values in by_set.values() if values})
        shown = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
        rows.append(f"| {named[explained]} | {weight} | {' | '.join(cells)} | {shown} |")
    return "\n".join(rows)


def xtab_table(records: list[Record]) -> str:
    """XTab's rankings."""
    rows = [
        "| set | settings, width, K | runs | global mask as expected | final mask as expected "
        "| mean of seeds as expected | Kendall's W of the seeds | accuracy "
        "| first three, commonest: global; final | ties among the final mask's first five |",
        "|---" * 10 + "|",
    ]
    with_settings = [{**r, "settings": _settings(r)} for r in records]
    groups = grouped(with_settings, "set", "settings", "width", "seeds")
    for (name, settings, width, seeds), found in groups.items():
        cells = []
        for who in ("global", "final", "mean of seeds"):
            right = [r["ranked"][who]["as_expected"] for r in found]
            cells.append("—" if right[0] is None else f"{sum(right)} of {len(right)}")
        leading = []
        for who in ("global", "final"):
            firsts = [", ".join(r["ranked"][who]["order"][:3]) for r in found]
            leading.append(max(firsts, key=firsts.count))
        rows.append(
            f"| {name} | {settings}, {width}, {seeds} | {len(found)} | {cells[0]} | {cells[1]} | "
            f"{cells[2]} | {spread([r['kendall_w_of_seeds'] for r in found], 2)} | "
            f"{spread([r['accuracy'] for r in found])} | {'; '.join(leading)} | {_ties(found)} |"
        )
    return "\n".join(rows)


def _settings(record: Record) -> str:
    """The name of a run's settings, with what of them is not the paper's."""
    words = [record["settings"]]
    if record.get("asked_rows"):
        words.append(f"{record['asked_rows']:,} rows")
    if record.get("penalties") is not None:
        words.append(f"penalties × {record['penalties']:g}")
    if record.get("matmul"):
        words.append("bfloat16 products")
    return " and ".join(words)


def _ties(found: list[Record]) -> str:
    """In how many of the runs two of the first five entries of the final mask are a tie."""
    if any("ties" not in r["ranked"]["final"] for r in found):
        return "not recorded"
    count = sum(
        any(len(set(tie) & set(final["order"][:5])) > 1 for tie in final["ties"])
        for final in (r["ranked"]["final"] for r in found)
    )
    return f"{count} of {len(found)}"


def tabular_table(records: list[Record], data: str) -> str:
    """Accuracy with the k most important variables; on Adult beside Q-FIT's Table 2."""
    published = ADULT if data == "adult" else CREDIT if data == "creditcard" else {}
    rows = [
        "| method | EVAL-X, k = 1, 3, 5 | the model itself agrees, k = 1, 3, 5 | paper (Q-FIT) | "
        "first three variables | seeds |",
        "|---|---|---|---|---|---|",
    ]
    records = [r for r in records if r["data"] == data]
    if not records:
        return "Not run."
    for method in dict.fromkeys(r["method"] for r in records):
        found = [r for r in records if r["method"] == method]
        judged, agreed = (
            ", ".join(f"{100 * mean(v):.1f}" for v in zip(*(r[key] for r in found), strict=True))
            for key in ("evalx_accuracy", "fs_m")
        )
        paper = ", ".join(f"{v:g}" for v in published.get(method, ())) or "—"
        firsts = "; ".join(dict.fromkeys(", ".join(r["order"][:3]) for r in found))
        rows.append(f"| {method} | {judged} | {agreed} | {paper} | {firsts} | {len(found)} |")
    full = mean(r["full_accuracy"] for r in records)
    return "\n".join([*rows, "", f"All variables: {100 * full:.1f}."])


def best_rates(name: str, k: int) -> tuple[float, float]:
    """The best TPR and FPR that masks of k entries can have, over the set's two branches."""
    sizes = (5, 5) if name == "S3" else (3, 5)
    tpr = mean(min(k, size) / size for size in sizes)
    fpr = mean(max(k - size, 0) / (11 - size) for size in sizes)
    return tpr, fpr


def rates_of(found: list[Record]) -> str:
    """TPR and FPR over data sets."""
    scores = (spread([r[key] for r in found]) for key in ("tpr", "fpr"))
    return ", ".join(scores) if found else "not run"


def figure_3_table(records: list[Record]) -> str:
    """LEX, Figure 3."""
    records = [r for r in records if r["figure"] == 3]
    if not records:
        return "Not run."
    rates = sorted({r["k"] for r in records})
    rows = [
        "| set | imputer | "
        + " | ".join(f"TPR, FPR at {k} of 11" for k in rates)
        + " | data sets |",
        "|---" * (3 + len(rates)) + "|",
    ]
    for name in sorted({r["set"] for r in records}):
        best = (", ".join(f"{v:.3f}" for v in best_rates(name, k)) for k in rates)
        rows.append(f"| {name} | *best possible* | {' | '.join(best)} | |")
        for imputer in dict.fromkeys(r["imputer"] for r in records):
            found = [r for r in records if (r["set"], r["imputer"]) == (name, imputer)]
            if not found:
                continue
            cells = [rates_of([r for r in found if r["k"] == k]) for k in rates]
            count = len({r["seed"] for r in found})
            rows.append(f"| {name} | {imputer} | {' | '.join(cells)} | {count} |")
    return "\n".join(rows)


def figure_4_table(records: list[Record]) -> str:
    """LEX, Figure 4."""
    records = [r for r in records if r["figure"] == 4]
    if not records:
        return "Not run."
    kinds = list(dict.fromkeys((r["set"], r["imputer"]) for r in records))
    rows = [
        "| constant | "
        + " | ".join(f"{imputer}, {name}: TPR, FPR" for name, imputer in kinds)
        + " |",
        "|---" * (1 + len(kinds)) + "|",
    ]
    for constant in sorted({r["constant"] for r in records}):
        cells = []
        for kind in kinds:
            found = [r for r in records if (r["set"], r["imputer"]) == kind]
            found = [r for r in found if r["constant"] == constant]
            cells.append(rates_of(found))
        rows.append(f"| {constant:g} | {' | '.join(cells)} |")
    seeds = {
        kind: len({r["seed"] for r in records if (r["set"], r["imputer"]) == kind})
        for kind in kinds
    }
    counts = ", ".join(f"{imputer} on {name} {count}" for (name, imputer), count in seeds.items())
    return "\n".join([*rows, "", f"Data sets: {counts}."])
