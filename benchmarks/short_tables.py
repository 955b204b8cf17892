"""Rows and columns of the tables in benchmarks/README.md; docs/figures.md has the whole tables."""

import re

SHORT: dict[str, tuple[str, tuple[int, ...]]] = {
    "believable-pooled": (
        r"^(?!\| (knockoffs|permutation)).*\| (300|2,000) |default \| 20",
        (0, 1, 4, 5),
    ),
    "coverage": (
        r"((switch|mixed) \| 300|(switch|mixed|bent|three classes|regression) \| 2,000) .* last ",
        (0, 1, 6, 7, 8),
    ),
    "real-models": ("", (0, 3, 4, 5, 6)),
    "random-fields": ("smooth|moving", (0, 1, 3, 4, 6, 8)),
    "changes": (r"labels \| [ndf]", (1, 3, 4)),
    "certified": ("masks", (0, 2, 3, 4)),
    "mask-gibbs": ("MaskGibbs|NumPyro", (0, 1, 3, 7)),
    "unknown": ("", (0, 3, 8, 10)),
    "selection": (r"k-subset|λ = 0\.0225|chosen", (0, 1, 2, 3, 4, 5)),
    "switches": ("", (0, 1, 2, 4, 6, 11)),
    "real-x": (r"\| (lex|real_x) ", (0, 1, 3, 4, 6, 8)),
    "q-fit": (r"paper|0\.0005|as given", (0, 1, 3, 4, 5, 6, 7)),
    "estimators": (
        r"^\| (DisARM|leave|marginal|path|score function \|).* S2 \| free",
        (0, 1, 4, 5, 9),
    ),
    "lex-3": (r"\| S1 ", (1, 3, 4)),
    "panels": (
        r"mnist \| (constant|marginal|gaussian-mixture|mixture-means|vaeac) \| 0\.1 .* flat"
        r"|fashion \| constant|mnist \| mixture-means .* 22 ",
        (0, 1, 4, 5, 10, 11),
    ),
    "leaks": (
        r"S1 \| (truth|no switch|lex constant \| 300|lex gaussian|best two)"
        r"|switch \| lex",
        (0, 1, 3, 4, 7),
    ),
    "digits": (r"\*\*|l2x", (0, 2, 3, 4, 6)),
    "infidelity": (
        r"imdb .*(meed \||l2x|no adversary)|digits .*(meed .* 9000|gradient)|fashion .*meed",
        (0, 2, 3, 4, 7, 12),
    ),
    "xtab": (r"(SynRank|XOR|Orange|Additive) \| before|paper, 512", (0, 3, 4, 7)),
    "adult": ("", (0, 1)),
    "constraints": (r"fairness|noise (0|0\.5|17) ", (0, 1, 4, 6)),
    "calibration": (r"AutoNormal|NUTS|SGHMC|half|Q-FIT|enumeration|unseen", (0, 1, 3, 6)),
    "speed": (r"\| 64 \| 64 \| 1 \|", (0, 1, 6, 8, 10)),
    "gpu": (r"\| (1,000|65,536) ", (0, 1, 2, 3, 4, 5)),
    "speed-explained": ("explain|lime|permutation", (0, 2, 3, 4)),
    "start-up": (r"`(--help|explain wine --out new --k 0)`", (0, 4, 5, 6, 7)),
}
"""By table: what a row must match, and the columns, counted from 0."""


def shortened(name: str, table: str) -> str:
    """The rows and columns of a Markdown table that the page shows."""
    pattern, columns = SHORT.get(name, ("", None))
    head, rule, *rows = [line for line in table.splitlines() if line.startswith("|")]
    kept = [line for line in rows if re.search(pattern, line)]
    if not kept:
        raise ValueError(f"no row of {name} matches {pattern!r}; its rows are {rows}")
    if columns is None:
        return "\n".join([head, rule, *kept])
    cells = [[c.strip() for c in line[1:-1].split("|")] for line in (head, rule, *kept)]
    return "\n".join("| " + " | ".join(row[i] for i in columns) + " |" for row in cells)
