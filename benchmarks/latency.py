"""What an explanation of new rows takes: in Python, and by `lexppl explain --with`.

    python benchmarks/latency.py                          # of this working tree
    python benchmarks/latency.py --before 6ba6442         # beside a revision, in turn
    python benchmarks/latency.py --small                  # to see that it runs

Seconds of the processor, on one core, medians of several calls after a first one: E[z | x] of one
row without draws, and 1,000 rows with 100 draws, of fits to 2,000 rows of 30 features; and the
command of 20 rows less what `import torch, pyro` takes, which a revision before it does not have.
"""

import argparse
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from record import Records, options_of
from start_up import ROOT, checked_out

ENTRIES = 30
SYSTEMS = {
    "range": {"penalty": (0.005, 0.02, 0.08), "hidden": (64, 64), "predictor_hidden": (64,) * 3},
    "k": {"k": 5, "hidden": (64, 64), "predictor_hidden": (64,) * 3},
    "wide": {"penalty": (0.005, 0.02, 0.08)},
}
"""The usual fit of a table of fewer than 20,000 rows; with five features in each row; of networks
of 200."""
SAME = ("figure", "code")
LINE = "{code:6s} {figure}: {milliseconds:.2f} ms of a core".format


def calls(figure: str, runs: int) -> list[float]:
    """Seconds of the processor of each call, in this process."""
    import time
    import warnings

    import torch

    import lexppl
    from lexppl.inference import fit
    from lexppl.systems import lex

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kind, what = figure.split(": ")
    x = torch.randn(2000, ENTRIES, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] + x[:, 1] > 0).long()
    system = lex(ENTRIES, classes=2, **SYSTEMS[kind])
    result = fit(system, (x, y), epochs=1, progress=False)
    rows, draws = (x[:1], 0) if what == "a row" else (x[:1000], 100)
    seconds = []
    for _ in range(1 + runs):
        start = time.process_time()
        lexppl.explain(result, rows, draws=draws)
        seconds.append(time.process_time() - start)
    return seconds[1:]


def of_processor(words: list[str], tree: Path, place: Path) -> float:
    """Seconds of the processor of a command by a working tree's code."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(
        [sys.executable, *words], cwd=place, env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def command(runs: int, tree: Path) -> dict[str, Any]:
    """Of 20 new rows by the explainer of `lexppl explain`, and of its two largest imports."""
    with TemporaryDirectory(prefix="lexppl-latency-") as folder:
        place = Path(folder)
        table = (
            "from sklearn.datasets import load_breast_cancer as l; f = l(as_frame=True).frame;"
            "f.to_csv('all.csv', index=False);"
            "f.drop(columns='target')[:20].to_csv('new.csv', index=False)"
        )
        of_processor(["-c", table], tree, place)
        fitted = ["explain", "all.csv", "--target", "target", "--epochs", "5", "--quiet"]
        of_processor(["-m", "lexppl", *fitted, "--out", "fit"], tree, place)
        seconds, imports = [], []
        for number in range(1 + runs):
            words = ["-m", "lexppl", "explain", "new.csv", "--with", "fit", "--out", f"o{number}"]
            seconds.append(of_processor(words, tree, place))
            imports.append(of_processor(["-c", "import torch, pyro"], tree, place))
    beyond = median(seconds[1:]) - median(imports[1:])
    return {
        "milliseconds": 1e3 * beyond,
        "command_milliseconds": 1e3 * median(seconds[1:]),
        "import_milliseconds": 1e3 * median(imports[1:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    figures = [f"{kind}: {what}" for kind in SYSTEMS for what in ("a row", "1,000 rows")]
    figures.append("lexppl explain --with")
    parser.add_argument("--before", help="a revision, or a folder with a working tree")
    parser.add_argument("--runs", type=int, default=9, help="of each figure")
    parser.add_argument("--figures", nargs="+", choices=figures, default=figures)
    parser.add_argument("--calls", help=argparse.SUPPRESS)
    if "--calls" in sys.argv:
        options = parser.parse_args()
        print(json.dumps(calls(options.calls, options.runs)))
        return
    options = options_of(parser, {"runs": 1, "figures": figures[:1]})
    records = Records("latency", SAME, LINE, options)
    codes = ["after"] if options.before is None else ["before", "after"]
    other = nullcontext() if options.before is None else checked_out(options.before)
    due = records.due({"figure": f, "code": c} for f in options.figures for c in codes)
    with other as before:
        for run in due:
            tree = before if run["code"] == "before" else ROOT
            if run["figure"] == figures[-1]:
                if run["code"] == "after":
                    records.add({**run, "runs": options.runs, **command(options.runs, ROOT)})
                continue
            environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
            words = [__file__, "--calls", run["figure"], "--runs", str(options.runs)]
            out = subprocess.check_output([sys.executable, *words], env=environment, text=True)
            seconds = json.loads(out.splitlines()[-1])
            found = {"runs": len(seconds), "seed": 0, "milliseconds": 1e3 * median(seconds)}
            records.add({**run, **found})


if __name__ == "__main__":
    main()
