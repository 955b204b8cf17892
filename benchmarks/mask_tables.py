"""Tables of masks at the size of images: what their distribution costs, and what they hold."""

from typing import Any

Record = dict[str, Any]


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
    """Inclusion probabilities by MaskGibbs against their references, which may have errors too."""
    rows = [
        "| figure | chains × sweeps | off at most | in errors | between chains | effective draws | "
        "flips taken | swaps taken | seconds of the processor |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {r['figure']} | {r['chains']} × {r['sweeps']:,} | {r['off']:.3f} | "
        f"{r['largest_z']:.1f} | {r['between']:.3f} | {r['ess']:,.0f} | "
        f"{r['flip_acceptance']:.2f} | {r['swap_acceptance']:.2f} | {r['cpu_seconds']:.0f} |"
        for r in records
    ]
    return "\n".join(rows)
