"""Tables of switching panels and of infidelity, with the papers' figures beside ours."""

from statistics import mean
from typing import Any

from record import spread
from system_tables import grouped

Record = dict[str, Any]
SCORES = ("fs_m", "fu_m", "fs_a", "fu_a")
MEED = {
    ("imdb", "meed"): (98.5, 59.1, 98.7, 81.8),
    ("imdb", "l2x"): (89.2, 82.9, 89.1, 83.8),
    ("imdb", "vibi"): (90.8,),
    ("imdb", "meed, no feedback"): (92.5,),
    ("imdb", "meed, no adversary"): (78.3,),
    ("digits", "meed"): (99.0, 74.7, 99.8, 99.7),
    ("fashion", "meed"): (97.8, 66.7, 99.8, 99.7),
}
"""MEED's Tables 1 to 4: FS-M, FU-M, FS-A, FU-A."""


def panels_table(records: list[Record]) -> str:
    """LEX's Figures 5, 13 and 14."""
    rows = [
        "| panels | imputer | rate | entries kept | accuracy | in the wrong panel | standard error "
        "of a data set | L | warm | epochs | rows | networks | device | seconds | data sets |",
        "|---" * 15 + "|",
    ]
    keys = ("set", "rate", "patches", "networks", "rows", "epochs", "masks", "warm", "imputer")
    for found in grouped(records, *keys).values():
        r = found[0]
        rows.append(
            f"| {r['set']} | {r['imputer']} | {r['rate']:g} | {r['k']} of {r['entries']} | "
            f"{spread([f['accuracy'] for f in found])} | {spread([f['outside'] for f in found])} | "
            f"{mean(f['outside_error'] for f in found):.3f} | {r['masks']} | {r['warm']} | "
            f"{r['epochs']} | {r['rows']:,} | {r['networks']} | {r['device']} | "
            f"{mean(f['seconds'] for f in found):.0f} | {len(found)} |"
        )
    return "\n".join(rows)


def infidelity_table(records: list[Record]) -> str:
    """MEED's Tables 1 to 4."""
    rows = [
        "| data | entries kept | method | FS-M | FU-M | FS-A | FU-A "
        "| paper: FS-M, FU-M, FS-A, FU-A | masks that differ, of 100 rows | SEN | ms a row "
        "| model's accuracy | rows | epochs | device | seconds | data sets |",
        "|---" * 17 + "|",
    ]
    for found in grouped(records, "set", "rows", "epochs", "method").values():
        r = found[0]
        scores = " | ".join(spread([f[score] for f in found], 1) for score in SCORES)
        published = ", ".join(f"{value:g}" for value in MEED.get((r["set"], r["method"]), ()))
        moved = [f["sensitivity"] for f in found if f["sensitivity"] is not None]
        differing = [100 * f["differing_masks"] for f in found if "differing_masks" in f]
        rows.append(
            f"| {r['set']} | {r['k']} of {r['entries']} | {r['method']} | {scores} | "
            f"{published or '—'} | {spread(differing, 1) if differing else '—'} | "
            f"{spread(moved, 2) if moved else '—'} | "
            f"{1000 * mean(f['seconds_a_row'] for f in found):.2f} | "
            f"{spread([f['model_accuracy'] for f in found], 1)} | {r['rows']} | {r['epochs']} | "
            f"{r['device']} | {mean(f['seconds'] for f in found):.0f} | {len(found)} |"
        )
    return "\n".join(rows)
