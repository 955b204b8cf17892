"""First and last of tables of planted truth: what is found, and what intervals cover.

    python benchmarks/first_and_last.py                          # every kind, 300 and 2,000 rows
    python benchmarks/first_and_last.py --kinds mixed --rows 300 --seeds 12
    python benchmarks/first_and_last.py --small                  # to see that it runs

Of every kind of `planted_tables.py` and number of rows, intervals are compared with two estimands:
the mean over the other tables of this size, which estimates what an analysis of this size has on
average, and the law's own value by integration.
"""

import argparse
import time
import warnings
from statistics import mean
from typing import Any

import numpy as np
from first_and_last_table import OF, coverage_table
from planted_tables import KINDS, TARGET, first_and_last_by_law, least_gain, planted, true_gains
from record import Records, options_of, read

from lexppl.data.divided_table import divided_frame
from lexppl.evaluation import FeatureGroups, importance
from lexppl.report.results.scores import folds_at

SAME = ("kind", "rows", "seed")
FDR, FOLDS = 0.1, 5
ENDS = ("", "_error", "_lower", "_upper", "_p")


def run_of(kind: str, rows: int, seed: int, *, again: bool) -> dict[str, Any]:
    """A table, judged; `again` by another seed of folds and fits too."""
    frame = planted(kind, rows, seed).frame
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # That a column numbers the rows
        source = divided_frame(frame, TARGET, name="table", seed=seed, folds=FOLDS)
    data = source.data
    names = data.entry_names
    markers = data.encoding.markers
    markers = markers if any(place >= 0 for place in markers) else ()
    groups = FeatureGroups.dependent(data.x, data.groups, names, markers=markers)
    start = time.process_time()
    folds = folds_at(source, np.arange(len(data)))
    found = importance(data, groups=groups, folds=folds, seed=seed)
    seconds = time.process_time() - start
    group, feature = found.group_table(FDR), found.feature_table(FDR)
    several = feature[[len(groups.members[groups.names.index(g)]) > 1 for g in feature["group"]]]
    columns = {
        g: [names[e] for e in members]
        for g, members in zip(groups.names, groups.members, strict=True)
    }
    columns |= {f"member {name}": [name] for name in several.index}
    lines = {
        **group.to_dict("index"),
        **several.set_axis([f"member {name}" for name in several.index]).to_dict("index"),
    }
    record = {
        "lines": {
            name: {
                "columns": columns[name],
                "found": bool(values["found"]),
                **{f"{of}{end}": float(values[f"{of}{end}"]) for of in OF for end in ENDS},
                **dict(
                    zip(
                        ("first_law", "last_law"),
                        first_and_last_by_law(kind, tuple(columns[name])),
                        strict=True,
                    )
                ),
            }
            for name, values in lines.items()
        },
        "full": float(found.full.mean()),
        "none": float(found.none.mean()),
        "law": float(planted(kind, rows, seed).log_likelihood.mean()),
        "cpu_seconds": seconds,
    }
    if again:
        other = importance(data, groups=groups, seed=seed + 1000).group_table(FDR)
        record["again"] = {
            name: {of: float(other.loc[name, of]) for of in OF} for name in groups.names
        }
    return {**record, **judged(kind, record["lines"])}


def judged(kind: str, lines: dict[str, Any]) -> dict[str, Any]:
    """False shares of groups and of members, and power of what is worth finding."""
    gains, least = true_gains(kind), least_gain(kind)
    true = {column for unit in gains for column in unit}
    found = [v["columns"] for k, v in lines.items() if v["found"] and not k.startswith("member ")]
    members = [v["columns"] for k, v in lines.items() if v["found"] and k.startswith("member ")]
    caught = {column for columns in found for column in columns}
    needed = [unit for unit, gain in gains.items() if gain >= least]

    def false_share(every: list[list[str]]) -> float:
        return sum(true.isdisjoint(columns) for columns in every) / max(1, len(every))

    return {
        "false_share": false_share(found),
        "false_share_members": false_share(members),
        "power": mean(bool(caught & set(unit)) for unit in needed) if needed else None,
    }


def line(**record: Any) -> str:
    return (
        f"{record['kind']} {record['rows']} {record['seed']}: false {record['false_share']:.2f}, "
        f"of members {record['false_share_members']:.2f}, power {record['power']}, "
        f"{record['cpu_seconds']:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--rows", nargs="+", type=int, default=[300, 2_000])
    parser.add_argument("--seeds", type=int, default=40, help="how many tables of each kind")
    parser.add_argument("--first", type=int, default=1, help="the first of these seeds")
    parser.add_argument("--twice", type=int, default=2, help="so many tables by two seeds")
    small = {"kinds": ["correlated"], "rows": [300], "seeds": 1, "twice": 1}
    options = options_of(parser, small=small)
    records = Records("first_and_last", SAME, line, options)
    runs = (
        {"kind": kind, "rows": rows, "seed": seed}
        for rows in options.rows
        for seed in range(options.first, options.first + options.seeds)
        for kind in options.kinds
        if rows in KINDS[kind].sizes
    )
    for run in records.due(runs):
        with records.run(run) as record:
            record |= run_of(**run, again=run["seed"] < options.first + options.twice)
    print(coverage_table(read("first_and_last", options.results)))


if __name__ == "__main__":
    main()
