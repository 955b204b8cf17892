"""Tables of masks at the size of images: what their distribution costs, and what they hold."""

from typing import Any

Record = dict[str, Any]
KINDS = ("flip", "swap")


def k_subset_table(records: list[Record]) -> str:
    """Milliseconds of a draw, a density and its gradient."""
    rows = [
        "| G | k | rows | L | draw, ms | density and gradient | together | median | reference "
        "| ratio, median of rounds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {r['entries']} | {r['k']} | {r['rows']} | {r['draws']} | {r['draw_ms']:.1f} | "
        f"{r['density_ms']:.1f} | {r['together_ms']:.1f} | {r['median_ms']:.1f} | "
        f"{r['reference_ms']:.1f} | {r['ratio']:.2f} |"
        for r in records
    ]
    return "\n".join(rows)


def large_masks_table(records: list[Record]) -> str:
    """Memory of steps and of explanations."""
    rows = [
        "| | number | draws a row | MB before | MB above it at most | of them the result | seconds "
        "of the processor |",
        "|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {'steps' if r['what'] == 'train' else 'rows explained'} | {r['number']:,} | "
        f"{r.get('draws', '—')} | {r['before']:.0f} | {r['megabytes']:.0f} | "
        f"{r['result']:.0f} | {r['cpu_seconds']:.0f} |"
        for r in sorted(records, key=lambda r: (r["what"] != "train", r["number"]))
    ]
    return "\n".join(rows)


def mask_gibbs_table(records: list[Record]) -> str:
    """Inclusion probabilities by samplers against their references, whose errors are counted."""
    rows = [
        "| figure | by | chains × sweeps | off at most ± standard error | in errors, any entry | "
        "between chains | effective draws | effective draws a second | flips taken | swaps taken | "
        "seconds of the processor | error of the reference |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in records:
        taken = [
            f"{r[f'{kind}_acceptance']:.2f}" if "flip_acceptance" in r else "" for kind in KINDS
        ]
        rows.append(
            f"| {r['figure']} | {r['sampler']} | {r['chains']} × {r['sweeps']:,} | "
            f"{r['off']:.3f} ± {r['error']:.3f} | {r['largest_z']:.1f} | {r['between']:.3f} | "
            f"{r['ess']:,.0f} | {r['per_second']:.3g} | {' | '.join(taken)} | "
            f"{r['cpu_seconds']:.0f} | {r['error_of_reference']:.4f} |"
        )
    return "\n".join(rows)


def mask_sbc_table(records: list[Record]) -> str:
    """p of ranks, by their distribution function and by bins."""
    names = ("size", "log-odds", "log p(y)", "slabs")
    shown = [f"{name}, {how}" for name in names for how in ("ECDF", "χ²")]
    head = f"| moves | sets | sweeps apart | {' | '.join(shown)} | alarms |"
    rows = [head, "|---" * (4 + len(shown)) + "|"]
    for r in records:
        kinds = [f"p of {name}{how}" for name in names for how in ("", ", bins")]
        cells = [f"{r[kind]:.2g}" if kind in r else "" for kind in kinds]
        alarms = ", ".join(r["alarms"]) or "none"
        rows.append(
            f"| {r['sampler']} | {r['sets']} | {r['apart']} | {' | '.join(cells)} | {alarms} |"
        )
    return "\n".join(rows)
