"""Tables of what is found on tables of planted truth, and of explainers against references."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import sqrt
from statistics import mean, stdev
from typing import Any

Record = dict[str, Any]
LEAST_TABLES = 3
"""Fewest tables of a kind by whose fits an interval of another is judged."""


def found_table(records: list[Record]) -> str:
    """False discoveries and power, by method."""
    rows = [
        "| table | rows | method | false share of what is found | of members of groups | found of "
        "what is worth finding | found of all that matters | most often false | most often missed "
        "| CPU seconds | tables |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (kind, size, method, settings), found in _grouped(records):
        rows.append(
            f"| {kind} | {size:,} | {_called(method, settings)} | "
            f"{_average(r['false_share'] for r in found)} | "
            f"{_average(r.get('false_share_members') for r in found)} | "
            f"{_average(r['power'] for r in found)} | {_average(r['power_all'] for r in found)} | "
            f"{_most(r['false'] for r in found)} | {_most(r['missed'] for r in found)} | "
            f"{mean(r['cpu_seconds'] for r in found):.0f} | {len(found)} |"
        )
    return "\n".join(rows)


def pooled_table(records: list[Record]) -> str:
    """False discoveries and power by method and size, over all kinds of tables."""
    rows = [
        "| method | rows | kinds | tables | false share of what is found | found of what is worth "
        "finding |",
        "|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["method"], record["settings"], record["rows"]].append(record)
    for method, settings, size in sorted(groups, key=lambda k: (k[2], k[0] != "explain", k[0])):
        found = groups[method, settings, size]
        rows.append(
            f"| {_called(method, settings)} | {size:,} | {len({r['kind'] for r in found})} | "
            f"{len(found)} | {_average(r['false_share'] for r in found)} | "
            f"{_average(r['power'] for r in found)} |"
        )
    return "\n".join(rows)


def fit_table(records: list[Record]) -> str:
    """Selection, prediction and coverage of `lexppl explain`."""
    rows = [
        "| table | rows | settings | λ from the data | null columns kept in | the null kept "
        "most | true columns kept in | log-likelihood above boosting's | above the network's | "
        "above the law's own | gain of true groups; the law's own | less the law's for the same "
        "masks | gain's interval covers new tables | warned | tables |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    explained = [r for r in records if r["method"] == "explain"]
    for (kind, size, _, settings), found in _grouped(explained):
        above = (
            _average(r["averaged"] - r[other] for r in found)
            for other in ("boosting", "network", "oracle")
        )
        kept = _null_selection(found)
        most = max(kept, key=kept.__getitem__)
        rows.append(
            f"| {kind} | {size:,} | {settings} | {_average(r['penalty'] for r in found)} | "
            f"{mean(kept.values()):.2f} | "
            f"{most} {kept[most]:.2f} | {_true_selection(found)} | {' | '.join(above)} | "
            f"{_true_gains(found)} | {_bias(found)} | {_coverage(_new_tables(found))} | "
            f"{sum(bool(r['warnings']) for r in found)} | {len(found)} |"
        )
    return "\n".join(rows)


def unknown_table(records: list[Record]) -> str:
    """Explainers of known data sets against what predicts best."""
    rows = [
        "| data | rows fitted, held out | settings | features kept | found | log-likelihood | "
        "boosting's | the network's | above the better one | its standard error | in errors | "
        "CPU seconds | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["data"], record["settings"]].append(record)
    for (data, settings), found in groups.items():
        above = [r["averaged"] - r[better(r)] for r in found]
        error = [r[f"{better(r)}_error"] for r in found]
        rows.append(
            f"| {data} | {found[0]['rows']:,}, {found[0]['held_out']:,} | {settings} | "
            f"{mean(r['kept'] for r in found):.1f} of {found[0]['entries']} | "
            f"{mean(len(r['found']) for r in found):.1f} | {_average(r['averaged'] for r in found)}"
            f" | {_average(r['boosting'] for r in found)} | {_average(r['network'] for r in found)}"
            f" | {_average(above)} | {mean(error):.3f} | "
            f"{_average(a / e for a, e in zip(above, error, strict=True))} | "
            f"{mean(r['cpu_seconds'] for r in found):.0f} | {len(found)} |"
        )
    return "\n".join(rows)


def better(record: Record) -> str:
    """Which reference predicts better."""
    return max(("boosting", "network"), key=record.__getitem__)


def _grouped(records: list[Record]) -> list[tuple[tuple[Any, ...], list[Record]]]:
    groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        key = ("kind", "rows", "method", "settings")
        groups[tuple(record[name] for name in key)].append(record)
    kinds = list(dict.fromkeys(kind for kind, *_ in groups))
    return sorted(groups.items(), key=lambda item: (kinds.index(item[0][0]), item[0][1]))


def _called(method: str, settings: str | None) -> str:
    named = {"law": "*best possible*"}.get(method, method)
    return named if settings is None else f"{named}, {settings}"


def _average(values: Iterable[float | None]) -> str:
    """Mean ± standard error over tables."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return f"{known[0]:.3f}" if known else "—"
    return f"{mean(known):.3f} ± {stdev(known) / sqrt(len(known)):.3f}"


def _most(each: Iterable[list[str]]) -> str:
    """The name that is there most often, and how often."""
    counts = Counter(name for names in each for name in names).most_common(1)
    return f"{counts[0][0]} ({counts[0][1]})" if counts else "—"


def _is_true(record: Record, name: str) -> bool:
    return any(name in unit for unit in record["units"])


def _null_selection(found: list[Record]) -> dict[str, float]:
    """How often each null column is kept, mean over tables."""
    return {
        name: mean(r["features"][name]["selection"] for r in found)
        for name in found[0]["features"]
        if not _is_true(found[0], name)
    }


def _true_selection(found: list[Record]) -> str:
    """How often the others are kept; of copies the one that is kept most."""
    kept = [
        max(r["features"][name]["selection"] for name in unit) for r in found for unit in r["units"]
    ]
    return f"{mean(kept):.2f}" if kept else "—"


def _true_gains(found: list[Record]) -> str:
    """What groups with a column that matters gain on average, with its standard error over tables,
    and what they do by the law itself, in nats."""
    pairs = [
        [(g["gain"], g["law"]) for g in r["groups"].values() if g["law"] is not None] for r in found
    ]
    each = [mean(gain for gain, _ in of) for of in pairs if of]
    law = [value for of in pairs for _, value in of]
    return f"{_average(each)}; {mean(law):.3f}" if each else "—"


def _bias(found: list[Record]) -> str:
    """What is estimated that groups with a column that matters gain, less what they do by the law
    for the same masks, with its standard error over tables."""
    each = [
        [g["gain"] - g["law_at_masks"] for g in r["groups"].values() if g["law"] is not None]
        for r in found
        if all("law_at_masks" in g for g in r["groups"].values())
    ]
    return _average(mean(of) for of in each if of)


def _new_tables(found: list[Record]) -> list[bool]:
    """Whether intervals cover the mean gain of the same group in the other tables."""
    each = []
    for record in found:
        for name, group in record["groups"].items():
            others = [
                r["groups"][name]["gain"] for r in found if r is not record and name in r["groups"]
            ]
            if len(others) + 1 >= LEAST_TABLES:
                each.append(group["gain_lower"] <= mean(others) <= group["gain_upper"])
    return each


def _coverage(each: list[bool]) -> str:
    return f"{mean(each):.2f}" if each else "—"
