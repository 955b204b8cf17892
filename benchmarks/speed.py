"""What the library's steps and explanations cost, against the same by hand and other libraries.

    OMP_NUM_THREADS=1 python benchmarks/speed.py                  # all of it, what is missing
    OMP_NUM_THREADS=1 python benchmarks/speed.py --only steps     # or replicates, explained, growth
    OMP_NUM_THREADS=1 python benchmarks/speed.py --only answers --beside TREE
    python benchmarks/speed.py --small                            # to see that it runs

*Steps* of `fit` as it is, with `compile="graph"` and with `compile=True`, of four systems, against
the loops of `speed_by_hand.py`: an epoch of the one, then of the other, in processor time where
there is one thread; what is reported is the median of the ratios of such pairs. *Replicates*
against R of them in one batched product by hand. *Explained* rows a second of `explain`, by its
defaults and with `draws=0`, against SHAP and LIME by theirs, of one model, each in a process of its
own. *Answers* to a table by the whole command, against other ways to one (`speed_answers.py`), and
against the command of another tree of the library. *Growth* of a step with D, L, K and G, and of a
fit with N: the slope on a log-log plot over the larger sizes.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import Records, circumstances, options_of
from speed_answers import answers_runs, timed_answers
from speed_by_hand import BY_HAND, ByHand, clock, replicates_by_hand, system

from lexppl import explain
from lexppl.data import synthetic
from lexppl.inference import NestedIWAE, System, TrainingOptions, fit
from lexppl.inference.contexts import program_settings
from lexppl.inference.training.compiled import Backend
from lexppl.inference.training.watch import Epoch
from lexppl.models import GaussianImputer, Grouping
from lexppl.systems import lex

SECTIONS = ("steps", "replicates", "explained", "growth", "answers")
"""Answers are last, and have a file of their own."""
SAME = ("section", "name", "batch", "width", "replicates", "size", "compiled", "threads")
UNTOLD = ("machine", "versions", "python", "date")
ROWS_TIMED = 768
"""Of an epoch that is timed; four steps where that is more."""
UNTIMED = 3
"""Epochs at the start: of compiled steps those that are traced, compiled and checked most."""
SYSTEMS = tuple(BY_HAND)
COMPILED: tuple[bool | Backend, ...] = (False, "graph", True)
REPLICATES = (1, 4, 16, 64)
EXPLAINED = {
    "explain": 20_000,
    "explain, draws=0": 200_000,
    "lime": 5,
    "shap, kernel": 5,
    "shap, permutation": 5,
}
"""Rows that each explains at once."""
GROWTH: dict[str, tuple[int, ...]] = {
    "D": (16, 64, 256, 512, 1024, 2048),
    "L": (2, 4, 16, 64, 256),
    "K": (1, 4, 16, 64, 256),
    "G": (16, 64, 256, 512, 1024, 2048),
    "G, k-subset": (16, 64, 256, 512, 1024, 2048),
    "N": (1_000, 4_000, 16_000, 64_000),
}
SMALL_GROWTH = {name: sizes[:2] for name, sizes in GROWTH.items() if name != "N"} | {"N": (64, 128)}


def line(**record: Any) -> str:
    """What is printed of a record."""
    figures = {
        k: v for k, v in record.items() if k not in ("machine", "versions", "python", "date")
    }
    return ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items()
    )


def pairs(
    ours: System, hand: ByHand, epochs: int, compiled: bool | Backend, replicates: int = 1
) -> dict[str, Any]:
    """Milliseconds a step of `fit` and of the loop by hand, epoch by epoch in turn."""
    taken: list[tuple[float, float]] = []
    last = [0.0]

    def in_turn(epoch: Epoch) -> None:
        seconds = clock() - last[0]
        taken.append((seconds, hand.epoch(epoch.progress)))
        last[0] = clock()

    result = fit(
        ours,
        (hand.x, hand.y),
        valid=None,
        batch_size=hand.batch,
        epochs=epochs + UNTIMED,
        replicates=replicates,
        training=TrainingOptions(compile=compiled, callbacks=[in_turn]),
        progress=False,
    )
    timed = taken[UNTIMED:]
    steps = len(hand.x) / hand.batch / 1e3
    return {
        "library_ms": statistics.median(a for a, _ in timed) / steps,
        "by_hand_ms": statistics.median(b for _, b in timed) / steps,
        "ratio": statistics.median(a / b for a, b in timed),
        "steps": None if result.compiled is None else result.compiled.summary,
    }


def epoch_rows(batch: int) -> int:
    """Of an epoch that is timed."""
    return max(ROWS_TIMED, 4 * batch)


def rows_of(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of S3."""
    data = synthetic("S3", rows=count, seed=0)
    return data.x, data.y


def steps_runs(small: bool) -> Iterator[dict[str, Any]]:
    """The steps that are timed, as records without figures."""
    sizes = [(64, 64)] if small else [(b, w) for b in (64, 1000) for w in (64, 200)]
    for batch, width in sizes:
        for name in SYSTEMS:
            for compiled in (False,) if small else COMPILED:
                yield {
                    "section": "steps",
                    "name": name,
                    "batch": batch,
                    "width": width,
                    "compiled": compiled,
                }


def timed_steps(run: dict[str, Any], epochs: int) -> dict[str, Any]:
    """A system against its loop by hand."""
    batch, width = run["batch"], run["width"]
    hand = BY_HAND[run["name"]](width, *rows_of(epoch_rows(batch)), batch)
    return pairs(system(run["name"], width), hand, epochs, run["compiled"])


def replicates_runs(small: bool) -> Iterator[dict[str, Any]]:
    """The numbers of replicates."""
    for count in (2,) if small else REPLICATES:
        for compiled in (False,) if small else COMPILED:
            yield {
                "section": "replicates",
                "name": "LEX",
                "batch": 64,
                "width": 64,
                "replicates": count,
                "compiled": compiled,
            }


def timed_replicates(run: dict[str, Any], epochs: int) -> dict[str, Any]:
    """R replicates against R in one product by hand."""
    count, width = run["replicates"], run["width"]
    hand = replicates_by_hand(count)(width, *rows_of(epoch_rows(run["batch"])), run["batch"])
    return pairs(system("LEX", width), hand, epochs, run["compiled"], count)


def explained_runs(small: bool) -> Iterator[dict[str, Any]]:
    """The methods, and how many rows each explains."""
    for name, rows in EXPLAINED.items():
        yield {"section": "explained", "name": name, "size": 2 if small else rows}


def explained_apart(run: dict[str, Any]) -> dict[str, Any]:
    """Rows a second and memory of a method, in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--alone", run["name"]]
    done = subprocess.run(
        [*command, "--rows", str(run["size"])], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def explained_alone(name: str, rows: int) -> dict[str, float]:
    """The same, in this one. What a network has learned changes no cost, so it has learned
    nothing."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        program = lex(11, classes=2).program().eval()
    x, background = rows_of(rows)[0], rows_of(100)[0]
    run = explainer_of(name, program, background)
    run(x[:1])
    before, start = peak(), clock()
    run(x)
    seconds = clock() - start
    return {"rows_a_second": rows / seconds, "megabytes": peak() - before, "peak": peak()}


def peak() -> float:
    """MB that the process has held at most."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Of this program alone: what getrusage says begins with that of the process it came from.
        (line,) = (one for one in status.read_text().splitlines() if one.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    kilobyte = 1024 if sys.platform == "linux" else 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kilobyte / 1e6


def explainer_of(
    name: str, program: Any, background: torch.Tensor
) -> Callable[[torch.Tensor], Any]:
    """What explains rows by a method, all by its own defaults."""
    if name.startswith("explain"):
        options = {"draws": 0} if name.endswith("draws=0") else {}
        return lambda x: explain(program, x, **options)

    @torch.no_grad()
    def probabilities(rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = program.predictor(torch.as_tensor(rows).float()).probs.numpy()
        return found

    table = background.double().numpy()
    if name == "lime":
        from lime.lime_tabular import LimeTabularExplainer

        lime = LimeTabularExplainer(table, mode="classification")
        return lambda x: [lime.explain_instance(row, probabilities) for row in x.double().numpy()]
    import shap

    if name == "shap, kernel":
        kernel = shap.KernelExplainer(probabilities, table)
        return lambda x: kernel.shap_values(x.double().numpy(), silent=True)
    permutation = shap.explainers.Permutation(probabilities, table)
    return lambda x: permutation(x.double().numpy(), silent=True)


def growth_runs(small: bool) -> Iterator[dict[str, Any]]:
    """What grows, and its sizes."""
    for name, sizes in (SMALL_GROWTH if small else GROWTH).items():
        for size in sizes:
            yield {"section": "growth", "name": name, "size": size}


def grown(run: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Milliseconds of a step, or of an epoch where rows grow."""
    name, size = run["name"], run["size"]
    widths = {"hidden": (64, 64), "predictor_hidden": (64, 64)}
    if name == "N":
        return {"milliseconds": epoch_seconds(size, rounds, widths) * 1e3}
    features = size if name == "D" else 2048 if name.startswith("G") else 11
    options: dict[str, Any] = {"k": 8} if name == "G, k-subset" else {"penalty": 0.02}
    if name.startswith("G"):
        options["grouping"] = Grouping([d * size // features for d in range(features)])
    counts = {"L": (size, 1), "K": (2, size)}.get(name, (4, 1))
    batch = 16 if features > 11 else 64
    x = torch.randn(batch, features)
    y = (x[:, 0] > 0).long()
    program = lex(features, classes=2, **options, **widths).program()
    loss = NestedIWAE(*counts)(program, None)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3, fused=True)
    taken = []
    with program_settings(validate=False):
        for _ in range(rounds + 2):
            start = clock()
            optimizer.zero_grad()
            loss(x, y).backward()
            optimizer.step()
            taken.append(clock() - start)
    return {"milliseconds": statistics.median(taken[2:]) * 1e3}


def epoch_seconds(rows: int, rounds: int, widths: dict[str, tuple[int, ...]]) -> float:
    """Seconds of an epoch over N rows, in batches of 500."""
    marks = []
    fit(
        lex(11, classes=2, penalty=0.02, folds=1, imputer=GaussianImputer(), **widths),
        rows_of(rows),
        valid=None,
        batch_size=500,
        epochs=min(rounds, 5) + 1,
        training=TrainingOptions(callbacks=[lambda epoch: marks.append(clock())]),
        progress=False,
    )
    return statistics.median(b - a for a, b in pairwise(marks))


def among(run: dict[str, Any], chosen: dict[str, list[Any] | None]) -> bool:
    """Whether a run is one of those that are requested."""
    return all(not values or run.get(name) in (None, *values) for name, values in chosen.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument(
        "--names", nargs="+", help="of the systems, methods or sizes, to leave others out"
    )
    parser.add_argument("--batches", nargs="+", type=int, help="of the steps; all if none")
    parser.add_argument("--widths", nargs="+", type=int, help="of the steps; all if none")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of a ratio, runs of a time")
    parser.add_argument("--beside", type=Path, help="another tree, for the answers")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    if "--alone" in sys.argv:
        options = parser.parse_args()
        with warnings.catch_warnings(action="ignore"):
            print(json.dumps(explained_alone(options.alone, options.rows)))
        return
    options = options_of(parser, small={"rounds": 2})
    threads = circumstances()["threads"]
    torch.set_num_threads(threads)
    records = Records("speed", SAME, line, options)
    sections: dict[str, tuple[Iterator[dict[str, Any]], Callable[..., dict[str, Any]]]] = {
        "steps": (steps_runs(options.small), lambda run: timed_steps(run, options.rounds)),
        "replicates": (
            replicates_runs(options.small),
            lambda run: timed_replicates(run, options.rounds),
        ),
        "explained": (explained_runs(options.small), explained_apart),
        "growth": (growth_runs(options.small), lambda run: grown(run, options.rounds)),
        "answers": (
            answers_runs(options.small),
            lambda run: timed_answers(
                run, options.beside, ("--epochs", "2") if options.small else ()
            ),
        ),
    }
    for section in options.only:
        if section == "answers":
            records = Records("speed_answers", SAME, line, options)
        runs, measure = sections[section]
        chosen = {"name": options.names, "batch": options.batches, "width": options.widths}
        for run in records.due({**r, "threads": threads} for r in runs if among(r, chosen)):
            with program_settings(validate=False), warnings.catch_warnings(action="ignore"):
                records.add({**run, **measure(run)})


if __name__ == "__main__":
    main()
