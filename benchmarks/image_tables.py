"""Tables of the explainers of images, with the papers' figures beside ours."""

from statistics import mean
from typing import Any

from record import spread
from system_tables import grouped

Record = dict[str, Any]
DIGITS = {
    "full": "97.8",
    "real_x": "93.8, 86.7, .989",
    "l2x": "96.0, 11.4",
    "invase": "—, 50.3",
    "base_x": "—, 56.9",
}
"""REAL-X, Table 2: ACC, eACC, eAUROC."""
RADIOGRAPHS = {
    "real_x": "eACC 70.3",
    "l2x": "eACC 54.0",
    "invase": "eACC 52.3",
    "base_x": "eACC 51.7",
}
"""REAL-X, of another set of radiographs."""
PATCHES = {
    "q_fit": (0.788, 0.937, 0.973, 0.980, 0.981),
    "l2x": (0.633, None, None, None, 0.864),
    "invase": (0.584, None, None, None, 0.905),
}
"""Q-FIT, Table 3, of k = 1 … 5."""


def evalx_table(records: list[Record], paper: dict[str, str]) -> str:
    """Every penalty that was tried, by method; the chosen one of each is bold."""
    rows = [
        "| method | λ, nats an entry (k) | entries kept | ACC | eACC | eAUROC | paper: ACC, eACC, "
        "eAUROC | rows, epochs | seconds of the grid | seeds |",
        "|---" * 10 + "|",
    ]
    sizes = {_size(r) for r in records}
    for key in sorted(sizes):
        found = [r for r in records if _size(r) == key]
        full = [f"{100 * found[0]['full_accuracy']:.1f}", f"{found[0]['full_auroc']:.3f} (AUROC)"]
        rows.append(
            f"| everything, {key[3]} | — | {key[2]} | {full[0]} | — | {full[1]} | "
            f"{paper.get('full', '—')} | {key[1]:,} | — | |"
        )
        for method in dict.fromkeys(r["method"] for r in found):
            rows += _candidates([r for r in found if r["method"] == method], paper)
    return "\n".join(rows)


def _size(record: Record) -> tuple[bool, int, int, str]:
    return record["full"], record["rows"], record["entries"], record["networks"]


def _candidates(found: list[Record], paper: dict[str, str]) -> list[str]:
    first = found[0]
    rows = []
    for place, setting in enumerate(c["setting"] for c in first["candidates"]):
        each = [r["candidates"][place] for r in found]
        chosen = sum(r["place"] == place for r in found) * 2 > len(found)
        bold = "**" if chosen and len(first["candidates"]) > 1 else ""
        percent = [
            spread([100 * c[key] for c in each], 1) for key in ("accuracy", "evalx_accuracy")
        ]
        rows.append(
            f"| {bold}{first['method']}{bold} | {setting:g} | "
            f"{mean(c['size'] for c in each):.1f} | {percent[0]} | {bold}{percent[1]}{bold} | "
            f"{spread([c['evalx_auroc'] for c in each])} | "
            f"{paper.get(first['method'], '—') if chosen else ''} | "
            f"{first['rows']:,}, {first['fit_epochs']} | "
            f"{mean(r['seconds'] for r in found):.0f} | {len(found)} |"
        )
    return rows


def digits_table(records: list[Record]) -> str:
    """REAL-X, Table 2."""
    return evalx_table(records, DIGITS)


def radiographs_table(records: list[Record]) -> str:
    """REAL-X, its table of radiographs."""
    return evalx_table(records, RADIOGRAPHS)


def patches_table(records: list[Record]) -> str:
    """Q-FIT, Table 3."""
    rows = [
        "| method | judge's accuracy: k = 1 | 2 | 3 | 4 | 5 | paper | the given model's own, "
        "k = 1 … 5 | chosen | rows, epochs | seconds | seeds |",
        "|---" * 12 + "|",
    ]
    for found in grouped(records, "full", "method", "fit_epochs").values():
        method = found[0]["method"]
        judged = [
            spread(list(each), 3) for each in zip(*(r["accuracy"] for r in found), strict=True)
        ]
        own = [
            f"{mean(each):.3f}" for each in zip(*(r["given_accuracy"] for r in found), strict=True)
        ]
        paper = " ".join("…" if v is None else f"{v:.3f}" for v in PATCHES.get(method, ())) or "—"
        settings = [f"{r['setting']:g}" for r in found if r["setting"] is not None]
        rows.append(
            f"| {method} | {' | '.join(judged)} | {paper.replace('… … …', '…')} | "
            f"{', '.join(own)} | {', '.join(settings) or '—'} | {found[0]['rows']:,}, "
            f"{found[0]['fit_epochs']} | {mean(r['seconds'] for r in found):.0f} | {len(found)} |"
        )
    full = mean(r["full_accuracy"] for r in records)
    return "\n".join([*rows, "", f"Whole digits: {full:.3f} (paper: .996)."])
