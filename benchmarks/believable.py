"""Tables of planted truth: what is reported as found, what it predicts, what its intervals cover.

    python benchmarks/believable.py                              # every kind and size, ten seeds
    python benchmarks/believable.py --kinds mixed --rows 2000 --seeds 3
    python benchmarks/believable.py --seeds 5 --first 6          # seeds 6 to 10, beside another run
    python benchmarks/believable.py --settings before            # one predictor, a flat prior
    python benchmarks/believable.py --words="--penalty 0.01"     # as typed after lexppl explain
    python benchmarks/believable.py --small                      # to see that it runs

Each table is written to a file and put through `lexppl explain`; its explainer then gives
new rows of the same law, 5,000 or as many as the table has, but for those with a city that the
table lacks. Boosted trees and a full network are fitted on four fifths of its rows, and stop by the
others. SHAP, permutation importance, Boruta, and hidimstat's conditional importance and knockoffs
stand beside it: `other_findings.py` says how they are judged. Several runs may write to one folder
at once.
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
    typed,
)
from planted_tables import (
    KINDS,
    TARGET,
    first_and_last_by_law,
    gains_by_law_at,
    least_gain,
    planted,
    true_gains,
)
from record import Records, options_of
from references import against_others

from lexppl.data.divided_table import DividedTable, divided_frame
from lexppl.data.files import read_frame
from lexppl.data.problems import with_decisions
from lexppl.evaluation.folds import judged as judged_by_folds
from lexppl.explanation import explain
from lexppl.explanation.reading.masks import mask_means, masks_of
from lexppl.report.results.scores import folds_at

SAME = ("kind", "rows", "seed", "method", "settings")
ALL = ("explain", "shap", "permutation", "boruta", "conditional", "knockoffs", "law")
LIBRARIES = {"boruta": "boruta", "conditional": "hidimstat", "knockoffs": "hidimstat"}
NEW_ROWS = 5_000
LAW_ROWS, LAW_DRAWS = 1_000, 10
FDR = 0.1
SMALL = ("--epochs", "3", "--replicates", "2", "--draws", "2")


FOLDS = 5


def divided(path: Path, seed: int, **how: Any) -> DividedTable:
    """The table in the folds of `lexppl explain`, or in shares, with the command's decisions."""
    how = how or {"folds": FOLDS}
    rows = {"name": path.stem, "seed": seed, **how}
    return with_decisions(divided_frame, read_frame(path), TARGET, **rows)[0]


def judged(name: str, groups: list[list[str]], members: list[str]) -> dict:
    """What was found, against the truth of a kind.

    Args:
        name: of the kind.
        groups: the columns of each group that is found.
        members: the columns found within groups of several.
    """
    gains, least = true_gains(name), least_gain(name)
    true = {column for unit in gains for column in unit}
    needed = [unit for unit, gain in gains.items() if gain >= least]
    found = [column for group in groups for column in group]
    caught = [any(column in found for column in unit) for unit in needed]
    false = ["+".join(group) for group in groups if true.isdisjoint(group)]
    wrong = [column for column in members if column not in true]
    return {
        "found": ["+".join(group) for group in groups],
        "false": false,
        "false_share": len(false) / max(1, len(groups)),
        "members": members,
        "false_members": wrong,
        "false_share_members": len(wrong) / max(1, len(members)),
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
    groups, features = ran.groups(), ran.features()
    at_masks = _law_at_masks(name, rows, seed, source, result, [g.split("+") for g in groups])
    return {
        **judged(name, ran.found, ran.members),
        "groups": {
            label: {**group, "law": _law_of(name, label), "law_at_masks": gain}
            for (label, group), gain in zip(groups.items(), at_masks, strict=True)
        },
        "features": features,
        **against_others(own, shared, frame, *encoded(shared, frame), seed),
        "oracle": float(new.log_likelihood[known].mean()),
        "new_rows": len(frame),
        "penalty": ran.penalty,
        "warnings": ran.warnings,
        "seconds": ran.seconds,
        "cpu_seconds": ran.cpu_seconds,
    }


def _law_at_masks(
    name: str, rows: int, seed: int, source: DividedTable, result: Any, groups: list[list[str]]
) -> list[float]:
    """What groups are worth beside what the explainer keeps, by the law, of some rows."""
    at = np.random.default_rng(seed).permutation(len(source.test_rows))[:LAW_ROWS]
    chosen = source.test_rows[at]
    folds = folds_at(source, chosen) if source.folds == result.replicates else None
    x = source.test.x[at]
    posterior = judged_by_folds(folds, explain, result, x, draws=LAW_DRAWS, seed=seed)
    masks = masks_of(posterior)[mask_means(posterior).attrs["site"]].values
    masks = masks.reshape(-1, *masks.shape[2:])
    table = planted(name, rows, seed).take(chosen)
    return gains_by_law_at(name, table, masks, list(source.data.entry_names), groups)


def _law_of(name: str, label: str) -> float | None:
    """What a group is worth by the law; None where it has no column that matters."""
    columns = tuple(label.split("+"))
    true = {column for unit in true_gains(name) for column in unit}
    return None if true.isdisjoint(columns) else first_and_last_by_law(name, columns)[1]


def by_others(run: dict, source: DividedTable) -> dict:
    """A rival, judged."""
    from other_findings import (
        boruta_found,
        conditional_found,
        knockoffs_found,
        law_found,
        permutation_found,
        shap_found,
    )

    seed, start = run["seed"], time.process_time()
    names = source.data.entry_names
    flags = {
        "shap": lambda: shap_found(source, seed),
        "permutation": lambda: permutation_found(source, seed, FDR),
        "boruta": lambda: boruta_found(source, seed),
        "conditional": lambda: conditional_found(source, seed, FDR),
        "knockoffs": lambda: knockoffs_found(source, seed, FDR),
        "law": lambda: law_found(run["kind"], run["rows"], seed, list(names), FDR),
    }[run["method"]]()
    found = [name for name, flag in zip(names, flags, strict=True) if flag]
    alone = [[column] for column in found]
    return {**judged(run["kind"], alone, []), "cpu_seconds": time.process_time() - start}


def line(**record) -> str:
    text = (
        f"{record['kind']} {record['rows']} {record['seed']} {record['method']} "
        f"{record['settings'] or ''}: false {record['false']}, missed {record['missed']}"
    )
    if record["method"] == "explain":
        nulls = null_columns(record)
        most = max(nulls, key=lambda name: record["features"][name]["selection"])
        text += (
            f"; {most} kept in {record['features'][most]['selection']:.2f}; log-likelihood "
            f"{record['averaged']:.3f}, boosting {record['boosting']:.3f}, network "
            f"{record['network']:.3f}, oracle {record['oracle']:.3f}"
        )
    return f"{text}; {record['seconds']:.0f} s"


def null_columns(record) -> list[str]:
    """Columns that y does not depend on given the others."""
    true = {column for unit in record["units"] for column in unit}
    return [name for name in record["features"] if name not in true]


def present(methods: list[str]) -> list[str]:
    """The methods whose libraries are there; of others, say so."""
    from other_findings import is_there

    lacking = {
        name: LIBRARIES[name]
        for name in methods
        if name in LIBRARIES and not is_there(LIBRARIES[name])
    }
    for name, library in lacking.items():
        print(f"{name} is skipped: pip install {library}")
    return [name for name in methods if name not in lacking]


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
