"""What `lexppl explain` takes of a table of many rows, by default: seconds and memory.

    python benchmarks/large_table.py                     # 10,000, 100,000 and 300,000 rows
    python benchmarks/large_table.py --rows 300000
    python benchmarks/large_table.py --small             # to see that it runs

A table of planted truth: seven normal columns, a count, an amount, two columns of words and a flag;
which of them decides the class depends on one of the words. Each run is a process of its own.
Seconds of the processor are of all its threads, and those of the wall depend on what else runs; the
memory is the most that it held at once.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from record import Records, options_of, timed

SAME = ("rows",)
LINE = (
    "{rows} rows: {seconds:.0f} s on the wall, {cpu_seconds:.0f} s of the processor, "
    "{megabytes:.0f} MB; {found} of {true} true columns found, {false} false ones"
).format
TRUE = ("a", "b", "count", "region", "kind")


def table(rows: int, seed: int = 0) -> pd.DataFrame:
    """Rows of twelve columns and the target, of which five columns matter."""
    drawn = np.random.default_rng(seed)
    frame = pd.DataFrame({name: drawn.normal(size=rows) for name in "abcdefg"})
    frame["count"] = drawn.poisson(3, rows)
    frame["region"] = drawn.choice(list("rstuvwxy"), rows)
    frame["kind"] = drawn.choice(["first", "second", "third"], rows)
    frame["flag"] = drawn.choice([True, False], rows)
    frame["amount"] = drawn.lognormal(size=rows)
    by_kind = [frame["kind"] == "first", frame["kind"] == "second"]
    logit = np.select(by_kind, [2 * frame["a"], 2 * frame["b"]], frame["count"] - 3)
    logit = logit + 1.5 * (frame["region"] == "r")
    frame["class"] = np.where(drawn.random(rows) < 1 / (1 + np.exp(-logit)), "yes", "no")
    return frame


def explained(path: Path, out: Path, words: list[str]) -> dict[str, float]:
    """Run the program on a table, and what it took."""
    taken: dict[str, float] = {}
    command = [sys.executable, "-m", "lexppl", "explain", str(path), "--out", str(out), "--quiet"]
    with timed(taken):
        process = subprocess.Popen([*command, *words], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"lexppl explain ended with {process.returncode}")
    kilobyte = 1024 if sys.platform == "linux" else 1
    return {
        **taken,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "megabytes": usage.ru_maxrss * kilobyte / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 300_000])
    parser.add_argument("--epochs", type=int, help="in place of the default")
    options = options_of(parser, {"rows": [300], "epochs": 2})
    words = [] if options.epochs is None else ["--epochs", str(options.epochs)]
    records = Records("large_table", SAME, LINE, options)
    for run in records.due({"rows": rows} for rows in options.rows):
        with tempfile.TemporaryDirectory() as folder:
            path, out = Path(folder) / "table.csv", Path(folder) / "results"
            table(run["rows"]).to_csv(path, index=False)
            taken = explained(path, out, words)
            found = pd.read_csv(out / "importance.csv", index_col="feature")["found"]
            kept = set(found.index[found])
            records.add(
                {
                    **run,
                    **taken,
                    "found": len(kept & set(TRUE)),
                    "true": len(TRUE),
                    "false": len(kept - set(TRUE)),
                }
            )


if __name__ == "__main__":
    main()
