"""Known data sets, of which no one knows what matters: does the explainer predict as well as any?

    python benchmarks/unknown_tables.py                        # six data sets, three seeds
    python benchmarks/unknown_tables.py --data wine --seeds 1
    python benchmarks/unknown_tables.py --most 30162           # of Adult all complete rows
    python benchmarks/unknown_tables.py --small                # every set, to see that it runs
    LEXPPL_DATA=/data python benchmarks/unknown_tables.py      # where adult/adult.data.gz … lie

Each goes through `lexppl explain` as it is typed, on three fifths of the rows, with a fifth to
choose the best epoch; the last fifth judges the explainer's predictions, averaged over its
replicates, against boosted trees and a full network on the same rows. Of a table of more rows than
`--most` as many are drawn at random.
"""

import argparse
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

from explained import SETTINGS as EXPLAIN_SETTINGS
from explained import explained, explainer_of, likelihoods, typed
from record import Records, options_of
from references import against_others
from tabular import ADULT, DATA, GERMAN, present

from lexppl.data.divided_table import DividedTable, divided_frame, divided_set
from lexppl.data.files import read_frame
from lexppl.data.named_sets import shipped_frame

SHIPPED = ("breast_cancer", "wine", "digits", "diabetes")
FILES = {
    "adult": {"column_names": ADULT, "missing": ("?",), "separator": ","},
    "german_credit": {"column_names": GERMAN, "separator": r"\s+"},
}
"""How the tables in files are read."""
SAME = ("data", "seed", "settings", "most")
MOST = 10_000
HELD_OUT = ("--valid-share", "0.2", "--test-share", "0.2")
"""Rows that no replicate has seen, on which references of one fit are judged too."""
SMALL = ("--epochs", "2", "--replicates", "2", "--draws", "2")
SMALL_ROWS = 150


def typed_and_divided(name: str, seed: int, most: int, folder: Path) -> tuple[str, DividedTable]:
    """What is typed for a data set, and the same rows as `lexppl explain` divides them.

    Args:
        name: of the data set.
        seed: of the division, and of the rows where there are more than are wanted.
        most: rows.
        folder: where to write a table that is not used as it comes.
    """
    shares = {"valid_share": 0.2, "test_share": 0.2, "seed": seed}
    if name in SHIPPED:
        frame = shipped_frame(name)
        if len(frame) <= most:
            return name, divided_set(name, **shares)
    else:
        frame = read_frame(DATA[name][1], **FILES[name]).dropna()
    if len(frame) > most:
        frame = frame.sample(most, random_state=seed)
    path = folder / f"{name}.csv"
    frame.to_csv(path, index=False)
    return str(path), divided_frame(read_frame(path), name=name, drop_constant=True, **shares)


def fitted(run: dict, folder: Path, options: argparse.Namespace) -> dict:
    """One data set through `lexppl explain`, and against both references."""
    seed = run["seed"]
    data, source = typed_and_divided(run["data"], seed, run["most"], folder)
    words = (*HELD_OUT, *typed(options.settings, options.words), *(SMALL if options.small else ()))
    if data not in SHIPPED:
        words = ("--drop-constant", *words)
    ran = explained(data, folder / "out", seed, *words)
    x, y = source.test.x, source.test.y
    own = likelihoods(explainer_of(ran, source), x, y, source.target_scale)
    frame = source.table.iloc[source.test_rows]
    return {
        **against_others(own, source, frame, x, y, seed),
        "kept": float(ran.importance["selection_probability"].sum()),
        "entries": source.data.n_entries,
        "found": ran.found,
        "rows": len(source.train_rows),
        "held_out": len(source.test_rows),
        "penalty": ran.penalty,
        "warnings": ran.warnings,
        "seconds": ran.seconds,
        "cpu_seconds": ran.cpu_seconds,
    }


def line(**record) -> str:
    return (
        f"{record['data']} {record['seed']} {record['settings']}: {record['kept']:.1f} of "
        f"{record['entries']} kept, {len(record['found'])} found; log-likelihood "
        f"{record['averaged']:.3f}, boosting {record['boosting']:.3f} (error of the difference "
        f"{record['boosting_error']:.3f}), network {record['network']:.3f} "
        f"({record['network_error']:.3f}); {record['seconds']:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*SHIPPED, *FILES]
    parser.add_argument("--data", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, default=MOST, help="rows of a table")
    parser.add_argument("--settings", choices=list(EXPLAIN_SETTINGS), default="default")
    parser.add_argument("--words", type=shlex.split, default=[], help="of lexppl explain besides")
    options = options_of(parser, small={"seeds": 1, "most": SMALL_ROWS})
    records = Records("unknown_tables", SAME, line, options)
    settings = " ".join([options.settings, *options.words])
    runs = (
        {"data": name, "seed": seed, "settings": settings, "most": options.most}
        for name in options.data
        if name in SHIPPED or present(name)
        for seed in range(1, 1 + options.seeds)
    )
    for run in records.due(runs):
        with TemporaryDirectory() as folder, records.run(run) as record:
            record |= fitted(run, Path(folder), options)


if __name__ == "__main__":
    main()
