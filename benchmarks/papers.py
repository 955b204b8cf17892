"""The papers' tables and figures: each by its script, at the settings of its record.

    python benchmarks/papers.py                          # what can be run, and at what cost
    python benchmarks/papers.py real_x                   # a paper's tables, one after the other
    python benchmarks/papers.py lex --table F3           # one of them
    python benchmarks/papers.py all --small --results F  # everything, to see that it runs

A script runs what its records lack (`--again`: all anew), so that an interrupted run goes on where
it ended. The cost is that of all records of the script, on the machine that they name. After each
table the recorded figures are printed beside the paper's. Images, reviews and tables of people lie
in `LEXPPL_DATA`; a table that needs a folder that is not there is skipped by name.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import options_of, read
from tables import TABLES

FOLDER = Path(__file__).parent
DATA = Path(os.environ.get("LEXPPL_DATA", FOLDER.parents[1] / "shared" / "data"))


@dataclass(frozen=True)
class Part:
    """A table or figure of a paper.

    Args:
        shows: what it shows, in a few words.
        runs: command lines, script first.
        printed: the tables of `tables.py` that have the figures, and the paper's.
        small: command lines of `--small`; those of `runs` if empty.
        needs: folders of `LEXPPL_DATA`.
    """

    shows: str
    runs: tuple[str, ...]
    printed: tuple[str, ...]
    small: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def records(self) -> set[str]:
        """Names of the files that have its records."""
        return {TABLES[name][1] for name in self.printed}

    @property
    def missing(self) -> list[str]:
        """Folders of data that are not there."""
        return [name for name in self.needs if not (DATA / name).is_dir()]


PAPERS = {
    "lex": {
        "F3": Part(
            "imputers by the number of features kept", ("lex_figures --figure 3",), ("lex-3",)
        ),
        "F4": Part("the constant that is imputed", ("lex_figures --figure 4",), ("lex-4",)),
        "F5": Part(
            "two panels, of which one has the label (also F13, F14)",
            ("panels --sets mnist fashion",),
            ("panels",),
            ("panels --imputers constant",),
            ("MNIST", "FashionMNIST"),
        ),
        "S1-S3": Part("selection and prediction", ("selection",), ("selection",)),
    },
    "real_x": {
        "T1": Part(
            "selection on S1 to S3, judged by EVAL-X",
            ("systems --sets S1 S2 S3 --methods l2x invase base_x real_x lex",),
            ("real-x",),
            ("systems --sets S3 --methods base_x real_x",),
        ),
        "T1 by λ": Part("REAL-X by λ and schedule on S3", ("real_x",), ("real-x-s3",)),
        "T2": Part("digits judged by EVAL-X", ("digits",), ("digits",), needs=("MNIST",)),
        "T3": Part(
            "radiographs judged by EVAL-X",
            ("radiographs",),
            ("radiographs",),
            needs=("pneumonia",),
        ),
    },
    "q_fit": {
        "T1": Part(
            "agreement with the truth on Syn1 to Syn6",
            ("systems --methods q_fit_global q_fit l2x invase", "q_fit"),
            ("mcc", "q-fit"),
            ("systems --sets Syn1 --methods q_fit_global", "q_fit"),
        ),
        "T2": Part(
            "accuracy by k variables",
            ("tabular --data adult creditcard",),
            ("adult", "creditcard"),
            ("tabular --data adult creditcard --methods q_fit_global",),
            ("adult", "creditcard"),
        ),
        "T3": Part(
            "a 3 or an 8 by k patches",
            ("patches --epochs 24",),
            ("patches",),
            ("patches --methods q_fit",),
            ("MNIST",),
        ),
        "F3, F4": Part(
            "fairness and privacy", ("constraints",), ("constraints",), needs=("adult",)
        ),
    },
    "meed": {
        "T1-T4": Part(
            "whether what is kept carries the model's output",
            ("infidelity",),
            ("infidelity",),
            ("infidelity --sets digits --methods l2x meed",),
            ("MNIST", "FashionMNIST", "imdb"),
        ),
    },
    "xtab": {
        "T1, A3, A4": Part(
            "rankings that agree over runs", ("xtab --runs 10",), ("xtab",), ("xtab --runs 2",)
        ),
    },
}


def cost(part: Part, folder: Path) -> str:
    """Minutes of a processor's core of the last records, and their date."""
    found = [record for name in part.records for record in read(name, folder)]
    if not found:
        return "no record"
    seconds = sum(_seconds(record) for record in found)
    return f"{seconds / 60:.0f} minutes by {len(found)} records of {max(r['date'] for r in found)}"


def _seconds(record: dict[str, Any]) -> float:
    value = record.get("cpu_seconds", record.get("seconds", 0.0))
    return float(value) if isinstance(value, int | float) else 0.0


def listed(parts: dict[tuple[str, str], Part], folder: Path) -> None:
    """Print what can be run, and what it costs."""
    for (paper, table), part in parts.items():
        lacks = f"; no folder {', '.join(part.missing)} in {DATA}" if part.missing else ""
        print(f"{paper:7s}{table:11s}{part.shows}: {cost(part, folder)}{lacks}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paper", nargs="?", choices=[*PAPERS, "all"], help="all are listed if none")
    parser.add_argument("--table", help="of the paper, such as T1")
    options = options_of(parser, small={})
    chosen = {
        (paper, table): part
        for paper, parts in PAPERS.items()
        for table, part in parts.items()
        if options.paper in (paper, "all", None) and options.table in (table, None)
    }
    if not chosen:
        tables = ", ".join(PAPERS.get(options.paper, {})) or "name a paper first"
        parser.error(f"no --table {options.table} of {options.paper}: {tables}")
    listed(chosen, options.results)
    if options.paper is None:
        return
    flags = ["--results", str(options.results)]
    flags += ["--small"] * options.small + ["--again"] * options.again
    for (paper, table), part in chosen.items():
        if part.missing:
            print(f"{paper} {table} is skipped: no folder {', '.join(part.missing)} in {DATA}")
            continue
        for line in (options.small and part.small) or part.runs:
            script, *words = line.split()
            command = [sys.executable, str(FOLDER / f"{script}.py"), *words, *flags]
            subprocess.run(command, check=True)
        for name in part.printed:
            make, file = TABLES[name]
            if records := read(file, options.results):
                print(f"\n{name}\n\n{make(records)}\n", flush=True)


if __name__ == "__main__":
    main()
