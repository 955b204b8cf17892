"""A table of ten million rows explained chunk by chunk: in one process and on a cluster of two
workers, with the same numbers.

    python benchmarks/many_rows.py                       # 10 million rows
    python benchmarks/many_rows.py --rows 1000000
    python benchmarks/many_rows.py --small               # to see that it runs
    python benchmarks/many_rows.py --work folder         # keeps the table for the next run

The table is that of `large_table.py`, twelve columns of which five decide the class, in Parquet
files. LEX learns from the first of them as they stream. Each run is a process of its own: seconds
of the processor are of all of its processes, and the memory is the most that one of them held at
once. The checksum is of E[z | x] of every row and of the masks' means over rows.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import numpy as np
import xarray as xr
from large_table import table
from record import Records, options_of, timed

from lexppl import load, save
from lexppl.data import ParquetRows, TableEncoding, read_table
from lexppl.explanation import explain_to_zarr
from lexppl.inference import fit
from lexppl.models import Grouping
from lexppl.systems import lex

SAME = ("what", "workers", "size")
LINE = (
    "{what} of {size}, {workers}: {seconds:.0f} s on the wall, {cpu_seconds:.0f} s of the "
    "processor, {megabytes:.0f} MB at most; {checksum}"
).format
WORKERS = {"one process": 0, "two workers": 2}
DRAWS = 2
PART = 500_000
"""Rows of a file."""


def make_table(folder: Path, rows: int) -> None:
    """The table's files, those that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, start in enumerate(range(0, rows, PART)):
        file = folder / f"part.{place}.parquet"
        if not file.is_file():
            aside = folder / "unfinished"
            some = table(min(PART, rows - start), seed=place)
            some.to_parquet(aside, row_group_size=50_000, index=False)
            aside.rename(file)


def make_explainer(work: Path, epochs: int) -> None:
    """LEX, fitted to the rows of the first file as they stream."""
    if (work / "encoding.json").is_file():
        return
    first = work / "table" / "part.0.parquet"
    encoding = read_table(first, "class").encoding
    train, rest = ParquetRows(first, encoding).split(0.5, seed=0)
    del rest
    others = work / "valid.parquet"
    table(10_000, seed=1_000_000).to_parquet(others, index=False)
    grouping = Grouping(encoding.groups, encoding.entry_names)
    system = lex(
        len(encoding.feature_names),
        classes=2,
        penalty=0.02,
        unit=1.0,
        grouping=grouping,
        hidden=(32, 32),
        predictor_hidden=(32, 32),
    )
    result = fit(
        system,
        train,
        valid=ParquetRows(others, encoding),
        folds=1,
        epochs=epochs,
        batch_size=2000,
        progress=False,
    )
    save(result, work / "explainer")
    (work / "encoding.json").write_text(json.dumps(encoding.to_json()))


def checksum(path: Path) -> str:
    """Of what was explained, read chunk by chunk."""
    digest = hashlib.sha256()
    for group, name in (("sample_stats", "selection_probability"), ("predictions", "importance")):
        held = xr.open_zarr(path, group=group, chunks=None, drop_variables="row")[name]
        rows = held.sizes.get("row", 1)
        for start in range(0, rows, 100_000):
            part = held.isel(row=slice(start, start + 100_000)) if "row" in held.dims else held
            digest.update(np.ascontiguousarray(part.values).tobytes())
    return digest.hexdigest()[:16]


def peak() -> float:
    """Megabytes that this process held at most."""
    status = Path("/proc/self/status")
    if status.is_file():
        # getrusage includes the process that started this one.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024 / 1e6
    return getrusage(RUSAGE_SELF).ru_maxrss / 1e6


def explained(work: Path, client: object) -> str:
    """Explain the table, and the checksum of what came."""
    encoding = TableEncoding.from_json(json.loads((work / "encoding.json").read_text()))
    path = work / "posterior.zarr"
    explain_to_zarr(
        load(work / "explainer"),
        work / "table",
        path,
        encoding=encoding,
        draws=DRAWS,
        keep_x=False,
        client=client,
        progress=False,
    )
    found = checksum(path)
    shutil.rmtree(path)
    return found


def work_alone(options: argparse.Namespace) -> None:
    """What a process of its own does; it prints what came as JSON."""
    with ExitStack() as stack:
        client = None
        if options.workers:
            from dask.distributed import Client, LocalCluster

            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=options.workers, threads_per_worker=1, dashboard_address=None
                )
            )
            client = stack.enter_context(Client(cluster))
        found = explained(options.work, client)
        held = [peak(), *(client.run(peak).values() if client is not None else [])]
    print(json.dumps({"checksum": found, "megabytes": max(held)}))


def in_a_process(run: dict[str, object], options: argparse.Namespace) -> dict[str, object]:
    """Start a process for a run, and what it printed and took."""
    words = ["--alone", "--workers", str(WORKERS[str(run["workers"])])]
    words += ["--work", str(options.work)]
    taken: dict[str, float] = {}
    command = [sys.executable, __file__, *map(str, words)]
    with timed(taken):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        printed = process.stdout.read() if process.stdout else ""
        # Of a process and those that it waited for.
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{run} ended with {process.returncode}")
    cpu = usage.ru_utime + usage.ru_stime
    return {**taken, "cpu_seconds": cpu, **json.loads(printed.splitlines()[-1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--epochs", type=int, default=20, help="of the explainer's fit")
    parser.add_argument("--work", type=Path, help="folder of the table; else a temporary one")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=0, help=argparse.SUPPRESS)
    if "--alone" in sys.argv:
        work_alone(parser.parse_args())
        return
    options = options_of(parser, {"rows": 2500, "epochs": 2})
    records = Records("many_rows", SAME, LINE, options)
    with tempfile.TemporaryDirectory() as temporary:
        options.work = Path(temporary) if options.work is None else options.work / str(options.rows)
        runs = [{"what": "explained", "workers": n, "size": options.rows} for n in WORKERS]
        if due := records.due(runs):
            make_table(options.work / "table", options.rows)
            make_explainer(options.work, options.epochs)
        for run in due:
            records.add({**run, **in_a_process(run, options)})
    found = json.loads((options.results / "many_rows.json").read_text())
    same = {r["checksum"] for r in found if r["size"] == options.rows}
    print(f"{options.rows} rows: {'the same numbers' if len(same) == 1 else 'DIFFERENT NUMBERS'}")


if __name__ == "__main__":
    main()
