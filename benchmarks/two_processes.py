"""Seconds an epoch of one process, and of two that share the fit, each with half of each batch.

    python benchmarks/two_processes.py --again       # in the place of what was measured before
    python benchmarks/two_processes.py --small       # to see that it runs

S3, L = 10 masks, LEX with networks of 64 and of 200, batches of 1000 and 4000, one thread a process
(gloo). The two are fitted in turn, each in processes of its own; the median epoch is reported. Two
processes want two cores that nothing else uses.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed
from record import Records, options_of

from lexppl.data import synthetic
from lexppl.inference import fit
from lexppl.systems import lex

STEPS = 10
SAME = ("processes", "batch", "width")
LINE = "{processes} processes, batch {batch}, width {width}: {seconds:.3f} s an epoch".format


def fitted(rank: int, run: dict[str, int], epochs: int, address: str, pipe: Connection) -> None:
    """In a process of its own: the fit, and from the first the seconds of its epochs."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if run["processes"] > 1:
        torch.distributed.init_process_group(
            "gloo", f"file://{address}", rank=rank, world_size=run["processes"]
        )
    widths = (run["width"], run["width"])
    result = fit(
        lex(11, classes=2, penalty=0.02, hidden=widths, predictor_hidden=widths),
        synthetic("S3", rows=STEPS * run["batch"], seed=0),
        valid=None,
        batch_size=run["batch"],
        epochs=epochs + 1,
        progress=False,
    )
    if rank == 0:
        # The first epoch's time holds what is made once.
        pipe.send(result.history.seconds[1:].tolist())


def seconds(run: dict[str, int], epochs: int) -> float:
    """Of the median epoch."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder) / "group")
        started = [
            context.Process(target=fitted, args=(rank, run, epochs, address, there))
            for rank in range(run["processes"])
        ]
        for process in started:
            process.start()
        there.close()
        found: list[float] = here.recv()
        for process in started:
            process.join()
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    options = options_of(parser, small={"epochs": 2})
    os.environ["OMP_NUM_THREADS"] = "1"
    sizes = [(100, 64)] if options.small else [(b, w) for b in (1000, 4000) for w in (64, 200)]
    records = Records("two_processes", SAME, LINE, options)
    runs = [{"processes": p, "batch": b, "width": w} for b, w in sizes for p in (1, 2)]
    for run in records.due(runs):
        records.add({**run, "seconds": seconds(run, options.epochs)})


if __name__ == "__main__":
    main()
