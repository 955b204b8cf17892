"""Tables of planted truth: what is reported as found, what it predicts, what its intervals cover.

    python benchmarks/believable.py                              # every kind and size, ten seeds
    python benchmarks/believable.py --kinds mixed --rows 2000 --seeds 3
    python benchmarks/believable.py --seeds 5 --first 6          # seeds 6 to 10, beside another run
    python benchmarks/believable.py --settings before            # one predictor, a flat prior
    python benchmarks/believable.py --words="--penalty 0.01"     # as typed after lexppl explain
    python benchmarks/believable.py --small                      # to see that it runs

Each table is written to a file and put through `lexppl explain`; its explainer is then asked for
new rows of the same law, 5,000 or as many as the table has, but for those with a city that the
table lacks. Boosted trees and a full network are fitted on four fifths of its rows, and stop by the
others. SHAP, permutation importance and Boruta stand beside it: `other_findings.py` says how they
are judged. Several runs may write to one folder at once.
"""

import argparse
import shlex
import time
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from explained import SETTINGS as EXPLAIN_SETTINGS
from explained import (
    ExplainError,
    encoded,
    explained,
    explainer_of,
    known_rows,
    likelihoods,
    on_new_rows,
    typed,
)
from planted_tables import KINDS, TARGET, least_gain, planted, true_gains
from record import Records, options_of
from references import against_others
from torch import Tensor

from lexppl.cli.judged.gains import GAIN_ROWS, MASKS
from lexppl.data import DividedTable, divided_frame, read_frame
from lexppl.evaluation import feature_gains, gain_table

SAME = ("kind", "rows", "seed", "method", "settings")
ALL = ("explain", "shap", "permutation", "boruta")
NEW_ROWS = 5_000
FDR = 0.1
LEVEL = 0.05
MOST_SETS = 40
"""Sets of other held-out rows on which the same explainer is judged."""
SMALL = ("--epochs", "3", "--replicates", "2", "--draws", "2")


FOLDS = 5


def divided(path: Path, seed: int, **how: Any) -> DividedTable:
    """The table in the folds of `lexppl explain`, or in shares."""
    how = how or {"folds": FOLDS}
    return divided_frame(read_frame(path), TARGET, name=path.stem, seed=seed, **how)


def judged(name: str, found: list[str]) -> dict:
    """What was found, against the truth of a kind."""
    gains, least = true_gains(name), least_gain(name)
    true = {column for unit in gains for column in unit}
    needed = [unit for unit, gain in gains.items() if gain >= least]
    caught = [any(column in found for column in unit) for unit in needed]
    false = [column for column in found if column not in true]
    return {
        "found": found,
        "false": false,
        "false_share": len(false) / max(1, len(found)),
        "power": float(np.mean(caught)) if needed else None,
        "missed": [unit[0] for unit, hit in zip(needed, caught, strict=True) if not hit],
        "power_all": float(np.mean([any(c in found for c in unit) for unit in gains]))
        if gains
        else None,
        "units": [list(unit) for unit in gains],
        "true_gains": list(gains.values()),
    }


def by_explain(run: dict, path: Path, folder: Path, source: DividedTable, options) -> dict:
    """`lexppl explain`, judged."""
    name, rows, seed = run["kind"], run["rows"], run["seed"]
    words = (*typed(options.settings, options.words), *(SMALL if options.small else ()))
    ran = explained(path, folder, seed, "--fdr", str(FDR), *words)
    result = explainer_of(ran, source)
    new = planted(name, rows, seed, new=2 * rows if options.small else max(NEW_ROWS, rows))
    shared = divided(path, seed, valid_share=0.2, test_share=1.0 / rows)
    known = (known_rows(source, new.frame) & known_rows(shared, new.frame)).to_numpy()
    frame = new.frame[known].reset_index(drop=True)
    x, y = encoded(source, frame)
    own = likelihoods(result, x, y, source.target_scale)
    features, more = ran.features(), on_new_rows(result, x, y)
    return {
        **judged(name, ran.found),
        "features": {column: {**features[column], **more[column]} for column in features},
        **against_others(own, shared, frame, *encoded(shared, frame), seed),
        **on_other_sets(result, x, y, len(source.test_rows), name),
        "oracle": float(new.log_likelihood[known].mean()),
        "new_rows": len(frame),
        "penalty": ran.penalty,
        "warnings": ran.warnings,
        "seconds": ran.seconds,
        "cpu_seconds": ran.cpu_seconds,
    }


def on_other_sets(result: Any, x: Tensor, y: Tensor, held_out: int, name: str) -> dict:
    """What the same explainer would be said to have found on other held-out rows, as many as the
    table's own, and how often a null column has p < .05 there: means over sets of rows."""
    size = min(held_out, GAIN_ROWS)
    true = {column for unit in true_gains(name) for column in unit}
    small_p, told = [], []
    for number in range(min(MOST_SETS, len(x) // size)):
        rows = slice(number * size, (number + 1) * size)
        gains = feature_gains(result, x[rows], y[rows], masks=MASKS, seed=number)
        table = gain_table(gains, FDR)
        nulls = [column for column in table.index if column not in true]
        small_p.append(float((table.loc[nulls, "p"] < LEVEL).mean()))
        told.append(judged(name, list(table.index[table["found"]])))
    powers = [one["power"] for one in told if one["power"] is not None]
    return {
        "sets": len(told),
        "nulls_below_level": float(np.mean(small_p)) if told else None,
        "false_share_sets": float(np.mean([one["false_share"] for one in told])) if told else None,
        "power_sets": float(np.mean(powers)) if powers else None,
    }


def by_others(run: dict, source: DividedTable) -> dict:
    """SHAP, permutation importance or Boruta, judged."""
    from other_findings import boruta_found, permutation_found, shap_found

    seed, start = run["seed"], time.process_time()
    flags = {
        "shap": lambda: shap_found(source, seed),
        "permutation": lambda: permutation_found(source, seed, FDR),
        "boruta": lambda: boruta_found(source, seed),
    }[run["method"]]()
    names = source.data.entry_names
    found = [name for name, flag in zip(names, flags, strict=True) if flag]
    return {**judged(run["kind"], found), "cpu_seconds": time.process_time() - start}


def line(**record) -> str:
    told = (
        f"{record['kind']} {record['rows']} {record['seed']} {record['method']} "
        f"{record['settings'] or ''}: false {record['false']}, missed {record['missed']}"
    )
    if record["method"] == "explain":
        nulls = null_columns(record)
        most = max(nulls, key=lambda name: record["features"][name]["selection"])
        told += (
            f"; {most} kept in {record['features'][most]['selection']:.2f}; log-likelihood "
            f"{record['averaged']:.3f}, boosting {record['boosting']:.3f}, network "
            f"{record['network']:.3f}, oracle {record['oracle']:.3f}"
        )
    return f"{told}; {record['seconds']:.0f} s"


def null_columns(record) -> list[str]:
    """Columns that y does not depend on given the others."""
    true = {column for unit in record["units"] for column in unit}
    return [name for name in record["features"] if name not in true]


def present(methods: list[str]) -> list[str]:
    """The methods whose libraries are there; of others, say so."""
    from other_findings import has_boruta

    if "boruta" not in methods or has_boruta():
        return methods
    print("boruta is skipped: no library of that name; pip install boruta")
    return [name for name in methods if name != "boruta"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--rows", nargs="+", type=int, default=[300, 2_000, 20_000])
    parser.add_argument("--methods", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--seeds", type=int, default=10, help="how many tables of each kind")
    parser.add_argument("--first", type=int, default=1, help="the first of these seeds")
    parser.add_argument("--settings", choices=list(EXPLAIN_SETTINGS), default="default")
    parser.add_argument("--words", type=shlex.split, default=[], help="of lexppl explain besides")
    small = {"kinds": ["mixed", "duplicated", "regression"], "rows": [300], "seeds": 1}
    options = options_of(parser, small=small)
    records = Records("believable", SAME, line, options)
    settings = " ".join([options.settings, *options.words])
    methods = present(options.methods)
    runs = (
        {
            "kind": name,
            "rows": rows,
            "seed": seed,
            "method": method,
            "settings": settings if method == "explain" else None,
        }
        for rows in options.rows
        for seed in range(options.first, options.first + options.seeds)
        for name in options.kinds
        if rows in KINDS[name].sizes
        for method in methods
    )
    failed = []
    for table, due in groupby(records.due(runs), itemgetter("kind", "rows", "seed")):
        with TemporaryDirectory() as folder:
            path = Path(folder) / "table.csv"
            planted(*table).frame.to_csv(path, index=False)
            shares = divided(path, table[2], valid_share=0.2, test_share=0.2)
            # What was before fits every λ held rows out from all replicates.
            source = shares if options.settings == "before" else divided(path, table[2])
            for run in due:
                try:
                    with records.run(run) as record:
                        record |= (
                            by_explain(run, path, Path(folder) / "out", source, options)
                            if run["method"] == "explain"
                            else by_others(run, shares)
                        )
                except ExplainError as error:
                    failed.append(f"{' '.join(map(str, table))}: {error}")
                    print(failed[-1], flush=True)
    if failed:
        raise SystemExit(f"{len(failed)} tables have no record, as lexppl explain failed on them")


if __name__ == "__main__":
    main()
