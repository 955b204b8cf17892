"""What an explanation of new rows takes: in Python, and by `lexppl explain --with`.

    python benchmarks/latency.py                          # of this working tree
    python benchmarks/latency.py --before 6ba6442         # beside a revision, in turn
    python benchmarks/latency.py --small                  # to see that it runs

Seconds of the processor, on one core, medians of several calls after a first one: E[z | x] of one
row without draws, and 1,000 rows with 100 draws, of fits to 2,000 rows of 30 features; and the
command of 20 rows less what `import torch, pyro` takes, which a revision before it does not have.
Of a server of eight clients (`pip install fastapi uvicorn`) seconds of the clock, a request.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from record import Records, options_of
from sklearn.datasets import load_breast_cancer
from start_up import ROOT, checked_out

ENTRIES = 30
RANGE = {"penalty": (0.005, 0.02, 0.08)}
SYSTEMS = {
    "range": {**RANGE, "hidden": (64, 64), "predictor_hidden": (64,) * 3},
    "k": {"k": 5, "hidden": (64, 64), "predictor_hidden": (64,) * 3},
    "wide": {**RANGE, "hidden": (200, 200), "predictor_hidden": (200,) * 3},
}
"""The usual fit of a table of fewer than 20,000 rows; with five features in each row; of networks
of 200."""
WITH, SERVER = "lexppl explain --with", "a server of eight clients"
CLIENTS, REQUESTS, PORT = 8, 1000, 8765
SAME = ("figure", "code")
LINE = "{code:6s} {figure}: {milliseconds:.2f} ms of a core".format


def calls(figure: str, runs: int) -> list[float]:
    """Seconds of the processor of each call, in this process."""
    import warnings

    import torch

    import lexppl
    from lexppl.inference import fit
    from lexppl.models import GaussianImputer
    from lexppl.systems import lex

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kind, what = figure.split(": ")
    x = torch.randn(2000, ENTRIES, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] + x[:, 1] > 0).long()
    system = lex(ENTRIES, classes=2, imputer=GaussianImputer(), **SYSTEMS[kind])
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


def server(requests: int) -> dict[str, Any]:
    """Of the server of docs/serving.md, one process with eight clients; and of its selector."""
    import torch

    from lexppl import load

    with TemporaryDirectory(prefix="lexppl-latency-") as folder:
        place = Path(folder)
        page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
        program = page.split("```python\n")[1].split("```")[0]
        (place / "server.py").write_text(program, encoding="utf-8")
        table = load_breast_cancer(as_frame=True).frame
        table.to_csv(place / "all.csv", index=False)
        words = ["explain", "all.csv", "--target", "target", "--epochs", "5", "--quiet"]
        of_processor(["-m", "lexppl", *words, "--out", "explanation"], ROOT, place)
        row = json.dumps(table.drop(columns="target").iloc[0].to_dict())
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        words = ["-m", "uvicorn", "server:app", "--port", str(PORT), "--log-level", "error"]
        child = subprocess.Popen([sys.executable, *words], cwd=place, env=environment)
        try:
            answered(row, 60.0)
            with ThreadPoolExecutor(CLIENTS) as pool:
                seconds = list(pool.map(lambda _: answered(row), range(requests)))
        finally:
            child.terminate()
            child.wait()
        explainer = load(place / "explanation" / "explainer").model.eval()
    x, alone = torch.zeros(1, explainer.selector.selector.network.layers[0].in_features), []
    with torch.no_grad():
        for _ in range(requests):
            start = time.perf_counter()
            explainer.selector(x)
            alone.append(time.perf_counter() - start)
    p95, selector_p95 = (1e3 * float(np.quantile(each, 0.95)) for each in (seconds, alone))
    return {
        "milliseconds": 1e3 * median(seconds),
        "p95_milliseconds": p95,
        "selector_p95_milliseconds": selector_p95,
        "clients": CLIENTS,
    }


def answered(row: str, patience: float = 0.0) -> float:
    """Seconds until the server has answered a row; while it starts, connections are refused."""
    end = time.perf_counter() + patience
    while True:
        start = time.perf_counter()
        connection = HTTPConnection("127.0.0.1", PORT, timeout=60)
        try:
            connection.request("POST", "/explain", row, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read().decode()
        except ConnectionRefusedError:
            if time.perf_counter() > end:
                raise
            time.sleep(0.2)
            continue
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"the server answers {answer.status}: {body}")
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    figures = [f"{kind}: {what}" for kind in SYSTEMS for what in ("a row", "1,000 rows")]
    figures += [WITH, SERVER]
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
            if run["figure"] in (WITH, SERVER):
                if run["code"] == "after":
                    count = options.runs if run["figure"] == WITH else REQUESTS
                    found = command(count, ROOT) if run["figure"] == WITH else server(count)
                    records.add({**run, "runs": count, **found})
                continue
            environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
            words = [__file__, "--calls", run["figure"], "--runs", str(options.runs)]
            out = subprocess.check_output([sys.executable, *words], env=environment, text=True)
            seconds = json.loads(out.splitlines()[-1])
            found = {"runs": len(seconds), "seed": 0, "milliseconds": 1e3 * median(seconds)}
            records.add({**run, **found})


if __name__ == "__main__":
    main()
